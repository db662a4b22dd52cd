"""Expressions over the arrival log of a replicated store: every algorithm on the same operations.

A row of ``requests`` is a copy there: one attempt of one operation to one replica. Copies that came
after the answer have their real times, so that each operation says what it would have taken to wait
for the first correct copy, for a majority of them, and for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

from unruly.tables.advice import REQUEST, asked, block_of
from unruly.tables.groups import reply
from unruly.tables.requests import INFINITY

if TYPE_CHECKING:
    from ibis.expr.types import FloatingValue, Table

    from unruly.topics.arrival_log.model import HopName, Measure

CHOSEN_LEVELS: Final = ("first", "quorum")
COPY_STATUSES: Final = ("behind", "stale", "lost")
"""What only a copy of a replicated operation can be."""
WAITS: Final[tuple[Measure, ...]] = ("first", "quorum", "all")
EXPOSURES: Final[tuple[Measure, ...]] = ("second", "every")
MEASURES: Final = (*WAITS, *EXPOSURES)
HOPS: Final[tuple[HopName, ...]] = ("hop_1", "hop_2")
WRITE: Final = "write"


def is_arrival_log(rows: Table) -> Table:
    """Say whether the rows are those of an arrival log: one row, ``told`` (null without rows)."""
    chosen = rows.level.isin(CHOSEN_LEVELS) & rows.answered
    copy = rows.level.notnull() & rows.status.isin(COPY_STATUSES)
    return rows.agg(told=(chosen | copy).any())


def operations(rows: Table) -> Table:
    """One row for each operation of a level: `unruly.tables.advice.asked`, replies ascending."""
    whole = asked(rows.filter(rows.level.notnull()))
    return whole.mutate(replies=whole.replies.sort())


def without_level(rows: Table) -> Table:
    """Count the operations that waited for no named level (hedges): cell, op, n."""
    hedged = rows.filter(rows.level.isnull()).group_by(*REQUEST).agg(copies=lambda t: t.count())
    return hedged.group_by("cell", "op").agg(n=hedged.count()).order_by("cell", "op")


def sizes(whole: Table) -> Table:
    """Count the operations by the number of replicas that they asked: cell, op, size, n."""
    keys = ("cell", "op", "size")
    return whole.group_by(*keys).agg(n=whole.count()).order_by(*keys)


def waited(whole: Table, places: Table, blocks: int) -> Table:
    """What each operation would have taken at each level, in ns since it was due; +inf if never.

    Parameters
    ----------
    whole : Table
        As `operations` gives them.
    places : Table
        Of each (cell, repeat, op): ``number`` (of its cell and op), ``replicas``, ``majority``, and
        ``first_ns``, ``before_ns``, ``block_ns``. Operations that asked another number of replicas
        are left out.
    blocks : int

    Returns
    -------
    Table
        cell, repeat, op, client, request, number, block, intended_ns, of_first, of_quorum, of_all;
        of_second: the second copy; answer: the copy that gave the answer.
    """
    joined = whole.join(places, ["cell", "repeat", "op"])
    joined = joined.filter(joined["size"] == joined.replicas)
    return joined.select(
        *REQUEST,
        "number",
        "intended_ns",
        block=block_of(joined, blocks),
        of_first=reply(joined, 1),
        of_quorum=reply(joined, joined.majority),
        of_all=reply(joined, joined.replicas),
        of_second=reply(joined, 2),
        answer=joined.response,
    )


def measures(times: Table) -> Table:
    """Every time of every operation, one under the other.

    Parameters
    ----------
    times : Table
        As `waited` gives them.

    Returns
    -------
    Table
        number (that of the operation times five, plus the place in `MEASURES`), block, response (ns
        or +inf), ok. Exposures are of answered writes alone: from the answer to the second correct
        copy, and to the last; 0 where that copy came before the answer.
    """
    written = times.filter((times["op"] == WRITE) & (times.answer != INFINITY))

    def named(table: Table, measure: str, value: FloatingValue) -> Table:
        number = table.number * len(MEASURES) + MEASURES.index(measure)
        return table.select(
            "block", number=number.cast("int32"), response=value, ok=value != INFINITY
        )

    return ibis.union(
        *(named(times, name, times[f"of_{name}"]) for name in WAITS),
        named(written, "second", (written.of_second - written.answer).clip(lower=0.0)),
        named(written, "every", (written.of_all - written.answer).clip(lower=0.0)),
    )


def unanswered(times: Table) -> Table:
    """Operations without an answer: number, n."""
    return times.group_by("number").agg(n=(times.answer == INFINITY).sum()).order_by("number")


def outliers(times: Table, limits: Table) -> Table:
    """Operations beyond their limit at a quorum, and those of them that are not so at the first.

    Parameters
    ----------
    limits : Table
        number, ``limit_ns``.

    Returns
    -------
    Table
        number, block, beyond, vanished. One that never had a quorum is beyond no limit.
    """
    joined = times.join(limits, "number")
    beyond = (joined.of_quorum > joined.limit_ns) & (joined.of_quorum != INFINITY)
    vanished = beyond & (joined.of_first <= joined.limit_ns)
    keys = ("number", "block")
    return joined.group_by(*keys).agg(beyond=beyond.sum(), vanished=vanished.sum()).order_by(*keys)


def slowest(times: Table, most: int) -> Table:
    """The operations of each (cell, op) whose quorum came last, of those that had one."""
    had = times.filter(times.of_quorum != INFINITY)
    order = [ibis.desc("of_quorum"), "intended_ns", "client", "request"]
    ranked = had.mutate(
        rank=ibis.row_number().over(ibis.window(group_by=["cell", "op"], order_by=order))
    )
    kept = ranked.filter(ranked["rank"] < most)
    columns = ("repeat", "client", "request", "intended_ns", "of_first", "of_quorum", "of_all")
    return kept.select("cell", "op", "rank", *columns).order_by("cell", "op", "rank")


def hops(rows: Table) -> Table:
    """Both hops of every copy that has their stamps: cell, op, hop, response (ns), ok.

    Hop 1 is from the server's kernel to the server, hop 2 from the client's kernel to the client:
    each within one clock.
    """

    def hop(name: str, since: str, until: str) -> Table:
        known = rows.filter(rows[since].notnull() & rows[until].notnull())
        return known.select(
            "cell",
            "op",
            hop=ibis.literal(name),
            response=(known[until] - known[since]).cast("float64"),
            ok=ibis.literal(True),
        )

    return ibis.union(
        hop("hop_1", "server_kernel_received_ns", "server_received_ns"),
        hop("hop_2", "kernel_received_ns", "received_ns"),
    )


def hops_over(stamped: Table, limit_ns: float) -> Table:
    """How many hops were longer than a limit: cell, op, hop, n."""
    keys = ("cell", "op", "hop")
    return stamped.group_by(*keys).agg(n=(stamped.response > limit_ns).sum()).order_by(*keys)


def copies(rows: Table) -> Table:
    """Copies of each (cell, op, server, status): n, and ``repeated``, those of a later attempt."""
    keys = ("cell", "op", "server", "status")
    return (
        rows.group_by(*keys).agg(n=rows.count(), repeated=(rows.attempt > 0).sum()).order_by(*keys)
    )
