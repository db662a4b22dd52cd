"""The promise ladder of one (cell, op): which percentiles its run can promise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, get_args

import numpy as np

from unruly.base.promise import PromiseLadder, PromiseStep, StepName
from unruly.stats import block_ladder
from unruly.stats.blocks import BLOCKS, DRIFTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unruly.stats import BlockInterval

PERCENTILES: Final = {
    "p50": 0.5,
    "p90": 0.9,
    "p95": 0.95,
    "p99": 0.99,
    "p99_9": 0.999,
    "p99_99": 0.9999,
    "p99_999": 0.99999,
}
"""Every percentile of a summary, by the name of its field."""
STEPS: Final = {name: p for name, p in PERCENTILES.items() if name != "p99_999"}
NAMES: Final = dict(zip(STEPS, get_args(StepName), strict=True))
"""The name of each step by that of its field."""
LEVEL: Final = 0.95
ALIKE: Final = "its source has no times, and rows resemble their neighbours as in a sorted file"


def shown_name(field: str) -> str:
    """Write the name of a field as people write it.

    Examples
    --------
    >>> shown_name("p99_9")
    'p99.9'
    """
    return field.replace("_", ".")


def promise_ladder(
    found: Mapping[float, BlockInterval],
    figures: Mapping[str, float | None],
    absent: Mapping[str, str],
    *,
    n: int,
    failed: int,
    duration_ns: float,
    timeless: bool = False,
) -> PromiseLadder:
    """Put the steps together from the block method and the exact percentiles.

    A percentile that has no value (its rank falls among the failed requests, its bin is too coarse)
    is refused for that reason, which is in `absent`, whatever the block method says of it: a longer
    run would not change it. A source without times (`timeless`) has no drift: rows that resemble
    their neighbours may just as well be sorted.
    """
    lost = f"{failed} of {n} requests failed"
    steps = []
    for name, p in STEPS.items():
        block, estimate = found[p], figures[name]
        facts: dict[str, Any] = {
            "name": NAMES[name],
            "p": p,
            "estimate": estimate,
            "lower_bound": block.lower_bound,
        }
        if estimate is None and _is_said(name, n):
            reason = lost if failed >= (1 - p) * n - 1 else absent[name]
            steps.append(PromiseStep(**facts, interval=None, promise=None, reason=reason))
        elif timeless and block.abstained in DRIFTS:
            refused = PromiseStep(**facts, interval=None, promise=None, abstained="short")
            steps.append(replace(refused, reason=ALIKE, details=block.details))
        elif block.abstained:
            steps.append(
                PromiseStep(
                    **facts,
                    interval=None,
                    promise=None,
                    abstained=block.abstained,
                    reason=block.reason,
                    details=block.details,
                    needed_ns=_needed(block, duration_ns),
                )
            )
        else:
            steps.append(
                PromiseStep(
                    **facts,
                    interval=block.interval,
                    promise=block.promise,
                    reason=None if block.promise else lost,
                    note=block.note if block.promise and not timeless else "",
                )
            )
    return PromiseLadder(tuple(steps))


def no_blocks(figures: Mapping[str, float | None], reason: str) -> PromiseLadder:
    """Every step refused, because the source has no blocks of time."""
    return PromiseLadder(
        tuple(
            PromiseStep(NAMES[name], p, figures[name], None, None, None, "short", reason)
            for name, p in STEPS.items()
        )
    )


def ladder_blocks(
    buckets: NDArray[Any], counts: NDArray[Any], figures: Mapping[str, float | None]
) -> dict[float, BlockInterval]:
    """Ask the block method for every step; a percentile that is not finite has no estimate."""
    known = {
        p: value if (value := figures[name]) is not None and np.isfinite(value) else None
        for name, p in STEPS.items()
    }
    return block_ladder(buckets, counts, known, level=LEVEL)


def too_few_pieces(intervals: int) -> str | None:
    """Return why a source that cut time into `intervals` pieces has no blocks; None if it has."""
    if intervals >= BLOCKS:
        return None
    return f"the source cut time into {intervals} pieces; {BLOCKS} are needed"


def _is_said(name: str, n: int) -> bool:
    """Return whether at least one row is expected beyond the percentile."""
    return name == "p50" or n >= round(1 / (1 - STEPS[name]))


def _needed(block: BlockInterval, duration_ns: float) -> float | None:
    # a single instant has no length to take a multiple of
    if duration_ns <= 1 or not np.isfinite(block.needed_factor):
        return None
    return duration_ns * block.needed_factor
