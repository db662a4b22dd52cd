"""When a level that began elsewhere settled: the end of a warm-up, by change points."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from unruly.errors import ParameterError
from unruly.stats.changes import SHORTEST, change_points
from unruly.stats.interval import Interval
from unruly.stats.means import standard_error

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

BLOCKS_LEAST = 4 * SHORTEST
"""A half to compare with, and as much before it."""
NOISE = 0.9
"""So much of the second half lies nearer to its level than what counts as away from it."""
BEYOND_LEAST = 3
"""Of the first five blocks: by chance, three or more of five tenths in 1 % of runs."""

MEDIAN_ERROR = float(np.sqrt(np.pi / 2))
"""The standard error of a median over that of a mean, of normal values."""


@dataclass(frozen=True)
class Settling:
    """Where the level settled; ``block`` is None where that cannot be said, ``abstained`` why.

    ``block`` is the first block of the level that stayed, 0 where it was there from the start.
    ``ratio`` is the level of the counted blocks before it over that of the blocks from it on; None
    where no block before it is counted.
    """

    block: int | None
    ratio: Interval | None
    abstained: str | None


def settling(
    levels_ns: ArrayLike,
    *,
    counted_from: int = 0,
    floor: float = 1.1,
    alpha: float = 0.01,
    level: float = 0.95,
) -> Settling:
    """Find when a run had settled, from the first block on, warm-up and measured time together.

    Parameters
    ----------
    levels_ns : array_like, shape (blocks,), float64
        A percentile of each block of equal time, in order; ``inf`` if it falls among the failed
        requests, NaN if the block has no measurements or is known to be disturbed.
    counted_from : int
        The first block that is measured: ``ratio`` leaves out those before it.
    floor : float
        A level within this factor of the later one is the same for all practical purposes.
    alpha : float
        The probability of a false change point in a level that does not change.
    level : float
        The confidence level of the interval of ``ratio``.

    Returns
    -------
    Settling

    Raises
    ------
    ParameterError
        With fewer than 20 blocks that have a level.

    Notes
    -----
    The second half of the blocks is the level that the run came to. Where the first five blocks are
    within `floor` of it, it was there from the start. Else `change_points` cuts the run into
    stretches, and it settled with the first stretch whose level is within `floor`: a stretch that
    is slow later is an episode and no warm-up. Change points lie no nearer to an end than five
    blocks: where there is none, it settled behind these five if three of them are farther from the
    later level than nine tenths of the later blocks (of independent ones, by chance in 1 %). Both
    are late behind a decay: the instant is moved back over blocks that are no farther from the
    later level than `floor`, or than nine tenths of the later blocks. Levels are medians of blocks:
    one that stands in a stall says nothing. The interval of the ratio knows the spread and memory
    of the later blocks alone, as early ones fall, which would pass for chance. It abstains where
    the level has not come to that of the second half by the middle, or goes on changing there, and
    where `change_points` does. Do not use it on a run that is meant to change, as one of rising
    load.

    References
    ----------
    .. [1] E. Barrett et al., "Virtual machine warmup blows hot and cold", 2017 (change points
       separate warming up from a steady state).
    .. [2] K. P. White, "An effective truncation heuristic for bias reduction in simulation output",
       1997 (MSER, which always cuts somewhere and knows no chance: not used).

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> begun = 1 + 2 * np.exp(-np.arange(60) / 4)
    >>> found = settling(1e5 * begun * rng.lognormal(0, 0.03, 60), counted_from=5)
    >>> found.block, round(found.ratio.low, 2), round(found.ratio.high, 2)
    (12, 1.22, 1.34)

    The run settled with the 13th block. From the sixth block until then, the median block was 1.22
    to 1.34 times as slow as the later ones.
    """
    table = np.asarray(levels_ns, dtype=np.float64)
    kept = np.flatnonzero(~np.isnan(table))
    if table.ndim != 1 or kept.size < BLOCKS_LEAST:
        raise ParameterError(
            "levels_ns", f"has {kept.size} blocks with a level", f"{BLOCKS_LEAST} or more",
            "cut the run finer",
        )  # fmt: skip
    values = table[kept]
    logs, half = _logs(values), kept.size // 2
    later = logs[half:][np.isfinite(logs[half:])]
    if 2 * later.size < kept.size - half:
        return Settling(None, None, "most of the second half failed")
    # medians: one block in a stall says nothing of a level
    came_to = float(np.median(later))
    apart = logs - came_to
    reach = max(float(np.log(floor)), float(np.quantile(np.abs(later - came_to), NOISE)))

    def away(begin: int, end: int) -> bool:
        return abs(float(np.median(apart[begin:end]))) > float(np.log(floor))

    at = 0
    if away(0, SHORTEST):
        found = change_points(values, alpha=alpha)
        if found.abstained:
            return Settling(None, None, found.abstained)
        edges = [0, *(point.block for point in found.points), values.size]
        stretches = list(pairwise(edges))
        if not found.points:
            beyond = max((apart[:SHORTEST] > reach).sum(), (apart[:SHORTEST] < -reach).sum())
            at = SHORTEST if beyond >= BEYOND_LEAST else 0
        elif any(end >= half and away(begin, end) for begin, end in stretches):
            return Settling(None, None, "its level goes on changing until late in the run")
        else:
            at = next(begin for begin, end in stretches if not away(begin, end))
    while at > 0 and abs(apart[at - 1]) <= reach:
        at -= 1
    block = int(kept[at]) if at else 0
    counted = logs[(kept >= counted_from) & (kept < block)]
    return Settling(block, _ratio(counted, logs[at:], level), None)


def _logs(values: NDArray[np.float64]) -> NDArray[np.float64]:
    logs: NDArray[np.float64] = np.log(np.maximum(values, 1.0))
    return logs


def _ratio(early: NDArray[np.float64], later: NDArray[np.float64], level: float) -> Interval | None:
    """Level of the early blocks over that of the later, which alone say what chance does."""
    early, later = early[np.isfinite(early)], later[np.isfinite(later)]
    if not early.size:
        return None
    # medians and clipped ends, since a few blocks in a stall would outweigh all others
    tail = (1 - NOISE) / 2
    error, freedom = standard_error(np.clip(later, *np.quantile(later, [tail, 1 - tail])))
    error *= MEDIAN_ERROR * float(np.sqrt(1 + later.size / early.size))
    apart = float(np.median(early) - np.median(later))
    reach = float(special.stdtrit(freedom, (1 + level) / 2)) * error
    low, middle, high = (float(np.exp(apart + step)) for step in (-reach, 0.0, reach))
    return Interval(
        middle, low, high, level, int(early.size + later.size), freedom + 1,
        "ratio of medians of blocks, noise of the later ones",
    )  # fmt: skip
