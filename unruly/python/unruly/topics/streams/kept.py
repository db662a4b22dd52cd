"""What a stream keeps of its unloaded bandwidth: by pairs of repeats, or of one by its seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from unruly.stats import Interval, interval_of_ratio, kept_share, stability
from unruly.topics.streams.legs import SECONDS_LEAST

if TYPE_CHECKING:
    from unruly.topics.streams.legs import Flow

LEVEL: Final = 0.95
RELATIVE: Final = "ratio of shares, paired by repeat"
RELATIVE_ONE: Final = "ratio of the shares of one repeat, variances recovered from the limits"


def kept(
    flow: Flow, cell: str, base: str | None, level: float = LEVEL
) -> tuple[Interval | None, str]:
    """Return the share that a cell keeps, or why there is none."""
    if base is None:
        return None, "no cell with the same factors is without a load"
    common = _pairs(flow, cell, base)
    if not common:
        return None, "no repeat has a bandwidth both with the load and without it"
    if len(common) == 1:
        one, other = flow.bps[cell, common[0]], flow.bps[base, common[0]]
        if min(one.size, other.size) >= SECONDS_LEAST and other.sum() > 0:
            return stability(one, other, level=level).of_baseline, ""
    return kept_share(
        [flow.mean_bps[cell, repeat] for repeat in common],
        [flow.mean_bps[base, repeat] for repeat in common],
        level,
    ), ""


def relative(
    flow: Flow, mine: tuple[str, str], its: tuple[str, str], level: float = LEVEL
) -> Interval | None:
    """Return the share that one keeps over the share that another keeps.

    Parameters
    ----------
    mine, its : tuple of str
        The cell with the load, and its cell without.
    """
    common = [it for it in _pairs(flow, *mine) if it in _pairs(flow, *its)]

    def shares(cells: tuple[str, str]) -> np.ndarray:
        return np.array([flow.mean_bps[cells[0], it] / flow.mean_bps[cells[1], it]
                         for it in common])  # fmt: skip

    if len(common) > 1 and np.all(shares(its) > 0):
        found = kept_share(shares(mine), shares(its), level)
        return Interval(found.estimate, found.low, found.high, level, found.n, found.n_effective,
                        RELATIVE)  # fmt: skip
    one, other = kept(flow, *mine, level)[0], kept(flow, *its, level)[0]
    if one is None or other is None or not one.estimate or not other.estimate:
        return None
    ratio = interval_of_ratio(
        (other.estimate, other.low, other.high), (one.estimate, one.low, one.high)
    )
    return Interval(*ratio, level, one.n, None, RELATIVE_ONE)


def _pairs(flow: Flow, cell: str, base: str) -> list[int]:
    """The repeats that have a bandwidth both with the load and without it."""
    unloaded = [it for it in flow.repeats(base) if flow.mean_bps[base, it] > 0]
    return [it for it in flow.repeats(cell) if it in unloaded]
