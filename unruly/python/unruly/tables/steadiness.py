"""Expressions over time: levels by block, good replies by second, scheduled requests by bin.

Time is the measured time of each (cell, op), with its repeats end to end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

from unruly.tables.requests import INFINITY, bin_start, bins_touched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibis.expr.types import IntegerValue, Table

KEYS: Final = ("cell", "repeat", "op")
SECOND_NS: Final = 1_000_000_000
FAULTS: Final = ("fault kill", "fault stop")
FAIL_OVERS: Final = ("fail-over", "fail-over answered")
UNNOTICED: Final = ("timeout", "shed", "unfinished")
"""Failures whose rows have no time at which the client knew of them."""
ORDINARY: Final = ("started", "process started", "process ended", "trace key")


def in_blocks(rows: Table, places: Table) -> Table:
    """Return rows with ``block``, their place among the equal blocks of time of their (cell, op).

    Parameters
    ----------
    rows : Table
        As `unruly.tables.requests.measured` gives them.
    places : Table
        cell, repeat, op, first_ns, before_ns (measured time of earlier repeats), blocks, block_ns.
    """
    joined = rows.join(places, list(KEYS))
    block = _place(joined, joined.intended_ns, joined.block_ns)
    return joined.select(
        "cell", "op", "ok", "response", block=ibis.least(joined.blocks - 1, block).cast("int32")
    )


def answered_each_second(rows: Table, places: Table) -> Table:
    """Return good replies of each (cell, op) by the second of arrival: cell, op, place, count.

    Replies after the last scheduled time of their repeat are left out.
    """
    joined = rows.filter(rows.ok).join(places, list(KEYS))
    inside = joined.filter(joined.received_ns.between(joined.first_ns, joined.last_ns))
    return _counted(inside.mutate(place=_place(inside, inside.received_ns, SECOND_NS)))


def due_in_bins(rows: Table, places: Table, *, copies: bool) -> Table:
    """Return requests of each (cell, op) by the bin of their scheduled time, with their count.

    The columns are cell, op, place, count.

    Parameters
    ----------
    places : Table
        Also with ``bin_ns``.
    copies : bool
        A request may have several copies, and counts once.
    """
    firsts = rows.filter(rows.attempt == 0)
    if copies:
        firsts = firsts.group_by(*KEYS, "client", "request").agg(
            intended_ns=lambda t: t.intended_ns.min()
        )
    joined = firsts.join(places, list(KEYS))
    return _counted(joined.mutate(place=_place(joined, joined.intended_ns, joined.bin_ns)))


def of_place(rows: Table, cell: str, repeat: int, node: tuple[str, int] | None) -> Table:
    """What one client sent, or one server was asked; without a node what all clients asked.

    The columns are intended_ns, ok, response, sent_ns (never before intended_ns), and failed_ns:
    when the client knew of the failure. A failed reply has its own time. A request that was never
    sent failed at its scheduled time. Neither a timeout nor a broken connection has a time.
    """
    of = (rows.cell == cell) & (rows.repeat == repeat)
    if node is not None:
        of &= rows[node[0]] == node[1]
    own = rows.filter(of)
    failed = (own.response == INFINITY) & own.status.notin(UNNOTICED)
    never_sent_ns = ibis.ifelse(own.sent_ns.isnull(), own.intended_ns, ibis.null("int64"))
    return own.select(
        "intended_ns",
        "ok",
        "response",
        sent_ns=ibis.greatest(own.sent_ns.fill_null(own.intended_ns), own.intended_ns),
        failed_ns=ibis.ifelse(failed, own.received_ns.fill_null(never_sent_ns), ibis.null("int64")),
    )


def first_good(rows: Table, windows: Table) -> Table:
    """How long after each fault the first good reply came, of requests due in its window.

    Parameters
    ----------
    rows : Table
        intended_ns, response (ns, +inf).
    windows : Table
        fault (its number), from_ns (when it came), to_ns (when the next one does).

    Returns
    -------
    Table
        fault, total (ns); no row where none came.
    """
    due = _good_within(rows, windows)
    return due.group_by("fault").agg(total=due.total.min()).order_by("fault")


def first_good_sent(rows: Table, windows: Table) -> Table:
    """Return what `first_good` does, and ``sent_ns``, when the request with that reply was sent.

    The rows also have ``sent_ns``. If several first replies came at once, the request that was
    sent first counts.
    """
    due = _good_within(rows, windows)
    first = due.mutate(least=due.total.min().over(ibis.window(group_by="fault")))
    first = first.filter(first.total == first.least)
    figures = {"total": first.total.min(), "sent_ns": first.sent_ns.min()}
    return first.group_by("fault").agg(**figures).order_by("fault")


def _good_within(rows: Table, windows: Table) -> Table:
    due = within(rows.filter(rows.response != INFINITY), windows)
    return due.mutate(total=(due.intended_ns - due.from_ns).cast("float64") + due.response)


def first_failed(rows: Table, windows: Table) -> Table:
    """Return when the first failure of each window was known: fault, failed_ns."""
    known = within(rows.filter(rows.failed_ns.notnull()), windows, "failed_ns")
    return known.group_by("fault").agg(failed_ns=known.failed_ns.min()).order_by("fault")


def failed_within(rows: Table, windows: Table) -> Table:
    """Requests that were due in each window and failed: fault, failed."""
    due = within(rows.filter(rows.response == INFINITY), windows)
    return due.group_by("fault").agg(failed=due.count()).order_by("fault")


def untouched(rows: Table, windows: Sequence[tuple[int, int]], patience_ns: float) -> Table:
    """Return the rows that were neither due nor under way in any window.

    A failed one was waited for `patience_ns`.
    """
    waited = ibis.ifelse(rows.response == INFINITY, patience_ns, rows.response)
    # as differences: a wall clock in ns does not fit a double
    touched = [
        (rows.intended_ns < last) & (waited > (first - rows.intended_ns).cast("float64"))
        for first, last in windows
    ]
    return rows.filter(~ibis.or_(*touched))


def fault_free(free: Table, limit_ns: float) -> Table:
    """Count the `untouched` rows: one row.

    n, failed, mean, sd, largest (of the good), longer (than `limit_ns`, failed ones included). The
    counts are 0 where every request was touched.
    """
    good = free.response.nullif(INFINITY)
    return free.agg(
        n=free.count(),
        failed=(free.response == INFINITY).sum().fill_null(0),
        mean=good.mean(),
        sd=good.std(how="sample"),
        largest=good.max(),
        longer=(free.response > limit_ns).sum().fill_null(0),
    )


def excess_in_blocks(
    free: Table, spans: Table, limit_ns: float, median_ns: float, block_ns: float
) -> Table:
    """Return block, excess: how far good replies beyond `limit_ns` exceed the median in each block.

    Parameters
    ----------
    free : Table
        As `untouched` gives them.
    spans : Table
        The fault-free time: from_ns, to_ns, before_ns (how much of it lies before).
    """
    beyond = free.filter((free.response > limit_ns) & (free.response != INFINITY))
    placed = within(beyond, spans)
    since = placed.intended_ns - placed.from_ns + placed.before_ns
    cut = placed.select("response", block=(since / ibis.literal(block_ns)).floor().cast("int32"))
    excess = (cut.response - ibis.literal(median_ns)).sum()
    return cut.group_by("block").agg(excess=excess).order_by("block")


def within(rows: Table, windows: Table, stamp: str = "intended_ns") -> Table:
    """Each request with the windows (from_ns to to_ns) in which it was due, or another stamp lies.

    Both are joined by their seconds first: no engine then compares every row with every window.
    Windows have an end: one of all time has too many seconds.
    """
    some = windows.filter(windows.to_ns > windows.from_ns)
    cut = some.mutate(second=bins_touched(some.from_ns, some.to_ns - 1, SECOND_NS))
    placed = rows.mutate(second=bin_start(rows[stamp], SECOND_NS)).join(cut, "second")
    inside = [placed[stamp] >= placed.from_ns, placed[stamp] < placed.to_ns]
    return placed.filter(inside).drop("second")


def faults(events: Table) -> Table:
    """Faults that take a process away, in order: cell, repeat, kind, process, started_ns."""
    found = events.filter(events.kind.isin(FAULTS))
    return found.select("cell", "repeat", "kind", "process", "started_ns").order_by("started_ns")


def fail_overs(events: Table) -> Table:
    """What clients wrote of their fail-overs, in order.

    cell, repeat, kind, process, detail, started_ns, ended_ns.
    """
    found = events.filter(events.kind.isin(FAIL_OVERS))
    columns = ("cell", "repeat", "kind", "process", "detail", "started_ns", "ended_ns")
    return found.select(*columns).order_by("started_ns", "process", "detail", "kind")


def longest_events(events: Table, most: int) -> Table:
    """What happened beside the requests, the longest first: kind, detail, started_ns, ended_ns."""
    happened = events.filter(~events.kind.isin(ORDINARY))
    length = happened.ended_ns.fill_null(happened.started_ns) - happened.started_ns
    columns = ("kind", "detail", "process", "started_ns", "ended_ns")
    ordered = happened.mutate(length=length).order_by(ibis.desc("length"), "started_ns", "kind")
    return ordered.limit(most).select(*columns)


def _place(rows: Table, stamp_ns: IntegerValue, length_ns: IntegerValue | int) -> IntegerValue:
    return ((stamp_ns - rows.first_ns + rows.before_ns) / length_ns).floor().cast("int32")


def _counted(rows: Table) -> Table:
    keys = ("cell", "op", "place")
    return rows.group_by(*keys).agg(count=rows.count()).order_by(*keys)


def due_in_windows(rows: Table, first_ns: int, width_ns: int) -> Table:
    """Rows of each (op, window) by when they were due: the sums of `unruly.stats.windows_of_sums`.

    op, window, due, failed, took_ns, due_offset_ns.
    """
    since = rows.intended_ns - first_ns
    placed = rows.mutate(window=(since // width_ns).cast("int32"), offset=since % width_ns)
    return placed.group_by("op", "window").agg(
        due=placed.count(),
        failed=(~placed.ok).sum(),
        took_ns=placed.response.nullif(INFINITY).sum().fill_null(0.0),
        due_offset_ns=placed.offset.sum(),
    )


def left_in_windows(rows: Table, first_ns: int, width_ns: int, patience_ns: int) -> Table:
    """Rows of each (op, window) by when they were no longer in flight.

    op, window, completed (good replies), left, left_offset_ns. One that failed leaves with its late
    reply or, without any, `patience_ns` after it was due.
    """
    left_ns = rows.received_ns.fill_null(rows.intended_ns + patience_ns)
    since = left_ns - first_ns
    placed = rows.mutate(window=(since // width_ns).cast("int32"), offset=since % width_ns)
    return placed.group_by("op", "window").agg(
        completed=placed.ok.sum(), left=placed.count(), left_offset_ns=placed.offset.sum()
    )
