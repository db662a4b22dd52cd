"""What a run advises: failure detectors, replicas, XFT, profit, hedges, as functions of a time."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from unruly.base.context import Context
from unruly.errors import ParameterError
from unruly.progress import Progress
from unruly.stats import (
    DEFAULT_SLA,
    SlaTable,
    Way,
    Ways,
    profit_of_counts,
    profit_peak,
    quantile,
    replies_of,
)
from unruly.stats.blocks import BLOCKS
from unruly.tables import advice as advice_tables
from unruly.tables import fetch, inline
from unruly.topics.advice import groups, words
from unruly.topics.advice.ground import BYZANTINE, CRASHED, Ground, Key, Wanted, places
from unruly.topics.advice.model import (
    EVERY,
    Absent,
    Advice,
    HedgeAdvice,
    Part,
    PeakAdvice,
    ProfitAdvice,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from unruly.run import Run
    from unruly.topics.advice.model import PartName

SAMPLE_MAX: Final = 50_000
"""Requests of one (cell, op, size) that come into Python, and of all together eight times that."""
REQUESTS_LEAST: Final = 100
EXTRA_MAX: Final = 0.1
"""A hedge that is advised adds at most a tenth to the requests."""
DELAYS: Final = 12
LOADS: Final = ("rate", "rate_hz", "clients", "sessions", "load")
"""Factors of a plan, by the last part of their name, that are loads."""
PROFIT_ASSUMPTION: Final = (
    "Every request pays by its response time ({steps}); one that failed or was open at the end "
    "pays as beyond. Each is worth the same, and those who wait do not leave."
)
HEDGE_ASSUMPTION: Final = (
    "First, k-th and all are what happened to the copies that went to a client's peers (its own "
    "process left out). A single copy and a hedge are what-ifs: the copies that they would not "
    "have sent loaded the servers here, and a copy sent later is taken to meet what the one sent "
    "at once met."
)


def advise(
    run: Run,
    *,
    sla: SlaTable = DEFAULT_SLA,
    sla_name: str = "the default table",
    faults: int = 1,
    confidence: float = 0.99,
    timeouts_ns: Sequence[float] = (),
    window: int | None = None,
    level: float = 0.95,
    crashed: float = CRASHED,
    byzantine: float = BYZANTINE,
    trustworthy: bool | None = None,
) -> Advice:
    """Say what a run advises, as functions of the timeout T or the delay d.

    Parameters
    ----------
    run : Run
        As `unruly.open_run` gives it.
    sla : SlaTable
        What a request pays, by its response time.
    sla_name : str
        How it is called in words.
    faults : int
        f (of VFT) and t (of XFT): 1 or more.
    confidence : float
        The share of windows in which the number of slow peers must hold, in (0, 1).
    timeouts_ns : sequence of float
        Timeouts that are asked about; they join those that the data suggest, and the sentences
        speak of the first one.
    window : int, optional
        Length (ns) of the windows. By default as short as leaves each pair about four replies.
    level : float
        Of the intervals.
    crashed, byzantine : float
        Probabilities that a replica has crashed, and that it is faulty in any other way, for XFT:
        the defaults are an example, because latencies do not show them.
    trustworthy : bool, optional
        What `unruly.analyse` found; carried along.

    Returns
    -------
    Advice
        A part that the run cannot support has no row, and its reason in ``absent``.

    Raises
    ------
    ParameterError
        An option is out of its range.

    Notes
    -----
    Raw rows stay in DuckDB: counts, the slowest reply of each pair in each window, and a bounded
    sample of requests come to Python.

    Examples
    --------
    >>> import unruly
    >>> advice = unruly.advise(unruly.open_run("runs/demo"), timeouts_ns=[40e6])
    >>> point = next(it for it in advice.detection.rows[0].points if it.timeout_ns == 40e6)
    >>> point.false_per_hour.estimate, round(point.detection_max_ns / 1e6)
    (0.0, 140)

    With a timeout of 40 ms nobody was wrongly suspected, and a crash is known within 0.14 s.
    """
    timeouts = tuple(map(float, timeouts_ns))
    wanted = Wanted(faults, confidence, level, timeouts, window, crashed, byzantine)
    _check(wanted)
    context = Context.of(run, Progress())
    if context.empty:
        return _nothing(run, wanted, sla, sla_name, trustworthy)
    ground = Ground.of(context, wanted)
    squares = ground.squares()
    earned = _profit(ground, sla)
    advice = Advice(
        run=run.id,
        name=run.name,
        tag=run.tag,
        trustworthy=trustworthy,
        faults=faults,
        confidence=confidence,
        level=level,
        sla=sla,
        sla_name=sla_name,
        resolution_ns=ground.resolution_ns,
        timeouts_ns=ground.timeouts_ns,
        left_out=ground.left_out,
        detection=groups.detection(ground, squares),
        replicas=groups.replicas(ground, squares),
        xft=groups.cross_faults(ground, squares),
        profit=earned,
        peaks=_peaks(run, earned.rows),
        hedge=_hedge(ground),
    )
    context.progress("")
    return advice


def _check(wanted: Wanted) -> None:
    if wanted.faults < 1:
        raise ParameterError("faults", f"is {wanted.faults}", "1 or more", "--faults 1")
    for name, value in (("confidence", wanted.confidence), ("level", wanted.level)):
        if not 0 < value < 1:
            raise ParameterError(name, f"is {value}", "inside (0, 1)", "0.99 is 99 %")
    for name, value in (("crashed", wanted.crashed), ("byzantine", wanted.byzantine)):
        if not (0 <= value <= 1 and wanted.crashed + wanted.byzantine <= 1):
            raise ParameterError(
                name, f"is {value}", "in [0, 1], both together at most 1", "0.0009 is 0.09 %"
            )
    for value in wanted.timeouts_ns:
        if not (value > 0 and np.isfinite(value)):
            raise ParameterError("timeout", f"is {value} ns", "above 0", "--timeout 40ms")
    if wanted.window_ns is not None and wanted.window_ns <= 0:
        raise ParameterError("window", f"is {wanted.window_ns} ns", "above 0", "1_000_000_000")


def _nothing(
    run: Run, wanted: Wanted, sla: SlaTable, sla_name: str, trustworthy: bool | None
) -> Advice:
    why = (
        "the run has histograms and no single requests"
        if run.keeps_bins_alone
        else "nothing was measured"
    )
    absent = (Absent(EVERY, EVERY, why),)

    def part(name: PartName) -> Part[Any]:
        return Part(name, "", "", (), absent)

    return Advice(
        run.id, run.name, run.tag, trustworthy, wanted.faults, wanted.confidence, wanted.level,
        sla, sla_name, 1.0, (), {}, part("detection"), part("replicas"), part("xft"),
        part("profit"), (), part("hedge"),
    )  # fmt: skip


def _profit(ground: Ground, sla: SlaTable) -> Part[ProfitAdvice]:
    """What each cell earns, over all of its ops."""
    context = ground.context
    context.progress("profit")
    where = places(context, whole_cell=True)
    frame = fetch(advice_tables.paid(ground.requests, where, sla.at_most_ns, BLOCKS))
    lengths = context.lengths_ns
    rows, absent = [], []
    for cell, part in frame.groupby("cell"):
        counts = np.zeros((len(sla.pays), BLOCKS))
        counts[part["step"], part["block"]] = part["n"]
        requests = int(counts.sum())
        if lengths[cell] <= 0 or requests < REQUESTS_LEAST:
            reason = f"{requests} requests; {REQUESTS_LEAST} over some time are needed"
            absent.append(Absent(str(cell), EVERY, reason))
            continue
        found = profit_of_counts(
            counts, sla, duration_ns=float(lengths[cell]), level=ground.wanted.level
        )
        rows.append(
            ProfitAdvice(
                str(cell), EVERY, requests, int(part["failed"].sum()), found,
                words.profit(
                    "the run" if len(lengths) == 1 else f"the cell {cell}", found, requests
                ),
            )
        )  # fmt: skip
    return Part(
        "profit",
        "What does it earn?",
        PROFIT_ASSUMPTION.format(steps=words.steps(sla)),
        tuple(rows),
        tuple(absent),
    )


def _peaks(run: Run, rows: Sequence[ProfitAdvice]) -> tuple[PeakAdvice, ...]:
    """Cells that differ in one load alone, with where profit falls as it grows."""
    earned = {row.cell: row.profit.per_hour for row in rows}
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, str]]] = {}
    for cell in run.manifest.get("cells") or []:
        factors = {str(k): str(v) for k, v in (cell.get("factors") or {}).items()}
        for name, value in factors.items():
            load = load_of(value)
            if name.split(".")[-1] in LOADS and load is not None and cell["name"] in earned:
                others = tuple(sorted((k, v) for k, v in factors.items() if k != name))
                found.setdefault((name, others), []).append((load, str(cell["name"])))
    peaks = []
    for (factor, others), held in found.items():
        held.sort()
        loads = tuple(load for load, _ in held)
        if len(set(loads)) < 2 or len(set(loads)) < len(loads):
            continue
        cells = tuple(cell for _, cell in held)
        per_hour = tuple(earned[cell] for cell in cells)
        peak = profit_peak(loads, per_hour)
        sentence = words.peak(factor, dict(others), peak)
        peaks.append(PeakAdvice(factor, dict(others), loads, cells, per_hour, peak, sentence))
    return tuple(peaks)


def load_of(value: str) -> float | None:
    """Read a load as a plan writes it; None when it is no number.

    Examples
    --------
    >>> load_of("5200"), load_of("2k/s"), load_of("closed")
    (5200.0, 2000.0, None)
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([kM]?)(?:/s|Hz| ?per second)?", value.strip())
    if found is None:
        return None
    return float(found[1]) * {"": 1.0, "k": 1e3, "M": 1e6}[found[2]]


