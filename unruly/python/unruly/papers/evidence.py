"""The numbers of a run that the judges read: few enough to keep beside their verdicts.

Each class has the names of the value in the analysis, or in its ``summary.json``, and fewer of
them. So `restored` makes it from either, and from the file that is kept of an earlier run. A value
that cannot be said is None, as there.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import UTC, datetime
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin, get_type_hints

from unruly.base.cells import histograms_of
from unruly.base.context import Context
from unruly.papers.chains import Loaded, loaded
from unruly.papers.three_tier import Recovered, SlowRequests, recovered, slow_requests
from unruly.stats import Interval, block_interval
from unruly.tables import fetch
from unruly.topics.arrival_log.model import arrival_log_of
from unruly.topics.factors.statistics import factors_of, system_of
from unruly.topics.stores.statistics import stores_of
from unruly.topics.streams.model import streams_of

if TYPE_CHECKING:
    import pandas as pd

    from unruly.base.analysis import Analysis

SECOND_NS: Final = 1e9
HELD_BACK_LEAST: Final = 0.05
"""A CPU limit made a node slow if it held it back for this share of a window or more."""
FAULT: Final = "fault "


@dataclass(frozen=True)
class Facts:
    """Which run it is, and whether it can be trusted; ``trustworthy`` is None if nobody knows.

    ``trial_s`` is the measured time of one cell in one repeat, and ``planned_s`` that of the plan.
    ``store`` is what a plan without a matrix drives.
    """

    run: str
    plan: str
    tag: str = ""
    date: str = ""
    commit: str | None = None
    host: str | None = None
    trial_s: float | None = None
    planned_s: float | None = None
    trustworthy: bool | None = None
    doubts: tuple[str, ...] = ()
    store: str | None = None
    kept: str | None = None
    """Where its numbers are kept, below the root of the repository; None where they are not."""


@dataclass(frozen=True)
class Cell:
    """One configuration of a matrix."""

    cell: str
    system: str
    n: int
    mean: float | None = None
    p99: float | None = None
    largest: float | None = None
    over_3_sigma: int | None = None
    p99_over_mean: Interval | None = None
    mean_after: float | None = None
    p99_after: float | None = None
    largest_after: float | None = None
    dip: float | None = None
    dip_q: float | None = None
    factors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Effect:
    """How much of a measure one factor explains of what the others leave."""

    factor: str
    partial: Interval | None = None


@dataclass(frozen=True)
class Explained:
    """All factors of one measure."""

    measure: str
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True)
class Line:
    """p99 against mean."""

    slope: Interval | None
    r: float | None
    n: int
    reason: str = ""


@dataclass(frozen=True)
class Rank:
    """Spearman's coefficient over cells."""

    of: str
    against: str
    rho: float
    cells: int


@dataclass(frozen=True)
class Matrix:
    """The view of a matrix; ``lines`` by system, and ``"*"`` over all."""

    cells: tuple[Cell, ...] = ()
    explained: tuple[Explained, ...] = ()
    lines: dict[str, Line] = field(default_factory=dict)
    count_against_size: Rank | None = None
    resources: tuple[Rank, ...] = ()


@dataclass(frozen=True)
class End:
    """The cost of one end of a stream."""

    cpu_per_message_ns: Interval | None = None


@dataclass(frozen=True)
class Stream:
    """One protocol beside one load."""

    protocol: str
    load: str
    link_bps: float | None
    bandwidth_bps: Interval | None
    of_unloaded: Interval | None
    writer: End
    reader: End
    in_doubt: bool


@dataclass(frozen=True)
class Latency:
    """Response times of one (cell, op)."""

    cell: str
    op: str
    p50: float | None
    p99: float | None
    p99_interval: Interval | None


@dataclass(frozen=True)
class Group:
    """The wait for all replies of a group of a size; ``level`` is ``"all"``."""

    cell: str
    op: str
    size: int
    level: str
    p50: float | None


@dataclass(frozen=True)
class Overlap:
    """How far the slow sets of two observers overlap in one window: the mean over all pairs.

    ``struck`` are the nodes that the plan made slow in that window: by a fault, or by a CPU limit
    that held them back.
    """

    cell: str
    repeat: int
    window: int
    jaccard: float
    struck: tuple[str, ...]


@dataclass(frozen=True)
class Metric:
    """One resource against latency."""

    metric: str
    pearson: Interval


@dataclass(frozen=True)
class Target:
    """The share of requests within the target."""

    within: Interval
    outcome: str


