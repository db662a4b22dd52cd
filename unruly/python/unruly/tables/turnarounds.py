"""Expressions over ``turnarounds``: requests and replies of services, as a tap saw them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

from unruly.tables.requests import bin_start, bins_touched

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ibis.expr.types import Table

WINDOW_NS: Final = 100_000_000
HANDSHAKE_TURNS: Final = 3
"""Bytes may cross in the first turnarounds of a connection, because of a handshake."""
CONNECTION: Final = ("cell", "repeat", "process", "connection")
UNMEASURED: Final = ("overlapped", "gap", "open", "joined")


def multiplexed(turnarounds: Table) -> Table:
    """Return the connections on which requests overlapped after the handshake: `CONNECTION`."""
    later = turnarounds.turn > HANDSHAKE_TURNS
    overlapped = turnarounds.filter((turnarounds.status == "overlapped") & later)
    return overlapped.select(*CONNECTION).distinct()


def measured(turnarounds: Table, *, overlaps: bool = True) -> Table:
    """Return the turnarounds that can be measured.

    Left out are those that are ``overlapped``, have a ``gap``, were ``open`` when the tap ended or
    were ``joined`` when it began, and all of a connection on which requests overlapped after its
    handshake: there nobody knows which reply belongs to which request, also where no bytes were
    seen to cross.

    Parameters
    ----------
    turnarounds : Table
        The table of a run.
    overlaps : bool
        False if there is no such connection, which saves a pass over the rows.
    """
    rows = turnarounds
    if overlaps:
        rows = rows.anti_join(multiplexed(turnarounds), CONNECTION)
    return rows.filter(rows.status.notin(UNMEASURED))


def as_requests(turnarounds: Table, *, overlaps: bool = True) -> Table:
    """Return the measured turnarounds as rows of ``requests``, an operation for each tier.

    Nobody knows when a request was scheduled: it counts from its first byte. One that was cut off
    before its reply has failed.
    """
    rows = measured(turnarounds, overlaps=overlaps)
    ok = rows.status == "ok"
    null = ibis.null
    return rows.select(
        cell=rows.cell,
        repeat=rows.repeat,
        phase=ibis.literal("measure"),
        host=rows.host,
        process=rows.process,
        op=rows.tier,
        client=ibis.literal(0, type="uint16"),
        server=ibis.literal(0, type="uint16"),
        request=(rows.connection.cast("int64") * 2**31 + rows.turn.cast("int64")).cast("uint64"),
        attempt=ibis.literal(0, type="uint8"),
        connection=rows.connection,
        key=null("uint64"),
        intended_ns=rows.started_ns,
        sent_ns=rows.started_ns,
        received_ns=ibis.ifelse(ok, rows.ended_ns, null("int64")),
        kernel_received_ns=null("int64"),
        server_kernel_received_ns=null("int64"),
        server_received_ns=null("int64"),
        server_sent_ns=null("int64"),
        sent_bytes=ibis.least(rows.request_bytes, 2**32 - 1).cast("uint32"),
        received_bytes=ibis.least(rows.reply_bytes, 2**32 - 1).cast("uint32"),
        level=null("string"),
        status=ibis.ifelse(ok, "ok", "error:disconnected"),
        answered=ok,
        code=null("uint16"),
        waited=null("boolean"),
    )


def counts(turnarounds: Table) -> Table:
    """Count the turnarounds of each (cell, tier) by their end: ``ok``, ``cut``, ``overlapped``, ...

    ``alone`` are those that `measured` keeps; ``connections``, ``first_ns`` and ``last_ns`` are of
    all.
    """
    keys = ("cell", "tier")
    kept = measured(turnarounds).group_by(*keys).agg(alone=lambda rows: rows.count())
    ends = {name: (turnarounds.status == name).sum() for name in ("ok", "cut", *UNMEASURED)}
    # the number of a connection is unique within its process and repeat
    whole = turnarounds.connection.cast("int64") + turnarounds.repeat.cast("int64") * 2**40
    found = turnarounds.group_by(*keys).agg(
        **ends,
        connections=whole.nunique(),
        first_ns=turnarounds.started_ns.min(),
        last_ns=turnarounds.ended_ns.max(),
    )
    joined = found.left_join(kept, keys).drop("cell_right", "tier_right")
    return joined.mutate(alone=joined.alone.fill_null(0)).order_by(*keys)


def with_askers(rows: Table, turnarounds: Table) -> Table:
    """Give each row the asker of its connection, which the tap finds out a moment later.

    Parameters
    ----------
    rows : Table
        Some of `turnarounds`.
    turnarounds : Table
        All rows of the run.
    """
    known = turnarounds.filter(turnarounds.asked_by.notnull())
    named = known.group_by(*CONNECTION).agg(asker=known.asked_by.max())
    joined = rows.left_join(named, list(CONNECTION))
    return joined.mutate(asked_by=joined.asker).select(*rows.columns)


def asked_by(rows: Table, askers: Table) -> Table:
    """Return the rows of these askers: cell, tier, asked_by, which is "" where nobody is known."""
    named = rows.mutate(asked=rows.asked_by.fill_null(""))
    wanted = askers.rename(asked="asked_by")
    return named.semi_join(wanted, ["cell", "tier", "asked"]).select(*rows.columns)


def askers(turnarounds: Table) -> Table:
    """Count the turnarounds of each (cell, tier, asked_by) whose asker is known: ``n``."""
    keys = ("cell", "tier", "asked_by")
    known = turnarounds.filter(turnarounds.asked_by.notnull())
    return known.group_by(*keys).agg(n=known.count()).order_by("cell", "tier", ibis.desc("n"))


def slow_limits(rows: Table, percentiles: Iterable[str] = ("p99",)) -> Table:
    """Return ``n`` and the percentiles (ns) of the response time of each (cell, tier).

    Columns: cell, tier, n, and one for each of the percentiles, such as ``p99``.
    """
    replied = rows.filter(rows.status == "ok")
    response = (replied.ended_ns - replied.started_ns).cast("float64")
    limits = {name: response.quantile(int(name[1:]) / 100) for name in percentiles}
    return replied.group_by("cell", "tier").agg(n=replied.count(), **limits)


def slow_in_flight(rows: Table, limits: Table) -> Table:
    """Return the slow requests in flight in windows, as `in_flight` does.

    Parameters
    ----------
    rows : Table
        As `measured` gives them.
    limits : Table
        cell, tier, slow_ns.
    """
    replied = rows.filter(rows.status == "ok").join(limits, ["cell", "tier"])
    took = (replied.ended_ns - replied.started_ns).cast("float64")
    return in_flight(replied.filter(took > replied.slow_ns).drop("slow_ns"))


def in_flight(rows: Table, *more: str) -> Table:
    """Return the mean number of requests in flight in each window of 100 ms that has any.

    Columns: cell, repeat, tier, `more`, ``window_ns`` (the window's begin), ``in_flight``.
    """
    touched = rows.mutate(window_ns=bins_touched(rows.started_ns, rows.ended_ns, WINDOW_NS))
    first = ibis.greatest(touched.started_ns, touched.window_ns)
    last = ibis.least(touched.ended_ns, touched.window_ns + WINDOW_NS)
    keys = ("cell", "repeat", "tier", *more, "window_ns")
    within = touched.mutate(share=(last - first).cast("float64") / WINDOW_NS)
    return within.group_by(*keys).agg(in_flight=within.share.sum()).order_by(*keys)


def begun(rows: Table, limits: Table) -> Table:
    """Count the turnarounds that began in each window, and the slow ones.

    Columns: cell, repeat, tier, ``window_ns``, ``n`` (with a reply), ``slow``, ``sum_ns`` and
    ``longest_ns`` (of their response times).

    Parameters
    ----------
    rows : Table
        As `measured` gives them.
    limits : Table
        cell, tier, slow_ns.
    """
    replied = rows.filter(rows.status == "ok").join(limits, ["cell", "tier"])
    response = (replied.ended_ns - replied.started_ns).cast("float64")
    timed = replied.mutate(
        window_ns=bin_start(replied.started_ns, WINDOW_NS),
        response=response,
        slow=response > replied.slow_ns,
    )
    keys = ("cell", "repeat", "tier", "window_ns")
    return (
        timed.group_by(*keys)
        .agg(
            n=timed.count(),
            slow=timed.slow.sum(),
            sum_ns=timed.response.sum(),
            longest_ns=timed.response.max(),
        )
        .order_by(*keys)
    )
