"""The analysis of one run: all its numbers and findings, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from unruly.base.clock import Clock
from unruly.base.operation import ALL, Operation, find_operation, operation_of, tidy, unknown
from unruly.base.slo import judged
from unruly.quantity import count, duration, percent
from unruly.shown import Sheet, Shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from unruly.base.bare_matrix import BareMatrix
    from unruly.base.judging import Outcome
    from unruly.base.model import (
        BlindSpot,
        Conservation,
        Correlations,
        Finding,
        GroupSummary,
        Options,
        SelfDistrust,
        SlowNodes,
    )
    from unruly.base.operation import CellSummary
    from unruly.base.statuses import Connections, StatusCode
    from unruly.base.tails import Tail
    from unruly.base.worked import Worked
    from unruly.html.plots import Plots
    from unruly.run import Run

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class Analysis(Shown):
    """All numbers and findings of one run.

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
    bare_matrices: tuple[BareMatrix, ...] = ()
    """Of each matrix of single values, who is slow to everybody."""
    statuses: tuple[StatusCode, ...] = ()
    """Status codes by cell, op and code; empty where replies have none."""
    connections: Connections | None = None
    """Connections opened again, requests sent again; None where replies have no status code."""

    topics: Mapping[str, object] = field(default_factory=dict)
    """What each topic of `unruly.topics.registry` says; None where a topic does not apply. A topic
    is an attribute as well: ``analysis.streams``."""

    def topic(self, name: str, kind: type[T]) -> T | None:
        """Return what a topic says; None where it does not apply."""
        found = self.topics.get(name)
        assert found is None or isinstance(found, kind), f"{name} is no {kind.__name__}"
        return found

    if not TYPE_CHECKING:  # inside the package each topic has a function with a type

        def __getattr__(self, name: str) -> object:
            """Return what a topic says, for a notebook: ``analysis.streams``."""
            topics = self.__dict__.get("topics", {})
            if name in topics:
                return topics[name]
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @cached_property
    def slos(self) -> tuple[Outcome, ...]:
        """What became of the targets that the run was given with ``--slo``."""
        return judged(self)

    @cached_property
    def clock(self) -> Clock:
        """Times since the first measured request, and times of day."""
        return Clock.of(self.run, self.started_ns)

    @cached_property
    def responses(self) -> list[CellSummary]:
        """Response time of each (cell, op), without the sum over ops."""
        return [row for row in self.cells if row.latency == "response" and row.op != ALL]

    @cached_property
    def outage_cells(self) -> frozenset[str]:
        """Cells with an outage: what follows from it is not found a second time."""
        return frozenset(it.cell for it in self.worked.outages)

    def label(self, row: CellSummary | Tail) -> str:
        """Name a (cell, op): the op alone where there is one cell."""
        return f"{row.op} ({row.cell})" if self._several_cells else row.op

    @cached_property
    def _several_cells(self) -> bool:
        return len({row.cell for row in self.cells}) > 1

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
        """The run knows when requests were sent; one without it has one latency, not two."""
        if self.run.keeps_bins_alone:
            return False
        return not self.run.foreign or bool(self.self_distrust.send_lag_ns.get("max"))

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
        # a source without times has no length
        timed = self.measured_ns or not n
        length = f"{duration(self.measured_ns)} measured, " if timed else ""
        return Sheet(
            f"{self.run.name}{tag}: {length}{count(n)} requests, "
            f"{percent(failed / n if n else 0.0)} failed, "
            f"{len(self.operations)} operations; "
            + ("trustworthy" if self.trustworthy else f"do not trust it: {self.doubts[0]}"),
            ("operation", "cell", "requests", "failed", "p50", "p99"),
            [(it.op, it.cell, count(it.n), *map(str, (it.failed, it.p50, it.p99))) for it in told],
        )
