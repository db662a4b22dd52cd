"""One operation of a run as a notebook reads it: every number with its interval."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import pandas as pd

from unruly.base.estimate import Estimate
from unruly.base.promise import PromiseLadder, step_refusal
from unruly.errors import UnknownNameError
from unruly.quantity import count
from unruly.shown import Sheet, Shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from unruly.base.promise import PromiseStep
    from unruly.contract import Absent, Count, Latency, Refusal
    from unruly.stats import Interval

ALL: Final = "*"
PERCENTILES: Final = {
    "p50": "p50",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "p99.9": "p99_9",
    "p99.99": "p99_99",
    "p99.999": "p99_999",
}
"""The fields of a summary by what people call them."""
FACTS: Final = ("mean", "sd", "min", "max")
FRAME: Final = (
    "cell", "op", "latency", "statistic", "estimate", "low", "high", "unit", "n", "failed",
    "reason",
)  # fmt: skip


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
    latency: Latency
    unit: Literal["ns"]
    n: Count
    failed: Count
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
    abstained: Refusal | None = None
    """Which rule refuses the p99: see ``abstained`` of a `PromiseStep`."""
    ladder: PromiseLadder = field(default_factory=PromiseLadder)
    """Which percentiles this run can promise."""
    absent: Absent = field(default_factory=dict)
    kept: Literal["rows", "histogram"] = "rows"
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
class Operation(Shown):
    """The latency of one operation in one cell, from ``analysis["read"]``.

    Every number is an `Estimate`: it prints with its unit and its 95 % interval.

    Attributes
    ----------
    summary : CellSummary
        The numbers as they stand in ``summary.json``.
    service : Operation
        The same operation by service time: from the moment that a request was sent. `response`
        counts from its scheduled time.
    """

    summary: CellSummary
    _others: tuple[CellSummary, ...]

    @property
    def op(self) -> str:
        """The operation's name; ``"*"`` for all operations of the cell together."""
        return self.summary.op

    @property
    def cell(self) -> str:
        """The cell of the plan's matrix."""
        return self.summary.cell

    @property
    def latency(self) -> str:
        """``"response"`` or ``"service"``."""
        return self.summary.latency

    @property
    def n(self) -> int:
        """The number of measured requests, failed ones included."""
        return self.summary.n

    @property
    def response(self) -> Operation:
        """The same operation by response time, counted from the scheduled time."""
        return self._by("response")

    @property
    def service(self) -> Operation:
        """The same operation by service time, counted from the moment of sending."""
        return self._by("service")

    @property
    def failed(self) -> Estimate:
        """The share of requests that failed. ``summary.failed`` is their number."""
        summary = self.summary
        share = summary.failed / summary.n if summary.n else None
        return Estimate(share, unit="share", reason="" if summary.n else "nothing was measured")

    @property
    def p50(self) -> Estimate:
        """The median: half of the requests take at most this long."""
        return self._percentile("p50")

    @property
    def p90(self) -> Estimate:
        """90 % of the requests take at most this long."""
        return self._percentile("p90")

    @property
    def p95(self) -> Estimate:
        """95 % of the requests take at most this long."""
        return self._percentile("p95")

    @property
    def p99(self) -> Estimate:
        """99 % of the requests take at most this long."""
        return self._percentile("p99")

    @property
    def p99_9(self) -> Estimate:
        """99.9 % of the requests take at most this long."""
        return self._percentile("p99.9")

    @property
    def p99_99(self) -> Estimate:
        """99.99 % of the requests take at most this long."""
        return self._percentile("p99.99")

    @property
    def p99_999(self) -> Estimate:
        """99.999 % of the requests take at most this long."""
        return self._percentile("p99.999")

    @property
    def mean(self) -> Estimate:
        """The mean latency. It has no value when a request failed."""
        return self._fact("mean")

    @property
    def sd(self) -> Estimate:
        """The standard deviation (ddof 1). It has no value when a request failed."""
        return self._fact("sd")

    @property
    def min(self) -> Estimate:
        """The shortest latency of this run."""
        return self._fact("min")

    @property
    def max(self) -> Estimate:
        """The longest latency of this run. It has no value when a request failed."""
        return self._fact("max")

    @property
    def promise(self) -> PromiseStep | None:
        """The highest percentile that this run can promise; None when it can promise none."""
        return self.summary.ladder.highest

    def statistics(self) -> dict[str, Estimate]:
        """Return every number by the name that people call it, such as ``"p99.9"``."""
        return {
            **{name: self._percentile(name) for name in PERCENTILES},
            **{name: self._fact(name) for name in FACTS},
            "failed": self.failed,
        }

    def _by(self, latency: str) -> Operation:
        for summary in (self.summary, *self._others):
            if summary.latency == latency:
                return operation_of([self.summary, *self._others], summary)
        known = sorted({it.latency for it in (self.summary, *self._others)})
        raise unknown("latency", latency, known)

    def _percentile(self, name: str) -> Estimate:
        field = PERCENTILES[name]
        value = getattr(self.summary, field)
        if value is None:
            return Estimate(None, reason=self.summary.absent.get(field, ""))
        step = self.summary.ladder.step(name)
        interval = step.interval if step else None
        if interval is not None and interval.low is not None and interval.high is not None:
            return Estimate(value, interval.low, interval.high, interval.level)
        return Estimate(value, reason=step_refusal(step) if step else "")

    def _fact(self, name: str) -> Estimate:
        return Estimate(getattr(self.summary, name), reason=self.summary.absent.get(name, ""))

    def _sheet(self) -> Sheet:
        lines = self.statistics()
        return Sheet(
            f"{self.op} in {self.cell}, {self.latency} time: {count(self.n)} requests, "
            f"{self.failed} failed, p99 {self.p99}",
            ("statistic", f"{self.latency} time"),
            [(name, str(found)) for name, found in lines.items()],
        )


