"""What an analysis of one run is: plain frozen values that every reader renders.

All times and latencies are in nanoseconds (float, since quantiles interpolate). A value that cannot
be said is ``None`` (in a frame: ``NaN``), and the reason stands in ``absent``. A request that was
not answered well ranks as +infinity: it counts in ``n``, and a quantile that falls among the failed
is absent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from unruly.findings.operation import ALL, Operation, find_operation, operation_of, tidy, unknown
from unruly.findings.promise_words import CONFIDENCE, bound_words, step_refusal
from unruly.quantity import count, duration, percent
from unruly.shown import Sheet, Shown
from unruly.stats.blocks import DRIFTS

if TYPE_CHECKING:
    import pandas as pd

    from unruly.findings.arrival_model import ArrivalLog
    from unruly.findings.bare_matrix import BareMatrix
    from unruly.findings.cause_model import Causes
    from unruly.findings.judging import Outcome
    from unruly.findings.magical import Magical
    from unruly.findings.runtime_model import Runtimes
    from unruly.findings.statuses import Connections, StatusCode
    from unruly.findings.steadiness import OverTime
    from unruly.findings.stores import Stores
    from unruly.findings.stream_model import Streams
    from unruly.findings.worked import Worked
    from unruly.html.plots import Plots
    from unruly.run import Run
    from unruly.stats import Interval

SECTIONS = ("trust", "promise", "unruly", "where", "slow", "why", "help")
SEVERITIES = ("spoils", "warns", "informs")


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
class PromiseStep(Shown):
    """One percentile of one (cell, op): what this run can promise of it, or why it cannot.

    ``interval`` is two-sided at 95 %, ``promise`` the upper bound, one-sided at 97.5 %: the highest
    step is chosen after seeing the data, and at that level the choice keeps 95 %. Both are None
    when the step is refused; ``reason`` then says why in plain words and ``details`` with numbers.
    """

    name: str
    """As people write it: ``"p99.9"``."""
    p: float
    estimate: float | None
    interval: Interval | None
    promise: Interval | None
    lower_bound: float | None
    """The percentile is at least this, at 97.5 %; known also when the step is refused."""
    abstained: str | None = None
    """The rule that refused: "A1" (not enough data), "A2a" (the tail drifted), "A2b" (latency
    drifted, the tail with it) or "short" (the source has no blocks of time). None when failed
    requests refused it, and when the step has a promise."""
    reason: str | None = None
    details: str = ""
    needed_ns: float | None = None
    """About the run length that would do; the least one after a drift."""
    note: str = ""
    """Of a promise: typical latency drifted, the tail did not follow."""

    def _sheet(self) -> Sheet:
        if self.promise is None:
            return Sheet(f"{self.name}: {step_refusal(self)}")
        return Sheet(f"{bound_words(self, 'requests')}, {CONFIDENCE}")

    @property
    def drifted(self) -> bool:
        """Latency drifted: a longer run may not help, and ``needed_ns`` is the least length."""
        return self.abstained in DRIFTS


@dataclass(frozen=True, repr=False)
class PromiseLadder(Shown):
    """The steps p50, p90, p95, p99, p99.9, p99.99 of one (cell, op).

    They are not monotone: when typical latency drifts and the tail does not follow, the p99 has a
    promise and the p50 has none. Only the highest promise may be published.
    """

    steps: tuple[PromiseStep, ...] = ()

    def _sheet(self) -> Sheet:
        rows = [(it.name, it._sheet().line) for it in self.steps]
        best = self.highest
        return Sheet(best._sheet().line if best else "no promise", ("step", "promise"), rows)

    @property
    def highest(self) -> PromiseStep | None:
        """The highest step that has a promise; None when not even the p50 has."""
        return next((step for step in reversed(self.steps) if step.promise is not None), None)

    @property
    def next(self) -> PromiseStep | None:
        """The first refused step above the highest promise; None above the last step."""
        highest = self.highest
        place = self.steps.index(highest) + 1 if highest else 0
        return self.steps[place] if place < len(self.steps) else None

    def step(self, name: str) -> PromiseStep | None:
        """The step of this name, such as ``"p99.9"``."""
        return next((step for step in self.steps if step.name == name), None)


@dataclass(frozen=True, repr=False)
class CellSummary(Shown):
    """One (cell, op, latency): the numbers of ``summary.json``.

    ``op`` is ``"*"`` for all ops of the cell together; ``latency`` is ``"response"`` (received -
    intended) or ``"service"`` (received - sent). Rows are copies (a reply, or its absence).
    ``mean``, ``sd`` (ddof 1) and ``max`` are absent when a row failed; ``mean_ok``, ``sd_ok`` and
    ``max_ok`` are the same over the rows that are ok, and named so.
    """

    cell: str
    op: str
    latency: str
    unit: str
    n: int
    failed: int
    duration_ns: float
    mean: float | None
    sd: float | None
    min: float | None
    max: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    p99_9: float | None
    p99_99: float | None
    p99_999: float | None
    over_10x_mean: int | None
    over_3_sigma: int | None
    p99_over_mean: float | None
    max_over_mean: float | None
    p99_interval_iid: Interval | None
    p99_interval: Interval | None
    mean_ok: float | None
    sd_ok: float | None
    max_ok: float | None
    p99_over_mean_interval: Interval | None = None
    p99_lower_bound: float | None = None
    """When the two-sided interval abstains: still "p99 >= this" at 97.5 %."""
    needed_ns: float | None = None
    """About the run length (factor 2 either way) that a two-sided interval would need."""
    abstained: str | None = None
    """Which rule refuses the p99: see `PromiseStep.abstained`."""
    ladder: PromiseLadder = field(default_factory=PromiseLadder)
    """Which percentiles this run can promise."""
    absent: dict[str, str] = field(default_factory=dict)
    kept: str = "rows"
    """``"rows"``, or ``"histogram"`` when the source kept bins and no single values."""
    edges: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of a histogram: the edges between which each percentile lies, whatever its bins held."""

    def _sheet(self) -> Sheet:
        return operation_of([self], self)._sheet()

    @property
    def promise_p99(self) -> Interval | None:
        """The promise of the ladder's p99."""
        step = self.ladder.step("p99")
        return step.promise if step else None


