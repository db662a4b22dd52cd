"""Expressions over trials (a repeat of a cell): requests sent and answered, and late-sent tails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ibis.expr.types import Table

KEYS: Final = ("cell", "repeat")


def came(rows: Table, legs: Table) -> Table:
    """Count the requests scheduled, sent and answered before the last scheduled time of a trial.

    Parameters
    ----------
    legs : Table
        cell, repeat, last_ns (the scheduled time of the trial's last request).

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
    """Count the rows beyond the p99 of their trial, and how many of them were late by the send.

    Parameters
    ----------
    limits : Table
        cell, repeat, p99.
    least_ns : float
        A smaller send delay does not count, however short the response time is.

    Returns
    -------
    Table
        cell, repeat, tail, explained (the send delay is more than half of the response time).
    """
    joined = rows.join(limits, list(KEYS))
    beyond = joined.filter(joined.response > joined.p99)
    lag = beyond.send_lag
    explained = beyond.ok & (lag > 0.5 * beyond.response) & (lag > least_ns)
    return (
        beyond.group_by(*KEYS).agg(tail=beyond.count(), explained=explained.sum()).order_by(*KEYS)
    )
