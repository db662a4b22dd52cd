"""Expressions over ``histograms``: what other tools kept in bins, summed where sums are allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ibis.expr.types import Table

INFINITY: Final = float("inf")
EDGES: Final = ("low_ns", "high_ns")


def extents(bins: Table) -> Table:
    """First start, last end, intervals, values and failures of each (cell, op)."""
    return (
        bins.group_by("cell", "op")
        .agg(
            n=bins["count"].sum(),
            failed=bins["count"].sum(where=bins.high_ns == INFINITY),
            first_ns=bins.started_ns.min(),
            last_ns=bins.ended_ns.max(),
            intervals=bins.started_ns.nunique(),
        )
        .order_by("cell", "op")
    )


def by_block(bins: Table, places: Table, blocks: int) -> Table:
    """Sum bins of equal edges in equal blocks of time: cell, op, block, low_ns, high_ns, count.

    Parameters
    ----------
    places : Table
        ``first_ns`` and ``block_ns`` of each (cell, op).
    """
    joined = bins.join(places, ["cell", "op"])
    middle = (joined.started_ns + (joined.ended_ns - joined.started_ns) // 2) - joined.first_ns
    block = (middle / joined.block_ns).floor().cast("int32").clip(lower=0, upper=blocks - 1)
    keys = ("cell", "op", "block", *EDGES)
    return (
        joined.mutate(block=block)
        .group_by(*keys)
        .agg(count=lambda t: t["count"].sum())
        .order_by(*keys)
    )


def by_bin(bins: Table, first_ns: int, bin_ns: int) -> Table:
    """Sum bins of equal edges in stretches of time: op, bin, low_ns, high_ns, count."""
    keys = ("op", "bin", *EDGES)
    return (
        bins.mutate(bin=((bins.started_ns - first_ns) // bin_ns).cast("int32"))
        .group_by(*keys)
        .agg(count=lambda t: t["count"].sum())
        .order_by(*keys)
    )
