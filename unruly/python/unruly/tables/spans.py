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
"""An absence of the load generator; it ends when a reply, a token or a message was read."""
REQUEST: Final = ("cell", "repeat", "client", "request")


def parts(spans: Table, rows: Table, *, retried: bool) -> Table:
    """The parts to analyse: those of `spans`, ``response`` (how long, ns), ``ok``.

    Connections are those of all phases, tokens and messages those of `rows`. Where requests were
    tried again (``retried``), they are those of the last try that had any.
    """
    opening = spans.filter(spans.layer.isin(OPENING))
    known = ibis.union(opening, _streamed(spans, rows, STREAMED, retried=retried))
    return known.mutate(
        response=(known.ended_ns - known.started_ns).cast("float64"),
        ok=ibis.literal(True),
    )


def _streamed(spans: Table, rows: Table, layers: tuple[str, ...], *, retried: bool) -> Table:
    """The tokens or messages of the replies of `rows`, as `parts` counts them."""
    streamed = spans.filter(spans.layer.isin(layers)).semi_join(rows, REQUEST)
    if retried:
        last = streamed.group_by(*REQUEST).agg(attempt=streamed.attempt.max())
        streamed = streamed.semi_join(last, (*REQUEST, "attempt"))
    return streamed


def streamed_parts(spans: Table, rows: Table, *, retried: bool) -> Table:
    """Count the tokens and messages of the replies of `rows`: ``layer``, ``n``."""
    streamed = _streamed(spans, rows, STREAMED, retried=retried)
    return streamed.group_by("layer").agg(n=streamed.count()).order_by("layer")


def parts_unread(spans: Table, rows: Table, layers: tuple[str, ...], *, retried: bool) -> Table:
    """Return the parts of the replies of `rows` that may have waited unread, and how long.

    Columns: ``response`` (as in `parts`) and ``delay`` (ns). If several parts came with one look,
    only the first one waited: the others came with it.
    """
    streamed = _streamed(spans, rows, layers, retried=retried)
    first = streamed.filter(streamed.started_ns < streamed.ended_ns)
    joined = first.join(_absences(spans), KEYS)
    since_ns = ibis.greatest(joined.since_ns, joined.started_ns)
    return joined.select(
        response=(joined.ended_ns - joined.started_ns).cast("float64"),
        delay=(joined.ended_ns - since_ns).cast("float64"),
    )


def replies_unread(spans: Table, rows: Table) -> Table:
    """Return the stamped replies of `rows` that waited unread, and how long.

    Columns: ``response`` and ``delay`` (ns). A kernel that has received the last bytes of a reply
    stamps them. If earlier bytes were lost, nobody can read them yet, so the load generator must
    have been away too: ``delay`` is the shorter of the two times.
    """
    stamped = rows.filter(rows.ok & (rows.kernel_received_ns >= rows.sent_ns))
    replies = stamped.mutate(ended_ns=stamped.received_ns)
    joined = replies.join(_absences(spans), KEYS)
    delay = ibis.least(
        joined.ended_ns - joined.kernel_received_ns, joined.ended_ns - joined.since_ns
    )
    return joined.select("response", delay=delay.cast("float64"))


KEYS: Final = (*REQUEST, "attempt", "ended_ns")


def _absences(spans: Table) -> Table:
    """The absences of the load generator, by the part or the reply that each ended with."""
    late = spans.filter(spans.layer == READ_DELAY)
    return late.group_by(*KEYS).agg(since_ns=late.started_ns.min())
