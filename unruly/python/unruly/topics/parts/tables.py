"""Expressions over the parts of requests, and the requests that waited for a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.tables.advice import block_of
from unruly.tables.spans import OPENING, REQUEST

if TYPE_CHECKING:
    from ibis.expr.types import Table


def extents(spans: Table) -> Table:
    """When the parts of each (cell, repeat, layer) began: first_ns, last_ns, n."""
    keys = ("cell", "repeat", "layer")
    return (
        spans.group_by(*keys)
        .agg(first_ns=spans.started_ns.min(), last_ns=spans.started_ns.max(), n=spans.count())
        .order_by(*keys)
    )


def placed(spans: Table, places: Table, blocks: int) -> Table:
    """The spans with their blocks of time: number, block, response, ok.

    Parameters
    ----------
    spans : Table
        As `parts` gives them.
    places : Table
        Of each (cell, repeat, layer): ``number`` (of the cell and layer), ``first_ns``,
        ``before_ns``, ``block_ns``.
    """
    joined = spans.join(places, ["cell", "repeat", "layer"])
    timed = joined.mutate(intended_ns=joined.started_ns)
    return timed.select("number", "response", "ok", block=block_of(timed, blocks))


def waited(rows: Table, spans: Table, places: Table, blocks: int) -> Table:
    """How many requests waited for their connection: cell, op, block, n, opened.

    A request waited if its connection was asked for when it was scheduled, or later. One whose
    connection was opened ahead did not.

    Parameters
    ----------
    rows : Table
        As `unruly.tables.requests.measured` gives them.
    spans : Table
        As `parts` gives them.
    places : Table
        Of each (cell, repeat, op): ``first_ns``, ``before_ns``, ``block_ns``.
    """
    opening = spans.filter(spans.layer.isin(OPENING))
    began = opening.group_by(*REQUEST).agg(began_ns=opening.started_ns.min())
    joined = rows.left_join(began, REQUEST).drop(*(f"{name}_right" for name in REQUEST))
    joined = joined.join(places, ["cell", "repeat", "op"])
    late = (joined.began_ns >= joined.intended_ns).fill_null(False)
    counted = joined.select("cell", "op", block=block_of(joined, blocks), late=late)
    keys = ("cell", "op", "block")
    return counted.group_by(*keys).agg(n=counted.count(), opened=counted.late.sum()).order_by(*keys)
