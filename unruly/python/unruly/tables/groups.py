"""Expressions over group requests: the k-th of n replies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

from unruly.tables.requests import INFINITY, bucket

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibis.expr.types import FloatingValue, IntegerValue, Table, Value

REQUEST: Final = ("cell", "repeat", "op", "client", "request")
NEVER_NS: Final = 2**63 - 1


def replies(rows: Table) -> Table:
    """One row for each request of two copies or more: its size, and its replies' sorted times.

    Time counts from the intended time of the first attempt. A copy that failed is +inf; so is one
    whose retries all failed. ``size`` counts servers asked, not attempts.
    """
    never = ibis.literal(NEVER_NS, type="int64")
    per_copy = rows.group_by(*REQUEST, "server").agg(
        received_ns=rows.received_ns.min(where=rows.ok).fill_null(never),
        intended_ns=rows.intended_ns.min(),
    )
    per_request = per_copy.group_by(*REQUEST).agg(
        replies=per_copy.received_ns.collect(),
        intended_ns=per_copy.intended_ns.min(),
        size=per_copy.count(),
    )
    intended = per_request.intended_ns

    def since_intended(received: IntegerValue) -> FloatingValue:
        # subtract as integers: a wall clock in ns does not fit a double
        return ibis.ifelse(received == never, INFINITY, (received - intended).cast("float64"))

    groups = per_request.filter(per_request["size"] > 1)
    return groups.mutate(replies=groups.replies.map(since_intended).sort())


def replies_without_retries(rows: Table) -> Table:
    """The same, faster, where no request was tried twice: a row is a copy."""
    per_request = rows.group_by(*REQUEST).agg(replies=rows.response.collect(), size=rows.count())
    groups = per_request.filter(per_request["size"] > 1)
    return groups.mutate(replies=groups.replies.sort())


def kth_quantiles(group_replies: Table, largest: int, probabilities: Sequence[float]) -> Table:
    """Quantiles of the k-th reply for every k up to `largest`, by (cell, op, size).

    Columns ``failed_<k>``, ``quantiles_<k>``, ``mean_<k>``, ``max_<k>``; null where k > size. The
    engine holds every reply.
    """
    lists = {
        f"quantiles_{k}": reply(group_replies, k).quantile(list(probabilities))
        for k in range(1, largest + 1)
    }
    return _by_size(group_replies, {**_figures(group_replies, largest), **lists})


def kth_figures(group_replies: Table, largest: int) -> Table:
    """The same without the quantiles."""
    return _by_size(group_replies, _figures(group_replies, largest))


def kth(group_replies: Table, k: int) -> Table:
    """The k-th reply of each request that has so many: cell, op, size, reply."""
    rows = group_replies.filter(group_replies["size"] >= k)
    return rows.select("cell", "op", "size", reply=rows.replies[k - 1])


def reply(group_replies: Table, k: int | IntegerValue) -> FloatingValue:
    """The k-th reply, or null: beyond the end of a list Spark has an error instead."""
    # Spark counts in a list by int32 only
    place = k - 1 if isinstance(k, int) else (k - 1).cast("int32")
    return ibis.ifelse(group_replies["size"] >= k, group_replies.replies[place], None)


def _by_size(group_replies: Table, figures: dict[str, Value]) -> Table:
    keys = ("cell", "op", "size")
    return group_replies.group_by(*keys).agg(**figures).order_by(*keys)


def _figures(group_replies: Table, largest: int) -> dict[str, Value]:
    figures: dict[str, Value] = {"n": group_replies.count()}
    for k in range(1, largest + 1):
        time = reply(group_replies, k)
        known = time.nullif(INFINITY)
        figures |= {
            f"failed_{k}": (time == INFINITY).sum(),
            f"mean_{k}": known.mean(),
            f"max_{k}": known.max(),
        }
    return figures


def kth_histogram(group_replies: Table) -> Table:
    """Histogram of the k-th reply for every k, by (cell, op, size, k)."""
    keys = ("cell", "op", "size", "k", "bucket")
    numbered = group_replies.select(
        "cell", "op", "size", "replies", k=ibis.range(1, group_replies["size"] + 1).unnest()
    )
    # Spark counts in a list by int32 only
    place = (numbered.k - 1).cast("int32")
    return (
        numbered.mutate(bucket=bucket(numbered.replies[place]))
        .group_by(*keys)
        .agg(count=lambda t: t.count())
        .order_by(*keys)
    )
