"""Expressions for advice: pings of peers, what members saw in windows, and requests whole.

Only aggregates over windows and observers, and bounded samples of requests, leave the engine.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Final

import ibis

from unruly.tables.requests import INFINITY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibis.expr.types import BooleanValue, FloatingValue, IntegerValue, Table, Value

PAIR: Final = ("cell", "repeat", "op", "client", "server")
REQUEST: Final = ("cell", "repeat", "op", "client", "request")
RESOLUTIONS_NS: Final = (1_000_000_000, 1_000_000, 1_000)
HASH_RANGE: Final = 2**32
HASH_FACTOR: Final = 2_654_435_761
"""Knuth's multiplicative hash: neighbours land far apart, on every engine alike."""
LAST_WORDS_NS: Final = 10_000_000_000
"""A request that failed so shortly before its server was killed may have failed of it."""


def resolution(rows: Table) -> Table:
    """Say whether all stamps are multiples of a second, a millisecond, a microsecond: one row."""
    stamps = (rows.intended_ns, rows.received_ns)
    return rows.agg(
        **{f"of_{unit}": ibis.and_(*(_multiples(stamp, unit) for stamp in stamps))
           for unit in RESOLUTIONS_NS}
    )  # fmt: skip


def _multiples(stamp: IntegerValue, unit: int) -> BooleanValue:
    return ((stamp % unit) == 0).all().fill_null(True)


def without_killed(rows: Table, killed: Table) -> Table:
    """Rows of pairs that were both alive.

    Parameters
    ----------
    killed : Table
        cell, repeat, node, from_ns: whom a fault killed, and when.
    """
    for end in ("server", "client"):
        gone = killed.select(
            dead_cell="cell", dead_repeat="repeat", dead_node="node", dead_ns="from_ns"
        )
        joined = rows.left_join(
            gone,
            [
                rows.cell == gone.dead_cell,
                rows.repeat == gone.dead_repeat,
                rows[end] == gone.dead_node,
            ],
        )
        early = ~joined.ok & (joined.intended_ns >= joined.dead_ns - LAST_WORDS_NS)
        dead = (joined.intended_ns >= joined.dead_ns) | early
        rows = joined.filter(joined.dead_ns.isnull() | ~dead).drop(*gone.columns)
    return rows


def pings(rows: Table, places: Table, meshed: Sequence[str], blocks: int) -> Table:
    """Every first attempt to a peer as a ping: its latency, and from which timeout on it is new.

    Parameters
    ----------
    rows : Table
        As `unruly.tables.requests.measured` gives them.
    places : Table
        ``first_ns``, ``before_ns`` and ``block_ns`` of each (cell, repeat, op).
    meshed : sequence of str
        The cells in which client and server of one number are one process, which is no peer.
    blocks : int

    Returns
    -------
    Table
        cell, repeat, op, client, server, block, response (ns, +inf), apart_ns (since the ping
        before; null for the first), since (ns: `unruly.stats.suspected_from`).
    """
    own = rows.cell.isin(list(meshed)) & (rows.client == rows.server)
    firsts = rows.filter(~own & (rows.attempt == 0)).join(places, ["cell", "repeat", "op"])
    order = ibis.window(group_by=list(PAIR), order_by=["intended_ns", "request"])
    apart = firsts.intended_ns - firsts.intended_ns.lag().over(order)
    before = firsts.response.lag().over(order) - apart.cast("float64")
    return firsts.select(
        *PAIR,
        "response",
        block=block_of(firsts, blocks),
        apart_ns=apart,
        since=before.fill_null(0.0).clip(lower=0.0),
    )


def block_of(rows: Table, blocks: int) -> IntegerValue:
    """The block of measured time in which each row was due, from the columns of its places."""
    place = (rows.intended_ns - rows.first_ns + rows.before_ns) / rows.block_ns
    return place.floor().cast("int32").clip(lower=0, upper=blocks - 1)


def ping_extents(pinged: Table) -> Table:
    """Of each (cell, op): pings, pairs, period, and the range of latencies."""
    good = pinged.response != INFINITY
    apart = pinged.apart_ns.cast("float64")
    pair = pinged.client.cast("int64") * 65_536 + pinged.server.cast("int64")
    return (
        pinged.group_by("cell", "op")
        .agg(
            n=pinged.count(),
            pairs=pair.nunique(),
            period_ns=apart.quantile(0.5),
            failed=(~good).sum(),
            median=pinged.response.quantile(0.5),
            largest=pinged.response.max(where=good),
        )
        .order_by("cell", "op")
    )


def late_pings(pinged: Table, timeouts_ns: Sequence[float]) -> Table:
    """Pings, and suspicions that began, in each (cell, op, block): ``late_<i>`` of timeout i."""
    late = {
        f"late_{place}": ((pinged.since <= limit) & (pinged.response > limit)).sum()
        for place, limit in enumerate(timeouts_ns)
    }
    keys = ("cell", "op", "block")
    return pinged.group_by(*keys).agg(pings=pinged.count(), **late).order_by(*keys)


