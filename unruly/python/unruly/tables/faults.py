"""Expressions over faults: their times, the requests during them, undisturbed ones, and silences.

Windows are on the one clock of the run, in which no two trials overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

from unruly.tables.requests import INFINITY
from unruly.tables.steadiness import within

if TYPE_CHECKING:
    from ibis.expr.types import Table


FAULT: Final = "fault "
LOST: Final = ("wrong:lost", "wrong:stale")
"""Statuses of a reply without the last acknowledged write of its key."""
UNTIL_AGAIN: Final = {"fault stop": "fault continue", "fault kill": "process started"}
"""What ends a fault whose event has no end of its own."""


def struck(events: Table) -> Table:
    """Return every fault: cell, repeat, process, kind, detail, started_ns, lasted_ns.

    A fault whose event has no end lasts until its process runs again; null if it never does.
    """
    ends = list(UNTIL_AGAIN.values())
    told = events.filter(events.kind.startswith(FAULT) | events.kind.isin(ends))
    told = told.mutate(ends=told.kind.isin(ends))
    # an end at the same instant as the next fault's begin ends the first fault only
    later = ibis.window(
        group_by=["cell", "repeat", "process"],
        order_by=["started_ns", ibis.desc("ends")],
        rows=(1, None),
    )
    ended = told.ended_ns
    for kind, again in UNTIL_AGAIN.items():
        since = ibis.ifelse(told.kind == again, told.started_ns, None).min().over(later)
        ended = ibis.ifelse(told.kind == kind, ended.fill_null(since), ended)
    known = told.mutate(lasted_ns=ended - told.started_ns)
    columns = ("cell", "repeat", "process", "kind", "detail", "started_ns", "lasted_ns")
    return known.filter(~known.ends).select(*columns).order_by("started_ns", "process", "kind")


def due_within(rows: Table, windows: Table) -> Table:
    """Return the requests scheduled in each window: effect, cell, ok, response.

    Parameters
    ----------
    windows : Table
        effect (a number that several windows may share), from_ns, to_ns.
    """
    return within(rows, windows).select("effect", "cell", "ok", "response")


def untouched(rows: Table, quiet: Table, patience_ns: float) -> Table:
    """Return rows scheduled in a quiet stretch and done before the next fault: cell, ok, response.

    Parameters
    ----------
    quiet : Table
        from_ns, to_ns, until_ns (when the next fault comes; the end of a trial is no fault).
    patience_ns : float
        The timeout: how long the client waited for a request that failed.
    """
    due = within(rows, quiet)
    waited = ibis.ifelse(due.response == INFINITY, patience_ns, due.response)
    # as differences: a wall clock in ns does not fit a double
    done = waited <= (due.until_ns - due.intended_ns).cast("float64")
    return due.filter(done).select("cell", "ok", "response")


def first_hurt(rows: Table, windows: Table) -> Table:
    """Return the scheduled time of the first request that failed or was slower than a limit.

    Parameters
    ----------
    windows : Table
        fault, from_ns, to_ns, free_max_ns (the longest latency of a request that is not hurt).

    Returns
    -------
    Table
        fault, after_ns (from the window's begin); no row if no request was affected.
    """
    due = within(rows, windows)
    hurt = due.filter(~due.ok | (due.response > due.free_max_ns))
    after = hurt.intended_ns - hurt.from_ns
    return hurt.group_by("fault").agg(after_ns=after.min()).order_by("fault")


def without_their_write(rows: Table, windows: Table) -> Table:
    """Return the replies in each window that lack an acknowledged write: effect, lost.

    Such a reply says that there is no value, or returns one from before the write. A window without
    any has no row.

    Parameters
    ----------
    windows : Table
        effect (a number that several windows may share), from_ns, to_ns.
    """
    wrong = rows.filter(rows.status.isin([*LOST]) & rows.received_ns.notnull())
    came = within(wrong, windows, "received_ns")
    return came.group_by("effect").agg(lost=came.count()).order_by("effect")


def first_reply(rows: Table, windows: Table) -> Table:
    """Return when the first good reply came in each window: fault, came_ns; no row without one."""
    came = within(rows.filter(rows.ok), windows, "received_ns")
    return came.group_by("fault").agg(came_ns=came.received_ns.min()).order_by("fault")


def silences(rows: Table, windows: Table) -> Table:
    """Return the longest time without a good reply in each window: fault, gap_ns, came.

    ``came`` counts the good replies in the window.

    A window without any good reply has no row.

    The end of the window ends a silence, too.
    """
    came = within(rows.filter(rows.ok), windows, "received_ns")
    order = ibis.window(group_by="fault", order_by="received_ns")
    before = came.received_ns.lag().over(order).fill_null(came.from_ns)
    gaps = came.mutate(gap_ns=came.received_ns - before)
    rest = (gaps.to_ns - gaps.received_ns).min()
    longest = ibis.greatest(gaps.gap_ns.max(), rest)
    return gaps.group_by("fault").agg(gap_ns=longest, came=gaps.count()).order_by("fault")
