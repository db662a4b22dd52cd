"""Expressions over ``intervals`` and the events of streams: what flowed each second, and in all.

Rows are as long as their process was let run: what a row counted is spread over the seconds that it
covers, in proportion. Times are counted from the start of the measured time of each leg (a repeat
of a cell), so that no wall clock passes through a double.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

from unruly.tables.requests import bins_touched

if TYPE_CHECKING:
    from ibis.expr.types import Table

KEYS: Final = ("cell", "repeat")
PROCESS: Final = (*KEYS, "host", "process", "side")
ENDS: Final = ("writer", "reader")
COMPETE: Final = "compete"
SECOND_NS: Final = 1_000_000_000
BROKEN: Final = ("stream broken", "stream not finished", "peer lost", "memory ran away")
"""How a stream ends before its time."""
FAILED: Final = "stream failed"
REFUSED: Final = "realtime refused"
COMPETING: Final = "competing"
COLLECTIONS: Final = ("gc", "gc pause", "safepoint")
EVENTS_MOST: Final = 2_000


def begins(intervals: Table) -> Table:
    """When the rows of each process begin and end, and when the first begins in which it had any.

    cell, repeat, host, process, side, first_ns, last_ns, flowed_ns (null where nothing flowed).
    """
    flowed = intervals.messages > 0
    return (
        intervals.group_by(*PROCESS)
        .agg(
            first_ns=intervals.started_ns.min(),
            last_ns=intervals.ended_ns.max(),
            flowed_ns=intervals.started_ns.min(where=flowed),
        )
        .order_by(*PROCESS)
    )


def totals(intervals: Table) -> Table:
    """What each end of each leg counted from its first row to its last, whatever the phase.

    cell, repeat, process, side, bytes, messages, lost, duplicated, reordered.
    """
    ends = intervals.filter(intervals.side.isin(ENDS))
    names = ("bytes", "messages", "lost", "duplicated", "reordered")
    sums = {name: ends[name].fill_null(0).sum().cast("int64") for name in names}
    keys = (*KEYS, "process", "side")
    return ends.group_by(*keys).agg(**sums).order_by(*keys)


def each_second(intervals: Table, legs: Table) -> Table:
    """What each process did in each second of the measured time that its rows cover.

    Parameters
    ----------
    legs : Table
        cell, repeat, first_ns, last_ns: the measured time of each leg.

    Returns
    -------
    Table
        cell, repeat, host, process, side, second (from 0), bytes, messages, cpu_ns (null where no
        row knows it), covered_ns, rss_bytes and in_flight (the largest).
    """
    joined = intervals.join(legs, list(KEYS))
    # a row of no length is one nanosecond long: what it counted came then
    ended = ibis.greatest(joined.ended_ns, joined.started_ns + 1)
    placed = joined.select(
        *PROCESS, "bytes", "messages", "cpu_ns", "rss_bytes", "in_flight",
        length=ended - joined.started_ns,
        since=ibis.greatest(joined.started_ns, joined.first_ns) - joined.first_ns,
        until=ibis.least(ended, joined.last_ns) - joined.first_ns,
    )  # fmt: skip
    inside = placed.filter(placed.until > placed.since)
    cut = inside.mutate(start=bins_touched(inside.since, inside.until - 1, SECOND_NS))
    covered = ibis.least(cut.until, cut.start + SECOND_NS) - ibis.greatest(cut.since, cut.start)
    parts = cut.mutate(covered=covered)
    share = parts.covered.cast("float64") / parts.length.cast("float64")
    keys = (*PROCESS, "start")
    found = parts.group_by(*keys).agg(
        bytes=(parts.bytes * share).sum(),
        messages=(parts.messages * share).sum(),
        cpu_ns=(parts.cpu_ns * share).sum(),
        covered_ns=parts.covered.sum(),
        rss_bytes=parts.rss_bytes.max(),
        in_flight=parts.in_flight.max(),
    )
    second = (found.start / SECOND_NS).round().cast("int32")
    return found.mutate(second=second).drop("start").order_by(*PROCESS, "second")


def happened(events: Table) -> Table:
    """Events of streams, their competing load, and the faults of their legs, in order of time."""
    kinds = [FAILED, *BROKEN, REFUSED, COMPETING]
    wanted = events.kind.isin(kinds) | events.kind.startswith("fault ")
    return _events(events.filter(wanted))


def collections(events: Table) -> Table:
    """Collections and safepoints of Java, the longest first."""
    found = events.filter(events.kind.isin(COLLECTIONS) & events.ended_ns.notnull())
    ordered = found.mutate(length=found.ended_ns - found.started_ns)
    ordered = ordered.order_by(ibis.desc("length"), "started_ns", "process", "kind")
    return ordered.limit(EVENTS_MOST).select(*_EVENT)


_EVENT: Final = (*KEYS, "host", "process", "kind", "detail", "started_ns", "ended_ns")


def _events(events: Table) -> Table:
    return events.select(*_EVENT).order_by("started_ns", *KEYS, "process", "kind")
