"""Expressions over the parts of requests, and the requests that waited for a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

from unruly.tables.advice import block_of

if TYPE_CHECKING:
    from ibis.expr.types import Table

OPENING: Final = ("connect", "tls")
STREAMED: Final = ("first token", "token", "first message", "message")
"""Those of a reply that comes piece by piece."""
LAYERS: Final = (*OPENING, *STREAMED)
"""The layers that the load generator writes, in their order."""
REQUEST: Final = ("cell", "repeat", "client", "request")


def parts(spans: Table, rows: Table, *, retried: bool) -> Table:
    """The parts to analyse: those of `spans`, ``response`` (how long, ns), ``ok``.

    Connections are those of all phases, tokens and messages those of `rows`. Where requests were
    tried again (``retried``), they are those of the last try that had any.
    """
    opening = spans.filter(spans.layer.isin(OPENING))
    streamed = spans.filter(spans.layer.isin(STREAMED)).semi_join(rows, REQUEST)
    if retried:
        last = streamed.group_by(*REQUEST).agg(attempt=streamed.attempt.max())
        streamed = streamed.semi_join(last, (*REQUEST, "attempt"))
    known = ibis.union(opening, streamed)
    return known.mutate(
        response=(known.ended_ns - known.started_ns).cast("float64"),
        ok=ibis.literal(True),
    )


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
