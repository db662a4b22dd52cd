"""Expressions over the parts of requests that the load generator writes as spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

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
