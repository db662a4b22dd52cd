"""Expressions over the cells of a matrix: each cell and repeat, streaks, and resource use."""

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
    """Rows above their cell's ``limit``, by place, and the streaks that they come in.

    A streak is a run of neighbours in the order of the schedule that are all above.

    Parameters
    ----------
    rows : Table
        As `unruly.tables.requests.numbered` gives them.
    limits : Table
        ``whole``, the number of a cell, and ``limit``.
    """
    joined = rows.join(limits, "whole")
    placed = joined.select(
        "place",
        "intended_ns",
        "client",
        "connection",
        "request",
        above=(joined[latency] > joined["limit"]).cast("int8"),
        # a row that failed has no size
        size=joined[latency].nullif(INFINITY),
    )
    order = ibis.window(
        group_by="place", order_by=["intended_ns", "client", "connection", "request"]
    )
    before = placed.above.lag().over(order).fill_null(0)
    marked = placed.mutate(starts=ibis.ifelse((placed.above == 1) & (before == 0), 1, 0))
    return (
        marked.group_by("place")
        .agg(
            n=marked.count(),
            outliers=marked.above.sum(),
            streaks=marked.starts.sum(),
            size=ibis.ifelse(marked.above == 1, marked["size"], None).mean(),
        )
        .order_by("place")
    )


def cut(rows: Table, limits: Table, latency: str) -> Table:
    """The rows at or below the ``limit`` of their ``whole``, a cell's number."""
    joined = rows.join(limits, "whole")
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
