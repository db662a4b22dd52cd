"""Expressions over requests and the parts of their replies, held to limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

from unruly.tables.advice import block_of
from unruly.tables.spans import REQUEST, parts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ibis.expr.types import Table

FIRST: Final = ("first token", "first message")
OTHER: Final = ("token", "message")


def measured(rows: Table, spans: Table, *, retried: bool) -> Table:
    """The rows with what limits are about (ns): ``ttft``, ``tpot``, ``gap``, ``e2e``.

    Null where a reply had no such part.
    """
    pieces = parts(spans, rows, retried=retried)
    first, other = pieces.layer.isin(FIRST), pieces.layer.isin(OTHER)
    each = pieces.group_by(*REQUEST).agg(
        ttft=pieces.response.min(where=first),
        tpot=pieces.response.mean(where=other),
        gap=pieces.response.max(where=other),
    )
    joined = rows.left_join(each, REQUEST).drop(*(f"{name}_right" for name in REQUEST))
    return joined.mutate(e2e=joined.response)


def whole(rows: Table) -> Table:
    """The rows of a run without spans: a limit can be about ``e2e`` alone."""
    absent = dict.fromkeys(("ttft", "tpot", "gap"), ibis.null("float64"))
    return rows.mutate(e2e=rows.response, **absent)


def by_block(rows: Table, places: Table, limits: Mapping[str, float], blocks: int) -> Table:
    """How many requests of each block were good: cell, block, n, good, failed, one for each limit.

    A good request was answered well, and nothing of it was beyond a limit. What a reply does not
    have is not beyond one, but a reply without a first part has not come in time.

    Parameters
    ----------
    rows : Table
        As `measured` or `whole` gives them.
    places : Table
        Of each (cell, repeat, op): ``first_ns``, ``before_ns``, ``block_ns``.
    limits : mapping
        The limit of each measure, ns.
    """
    joined = rows.join(places, ["cell", "repeat", "op"])
    beyond = {
        name: joined.ok & (joined[name] > limit).fill_null(name == "ttft")
        for name, limit in limits.items()
    }
    good = joined.ok
    for missed in beyond.values():
        good = good & ~missed
    marked = joined.select(
        "cell", block=block_of(joined, blocks), good=good, failed=~joined.ok, **beyond
    )
    sums = {name: marked[name].sum().cast("int64") for name in ("good", "failed", *limits)}
    keys = ("cell", "block")
    return marked.group_by(*keys).agg(n=marked.count(), **sums).order_by(*keys)