@dataclass(frozen=True, repr=False)
class GroupSummary(Shown):
    """The k-th of n replies of the group requests of one (cell, op), from the intended time.

    ``n`` counts requests, ``size`` is the number of copies of each; ``level`` is ``"first"`` (k =
    1), ``"majority"`` (k = size // 2 + 1), ``"all"`` (k = size) or ``""``. A size of 2 has its
    majority in "all".
    """

    cell: str
    op: str
    size: int
    k: int
    level: str
    n: int
    failed: int
    p50: float | None
    p90: float | None
    p99: float | None
    p99_9: float | None
    max: float | None
    mean_ok: float | None
    absent: dict[str, str] = field(default_factory=dict)

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
    observers: int
    windows: int
    windows_slow: int
    ratio: float | None
    """Median over windows and observers of its percentile over that of the fastest."""
    words: str


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
    histogram: pd.DataFrame
    jaccard: pd.DataFrame
    sensitivity: pd.DataFrame
    named: tuple[NamedNode, ...]
    windows: int
    left_out: int
    """(window, op, sender, receiver) combinations with fewer rows than ``least_rows``."""
    least_rows: int
    jaccard_mean: float | None


@dataclass(frozen=True, repr=False)
class Correlation(Shown):
    """One metric of the receiver against the service latency of what it answered."""

    metric: str
    scope: str
    """``"host"`` or ``"process"``: whose sample it is."""
    words: str
    pearson: Interval
    """Of the metric and the mean log latency of each (receiver, sample)."""
    pearson_raw: float | None
    """Of the metric and the mean latency, not its logarithm."""
    spearman: Interval
    within: float | None
    """Pearson after each receiver's own mean is taken away: time alone, no difference of nodes."""
    p_value: float
    q_value: float
    highest: str
    """The receiver with the highest mean of the metric."""

    @property
    def closeness(self) -> float:
        """How closely the two move together, by which the rows are ordered: 0 to 2.

        By rank and by size: a rank alone puts first whatever tells one receiver from the others all
        the time, such as its memory, before what moves with the latency.
        """
        return abs(self.spearman.estimate or 0.0) + abs(self.pearson.estimate or 0.0)


