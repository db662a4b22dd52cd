"""Expressions over the cells of a matrix: each cell and repeat, streaks, and what was used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

from unruly.tables.requests import INFINITY

if TYPE_CHECKING:
    from ibis.expr.types import Table

USED: Final = (
    "user_ns",
    "system_ns",
    "minor_faults",
    "voluntary_switches",
    "involuntary_switches",
    "rss_bytes",
)
"""What the study held against outliers, of a process."""


def outliers_of_repeats(rows: Table, limits: Table, latency: str) -> Table:
    """Rows above their cell's ``limit``, by (place, repeat), and the streaks that they come in.

    A streak is a run of neighbours in the order of the schedule that are all above.

    Parameters
    ----------
    limits : Table
        ``cell``, ``limit``, and ``place``, the number of the cell.
    """
    joined = rows.join(limits, "cell")
    above = (joined[latency] > joined["limit"]).cast("int8")
    placed = joined.select(
        "place",
        "repeat",
        "intended_ns",
        "client",
        "connection",
        "request",
        above=above,
        # a row that failed has no size
        size=ibis.ifelse(joined[latency] == INFINITY, None, joined[latency]),
    )
    order = ibis.window(
        group_by=["place", "repeat"],
        order_by=["intended_ns", "client", "connection", "request"],
    )
    before = placed.above.lag().over(order).fill_null(0)
    marked = placed.mutate(starts=ibis.ifelse((placed.above == 1) & (before == 0), 1, 0))
    return (
        marked.group_by("place", "repeat")
        .agg(
            n=marked.count(),
            outliers=marked.above.sum(),
            streaks=marked.starts.sum(),
            size=marked["size"].mean(where=marked.above == 1),
        )
        .order_by("place", "repeat")
    )


def cut(rows: Table, limits: Table, latency: str) -> Table:
    """The rows at or below their cell's ``limit``."""
    joined = rows.join(limits, "cell")
    return joined.filter(joined[latency] <= joined["limit"])


def used(resources: Table) -> Table:
    """Mean of what each watched process used a second, by (cell, watched)."""
    rows = resources.filter(resources.watched.notnull())
    seconds = (rows.ended_ns - rows.started_ns).cast("float64").nullif(0.0) / 1e9
    figures = {
        name: (
            rows[name].cast("float64") if name.endswith("_bytes") else rows[name] / seconds
        ).mean()
        for name in USED
    }
    return rows.group_by("cell", "watched").agg(**figures).order_by("cell", "watched")
