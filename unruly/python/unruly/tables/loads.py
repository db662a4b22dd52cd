"""Expressions over legs (a repeat of a cell): what was sent, what came, and whose the tail is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ibis.expr.types import Table

KEYS: Final = ("cell", "repeat")


def came(rows: Table, legs: Table) -> Table:
    """What was due, what was sent, and what came well, before the last request of its leg was due.

    Parameters
    ----------
    legs : Table
        cell, repeat, last_ns.

    Returns
    -------
    Table
        cell, repeat, due, sent, came.
    """
    joined = rows.join(legs, list(KEYS))
    return (
        joined.group_by(*KEYS)
        .agg(
            due=(joined.intended_ns < joined.last_ns).sum(),
            sent=(joined.sent_ns <= joined.last_ns).sum(),
            came=(joined.ok & (joined.received_ns <= joined.last_ns)).sum(),
        )
        .order_by(*KEYS)
    )


def late_tails(rows: Table, limits: Table, least_ns: float) -> Table:
    """Rows beyond the p99 of their leg, and those of them that were late because sent late.

    Parameters
    ----------
    limits : Table
        cell, repeat, p99.
    least_ns : float
        A smaller send lag is no trouble, however short the response time.

    Returns
    -------
    Table
        cell, repeat, tail, explained (the send lag is more than half of the response time).
    """
    joined = rows.join(limits, list(KEYS))
    beyond = joined.filter(joined.response > joined.p99)
    lag = beyond.send_lag
    explained = beyond.ok & (lag > 0.5 * beyond.response) & (lag > least_ns)
    return (
        beyond.group_by(*KEYS).agg(tail=beyond.count(), explained=explained.sum()).order_by(*KEYS)
    )
