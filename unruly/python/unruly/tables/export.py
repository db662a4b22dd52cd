"""Expressions for what other programs read: buckets of HdrHistogram, and plain rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

from unruly.tables.requests import INFINITY, bin_start

if TYPE_CHECKING:
    from ibis.expr.types import Table

DIGITS: Final = 3
SUB_BUCKETS: Final = 2048
"""The power of two above 2 x 10^3: where a bucket of 3 digits doubles its width."""
HALF: Final = SUB_BUCKETS // 2
SECOND_NS: Final = 1_000_000_000


def hdr_buckets(rows: Table, latency: str) -> Table:
    """Count ok rows by (cell, op, second, place): the index of an HdrHistogram of 3 digits.

    ``second`` counts since 1970; ``most`` is the largest latency in each bucket (ns).
    """
    known = rows.filter(rows[latency] != INFINITY)
    value = known[latency].clip(lower=1.0).floor()
    # where log2 of just below a power of two rounds up, the place comes out the same
    doublings = (value.log2().floor() - 10).clip(lower=0).cast("int32")
    place = (doublings * HALF) + (value / _power(doublings)).floor().cast("int32")
    second = (bin_start(known.intended_ns, SECOND_NS) / SECOND_NS).round().cast("int64")
    keys = ("cell", "op", "second", "place")
    return (
        known.mutate(second=second, place=place)
        .group_by(*keys)
        .agg(count=lambda t: t.count(), most=lambda t: t[latency].max())
        .order_by(*keys)
    )


def _power(exponent: ibis.expr.types.IntegerValue) -> ibis.expr.types.FloatingValue:
    return ibis.literal(2.0) ** exponent


def plain_rows(rows: Table) -> Table:
    """Return every measured row, in the order of the schedule, with both latencies in ns."""

    def known(name: str) -> ibis.expr.types.IntegerValue:
        return ibis.ifelse(rows[name] == INFINITY, None, rows[name]).cast("int64")

    return rows.select(
        "cell",
        "repeat",
        "op",
        "client",
        "server",
        "request",
        "attempt",
        "intended_ns",
        "sent_ns",
        "received_ns",
        response_ns=known("response"),
        service_ns=known("service"),
        status=rows.status,
    ).order_by("intended_ns", "client", "request", "server", "attempt")
