"""What an analysis of one run is: plain frozen values that every reader renders.

All times and latencies are in nanoseconds (float, since quantiles interpolate). A value that cannot
be said is ``None`` (in a frame: ``NaN``), and the reason stands in ``absent``. A request that was
not answered well ranks as +infinity: it counts in ``n``, and a quantile that falls among the failed
is absent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol, get_args

from unruly.quantity import count, duration
from unruly.shown import Sheet, Shown

if TYPE_CHECKING:
    import pandas as pd

    from unruly.base.operation import CellSummary
    from unruly.contract import Absent, Count, Keywords, Positive, Share
    from unruly.run import Run
    from unruly.stats import Interval

Section = Literal["trust", "promise", "unruly", "where", "slow", "why", "help"]
GroupLevel = Literal["first", "majority", "all", ""]
Severity = Literal["spoils", "warns", "informs"]
SECTIONS: Final[tuple[Section, ...]] = get_args(Section)
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)


@dataclass(frozen=True)
class Options:
    """What a person may set about an analysis; the defaults filled in."""

    window_ns: int
    """The longest window of any cell; the cells have one length unless the plan sweeps it."""
    factor: float
    percentile: float
    floor_ns: int
    windows_ns: dict[str, int] = field(default_factory=dict)
    """The length of the windows of each cell."""


@dataclass(frozen=True, repr=False)
class GroupSummary(Shown):
    """The k-th of n replies of the group requests of one (cell, op), from the intended time.

    ``n`` counts requests, ``size`` is the number of copies of each; ``level`` is ``"first"`` (k =
    1), ``"majority"`` (k = size // 2 + 1), ``"all"`` (k = size) or ``""``. A size of 2 has its
    majority in "all".
    """

    cell: str
    op: str
    size: Annotated[int, Keywords(minimum=2)]
    k: Positive
    level: GroupLevel
    n: Count
    failed: Count
    p50: float | None
    p90: float | None
    p99: float | None
    p99_9: float | None
    max: float | None
    mean_ok: float | None
    absent: Absent = field(default_factory=dict)

    def _sheet(self) -> Sheet:
        return Sheet(
            f"{self.op} in {self.cell}, reply {self.k} of {self.size}: {count(self.n)} requests, "
            f"{count(self.failed)} failed, p50 {duration(self.p50)}, p99 {duration(self.p99)}"
        )


@dataclass(frozen=True)
class NamedNode:
    """A node that all others that observe it see as slow in at least half of the windows."""

    node: str
    ops: tuple[str, ...]
    observers: Count
    windows: Count
    windows_slow: Count
    ratio: float | None
    """Median over windows and observers of its percentile over that of the fastest."""
    words: str


@dataclass(frozen=True)
class SlowSets:
    """How many sets of slow nodes of one size the observers of an operation had."""

    op: str
    slow_nodes: Count
    count: Count


@dataclass(frozen=True)
class Definition:
    """What another definition of a slow node gives."""

    factor: float
    percentile: float
    slow_pairs: Count
    named: Count
    nodes: str
    """The named nodes."""
    jaccard_mean: float | None


@dataclass(frozen=True, repr=False)
class SlowNodes(Shown):
    """Who is slow, in whose eyes, and how that depends on the definition.

    Frames: ``pairs`` (cell, repeat, window, op, sender, receiver, n, failed, p50, p90, p99,
    fastest, ratio, slow), ``sets`` (cell, repeat, window, op, observer, seen, slow - a tuple of
    names), ``histogram`` (op, slow_nodes, count: observers' sets by their size), ``jaccard`` (cell,
    repeat, window, op, observer_a, observer_b, jaccard), ``sensitivity`` (factor, percentile,
    slow_pairs, named, nodes, jaccard_mean).
    """

    pairs: pd.DataFrame
    sets: pd.DataFrame
    histogram: Annotated[pd.DataFrame, SlowSets]
    jaccard: pd.DataFrame
    sensitivity: Annotated[pd.DataFrame, Definition]
    named: tuple[NamedNode, ...]
    windows: Count
    left_out: Count
    """(window, op, sender, receiver) combinations with fewer rows than ``least_rows``."""
    least_rows: Count
    jaccard_mean: float | None


@dataclass(frozen=True, repr=False)
class Correlation(Shown):
    """One metric of the receiver against the service latency of what it answered."""

    metric: str
    scope: Literal["host", "process"]
    """``"host"`` or ``"process"``: whose sample it is."""
    words: str
    pearson: Interval
    """Of the metric and the mean log latency of each (receiver, sample)."""
    pearson_raw: float | None
    """Of the metric and the mean latency, not its logarithm."""
    spearman: Interval
    within: float | None
    """Pearson after each receiver's own mean is taken away: time alone, no difference of nodes."""
    p_value: Share
    q_value: Share
    highest: str
    """The receiver with the highest mean of the metric."""

    @property
    def closeness(self) -> float:
        """How closely metric and latency move together, 0 to 2; the rows are in this order.

        The sum of Spearman's and Pearson's coefficients. By rank alone a constant difference
        between receivers, such as their memory, would come before a metric that moves with latency.
        """
        return abs(self.spearman.estimate or 0.0) + abs(self.pearson.estimate or 0.0)


@dataclass(frozen=True, repr=False)
class Correlations(Shown):
    """Replies paired with the resource sample of their receiver nearest in time.

    ``unit`` names the paired values. ``scatter`` maps ``"scope:metric"`` (the six strongest) to a
    frame (receiver, value, latency) of at most 1,500 points each.
    """

    paired_share: float | None
    largest_distance_ns: float | None
    unit: str
    rows: tuple[Correlation, ...]
    scatter: dict[str, pd.DataFrame]
    note: str = ""


@dataclass(frozen=True)
class VarianceShares:
    """The variance of log p90 (service) of one op: shares of sender, receiver and pair.

    None when nothing varies or there is too little.
    """

    op: str
    sender_share: float | None
    receiver_share: float | None
    pair_share: float | None
    pairs: Count


@dataclass(frozen=True)
class Conservation:
    """The counts of the manifest, against the rows in the files."""

    checked: bool
    sentence: str
    rows: Count
    by_status: dict[str, Count]
    copies: dict[str, int] | None
    requests: dict[str, int] | None


@dataclass(frozen=True)
class MeasuringProcess:
    """One measuring process, by the samples of its resources."""

    process: str
    run_queue_wait_share: float | None
    """The mean share of time in which it waited for a CPU."""
    cpu_share: float | None
    """The mean share of one CPU that it used."""
    rss_bytes_max: int | None
    samples: Count


@dataclass(frozen=True)
class ThrottledProcess:
    """A process that a CPU limit held back in a cell, over the repeats of the cell."""

    cell: str
    process: str
    throttled_ns: float
    """The time for which the kernel throttled the process's control group."""
    share: float | None
    """The share of the sampled time."""


@dataclass(frozen=True, repr=False)
class SelfDistrust(Shown):
    """What the measuring side did to the measurement itself.

    ``send_lag_ns`` and ``sampler_lag_ns`` map "p50", "p90", "p99", "p99_9", "max" to nanoseconds
    (empty when nothing was recorded). ``tail_explained_share``: of the rows beyond the p99 of
    their (cell, op), the share whose send lag is more than half of their response time. Steal and
    pressure (PSI) are those of the host where each is highest.
    """

    send_lag_ns: dict[str, float]
    tail_rows: Count
    tail_explained_share: float | None
    kernel_stamp_share: float | None
    server_kernel_stamp_share: float | None
    sampler_lag_ns: dict[str, float]
    sampler_period_ns: float | None
    dropped: Count
    steal_share_mean: float | None
    steal_share_max: float | None
    psi_cpu_share: float | None
    psi_io_share: float | None
    psi_memory_share: float | None
    processes: Annotated[pd.DataFrame, MeasuringProcess]
    throttled: Annotated[pd.DataFrame, ThrottledProcess]
    """Only processes that were throttled at all."""
    fell_behind: dict[str, float] | None = None
    """Requests a second that were scheduled and that were sent (``due_hz``, ``sent_hz``), in a run
    of one cell whose load generator could not keep its schedule; else None."""
    late_share: float | None = None
    """Share of all rows, failed ones included, that were sent more than 10 ms late, where that is
    more than half of the response time (or there is none). None when no send delay is known."""
    unread: tuple[Unread, ...] = ()
    """What the load generator of a drive may have read late. Empty where no kernel stamped a reply
    and no reply was streamed, and in a group, where reading is work of the system."""


What = Literal["replies", "tokens", "messages"]


@dataclass(frozen=True)
class Unread:
    """Replies, or tokens and messages of streamed replies, that the load generator read.

    ``late`` are those that waited unread for more than 10 ms and for more than half of their time:
    that of a reply from its scheduled time, that of a token from the one before it. ``longest_ns``
    is the longest delay of a late one, 0 without one.
    """

    what: What
    n: Count
    late: Count
    longest_ns: float

    @property
    def share(self) -> float:
        """Share that was read late."""
        return self.late / self.n


@dataclass(frozen=True)
class BlindSpot:
    """The stalls and rare events that one promise cannot rule out."""

    cell: str
    op: str
    percentile: float
    stall_ns: float
    """Stalls longer than this may exist, unseen, and change the percentile (D_blind)."""
    every_ns: float
    """The run says nothing about events rarer than one in this time, T/3."""
    sentence: str


@dataclass(frozen=True, order=False, repr=False)
class Finding(Shown):
    """Advice as data: the observation, its severity, its evidence, and a suggestion.

    ``unruly/docs/findings/<section>.md`` explains each ``code``. ``section`` follows a reader's
    questions: trust, promise, unruly, where, slow, why, help. ``severity``: ``spoils`` (the run
    cannot be trusted), ``warns``, ``informs``. ``rank`` orders findings of one section and
    severity: lower is first.
    """

    code: Annotated[str, Keywords(pattern="^[a-z][a-z0-9-]+$")]
    section: Section
    severity: Severity
    rank: int
    title: str
    text: str
    evidence: dict[str, Any]
    suggestion: str

    def _sheet(self) -> Sheet:
        rows = [(name, str(value)) for name, value in self.evidence.items()]
        return Sheet(
            f"{self.code}, {self.severity}: {self.title}", ("evidence", ""), rows, self.text
        )


class Judged(Protocol):
    """The part of an analysis that is compared with limits."""

    @property
    def run(self) -> Run:
        """The run."""

    @property
    def cells(self) -> list[CellSummary]:
        """The numbers of each (cell, op, latency)."""

    @property
    def measured_ns(self) -> float:
        """How long it measured; 0 where nobody knows."""

    @property
    def trustworthy(self) -> bool:
        """Nothing spoils the run."""