@dataclass(frozen=True, repr=False)
class Correlations(Shown):
    """Replies paired with the resource sample of their receiver nearest in time.

    ``unit`` says what is paired; ``scatter`` maps ``"scope:metric"`` (the six strongest) to a frame
    (receiver, value, latency): at most 1,500 points each.
    """

    paired_share: float | None
    largest_distance_ns: float | None
    unit: str
    rows: tuple[Correlation, ...]
    scatter: dict[str, pd.DataFrame]
    note: str = ""


@dataclass(frozen=True)
class Conservation:
    """The counts of the manifest, against the rows in the files."""

    checked: bool
    sentence: str
    rows: int
    by_status: dict[str, int]
    copies: dict[str, int] | None
    requests: dict[str, int] | None


@dataclass(frozen=True, repr=False)
class SelfDistrust(Shown):
    """What the measuring side did to the measurement itself.

    ``send_lag_ns`` and ``sampler_lag_ns`` map "p50", "p90", "p99", "p99_9", "max" to nanoseconds
    (empty when nothing was recorded). ``tail_explained_share``: of the rows beyond the p99 of
    their (cell, op), the share whose send lag is more than half of their response time.
    """

    send_lag_ns: dict[str, float]
    tail_rows: int
    tail_explained_share: float | None
    kernel_stamp_share: float | None
    server_kernel_stamp_share: float | None
    sampler_lag_ns: dict[str, float]
    sampler_period_ns: float | None
    dropped: int
    steal_share_mean: float | None
    steal_share_max: float | None
    psi_cpu_share: float | None
    psi_io_share: float | None
    psi_memory_share: float | None
    processes: pd.DataFrame
    """Each measuring process: process, run_queue_wait_share, cpu_share, rss_bytes_max."""
    fell_behind: dict[str, float] | None = None
    """Requests a second that were scheduled and that were sent (``due_hz``, ``sent_hz``), in a run
    of one cell whose load generator could not keep its schedule; else None."""
    late_share: float | None = None
    """Share of all rows, failed ones included, that were sent more than 10 ms late, where that is
    more than half of the response time (or there is none). None when no send delay is known."""


@dataclass(frozen=True)
class BlindSpot:
    """What this run cannot know about one promise."""

    cell: str
    op: str
    percentile: float
    stall_ns: float
    """Stalls longer than this may exist, unseen, and change the percentile (D_blind)."""
    every_ns: float
    """Nothing is known of what happens less often than every T/3."""
    sentence: str


@dataclass(frozen=True, order=False, repr=False)
class Finding(Shown):
    """Advice as data: what was found, how grave it is, on what evidence, and what to do.

    ``code`` has a page ``unruly/docs/findings/<code>.md``. ``section`` follows a reader's
    questions: trust, promise, unruly, where, slow, why, help. ``severity``: ``spoils`` (the run
    cannot be trusted), ``warns``, ``informs``. ``rank`` orders findings of one section and
    severity: lower is first.
    """

    code: str
    section: str
    severity: str
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


