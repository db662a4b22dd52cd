"""Expressions over the parts of requests that the load generator writes as spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

if TYPE_CHECKING:
    from ibis.expr.types import Table

OPENING: Final = ("connect", "tls")
TOKENS: Final = ("first token", "token")
MESSAGES: Final = ("first message", "message")
STREAMED: Final = (*TOKENS, *MESSAGES)
"""Those of a reply that comes piece by piece."""
LAYERS: Final = (*OPENING, *STREAMED)
"""The parts of requests that the load generator writes, in their order."""
READ_DELAY: Final = "read delay"
"""A token or a message that may have waited unread; it ends when that part ends."""
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


def read_delays(spans: Table, rows: Table, layers: tuple[str, ...]) -> Table:
    """Return some parts of the replies of `rows`, and how long each may have waited unread.

    Columns: ``response`` (as in `parts`) and ``delay`` (ns, 0 where the load generator was there).
    """
    own = spans.semi_join(rows, REQUEST)
    pieces = own.filter(own.layer.isin(layers))
    late = own.filter(own.layer == READ_DELAY)
    keys = (*REQUEST, "attempt", "ended_ns")
    held = late.select(*keys, since_ns=late.started_ns)
    joined = pieces.left_join(held, keys)
    return joined.select(
        response=(joined.ended_ns - joined.started_ns).cast("float64"),
        delay=(joined.ended_ns - joined.since_ns).fill_null(0).cast("float64"),
    )
