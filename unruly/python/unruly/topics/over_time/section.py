"""How steady each workload was, and what followed the faults: two tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.drawing import format
from unruly.drawing.document import Datum, Table, number, table, text
from unruly.drawing.tables import op_name
from unruly.topics.over_time.recoveries import period
from unruly.topics.over_time.statistics import over_time_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from unruly.drawing.view import View
    from unruly.stats import Interval
    from unruly.topics.over_time.recoveries import FaultRecovery
    from unruly.topics.over_time.statistics import Steadiness

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
        "detection",
        "fail-over",
        "request",
        "failed meanwhile",
        "slowest reply without a fault",
        "of those, slower than the median recovery",
        "outliers cost more than faults below",
    )
    body = [_recovery(it) for it in over_time.recoveries]
    return table(columns, body, "What followed the faults", _note(over_time.recoveries))


def _note(found: tuple[FaultRecovery, ...]) -> str:
    parts = [
        "A fault-free reply that is slower than a recovery cannot be distinguished from an outage "
        "by its time alone.",
    ]
    known = [it.recoveries for it in found if it.recoveries is not None]
    if any(it.detection_ns is not None for it in known):
        parts.append(
            "Detection, fail-over and request are medians over the faults whose recovery has all "
            "three parts. Intervals are of 95 %."
        )
    names = [it.process for it in found if it.all_clients and it.recoveries is not None]
    if names:
        parts.append(
            f"No request names {format.listing(names)}: its faults are compared with the requests "
            "of all clients of the cell."
        )
    return " ".join(parts)


def _recovery(it: FaultRecovery) -> list[Datum]:
    found, reason = it.recoveries, it.absent.get("recoveries", "")
    named = [text(it.process), number(format.count(len(it.fault_ns)))]
    if found is None:
        return [*named, *[Datum(format.DASH, reason=reason)] * 8]
    back = [format.duration(one.total_ns) for one in found.faults if one.total_ns is not None]
    never = [f"never, {found.never} of {len(found.faults)}"] if found.never else []
    return [
        *named,
        text(format.listing([*back, *never])),
        *[_part(part) for part in (found.detection_ns, found.failover_ns, found.request_ns)],
        number(format.count(sum(one.failed for one in found.faults))),
        number(format.duration(found.fault_free_max_ns), "a request without a fault failed"),
        number(format.count(found.longer), "there is no median recovery"),
        _break_even(it),
    ]


def _part(found: Interval | None) -> Datum:
    """The median of one part, its interval and the number of faults."""
    if found is None or found.estimate is None:
        return Datum(format.DASH, reason="no request failed after a fault, and no client wrote it")
    ends = ""
    if found.low is not None and found.high is not None:
        ends = f"{format.duration(found.low)} to {format.duration(found.high)}, "
    faults = "1 fault" if found.n == 1 else f"{format.count(found.n)} faults"
    return Datum(format.duration(found.estimate), aside=f"{ends}{faults}")


def _break_even(it: FaultRecovery) -> Datum:
    if it.break_even is None:
        return Datum(format.DASH, reason=it.absent.get("break_even", ""))
    return text(f"one fault in {period(it.break_even.faults_hz)}")