def _hedge(ground: Ground) -> Part[HedgeAdvice]:
    """First, k-th, all, single and hedges, of the largest groups of each op."""
    sizes = fetch(advice_tables.group_sizes(ground.requests))
    wanted = set(ground.subjects)
    sizes = sizes[
        [(str(c), str(o)) in wanted for c, o in zip(sizes["cell"], sizes["op"], strict=True)]
    ]
    rows, absent = [], list(ground.too_many)
    # the largest groups that have enough requests; a copy to oneself is no peer's
    chosen: dict[Key, dict[str, Any]] = {}
    for record in sizes.to_dict("records"):
        key = str(record["cell"]), str(record["op"])
        peers = int(record["size"]) - (key in ground.meshed)
        if int(record["n"]) >= REQUESTS_LEAST and peers > 1:
            chosen[key] = record | {"peers": peers}
    most = min(SAMPLE_MAX, 8 * SAMPLE_MAX // max(1, len(chosen)))
    frame = _sampled(ground, chosen, most)
    for key in ground.subjects:
        part = frame.get(key)
        if part is None or len(part) < REQUESTS_LEAST:
            absent.append(
                Absent(*key, f"no {REQUESTS_LEAST} requests that went to two peers or more")
            )
        else:
            rows.append(_hedged(ground, key, chosen[key], part))
    return Part(
        "hedge",
        "What would the first response, or a second copy, save?",
        HEDGE_ASSUMPTION,
        tuple(rows),
        tuple(absent),
    )


def _sampled(
    ground: Ground, chosen: dict[Key, dict[str, Any]], most: int
) -> dict[Key, pd.DataFrame]:
    if not chosen:
        return {}
    ground.context.progress("ways of asking")
    shares = inline(
        [
            {
                "cell": cell,
                "op": op,
                "size": int(record["size"]),
                "share": min(1.0, most / int(record["n"])),
            }
            for (cell, op), record in chosen.items()
        ]
    )
    frame = fetch(advice_tables.sampled(ground.requests, places(ground.context), shares, BLOCKS))
    return {(str(cell), str(op)): part for (cell, op), part in frame.groupby(["cell", "op"])}


def _hedged(ground: Ground, key: Key, record: dict[str, Any], part: pd.DataFrame) -> HedgeAdvice:
    table = _peers_only(part, own=key in ground.meshed)
    delays = _delays(table)
    ways = replies_of(table, delays, blocks=part["block"].to_numpy(), level=ground.wanted.level)
    one_group = int(record["labels"]) == 1 and key not in ground.meshed
    servers = tuple(int(s) for s in part["servers"].iloc[0]) if one_group else None
    # a column is a server only where all requests asked the same ones
    named = [f"server {number}" for number in servers or ()]
    fixed = tuple(replace(way, name=name) for way, name in zip(ways.fixed, named, strict=False))
    ways = replace(ways, fixed=fixed)
    best = best_hedge(ways)
    return HedgeAdvice(
        key[0], key[1], table.shape[1], len(table), int(record["n"]), servers, ways,
        best.delay_ns if best is not None else None,
        words.hedge(key[1], table.shape[1], ways, best),
    )  # fmt: skip


def _peers_only(part: pd.DataFrame, *, own: bool) -> NDArray[np.float64]:
    """Replies as a matrix, without the copy that a client sent to itself."""
    table = np.array(part["replies"].tolist(), dtype=np.float64)
    if not own:
        return table
    servers = np.array(part["servers"].tolist(), dtype=np.int64)
    mine = servers == part["client"].to_numpy()[:, None]
    # a client that did not ask itself has no copy of its own: leave out its last reply
    none = ~mine.any(axis=1)
    mine[none, -1] = True
    others: NDArray[np.float64] = table[~mine].reshape(len(table), table.shape[1] - 1)
    return others


def _delays(table: NDArray[np.float64]) -> list[float]:
    """From the median of a single reply to its p99.9, evenly on a log scale, two digits each."""
    low, high = (quantile(table.ravel(), p) for p in (0.5, 0.999))
    if not np.isfinite(low) or low <= 0:
        return []
    finite = table[np.isfinite(table)]
    top = high if np.isfinite(high) else float(finite.max())
    return sorted({float(f"{d:.2g}") for d in np.geomspace(low, max(top, low), DELAYS)})


def best_hedge(ways: Ways) -> Way | None:
    """Return the hedge with the shortest p99 that adds at most a tenth and surely helps.

    Surely: its p99 is below the whole interval of the single copy's. None when there is none.
    """
    single = ways.single.p99
    bound = single.low if single.low is not None else single.estimate
    found: list[tuple[float, Way]] = []
    for way in ways.hedges:
        p99 = way.quantiles[0.99]
        cheap = way.extra is not None and (way.extra.estimate or 0.0) <= EXTRA_MAX
        if cheap and p99 is not None and (bound is None or p99 < bound):
            found.append((p99, way))
    return min(found, key=lambda it: it[0])[1] if found else None