def asked(rows: Table) -> Table:
    """One row for each request: whom it asked, and when each answered.

    Returns
    -------
    Table
        cell, repeat, op, client, request, intended_ns (of the first attempt), servers (ascending),
        replies (ns since then, in that order; +inf where none came well), label (the servers as
        text), size, response (ns: of the reply that answered the request; +inf).
    """
    ok = rows.ok & rows.received_ns.notnull()
    copies = rows.group_by(*REQUEST, "server").agg(
        received_ns=rows.received_ns.min(where=ok),
        answered_ns=rows.received_ns.max(where=ok & rows.answered),
        due_ns=rows.intended_ns.min(),
    )
    copies = copies.mutate(
        copy=ibis.struct({"server": copies.server, "received": copies.received_ns.fill_null(-1)})
    )
    # not every engine can collect in an order, but all sort a list of pairs by their first
    whole = copies.group_by(*REQUEST).agg(
        copies=copies["copy"].collect(),
        answered_ns=copies.answered_ns.max(),
        intended_ns=copies.due_ns.min(),
        size=copies.count(),
    )
    whole = whole.mutate(copies=whole.copies.sort())
    whole = whole.mutate(servers=whole.copies.map(lambda copy: copy["server"]))
    intended = whole.intended_ns

    def since(received: IntegerValue) -> FloatingValue:
        return ibis.ifelse(received < 0, INFINITY, (received - intended).cast("float64"))

    return whole.select(
        *REQUEST,
        "intended_ns",
        "servers",
        "size",
        replies=whole.copies.map(lambda copy: since(copy["received"])),
        label=whole.servers.map(lambda server: server.cast("string")).join(","),
        response=(whole.answered_ns - intended).cast("float64").fill_null(INFINITY),
    )


def seen_in_windows(
    requests: Table, starts: Table, window_ns: int, dead: Table | None = None
) -> Table:
    """The slowest reply of each pair of a group in each window.

    Parameters
    ----------
    requests : Table
        As `asked` gives them.
    starts : Table
        ``origin_ns`` of each (cell, repeat): windows count from there.
    window_ns : int
    dead : Table, optional
        cell, repeat, node, from_ns: pairs with such a node are left out from then on.

    Returns
    -------
    Table
        cell, op, repeat, window, label, client, server, worst (ns, +inf), n.
    """
    groups = requests.filter(requests["size"] > 1).join(starts, ["cell", "repeat"])
    pairs = groups.select(
        *REQUEST,
        "label",
        "servers",
        "replies",
        "intended_ns",
        window=((groups.intended_ns - groups.origin_ns) // window_ns).cast("int32"),
        place=ibis.range(0, groups["size"].cast("int64")).unnest(),
    )
    # Spark counts in a list by int32 only
    place = pairs.place.cast("int32")
    pairs = pairs.mutate(server=pairs.servers[place], response=pairs.replies[place]).drop(
        "servers", "replies"
    )
    if dead is not None:
        pairs = without_killed(pairs.mutate(ok=pairs.response != INFINITY), dead)
    keys = ("cell", "op", "repeat", "window", "label", "client", "server")
    return (
        pairs.filter(pairs.client != pairs.server)
        .group_by(*keys)
        .agg(worst=lambda t: t.response.max(), n=lambda t: t.count())
        .order_by(*keys)
    )


def paid(requests: Table, places: Table, bounds_ns: Sequence[float], blocks: int) -> Table:
    """Requests of each (cell, block) and step of a service level agreement; inclusive bounds.

    Parameters
    ----------
    requests : Table
        As `asked` gives them.
    places : Table
        ``first_ns``, ``before_ns`` and ``block_ns`` of each (cell, repeat, op), all of the cell's
        own time.
    """
    joined = requests.join(places, ["cell", "repeat", "op"])
    beyond: list[Value] = [(joined.response > bound).cast("int8") for bound in bounds_ns]
    placed = joined.select(
        "cell",
        block=block_of(joined, blocks),
        step=reduce(add, beyond),
        failed=joined.response == INFINITY,
    )
    keys = ("cell", "block", "step")
    return (
        placed.group_by(*keys)
        .agg(n=lambda t: t.count(), failed=lambda t: t.failed.sum())
        .order_by(*keys)
    )


def group_sizes(requests: Table) -> Table:
    """How many requests of two copies or more each (cell, op, size) has, and of how many groups."""
    groups = requests.filter(requests["size"] > 1)
    keys = ("cell", "op", "size")
    return (
        groups.group_by(*keys).agg(n=groups.count(), labels=groups.label.nunique()).order_by(*keys)
    )


def sampled(requests: Table, places: Table, shares: Table, blocks: int) -> Table:
    """A bounded sample of whole requests, spread evenly, in order of time.

    Parameters
    ----------
    requests, places : Table
        As for `paid`.
    shares : Table
        cell, op, size and ``share``: the part to take of them.

    Returns
    -------
    Table
        cell, op, size, block, client, label, servers, replies.
    """
    joined = requests.join(shares, ["cell", "op", "size"]).join(places, ["cell", "repeat", "op"])
    number = (joined.request % 2**31).cast("int64") + joined.client.cast("int64") * 7_919
    chosen = (number * HASH_FACTOR) % HASH_RANGE < joined.share * HASH_RANGE
    kept = joined.filter(chosen)
    return kept.select(
        "cell", "op", "size", "client", "label", "servers", "replies", "repeat", "intended_ns",
        "request", block=block_of(kept, blocks),
    ).order_by("cell", "op", "size", "repeat", "intended_ns", "client", "request")  # fmt: skip
