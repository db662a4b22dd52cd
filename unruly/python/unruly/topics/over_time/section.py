"""How steady each workload was, and what followed the faults: two tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.drawing import format
from unruly.drawing.document import Datum, Table, number, table, text
from unruly.drawing.tables import op_name
from unruly.topics.over_time.statistics import over_time_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from unruly.drawing.view import View
    from unruly.stats import Interval
    from unruly.topics.over_time.statistics import FaultRecovery, Steadiness

CHANGES_SHOWN = 3


def steadiness(view: View) -> Table | None:
    """Return throughput, arrivals and changes of the p99 of each workload."""
    over_time = over_time_of(view.analysis)
    if over_time is None or not (over_time.rows or over_time.note):
        return None
    several = len(view.cells) > 1
    columns = (
        *(["cell"] if several else []),
        "workload",
        "replies a second",
        "varies from second to second by",
        "seconds without any",
        "index of dispersion",
        "changes of the p99",
    )
    body = [
        [*([text(row.cell)] if several else []), text(op_name(row.op)), *_fields(view, row)]
        for row in over_time.rows
    ]
    note = (
        f"Left out: {over_time.note}."
        if over_time.note
        else "Independent arrivals have an index of dispersion of 1, bursts more, a regular "
        "schedule less. Intervals are of 95 %."
    )
    return table(columns, body, "Steadiness over time", note)


def _fields(view: View, row: Steadiness) -> list[Datum]:
    reason = row.absent.get("throughput", "")
    found = row.throughput
    return [
        _value(found.mean if found else None, format.significant, reason),
        _value(found.variation if found else None, format.share, reason),
        number(format.share(found.stalled_share) if found else format.DASH, reason),
        _value(
            row.dispersion.index if row.dispersion else None,
            format.significant,
            row.absent.get("dispersion", ""),
        ),
        _changes(view, row),
    ]


def _value(interval: Interval | None, write: Callable[[float | None], str], reason: str) -> Datum:
    if interval is None or interval.estimate is None:
        return Datum(format.DASH, reason=reason or "nothing came")
    if interval.low is None or interval.high is None:
        return Datum(write(interval.estimate))
    ends = f"{write(interval.low)} to {write(interval.high)}"
    return Datum(write(interval.estimate), aside=ends)


def _changes(view: View, row: Steadiness) -> Datum:
    if row.changes is None or row.changes.abstained:
        return Datum(format.DASH, reason=row.absent.get("changes", ""))
    if not row.changes.points:
        return text("none")
    started = view.analysis.started_ns or 0
    told = [
        f"at {format.span(at - started)}: {format.times(point.ratio.estimate)}"
        for at, point in zip(row.changed_ns, row.changes.points, strict=True)
    ]
    return text(format.listing(told, CHANGES_SHOWN))


def recoveries(view: View) -> Table | None:
    """Return what followed the faults of each process."""
    over_time = over_time_of(view.analysis)
    if over_time is None or not over_time.recoveries:
        return None
    columns = (
        "process",
        "faults",
        "first good reply after",
        "failed meanwhile",
        "slowest reply without a fault",
        "of those, slower than the median recovery",
    )
    body = [_recovery(it) for it in over_time.recoveries]
    note = (
        "A fault-free reply that is slower than a recovery cannot be distinguished from an outage "
        "by its time alone."
    )
    return table(columns, body, "What followed the faults", note)


def _recovery(it: FaultRecovery) -> list[Datum]:
    found, reason = it.recoveries, it.absent.get("recoveries", "")
    named = [text(it.process), number(format.count(len(it.fault_ns)))]
    if found is None:
        return [*named, *[Datum(format.DASH, reason=reason)] * 4]
    back = [format.duration(one.total_ns) for one in found.faults if one.total_ns is not None]
    never = [f"never, {found.never} of {len(found.faults)}"] if found.never else []
    return [
        *named,
        text(format.listing([*back, *never])),
        number(format.count(sum(one.failed for one in found.faults))),
        number(format.duration(found.fault_free_max_ns), "a request without a fault failed"),
        number(format.count(found.longer), "there is no median recovery"),
    ]
