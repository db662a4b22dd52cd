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
"""The parts of a request's time; ``rest`` is the time that no stamp splits."""
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
    return scattered(rows.request + rows.client)


def scattered(number: Value) -> Value:
    """Return a number below `SCATTER` that spreads neighbouring numbers over the whole range."""
    return (number % SCATTER).cast("int64") * _STEP % SCATTER


def cut(wanted: float, n: int) -> int:
    """Return the scatter below which about `wanted` of n rows lie."""
    return int(min(1.0, wanted / max(1, n)) * SCATTER)


def sampled(rows: Table, limits: Table, most: int) -> Table:
    """Return random rows of each (cell, op), some beyond its limit and some within it.

    Parameters
    ----------
    rows : Table
        As `with_parts` gives them.
    limits : Table
        cell, op, limit_ns, cut: rows within the limit are taken if their scatter is below it.
    most : int
        At most this many rows beyond the limit, of each (cell, op).

    Returns
    -------
    Table
        With ``slow`` (whether it is beyond the limit) and, of those, ``total``: how many there are.
    """
    joined = rows.join(limits, list(KEYS))
    marked = joined.mutate(slow=joined.response > joined.limit_ns)
    # those of one block of time alone would be of one episode, the slowest of the longest one
    order = ("scatter", "intended_ns", "client", "request", "server")
    chosen = marked.filter(marked.slow | (marked.scatter < marked.cut)).select(
        *_COLUMNS, "scatter", "slow", "took_ns", "handler_from_ns", *PARTS
    )
    group = [*KEYS, "slow"]
    placed = chosen.mutate(
        total=chosen.count().over(ibis.window(group_by=group)),
        place=ibis.row_number().over(ibis.window(group_by=group, order_by=list(order))),
    )
    return (
        placed.filter(~placed.slow | (placed.place < most))
        .drop("scatter", "place")
        .order_by(*KEYS, ibis.desc("slow"), "intended_ns", "client", "request", "server")
    )


def long_parts(rows: Table, longs: Table, sides: Mapping[str, Sequence[str]]) -> Table:
    """Bins of time in which most requests of one node had a part that is unusually long.

    Parameters
    ----------
    rows : Table
        As `with_parts` gives them.
    longs : Table
        cell, op, ``<side>_bin_ns``, least (rows that a bin needs), cut (rows with a scatter below
        it are looked at), and ``long_<part>`` (ns, or infinity).
    sides : mapping of str to sequence of str
        Of the clients and of the servers which of `PARTS` are theirs.

    Returns
    -------
    Table
        side, cell, op, repeat, node, started_ns, and of each part how long after that the last
        reply of the long ones came; null where most were not long.
    """
    joined = rows.join(longs, list(KEYS))
    known = joined.filter(joined.took_ns.notnull() & (joined.scatter < joined.cut))
    # each row counts on either side, and is read once
    sided = known.mutate(side=ibis.array(list(sides)).unnest())

    def own(columns: Mapping[str, str]) -> Value:
        return ibis.cases(*((sided.side == side, sided[it]) for side, it in columns.items()))

    binned = sided.mutate(
        node=own({side: side for side in sides}),
        started_ns=bin_start(sided.intended_ns, own({side: f"{side}_bin_ns" for side in sides})),
    )
    keys = ("side", "cell", "op", "repeat", "node", "started_ns")
    figures: dict[str, Value] = {"n": binned.count(), "least": binned.least.max()}
    for side, parts in sides.items():
        for part in parts:
            is_long = (binned.side == side) & (binned[part].fill_null(-1) > binned[f"long_{part}"])
            figures[f"{part}_long"] = is_long.sum()
            figures[f"{part}_until"] = binned.received_ns.max(where=is_long)
    counted = binned.group_by(*keys).agg(**figures)
    untils = {
        part: ibis.ifelse(
            counted[f"{part}_long"] * 2 > counted.n,
            counted[f"{part}_until"] - counted.started_ns,
            None,
        )
        for part in PARTS
    }
    found = counted.filter(counted.n >= counted.least).select(*keys, **untils)
    return found.filter(ibis.or_(*(found[part].notnull() for part in PARTS))).order_by(*keys)


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
    """Return the first row of every group, then the second of each, until there are `most`.

    By their order alone the many rows of one group would leave no room for those of another.
    """
    turn = ibis.row_number().over(ibis.window(group_by=list(group), order_by=list(order)))
    told = rows.mutate(turn=turn, total=rows.count().over(ibis.window()))
    return told.order_by("turn", *group, *order).limit(most).drop("turn")


def levels(resources: Table, metrics: Mapping[str, str]) -> Table:
    """Return samples with each metric in the unit of its floor.

    Parameters
    ----------
    metrics : mapping of str to str
        The unit of each metric: "time" (a share of the sample's time), "second" (a number per
        second), or "sample" (the value of the sample).

    Returns
    -------
    Table
        cell, repeat, whose, watched (whether that is a process, and no host), started_ns, ended_ns
        and the metrics. A sample of no length has none. ``cpu_ns`` is the CPU time of a process, in
        user mode and in the kernel. ``lost_segments`` are the TCP segments sent again that had not
        arrived: a receiver that acknowledges late has its peers send others again as well.
    """
    arrived = resources.tcp_needless_retransmits.fill_null(0)
    resources = resources.mutate(
        cpu_ns=resources.user_ns + resources.system_ns,
        lost_segments=resources.tcp_retransmits - arrived,
    )
    length = (resources.ended_ns - resources.started_ns).cast("float64").nullif(0.0)
    of = {"time": length, "second": length / SECOND_NS, "sample": ibis.literal(1.0)}
    return resources.select(
        "cell", "repeat", "started_ns", "ended_ns",
        whose=resources.watched.fill_null(resources.host),
        watched=resources.watched.notnull(),
        **{name: resources[name].cast("float64") / of[per] for name, per in metrics.items()},
    )  # fmt: skip


def usual_levels(table: Table, metrics: Sequence[str]) -> Table:
    """Return the usual levels of each process and host, over the whole run.

    Parameters
    ----------
    table : Table
        As `levels` gives them.

    Returns
    -------
    Table
        whose, watched, and for each metric ``<metric>_n``, ``_middle`` (the median), ``_spread``
        (the median absolute deviation from it) and ``_highest``.
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
    order = (scattered(found.started_ns), "started_ns")
    return _in_turn(found, group, order, most)
