"""Expressions for the causes: the slow requests, a sample of the others, and what overlapped them.

Stamps leave the engine as differences from the intended time: a wall clock in ns with nulls beside
it would become a double, which does not hold it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import ibis

from unruly.tables.requests import bin_start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibis.expr.types import Table, Value

KEYS: Final = ("cell", "op")
PARTS: Final = ("send_lag", "client_kernel", "server_kernel", "handler", "rest")
"""What a request's time is made of; ``rest`` is what no stamp splits."""
SCATTER: Final = 1_000_003
"""A prime: requests of all operations and times are met alike by a part of its remainders."""
_STEP: Final = 48_271
_COLUMNS: Final = ("cell", "repeat", "op", "client", "server", "request", "intended_ns", "ok")


def with_parts(rows: Table) -> Table:
    """Add the parts (ns, null where no stamp says), ``took_ns`` and ``handler_from_ns``.

    Parameters
    ----------
    rows : Table
        As `unruly.tables.requests.measured` gives them.

    Returns
    -------
    Table
        ``took_ns`` is null when nothing came back; ``handler_from_ns`` is when the server had the
        request, since it was intended.
    """
    parted = rows.mutate(
        took_ns=rows.received_ns - rows.intended_ns,
        client_kernel=rows.received_ns - rows.kernel_received_ns,
        server_kernel=rows.server_received_ns - rows.server_kernel_received_ns,
        handler=rows.server_sent_ns - rows.server_received_ns,
        handler_from_ns=rows.server_received_ns - rows.intended_ns,
        scatter=_scatter(rows),
    )
    known = [parted[name].fill_null(0) for name in PARTS[:-1]]
    return parted.mutate(rest=parted.took_ns - sum(known[1:], known[0]))


def _scatter(rows: Table) -> Value:
    """A number below `SCATTER` that has nothing to do with a request's place in the schedule."""
    return ((rows.request + rows.client) % SCATTER).cast("int64") * _STEP % SCATTER


def slow(rows: Table, limits: Table, most: int) -> Table:
    """The slowest rows beyond the limit of each (cell, op), at most so many of each.

    Parameters
    ----------
    rows : Table
        As `with_parts` gives them.
    limits : Table
        cell, op, limit_ns.

    Returns
    -------
    Table
        With ``slow``, how many there are beyond the limit. Failed rows come first, and of equal
        ones those that chance chooses.
    """
    joined = rows.join(limits, list(KEYS))
    beyond = joined.filter(joined.response > joined.limit_ns)
    group = ibis.window(group_by=list(KEYS))
    order = [ibis.desc(beyond.response), beyond.scatter, beyond.intended_ns, beyond.server]
    placed = beyond.mutate(
        slow=beyond.count().over(group),
        place=ibis.row_number().over(ibis.window(group_by=list(KEYS), order_by=order)),
    )
    return (
        placed.filter(placed.place < most)
        .select(*_COLUMNS, "took_ns", "handler_from_ns", *PARTS, "slow")
        .order_by(*KEYS, "intended_ns", "client", "request", "server")
    )


def ordinary(rows: Table, limits: Table) -> Table:
    """A sample of the rows within the limit.

    Parameters
    ----------
    limits : Table
        cell, op, limit_ns, cut: rows whose scatter is below it are taken.
    """
    joined = rows.join(limits, list(KEYS))
    chosen = (joined.response <= joined.limit_ns) & (joined.scatter < joined.cut)
    return (
        joined.filter(chosen)
        .select(*_COLUMNS, "took_ns", *PARTS)
        .order_by(*KEYS, "intended_ns", "client", "request", "server")
    )


def long_parts(rows: Table, longs: Table, side: str, parts: Sequence[str]) -> Table:
    """Bins of time in which most requests of one node had a part that is unusually long.

    Parameters
    ----------
    rows : Table
        As `with_parts` gives them.
    longs : Table
        cell, op, bin_ns, least (rows that a bin needs), and ``long_<part>`` (ns, or infinity).
    side : {"client", "server"}
        Whose requests are looked at together.
    parts : sequence of str
        Of `PARTS`.

    Returns
    -------
    Table
        part, cell, op, repeat, node, started_ns, until_ns (the last reply of the long ones).
    """
    joined = rows.join(longs, list(KEYS)).mutate(node=rows[side])
    binned = joined.filter(joined.took_ns.notnull()).mutate(
        started_ns=bin_start(joined.intended_ns, joined.bin_ns)
    )
    keys = ("cell", "op", "repeat", "node", "started_ns")
    figures: dict[str, Value] = {"n": binned.count(), "least": binned.least.max()}
    for part in parts:
        is_long = binned[part].fill_null(-1) > binned[f"long_{part}"]
        figures[f"{part}_long"] = is_long.sum()
        figures[f"{part}_until"] = binned.received_ns.max(where=is_long)
    counted = binned.group_by(*keys).agg(**figures)
    found = [
        counted.filter(
            (counted.n >= counted.least) & (counted[f"{part}_long"] * 2 > counted.n)
        ).select(*keys, part=ibis.literal(part), until_ns=counted[f"{part}_until"])
        for part in parts
    ]
    return ibis.union(*found).order_by("part", *keys) if len(found) > 1 else found[0]


def events(table: Table, kinds: Sequence[str], most: int) -> Table:
    """Events of these kinds: of each process of each leg and kind the longest, at most so many.

    Returns
    -------
    Table
        cell, repeat, process, kind, started_ns, lasted_ns (0 of an instant), ``total`` (how many
        there are).
    """
    found = table.filter(table.kind.isin(list(kinds)))
    ended = found.ended_ns.fill_null(found.started_ns)
    timed = found.mutate(lasted_ns=ended - found.started_ns)
    columns = ("cell", "repeat", "process", "kind", "started_ns", "lasted_ns")
    order = (ibis.desc("lasted_ns"), "started_ns")
    return _in_turn(timed.select(*columns), columns[:4], order, most)


def _in_turn(rows: Table, group: Sequence[str], order: Sequence[Any], most: int) -> Table:
    """The first row of every group, then the second of each, until there are so many.

    By their order alone the many rows of one group would leave no room for those of another.
    """
    turn = ibis.row_number().over(ibis.window(group_by=list(group), order_by=list(order)))
    told = rows.mutate(turn=turn, total=rows.count().over(ibis.window()))
    return told.order_by("turn", *group, *order).limit(most).drop("turn")


def samples(table: Table, metrics: Sequence[str], most: int) -> Table:
    """Samples of hosts and processes, with these metrics."""
    return (
        table.order_by("cell", "repeat", "host", "watched", "started_ns")
        .limit(most)
        .select("cell", "repeat", "host", "watched", "started_ns", "ended_ns", *metrics)
    )