def operation_of(cells: Sequence[CellSummary], summary: CellSummary) -> Operation:
    """Return one summary as an operation that knows its other latency."""
    others = (
        it for it in cells if it is not summary and (it.cell, it.op) == (summary.cell, summary.op)
    )
    return Operation(summary, tuple(others))


def find_operation(cells: Sequence[CellSummary], op: str, cell: str | None) -> Operation:
    """Return the response time of one operation.

    Raises
    ------
    UnknownNameError
        There is no such operation or cell, or several cells have it and none is named.
    """
    found = [it for it in cells if it.latency == "response" and it.op == op]
    if not found:
        raise unknown("operation", op, (it.op for it in cells))
    here = [it for it in found if cell in (None, it.cell)]
    if not here:
        raise unknown("cell", str(cell), (it.cell for it in found))
    if len(here) > 1:
        names = ", ".join(it.cell for it in here)
        raise UnknownNameError(
            f"operation {op!r}",
            f"{len(here)} cells have it: {names}",
            hint=f"name one: analysis[{op!r}, {here[0].cell!r}]",
        )
    return operation_of(cells, here[0])


def unknown(what: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """Return the error for a name that does not exist, with the names that do."""
    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(name, names, 1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    exist = f"this run has {', '.join(names)}" if names else "this run measured nothing"
    return UnknownNameError(f"{what} {name!r}", "does not exist", hint=meant + exist)


def tidy(cells: Sequence[CellSummary]) -> pd.DataFrame:
    """Return one row for each cell, operation, latency and statistic; columns as in `FRAME`."""
    rows = [
        (
            it.cell, it.op, it.latency, name, found.value, found.low, found.high, found.unit,
            it.n, it.failed, found.reason,
        )
        for it in cells
        for name, found in Operation(it, ()).statistics().items()
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=list(FRAME))
    return frame.astype(dict.fromkeys(("estimate", "low", "high"), "float64"))