@dataclass(frozen=True)
class Tail:
    """The far tail of one (cell, op) of a store."""

    cell: str
    op: str
    n: int
    failed: int
    mean_ok: float | None
    max_ok: float | None
    over_10x_mean: int | None
    p99_999_over_mean: Interval | None
    target: Target


@dataclass(frozen=True)
class Fault:
    """What clients saw while a fault struck a store; ``gap_ns`` is the longest silence."""

    cell: str
    kind: str
    gap_ns: float | None


@dataclass(frozen=True)
class Load:
    """The factors of a cell that drives a store."""

    cell: str
    factors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stores:
    """A run that drives stores."""

    tails: tuple[Tail, ...] = ()
    faults: tuple[Fault, ...] = ()
    loads: tuple[Load, ...] = ()

    def store_of(self, cell: str, otherwise: str | None) -> str:
        """Return the store of a cell, by its factors; `otherwise` without one."""
        held = next((it.factors for it in self.loads if it.cell == cell), {})
        found = system_of(held)
        return (otherwise or "") if found == "all" else found


@dataclass(frozen=True)
class Wait:
    """How long the same operations take with one algorithm."""

    measure: str
    n: int
    mean_ok: Interval | None
    max_ok: float | None
    p99_interval: Interval | None


@dataclass(frozen=True)
class Outliers:
    """Operations beyond ten times the mean of the quorum, and those not so at the first copy."""

    n: int
    vanished: int
    share: Interval | None


@dataclass(frozen=True)
class Slow:
    """One of the slowest operations by quorum."""

    first_ns: float | None
    quorum_ns: float


@dataclass(frozen=True)
class Operations:
    """One (cell, op) of an arrival log."""

    cell: str
    op: str
    n: int
    waits: tuple[Wait, ...] = ()
    outliers: Outliers | None = None
    slowest: tuple[Slow, ...] = ()

    def wait(self, measure: str) -> Wait | None:
        """Return that of ``"first"``, ``"quorum"`` or ``"all"``; None where there is none."""
        return next((it for it in self.waits if it.measure == measure), None)


@dataclass(frozen=True)
class Evidence:
    """What is known of one run; a part is None or empty where the run has no such thing.

    ``medians`` has the median of each operation with its interval, from the blocks of its time.
    """

    facts: Facts
    matrix: Matrix | None = None
    streams: tuple[Stream, ...] = ()
    latencies: tuple[Latency, ...] = ()
    groups: tuple[Group, ...] = ()
    medians: dict[str, Interval] = field(default_factory=dict)
    overlaps: tuple[Overlap, ...] = ()
    metrics: tuple[Metric, ...] = ()
    paired_share: float | None = None
    stores: Stores | None = None
    arrivals: tuple[Operations, ...] = ()
    chains: tuple[Loaded, ...] = ()
    recoveries: tuple[Recovered, ...] = ()
    slow_requests: tuple[SlowRequests, ...] = ()


def restored(kind: Any, held: Any) -> Any:
    """Return a value of a type from an object, or JSON object, that has at least its names.

    Parameters
    ----------
    kind : type
        One of the classes above, `Interval`, a plain type, or a tuple, dict or option of these.
    held : object
        NaN and missing values become None, or empty.
    """
    if get_origin(kind) is tuple:
        return tuple(restored(get_args(kind)[0], it) for it in held or ())
    if get_origin(kind) is dict:
        return {str(key): restored(get_args(kind)[1], it) for key, it in (held or {}).items()}
    if NoneType in get_args(kind):
        if held is None or (isinstance(held, float) and math.isnan(held)):
            return None
        (kind,) = (it for it in get_args(kind) if it is not NoneType)
    if is_dataclass(kind):
        make: Any = kind
        hints = get_type_hints(kind)
        return make(**{name: restored(of, _named(held, name)) for name, of in hints.items()})
    return "" if kind is str and held is None else kind(held)


def _named(held: Any, name: str) -> Any:
    return held.get(name) if isinstance(held, dict) else getattr(held, name, None)


def evidence_of(analysis: Analysis) -> Evidence:
    """Return what the judges read of a run that was analysed."""
    streams, stores, arrivals = streams_of(analysis), stores_of(analysis), arrival_log_of(analysis)
    context = Context.of(analysis.run, lambda _: None)
    matrix = factors_of(analysis)
    return Evidence(
        facts_of(analysis),
        restored(Matrix, matrix) if matrix else None,
        restored(tuple[Stream, ...], streams.rows if streams else ()),
        restored(tuple[Latency, ...], analysis.responses),
        restored(tuple[Group, ...], [it for it in analysis.groups if it.level == "all"]),
        _medians(context),
        _overlaps(analysis, context),
        restored(tuple[Metric, ...], analysis.correlations.rows),
        analysis.correlations.paired_share,
        restored(Stores, stores) if stores else None,
        restored(tuple[Operations, ...], arrivals.rows if arrivals else ()),
        loaded(analysis, context),
        recovered(analysis),
        slow_requests(analysis),
    )


