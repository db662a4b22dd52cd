"""Expressions by runtime: copies with the runtimes of both ends, and which met a collection.

A copy of a group request meets a span when the two overlap. Both are intervals, and a join by two
inequalities would compare every copy with every span of its agent. So each span is laid into bins
as wide as the copies that may meet it are long, and a copy looks into one bin, that of its end: the
last span that began by then is the only one that can matter, since spans do not overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

from unruly.tables.advice import block_of
from unruly.tables.causes import scattered
from unruly.tables.requests import bin_start, bins_touched

if TYPE_CHECKING:
    from ibis.expr.types import Table, Value

COLLECTION: Final = "gc"
AWAITED: Final = ("timeout", "lost")
"""Who is so was waited for until the timeout, unless the reply came late."""
WIDTHS_NS: Final = (1 << 26, 1 << 31, 1 << 36, 1 << 41)
"""67 ms, 2.1 s, 69 s, 37 min: a copy looks into bins of the first that is longer than it took."""
MEETINGS: Final = ("number", "block", "slow", "asks", "answers")


def collections(events: Table, agents: Table) -> Table:
    """When the agents collected, as their events say: place, node, started_ns, ended_ns.

    Parameters
    ----------
    agents : Table
        cell, repeat, process, place (of the cell and repeat), node.
    """
    found = events.filter((events.kind == COLLECTION) & events.ended_ns.notnull())
    joined = found.join(agents, ["cell", "repeat", "process"])
    columns = ("place", "node", "started_ns", "ended_ns")
    return joined.select(*columns).order_by(*columns)


def placed(rows: Table, places: Table, agents: Table, blocks: int) -> Table:
    """The copies with numbers for names, the runtime of either end, and when each was over.

    Parameters
    ----------
    rows : Table
        As `unruly.tables.requests.measured` gives them.
    places : Table
        Of each (cell, repeat, op): ``number`` (of the cell and op), ``whole`` (of the cell),
        ``place`` (of the cell and repeat), ``limit_ns`` (slower copies are slow), ``timeout_ns``,
        and ``first_ns``, ``before_ns``, ``block_ns`` of the cell's measured time.
    agents : Table
        cell, repeat, node, jvm (1, or 0 of a native one).

    Returns
    -------
    Table
        number, place, pair (four times whole, two if a JVM asks, one if one answers), answer (two
        times whole, one if a JVM answers), asks, answers, client, server, intended_ns, until_ns,
        ok, response, slow, block.
    """
    keys = ["cell", "repeat"]
    asking = agents.select(*keys, client="node", asks="jvm")
    answering = agents.select(*keys, server="node", answers="jvm")
    joined = rows.join(places, [*keys, "op"])
    joined = joined.join(asking, [*keys, "client"]).join(answering, [*keys, "server"])
    wait = ibis.ifelse(joined.status.isin(AWAITED), joined.timeout_ns, 0)
    over = joined.received_ns.fill_null(
        ibis.greatest(joined.intended_ns + wait, joined.sent_ns.fill_null(0))
    )
    return joined.select(
        "number", "place", "asks", "answers", "client", "server", "intended_ns", "ok", "response",
        pair=(joined.whole * 4 + joined.asks * 2 + joined.answers).cast("int32"),
        answer=(joined.whole * 2 + joined.answers).cast("int32"),
        until_ns=ibis.greatest(over, joined.intended_ns),
        slow=joined.response > joined.limit_ns,
        block=block_of(joined, blocks),
    )  # fmt: skip


def in_bins(spans: Table) -> Table:
    """Lay spans into the bins in which a copy that meets them can end.

    Parameters
    ----------
    spans : Table
        place, node, started_ns, ended_ns, next_ns (when the next one of the node starts). The spans
        of one node do not overlap.

    Returns
    -------
    Table
        The same with ``level`` (which of `WIDTHS_NS`) and ``bin``.
    """
    laid = []
    for level, width in enumerate(WIDTHS_NS):
        # a copy shorter than the bins ends no later after the span than they are wide
        last = ibis.least(spans.ended_ns + width, spans.next_ns - 1)
        bins = bins_touched(spans.started_ns, last, width)
        laid.append(spans.mutate(level=ibis.literal(level, type="int8"), bin=bins))
    return ibis.union(*laid)


def met(rows: Table, near: Table) -> Table:
    """Count the copies that met a collection at the sender, at the receiver, and at either.

    Parameters
    ----------
    rows : Table
        As `placed` gives them.
    near : Table
        As `in_bins` gives them.

    Returns
    -------
    Table
        `MEETINGS`, n, asking, answering (how many met one at that end), either.
    """
    length = rows.until_ns - rows.intended_ns

    def by_level(*values: int) -> Value:
        steps = zip(WIDTHS_NS[:-1], values[:-1], strict=True)
        return ibis.cases(*((length < width, value) for width, value in steps), else_=values[-1])

    width = by_level(*WIDTHS_NS)
    looking = rows.select(
        *MEETINGS, "place", "client", "server", "until_ns",
        since_ns=ibis.greatest(rows.intended_ns, rows.until_ns - WIDTHS_NS[-1]),
        level=by_level(*range(len(WIDTHS_NS))).cast("int8"),
        bin=bin_start(rows.until_ns, width),
    )  # fmt: skip
    for side in ("client", "server"):
        looking = _with_last(looking, near, side)
    at = {
        name: (looking[f"{side}_ended_ns"] >= looking.since_ns).fill_null(False)
        for name, side in (("asking", "client"), ("answering", "server"))
    }
    counts = {name: there.sum() for name, there in at.items()}
    either = (at["asking"] | at["answering"]).sum()
    return (
        looking.group_by(*MEETINGS)
        .agg(n=looking.count(), **counts, either=either)
        .order_by(*MEETINGS)
    )


def _with_last(rows: Table, near: Table, side: str) -> Table:
    """Add ``<side>_ended_ns``: when the last span ended that began before a copy was over."""
    # a view: the same table is joined once for each end
    spans = near.view().select(
        of_place="place", of_level="level", of_bin="bin", of_node="node", of_started="started_ns",
        of_next="next_ns", of_ended="ended_ns",
    )  # fmt: skip
    joined = rows.left_join(
        spans,
        [
            rows.place == spans.of_place,
            rows[side] == spans.of_node,
            rows.level == spans.of_level,
            rows.bin == spans.of_bin,
            rows.until_ns >= spans.of_started,
            rows.until_ns < spans.of_next,
        ],
    )
    return joined.select(*rows.columns, **{f"{side}_ended_ns": joined.of_ended})


def slow_copies(rows: Table, most: int) -> Table:
    """Slow copies of each (cell, op), as chance chooses them, at most so many.

    Returns
    -------
    Table
        number, place, asks, answers, client, server, took_ns.
    """
    slow = rows.filter(rows.slow & ((rows.asks == 1) | (rows.answers == 1)))
    order = ("scatter", "intended_ns", "client", "server")
    marked = slow.mutate(scatter=scattered(slow.intended_ns))
    window = ibis.window(group_by="number", order_by=list(order))
    turned = marked.mutate(turn=ibis.row_number().over(window))
    kept = turned.filter(turned.turn < most)
    return kept.select(
        "number", "place", "asks", "answers", "client", "server",
        took_ns=kept.until_ns - kept.intended_ns,
    ).order_by("number", "place", "client", "server", "took_ns")  # fmt: skip
