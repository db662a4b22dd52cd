"""Analyse a run: the shared passes over the trace, then every topic, then the rules."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from unruly.base import cells as cell_part
from unruly.base import distrust, histograms, receivers, synchrony
from unruly.base import statuses as status_part
from unruly.base import worked as worked_part
from unruly.base.analysis import Analysis
from unruly.base.bare_matrix import BareMatrix, bare_matrices
from unruly.base.context import Context
from unruly.base.model import Conservation, Correlations, Options, SelfDistrust, SlowNodes
from unruly.base.part import Part
from unruly.base.quantiles import ROWS_MOST, oversized, quantiles_of
from unruly.base.tails import target_of
from unruly.errors import ParameterError
from unruly.progress import Progress
from unruly.tables import fetch
from unruly.tables import requests as request_tables
from unruly.topics.registry import TOPICS
from unruly.topics.rules import find
from unruly.topics.topic import Asked, Look

if TYPE_CHECKING:
    from unruly.base.target import Target
    from unruly.run import Run

FLOOR_NS = 50_000
PARTS_AT_ONCE = 2
"""While Python works on the numbers of one part, the engine reads the next."""
TIMELINE_BINS = 600
TIMELINE = (0.5, 0.99)
OUTLIERS_OK = 1_500
OUTLIERS_FAILED = 500
TIMELINE_COLUMNS = ["op", "bin", "started_ns", "ended_ns", "n", "failed", "p50", "p99", "max"]
OUTLIER_COLUMNS = [
    "intended_ns", "cell", "repeat", "op", "sender", "receiver", "request", "attempt", "response",
    "service", "send_lag", "status",
]  # fmt: skip


def analyse(
    run: Run,
    *,
    window: int | None = None,
    factor: float = 2.0,
    percentile: float = 0.9,
    floor_ns: int | None = None,
    pictures: bool = True,
    interactions: bool = False,
    slow_beyond_ns: int | None = None,
    target: Target | None = None,
    causes: bool = True,
) -> Analysis:
    """Compute all numbers and findings of one run.

    Parameters
    ----------
    run : Run
        As `unruly.open_run` gives it.
    window : int, optional
        Length (ns) of the windows in which slow nodes are judged. By default one day, the regroup
        period of each cell's plan, or a third to a sixth of a short run.
    factor, percentile : float
        A node is slow for an observer when this percentile is at least `factor` times that of the
        fastest node of the group.
    floor_ns : int, optional
        It must also exceed the fastest by more than this: by default the largest noise floor of the
        manifest's hosts, else 50 us.
    pictures : bool
        Without them, what only a report shows stays empty: the breakdowns, the timeline, outliers,
        distributions, and the curves of a matrix. Every number of the summary is the same.
    interactions : bool
        Of a matrix the analyses of variance have the interactions of every two factors as well.
    slow_beyond_ns : int, optional
        Causes are looked for of requests that took longer than this (ns); by default than the p99.9
        of their (cell, op).
    target : Target, optional
        What share of requests is to be within which time. By default 99.999 % within 500 ms for a
        run that drives a store, and nothing for others.
    causes : bool
        Without them it is not asked what made the slow requests slow, which takes a third of the
        time of a small run.

    Returns
    -------
    Analysis

    Raises
    ------
    ParameterError
        An option is out of its range.
    TraceError
        The counts of the manifest do not hold.

    Notes
    -----
    Raw rows stay in the engine; only aggregates, histograms and bounded samples come to Python.
    Rows of the warm-up are left out of everything but conservation. Progress goes to stderr after
    two seconds.

    Examples
    --------
    >>> import unruly
    >>> analysis = analyse(unruly.open_run("runs/demo"))
    >>> round(analysis.cell("null").promise_p99.high / 1e6, 2)
    0.32

    99 % of null requests are answered within that many milliseconds, with 95 % confidence.
    """
    _check(window, factor, percentile, floor_ns, slow_beyond_ns)
    conservation = distrust.conservation(run)
    context = Context.of(run, Progress())
    windows_ns = synchrony.windows_ns(context, window)
    longest_ns = synchrony.DAY_NS if window is None else window
    options = Options(
        max(windows_ns.values(), default=longest_ns),
        factor,
        percentile,
        floor_ns if floor_ns is not None else _floor_ns(run),
        windows_ns,
    )
    imported = histograms.summarise(run, TIMELINE_BINS)
    asked = Asked(
        options=options,
        pictures=pictures,
        interactions=interactions,
        causes=causes,
        slow_beyond_ns=slow_beyond_ns,
        target=target_of(context, target),
        several=context.extents["cell"].nunique() > 1 or imported is not None,
    )
    if context.empty:
        return _found(_empty(context, options, conservation, imported), context, asked, None)
    read = _passes(context, asked)
    found = _whole(context, options, conservation, read, imported, pictures=pictures)
    found = _found(found, context, asked, read)
    context.progress("")
    return found


def _found(analysis: Analysis, context: Context, asked: Asked, read: _Read | None) -> Analysis:
    """Return the analysis with the judgement of every topic and the findings of all rules."""
    judged: dict[str, object] = {}
    for topic in TOPICS:
        judged[topic.name] = None
        if (read is not None or topic.measures_nothing) and topic.applies(context, asked):
            look = Look(
                context,
                asked,
                read.cells.summaries if read else analysis.cells,
                analysis.cells,
                read.cells.far if read else {},
                read.nodes.whole.get(topic.name) if read else None,
                [part[topic.name] for part in read.parts if topic.name in part] if read else [],
            )
            judged[topic.name] = topic.judge(look)
    worked, measured_ns = worked_part.worked(context, analysis.cells), analysis.measured_ns
    if context.empty and not analysis.cells:
        for topic in TOPICS:
            model = judged[topic.name]
            if topic.worked is not None and model is not None:
                measured_ns, worked = topic.worked(model)
    analysis = replace(analysis, topics=judged, worked=worked, measured_ns=measured_ns)
    return replace(analysis, findings=find(analysis))


def _whole(
    context: Context,
    options: Options,
    conservation: Conservation,
    read: _Read,
    imported: histograms.Histograms | None,
    *,
    pictures: bool,
) -> Analysis:
    """Put together what the shared passes gave."""
    extents, summarised, nodes = context.extents, read.cells, read.nodes
    statuses, connections = status_part.statuses(context)
    summaries = summarised.summaries + (imported.summaries if imported else [])
    return Analysis(
        run=context.run,
        options=options,
        started_ns=int(extents["first_ns"].min()),
        ended_ns=int(extents["end_ns"].max()),
        cells=summaries,
        groups=nodes.groups.summaries,
        by=synchrony.complete(nodes.by, nodes.groups, summarised.summaries)
        if pictures
        else _no_breakdowns(),
        timeline=_joined(nodes.timeline, imported.timeline if imported else None),
        outliers=nodes.outliers,
        distribution=_joined(summarised.distribution, imported.distribution if imported else None),
        group_distribution=nodes.groups.distribution,
        slow_nodes=nodes.slow,
        correlations=receivers.correlations(
            context, nodes.pairing, summarised.log_means, summarised.summaries
        ),
        decomposition=synchrony.decomposition(nodes.by["pairs"]),
        conservation=conservation,
        self_distrust=replace(
            nodes.distrust,
            tail_rows=summarised.tail_rows,
            # with virtual machines among the clients it is no share of the generator's
            tail_explained_share=None
            if len(context.measured_clients)
            else summarised.tail_explained_share,
        ),
        blind_spot=cell_part.blind_spots(summaries, context.run.timeless),
        findings=[],
        processes=_processes(context.run),
        measured_ns=float(context.lengths_ns.sum()),
        worked=worked_part.NOTHING,
        bare_matrices=nodes.bare_matrices,
        statuses=statuses,
        connections=connections,
    )


def _no_correlations(why: str) -> Correlations:
    return Correlations(None, None, receivers.UNIT, (), {}, why)


@dataclass(frozen=True)
class _Read:
    """All data read from the trace before the topics judge it."""

    cells: cell_part.Cells
    nodes: _Nodes
    parts: list[dict[str, object]]
    """The measurements of the topics, by name, for each part of the run."""


def _passes(context: Context, asked: Asked) -> _Read:
    """Read the trace.

    The engine leaves a core idle between its passes. So two parts are read at a time, and another
    thread reads the data about the whole run.
    """
    by_part = [it for it in TOPICS if it.measure_part and it.applies(context, asked)]

    def look(part: Context) -> tuple[cell_part.Cells, dict[str, object]]:
        context.progress(f"cells from {part.extents['cell'].iloc[0]}")
        with Part.kept(part.fork()) as held:
            cells = cell_part.summarise(held, pictures=asked.pictures, target=asked.target)
            found = {it.name: it.measure_part(held, cells) for it in by_part if it.measure_part}
            return cells, found

    with ThreadPoolExecutor(PARTS_AT_ONCE) as threads, ThreadPoolExecutor(1) as beside:
        whole = beside.submit(_nodes, context.fork(), asked)
        parts = list(threads.map(look, context.parts()))
        nodes = whole.result()
    cells = cell_part.Cells.joined([cells for cells, _ in parts])
    return _Read(cells, nodes, [found for _, found in parts])


@dataclass(frozen=True)
class _Nodes:
    """The half of the analysis that needs no summary of a cell."""

    pairing: receivers.Pairing
    groups: synchrony.Groups
    by: dict[str, pd.DataFrame]
    slow: SlowNodes
    timeline: pd.DataFrame
    outliers: pd.DataFrame
    distrust: SelfDistrust
    bare_matrices: tuple[BareMatrix, ...]
    whole: dict[str, object]
    """The measurements of the topics, by name, for the whole run."""


def _nodes(context: Context, asked: Asked) -> _Nodes:
    pictures, options = asked.pictures, asked.options
    pairing = receivers.pair(context)
    groups = synchrony.groups(context, pictures=pictures)
    slow = synchrony.slow_nodes(context, options)
    doubt = distrust.self_distrust(context)
    whole = {
        it.name: it.measure(context, asked)
        for it in TOPICS
        if it.measure and it.applies(context, asked)
    }
    matrices = bare_matrices(context, options)
    if not pictures:
        by = {"pairs": synchrony.pairs_alone(context)}
        none = pd.DataFrame(columns=TIMELINE_COLUMNS), pd.DataFrame(columns=OUTLIER_COLUMNS)
        return _Nodes(pairing, groups, by, slow, *none, doubt, matrices, whole)
    by = synchrony.breakdowns(context)
    context.progress("timeline")
    timeline = _timeline(context, int(context.extents["first_ns"].min()))
    outliers = _outliers(context)
    return _Nodes(pairing, groups, by, slow, timeline, outliers, doubt, matrices, whole)


def _no_breakdowns() -> dict[str, pd.DataFrame]:
    """Every breakdown, empty."""
    breakdown = ["latency", "op", "n", "failed", "p50", "p90", "p99", "max"]
    extra = {
        "by_op": [],
        "by_size": ["size"],
        "by_sender": ["sender"],
        "by_receiver": ["receiver"],
        "pairs": ["sender", "receiver"],
    }
    return {
        name: pd.DataFrame(columns=[*breakdown[:2], *more, *breakdown[2:]])
        for name, more in extra.items()
    }


def _check(
    window: int | None,
    factor: float,
    percentile: float,
    floor_ns: int | None,
    slow_beyond_ns: int | None,
) -> None:
    if window is not None and window <= 0:
        raise ParameterError("window", f"is {window} ns", "above 0", "window = 60_000_000_000")
    if factor <= 1:
        raise ParameterError("factor", f"is {factor}", "above 1", "factor = 2.0")
    if not 0 < percentile < 1:
        raise ParameterError("percentile", f"is {percentile}", "in (0, 1)", "percentile = 0.9")
    if floor_ns is not None and floor_ns < 0:
        raise ParameterError("floor_ns", f"is {floor_ns}", "0 or more", "floor_ns = 50_000")
    if slow_beyond_ns is not None and slow_beyond_ns <= 0:
        raise ParameterError(
            "slow_beyond_ns", f"is {slow_beyond_ns}", "above 0", "slow_beyond_ns = 100_000_000"
        )


def _floor_ns(run: Run) -> int:
    hosts = run.manifest.get("hosts") or []
    known = [host.get("noise_floor_ns") for host in hosts if isinstance(host, dict)]
    return int(max((value for value in known if value), default=FLOOR_NS))


def _processes(run: Run) -> int:
    processes = run.manifest.get("processes") or []
    return len({str(p.get("name")) for p in processes if isinstance(p, dict)})


def _timeline(context: Context, first_ns: int) -> pd.DataFrame:
    span = int(context.extents["last_ns"].max()) - first_ns + 1
    bin_ns = max(1, -(-span // TIMELINE_BINS))
    rows = request_tables.in_bins(context.rows, first_ns, bin_ns)
    keys = ["op", "bin"]
    if not oversized(context.size):
        frame = quantiles_of(rows, keys, TIMELINE, context.size, latencies=("response",))
    else:
        sizes = fetch(request_tables.extremes(rows, ["bin"], ())).set_index("bin")["n"]
        piece = (sizes.cumsum() - sizes) // ROWS_MOST
        frame = pd.concat(
            quantiles_of(
                rows.filter(rows.bin.between(int(part.index.min()), int(part.index.max()))),
                keys, TIMELINE, int(part.sum()), latencies=("response",),
            )
            for _, part in sizes.groupby(piece)
        ).sort_values(keys, ignore_index=True)  # fmt: skip
    frame["started_ns"] = first_ns + frame["bin"].astype("int64") * bin_ns
    frame["ended_ns"] = frame["started_ns"] + bin_ns
    for place, name in enumerate(("p50", "p99")):
        values = frame["response"].map(lambda found, at=place: float(found[at]))
        frame[name] = values.where(np.isfinite(values))
    frame["max"] = frame["response_max"].astype(float)
    return frame[TIMELINE_COLUMNS]


def _outliers(context: Context) -> pd.DataFrame:
    parts = [
        fetch(request_tables.failed(context.rows, OUTLIERS_FAILED)),
        fetch(request_tables.slowest(context.rows, OUTLIERS_OK)),
    ]
    frame = pd.concat([part for part in parts if len(part)], ignore_index=True)
    for number, target, sends in (("client", "sender", True), ("server", "receiver", False)):
        frame[target] = [
            context.name(int(node), sends=sends, cell=cell, repeat=int(repeat))
            for node, cell, repeat in zip(
                frame[number], frame["cell"], frame["repeat"], strict=True
            )
        ]
    for name in request_tables.LATENCIES:
        frame[name] = frame[name].where(frame[name] != request_tables.INFINITY).astype(float)
    return frame[OUTLIER_COLUMNS]


def _joined(rows: pd.DataFrame, more: pd.DataFrame | None) -> pd.DataFrame:
    return rows if more is None else pd.concat([rows, more], ignore_index=True)


def _empty(
    context: Context,
    options: Options,
    conservation: Conservation,
    imported: histograms.Histograms | None,
) -> Analysis:
    """The analysis of a run without a row: histograms alone, or every part there and empty."""
    summaries = imported.summaries if imported else []
    return Analysis(
        run=context.run,
        options=options,
        started_ns=imported.first_ns if imported and imported.length_ns else None,
        ended_ns=imported.last_ns if imported and imported.length_ns else None,
        cells=summaries,
        groups=[],
        by=_no_breakdowns(),
        timeline=imported.timeline if imported else pd.DataFrame(columns=TIMELINE_COLUMNS),
        outliers=pd.DataFrame(columns=OUTLIER_COLUMNS),
        distribution=imported.distribution if imported else cell_part.no_distribution(),
        group_distribution=pd.DataFrame(
            columns=["cell", "op", "size", "k", "low_ns", "high_ns", "count"]
        ),
        slow_nodes=synchrony.nothing(),
        correlations=_no_correlations(
            "the run has histograms and no single requests" if imported else "nothing was measured"
        ),
        decomposition=pd.DataFrame(
            columns=["op", "sender_share", "receiver_share", "pair_share", "pairs"]
        ),
        conservation=conservation,
        self_distrust=distrust.self_distrust(context),
        blind_spot=cell_part.blind_spots(summaries, context.run.timeless),
        findings=[],
        processes=_processes(context.run),
        measured_ns=imported.length_ns if imported else 0.0,
        worked=worked_part.NOTHING,
    )
