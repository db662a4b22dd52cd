"""The far tail of each (cell, op), as far as its sample allows, and the target that it is held to.

A p99.999 rests on one request in a hundred thousand: what can be said of it is what the block
method says, or why it says nothing. The target is a share, of which a clean run of some hundred
thousand requests can say more than of the percentile itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from unruly.base.target import Target
from unruly.stats import (
    Interval,
    TargetShare,
    block_intervals,
    interval_of_ratio,
    target_share,
)
from unruly.stats.blocks import BLOCKS
from unruly.tables import fetch
from unruly.tables import tails as tail_tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unruly.base.context import Context
    from unruly.base.operation import CellSummary
    from unruly.base.part import Part
    from unruly.contract import Absent, Count
    from unruly.stats import BlockInterval

STORE_OPS: Final = frozenset({"read", "write"})
"""What a run asks of a store."""
PERCENTILES: Final = {"p99_9": 0.999, "p99_99": 0.9999, "p99_999": 0.99999}
OUTLIER_NS: Final = 100e6
"""What the study of data stores counts as an outlier, whatever the mean."""


@dataclass(frozen=True)
class Over:
    """Requests of one (cell, op) in blocks of its time: all, over the target, over 100 ms."""

    totals: NDArray[np.int64]
    late: NDArray[np.int64]
    outliers: NDArray[np.int64]


@dataclass(frozen=True)
class Far:
    """The data from which the far tail of one (cell, op) is summarised."""

    levels: dict[str, BlockInterval]
    mean: Interval
    over: Over


@dataclass(frozen=True)
class Tail:
    """The far tail of one (cell, op), of response time.

    ``absent`` has the reason of each value that is None. ``least`` has the lower bound (97.5 %) of
    a percentile, which is known even if the interval is absent. ``over_100ms`` counts failed
    requests, too.
    """

    cell: str
    op: str
    n: Count
    failed: Count
    mean_ok: float | None
    p99: float | None
    p99_9: Interval | None
    p99_99: Interval | None
    p99_999: Interval | None
    max_ok: float | None
    p99_999_over_mean: Interval | None
    over_10x_mean: int | None
    over_100ms: Count
    target: TargetShare
    estimates: dict[str, float | None]
    least: dict[str, float | None]
    absent: Absent = field(default_factory=dict)


def over_limits(part: Part, target: Target) -> dict[tuple[str, str], Over]:
    """Count the requests over the target and over 100 ms, for each (cell, op) of a part."""
    frame = fetch(tail_tables.over_limits(part.rows, target.limit_ns, OUTLIER_NS))
    counts = np.zeros((len(part.names), 3, BLOCKS), dtype=np.int64)
    places = frame["number"].to_numpy(), frame["block"].to_numpy()
    for kind, name in enumerate(("n", "late", "outliers")):
        counts[places[0], kind, places[1]] = frame[name].to_numpy()
    keys = zip(part.names["cell"], part.names["op"], strict=True)
    return {
        (str(cell), str(op)): Over(*own)
        for (cell, op), own in zip(keys, counts, strict=True)
        if own[0].any()
    }


def levels_of(
    buckets: NDArray[Any], counts: NDArray[Any], found: Mapping[str, Any]
) -> dict[str, BlockInterval]:
    """Return the block method's word on each far percentile; `found` has their exact values."""
    exact = {
        p: found[name] if np.isfinite(found[name]) else None for name, p in PERCENTILES.items()
    }
    levels = block_intervals(buckets, counts, exact)
    return {name: levels[p] for name, p in PERCENTILES.items()}


def tails(
    summaries: Sequence[CellSummary], far: Mapping[tuple[str, str], Far], target: Target
) -> tuple[Tail, ...]:
    """Return the far tail of each (cell, op)."""
    return tuple(
        _tail(row, far[row.cell, row.op], target)
        for row in summaries
        if row.latency == "response" and (row.cell, row.op) in far
    )


def _tail(row: CellSummary, far: Far, target: Target) -> Tail:
    absent = dict(row.absent)
    intervals: dict[str, Interval | None] = {}
    for name, level in far.levels.items():
        said = getattr(row, name) is not None
        intervals[name] = level.interval if said else None
        if said and level.interval is None:
            absent[name] = level.reason or "its bounds fall among the failed"
    ratio = _over_mean(row, far, absent)
    wanted = (*PERCENTILES, "p99", "mean_ok", "max_ok", "over_10x_mean", "p99_999_over_mean")
    return Tail(
        row.cell,
        row.op,
        row.n,
        row.failed,
        row.mean_ok,
        row.p99,
        **intervals,
        max_ok=row.max_ok,
        p99_999_over_mean=ratio,
        over_10x_mean=row.over_10x_mean,
        over_100ms=int(far.over.outliers.sum()),
        target=target_share(far.over.late, far.over.totals, target.share),
        estimates={name: getattr(row, name) for name in PERCENTILES},
        least={name: level.lower_bound for name, level in far.levels.items()},
        absent={name: absent[name] for name in wanted if name in absent},
    )


def _over_mean(row: CellSummary, far: Far, absent: dict[str, str]) -> Interval | None:
    """p99.999 over mean, as if both were independent; without an upper bound where it abstains."""
    name, level = "p99_999_over_mean", far.levels["p99_999"]
    if row.p99_999 is None or row.mean is None or not far.mean.estimate:
        absent[name] = absent.get("p99_999") or absent.get("mean") or "the mean is 0"
        return None
    # the middles of buckets are a little off the mean
    scale = row.mean / far.mean.estimate
    low, top = (None if not e or e <= 0 else e * scale for e in (far.mean.low, far.mean.high))
    high = level.interval.high if level.interval else None
    found = interval_of_ratio((row.mean, low, top), (row.p99_999, level.lower_bound or None, high))
    method = "p99.999 and mean by blocks, variances recovered from the limits"
    return Interval(*found, 0.95, row.n, level.n_effective, method)


def target_of(context: Context, target: Target | None) -> Target | None:
    """Return the target to hold the run to; None where there is no store, and nobody asked."""
    if context.empty or context.run.timeless:
        return None
    if target is not None:
        return target
    drives = {str(it.get("kind")) for it in context.processes} & {"drive"}
    return Target(asked=False) if drives and set(context.extents["op"]) <= STORE_OPS else None
