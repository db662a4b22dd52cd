"""Expressions over the far tail: requests over a limit, by blocks of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ibis.expr.types import Table


def over_limits(rows: Table, target_ns: float, outlier_ns: float) -> Table:
    """Requests of each (cell, op) over two limits, by block; one that failed is over any.

    Parameters
    ----------
    rows : Table
        As `unruly.tables.requests.numbered` gives them.

    Returns
    -------
    Table
        number, block, n, late (over `target_ns`), outliers (over `outlier_ns`).
    """
    keys = ("number", "block")
    return (
        rows.group_by(*keys)
        .agg(
            n=rows.count(),
            late=(rows.response > target_ns).sum(),
            outliers=(rows.response > outlier_ns).sum(),
        )
        .order_by(*keys)
    )
