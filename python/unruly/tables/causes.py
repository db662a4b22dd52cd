"""Expressions for the causes: the slow requests, a sample of the others, and what overlapped them.

Stamps leave the engine as differences from the intended time: a wall clock in ns with nulls beside
it would become a double, which does not hold it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import ibis

from unruly.tables.requests import bin_start

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ibis.expr.types import Table, Value

KEYS: Final = ("cell", "op")
PARTS: Final = ("send_lag", "client_kernel", "server_kernel", "handler", "rest")
"""What a request's time is made of; ``rest`` is what no stamp splits."""
SCATTER: Final = 1_000_003
"""A prime: requests of all operations and times are met alike by a part of its remainders."""
_STEP: Final = 48_271
SECOND_NS: Final = 1_000_000_000
WHOSE: Final = ("whose", "watched")
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


def levels(resources: Table, metrics: Mapping[str, str]) -> Table:
    """Samples with their metrics as floors are told.

    Parameters
    ----------
    metrics : mapping of str to str
        What a level is of each: a share of the sample's "time", a number in a "second", or the
        "sample" as it is.

    Returns
    -------
    Table
        cell, repeat, whose, watched (whether that is a process, and no host), started_ns, ended_ns
        and the metrics. A sample of no length has none.
    """
    length = (resources.ended_ns - resources.started_ns).cast("float64").nullif(0.0)
    of = {"time": length, "second": length / SECOND_NS, "sample": ibis.literal(1.0)}
    return resources.select(
        "cell", "repeat", "started_ns", "ended_ns",
        whose=resources.watched.fill_null(resources.host),
        watched=resources.watched.notnull(),
        **{name: resources[name].cast("float64") / of[per] for name, per in metrics.items()},
    )  # fmt: skip


def usual_levels(table: Table, metrics: Sequence[str]) -> Table:
    """What is usual of each process and host, over the whole run.

    Parameters
    ----------
    table : Table
        As `levels` gives them.

    Returns
    -------
    Table
        whose, watched, and of each metric ``<metric>_n``, ``_middle`` (the median), ``_spread``
        (the median of what they differ by from that) and ``_highest``.
    """
    medians = {f"{name}_middle": table[name].median() for name in metrics}
    joined = table.join(table.group_by(*WHOSE).agg(**medians), list(WHOSE))
    figures: dict[str, Value] = {}
    for name in metrics:
        middle = joined[f"{name}_middle"]
        figures |= {
            f"{name}_n": joined[name].count(),
            f"{name}_middle": middle.max(),
            f"{name}_spread": (joined[name] - middle).abs().median(),
            f"{name}_highest": joined[name].max(),
        }
    return joined.group_by(*WHOSE).agg(**figures).order_by(*WHOSE)


def high_samples(table: Table, limits: Table, metrics: Sequence[str], most: int) -> Table:
    """Samples in which a metric is high: of each process and host of a leg as many, by chance.

    Parameters
    ----------
    table : Table
        As `levels` gives them.
    limits : Table
        whose, watched, and of each metric ``<metric>_least`` and ``<metric>_middle``: it is high
        from the one on, and above the other.

    Returns
    -------
    Table
        cell, repeat, whose, watched, started_ns, ended_ns, ``total`` (how many there are), and
        whether each of the metrics is high.
    """
    joined = table.join(limits, list(WHOSE))
    high = {
        name: (
            (joined[name] >= joined[f"{name}_least"]) & (joined[name] > joined[f"{name}_middle"])
        ).fill_null(False)
        for name in metrics
    }
    group = ("cell", "repeat", *WHOSE)
    marked = joined.select(*group, "started_ns", "ended_ns", **high)
    found = marked.filter(ibis.or_(*(marked[name] for name in metrics)))
    order = ((found.started_ns % SCATTER) * _STEP % SCATTER, "started_ns")
    return _in_turn(found, group, order, most)