def facts_of(analysis: Analysis) -> Facts:
    """Return which run it is."""
    run = analysis.run
    hosts = run.manifest.get("hosts") or [{}]
    started = int(run.manifest.get("started_ns") or 0) / SECOND_NS
    length = run.plan.base.duration_ns
    return Facts(
        run.id,
        run.name,
        run.tag,
        f"{datetime.fromtimestamp(started, UTC):%Y-%m-%d}",
        (run.manifest.get("tool") or {}).get("commit"),
        hosts[0].get("cpu_model"),
        None if length is None else length / SECOND_NS,
        trustworthy=analysis.trustworthy,
        doubts=tuple(analysis.doubts),
        store=run.plan.base.store,
    )


def _medians(context: Context) -> dict[str, Interval]:
    """Return the median of each op, if the run has one cell: of several it would mix them."""
    if context.empty or context.extents["cell"].nunique() > 1:
        return {}
    found = {}
    for (_, op), buckets, counts in histograms_of(context, "response"):
        held = block_interval(buckets, counts, 0.5).interval
        if held is not None and held.estimate is not None:
            found[str(op)] = held
    return found


def _overlaps(analysis: Analysis, context: Context) -> tuple[Overlap, ...]:
    frame = analysis.slow_nodes.jaccard
    if frame.empty:
        return ()
    keys = ["cell", "repeat", "window"]
    means = frame.groupby(keys, as_index=False)["jaccard"].mean()
    starts = context.extents.groupby(["cell", "repeat"])["first_ns"].min()
    events = fetch(analysis.run.events)
    faults = events[events["kind"].astype(str).str.startswith(FAULT)]
    options = analysis.options
    held = _held_back(analysis)
    found = []
    for row in means.to_dict("records"):
        cell, repeat, window = str(row["cell"]), int(row["repeat"]), int(row["window"])
        length = options.windows_ns.get(cell, options.window_ns)
        begin = int(starts[cell, repeat]) + window * length
        own = faults[(faults["cell"] == cell) & (faults["repeat"] == repeat)]
        # A CPU limit that a fast host does not reach makes nobody slow.
        here = held[(held["cell"] == cell) & (held["repeat"] == repeat)]
        here = here[(here["started_ns"] < begin + length) & (here["ended_ns"] > begin)]
        waited = here.groupby("watched")["cgroup_throttled_ns"].sum()
        limited = waited.index[waited >= HELD_BACK_LEAST * length]
        limited = limited.intersection([*analysis.run.plan.cell(cell).quotas])
        struck = tuple(sorted({*limited, *_struck(own, begin, begin + length)}))
        found.append(Overlap(cell, repeat, window, float(row["jaccard"]), struck))
    return tuple(found)


def _held_back(analysis: Analysis) -> pd.DataFrame:
    """Return the samples in which a CPU limit held a process back."""
    resources = analysis.run.resources
    rows = resources.filter(resources.watched.notnull() & (resources.cgroup_throttled_ns > 0))
    columns = ("cell", "repeat", "watched", "started_ns", "ended_ns", "cgroup_throttled_ns")
    return fetch(rows.select(*columns))


def _struck(faults: pd.DataFrame, begin: int, end: int) -> tuple[str, ...]:
    """Return the processes that a fault of the plan made slow in a part of a window.

    A fault that nobody ended lasts as long as its cell.
    """
    over = faults["ended_ns"].notna() & (faults["ended_ns"] <= begin)
    meet = (faults["started_ns"] < end) & ~over
    return tuple(sorted({str(it) for it in faults.loc[meet, "process"]}))


def written(found: Evidence) -> str:
    """Return the text of a file that `read` understands."""
    return json.dumps(asdict(found), indent=1, sort_keys=True) + "\n"


def read(text: str, facts: Facts) -> Evidence:
    """Return the evidence that a file has.

    Parameters
    ----------
    text : str
        What `written` wrote, a ``summary.json``, or the part of one about streams.
    facts : Facts
        Of a file that does not say itself which run it is of.
    """
    held = json.loads(text)
    if "facts" in held:
        found: Evidence = restored(Evidence, held)
        return found
    streams = held if "hypotheses" in held else held.get("streams") or {}
    stores = held.get("stores")
    return Evidence(
        facts,
        streams=restored(tuple[Stream, ...], streams.get("rows")),
        stores=restored(Stores, stores) if stores else None,
    )