@dataclass(frozen=True, repr=False)
class Analysis(Shown):
    """Everything that is said about one run.

    ``analysis["read"]`` is one operation: ``print(analysis["read"].p99)`` prints its p99 with the
    95 % interval. `frame` has all numbers as one table, and `cells` as they are in the summary.

    Attributes
    ----------
    run : Run
    options : Options
    started_ns, ended_ns : int or None
        First intended send and last stamp of the measured rows; None when nothing was measured.
    cells : list of CellSummary
    groups : list of GroupSummary
    by : dict of pandas.DataFrame
        ``by_op``, ``by_size``, ``by_sender``, ``by_receiver``, ``pairs``. Each has ``latency``
        ("response", "service"), ``op`` (``by_size``: also ``size``; senders and receivers:
        ``sender``,
        ``receiver`` as names), ``n``, ``failed``, ``p50``, ``p90``, ``p99``, ``max`` (of ok rows).
    timeline : pandas.DataFrame
        op, bin, started_ns, ended_ns, n, failed, p50, p99, max: response, at most 600 bins.
    outliers : pandas.DataFrame
        The slowest rows (at most 2,000): intended_ns, cell, op, sender, receiver, request,
        response, service, send_lag, status.
    distribution : pandas.DataFrame
        cell, op, latency, low_ns, high_ns, count, in 2 % buckets; failed rows have ``inf`` edges.
    group_distribution : pandas.DataFrame
        cell, op, size, k, low_ns, high_ns, count, the same for the k-th of n.
    slow_nodes, correlations, conservation, self_distrust
        As their classes say.
    decomposition : pandas.DataFrame
        op, sender_share, receiver_share, pair_share, pairs: of the variance of log p90 (service).
    blind_spot : list of BlindSpot
    findings : list of Finding
        Sorted by section, severity, rank.
    """

    run: Run
    options: Options
    started_ns: int | None
    ended_ns: int | None
    cells: list[CellSummary]
    groups: list[GroupSummary]
    by: dict[str, pd.DataFrame]
    timeline: pd.DataFrame
    outliers: pd.DataFrame
    distribution: pd.DataFrame
    group_distribution: pd.DataFrame
    slow_nodes: SlowNodes
    correlations: Correlations
    decomposition: pd.DataFrame
    conservation: Conservation
    self_distrust: SelfDistrust
    blind_spot: list[BlindSpot]
    findings: list[Finding]
    processes: int
    measured_ns: float
    """The measured time, summed over cells and repeats."""
    worked: Worked
    """Did it work: failures by kind, and outages."""
    magical: Magical | None = None
    """What the slowest 1 % does over a matrix; None for a run of one cell."""
    over_time: OverTime | None = None
    """Throughput, arrivals, changes of the p99, recoveries; None when nothing was measured."""
    windows: pd.DataFrame | None = None
    """Short windows (100 ms, at most 300): op, started_ns, due, failed, response_ns (mean of the
    answered), completed_hz, in_flight; None when nothing was measured."""
    bare_matrices: tuple[BareMatrix, ...] = ()
    """Of each matrix of single values, who is slow to everybody."""
    arrival_log: ArrivalLog | None = None
    """First, quorum and all on the same operations; None when the run is no arrival log."""
    causes: Causes | None = None
    """What made the slow requests slow; None when nothing was measured."""
    stores: Stores | None = None
    """Target, far tail, faults, flow and loads of a run that drives a store; None for others."""
    streams: Streams | None = None
    """What each protocol gave beside each load, of a run of streams; None for others."""
    runtimes: Runtimes | None = None
    """Who asks and who answers by runtime, and collections; None where no agent is a JVM."""
    statuses: tuple[StatusCode, ...] = ()
    """Status codes by cell, op and code; empty where replies have none."""
    connections: Connections | None = None
    """Connections opened again, requests sent again; None where replies have no status code."""

    @cached_property
    def slos(self) -> tuple[Outcome, ...]:
        """What became of the targets that the run was given with ``--slo``."""
        from unruly.findings.slo import judged  # noqa: PLC0415 - it judges an analysis

        return judged(self)

    @property
    def trustworthy(self) -> bool:
        """Nothing spoils this run."""
        return all(finding.severity != "spoils" for finding in self.findings)

    @property
    def meshed(self) -> bool:
        """Members call each other, rather than clients a server."""
        pairs = self.by.get("pairs")
        if pairs is None or pairs.empty:
            return False
        return bool({str(it) for it in pairs["sender"]} & {str(it) for it in pairs["receiver"]})

    @property
    def scheduled(self) -> bool:
        """The run knows when requests were due; an import without it has one latency, not two."""
        return self.run.status != "imported" or bool(self.self_distrust.send_lag_ns.get("max"))

    @property
    def doubts(self) -> list[str]:
        """Titles of what spoils the run."""
        return [finding.title for finding in self.findings if finding.severity == "spoils"]

    @property
    def operations(self) -> list[str]:
        """Names of the operations that were measured, in alphabetical order."""
        return sorted({row.op for row in self.cells} - {ALL})

    def __getitem__(self, name: str | tuple[str, str]) -> Operation:
        """Return one operation: ``analysis["read"]``, or ``analysis["read", "cell"]``.

        Its attributes ``p50`` to ``p99_999``, ``mean`` and ``failed`` are estimates with their
        intervals, counted from the scheduled time; ``.service`` has those from the moment of
        sending. ``"*"`` is all operations of a cell together.

        Raises
        ------
        UnknownNameError
            There is no such operation or cell (it is also a `KeyError`), or several cells have the
            operation and none is named.

        Examples
        --------
        >>> import unruly
        >>> analysis = unruly.analyse(unruly.open_run("runs/demo"))
        >>> print(analysis["disk"].p99)
        9.28 ms [9.11, 9.48]
        >>> round(analysis["disk"].p99.high / 1e6, 1), analysis["disk"].service.n
        (9.5, 15000)
        """
        op, cell = (name, None) if isinstance(name, str) else name
        return find_operation(self.cells, op, cell)

    def _ipython_key_completions_(self) -> list[str]:
        """Return what completes ``analysis["`` in a notebook."""
        return self.operations

    @property
    def plot(self) -> Plots:
        """The figures of the report, one at a time: ``analysis.plot.cdf()``.

        A notebook shows a figure as a picture; ``analysis.plot.cdf().save("cdf.svg")`` writes it.
        """
        from unruly.html.plots import Plots  # noqa: PLC0415 - importing Altair takes a second

        return Plots(self)

    def cell(self, op: str, latency: str = "response", cell: str | None = None) -> CellSummary:
        """Return the summary of one op; of the first cell when none is named.

        Raises
        ------
        UnknownNameError
            There is no such operation, latency or cell. It is also a `KeyError`.
        """
        for row in self.cells:
            if row.op == op and row.latency == latency and cell in (None, row.cell):
                return row
        for what, wanted, known in (
            ("latency", latency, [row.latency for row in self.cells]),
            ("cell", cell, [row.cell for row in self.cells]),
        ):
            if wanted is not None and wanted not in known:
                raise unknown(what, wanted, known)
        raise unknown("operation", op, (row.op for row in self.cells))

    def frame(self) -> pd.DataFrame:
        """Return every number as a tidy table: one row for each statistic.

        Returns
        -------
        pandas.DataFrame
            ========== =========================================================================
            cell       the cell of the plan's matrix
            op         the operation; ``"*"`` is all operations of the cell together
            latency    ``"response"`` (from the scheduled time) or ``"service"`` (from sending)
            statistic  ``"p50"`` to ``"p99.999"``, ``"mean"``, ``"sd"``, ``"min"``, ``"max"``,
                       ``"failed"``
            estimate   the number; NaN when the run cannot say
            low, high  its 95 % confidence interval; NaN when there is none
            unit       ``"ns"``, or ``"share"`` (0 to 1) for ``"failed"``
            n          measured requests, failed ones included
            failed     how many of them failed
            reason     why the estimate or its interval is missing; else empty
            ========== =========================================================================

        Examples
        --------
        >>> import unruly
        >>> frame = unruly.analyse(unruly.open_run("runs/demo")).frame()
        >>> p99 = frame[(frame.latency == "response") & (frame.statistic == "p99")]
        >>> p99.set_index("op").estimate.div(1e6).round(1).to_dict()
        {'crypto': 0.3, 'disk': 9.3, 'null': 0.3, '*': 7.9}
        """
        return tidy(self.cells)

    def _sheet(self) -> Sheet:
        rows = [row for row in self.cells if row.latency == "response" and row.op != ALL]
        failed, n = sum(row.failed for row in rows), sum(row.n for row in rows)
        tag = f" [{self.run.tag}]" if self.run.tag else ""
        told = [operation_of(self.cells, row) for row in rows]
        return Sheet(
            f"{self.run.name}{tag}: {duration(self.measured_ns)} measured, {count(n)} requests, "
            f"{percent(failed / n if n else 0.0)} failed, "
            f"{len(self.operations)} operations; "
            + ("trustworthy" if self.trustworthy else f"do not trust it: {self.doubts[0]}"),
            ("operation", "cell", "requests", "failed", "p50", "p99"),
            [(it.op, it.cell, count(it.n), *map(str, (it.failed, it.p50, it.p99))) for it in told],
        )
