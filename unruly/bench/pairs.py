"""Ratios of interleaved pairs: a disturbed machine disturbs both sides of a pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike


T = TypeVar("T")


@dataclass(frozen=True)
class Ratio:
    """The Hodges-Lehmann ratio of pairs with its Wilcoxon signed-rank interval."""

    estimate: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        """``1.04 [1.02, 1.06]``."""
        return f"{self.estimate:.3g} [{self.low:.3g}, {self.high:.3g}]"


def interleaved(
    count: int, ours: Callable[[], T], theirs: Callable[[], T]
) -> tuple[list[T], list[T]]:
    """Measure two sides in turn, ``count`` times each; the first side changes with each pair."""
    sides: tuple[list[T], list[T]] = ([], [])
    for pair in range(count):
        turn = ((sides[0], ours), (sides[1], theirs))
        for found, measure in turn if pair % 2 == 0 else turn[::-1]:
            found.append(measure())
    return sides


def ratio(ours: ArrayLike, theirs: ArrayLike, level: float = 0.95) -> Ratio:
    """Compare two equally long columns of positive values, pair by pair, on the log scale.

    Raises
    ------
    ValueError
        With too few pairs for the level (6 for 95 %), or a value that is not positive.

    Examples
    --------
    >>> str(ratio([2.0, 2.2, 1.8, 2.0, 2.4, 2.6], [1.0, 1.1, 0.9, 1.0, 1.2, 1.3]))
    '2 [2, 2]'
    """
    above, below = np.asarray(ours, float), np.asarray(theirs, float)
    if not (np.all(above > 0) and np.all(below > 0)):
        raise ValueError("pairs: a value is not positive; wanted values above 0")
    estimate, low, high = difference(np.log(above), np.log(below), level)
    return Ratio(float(np.exp(estimate)), float(np.exp(low)), float(np.exp(high)), above.size)


def difference(
    ours: ArrayLike, theirs: ArrayLike, level: float = 0.95
) -> tuple[float, float, float]:
    """Hodges-Lehmann difference of pairs with its signed-rank interval: estimate, low, high.

    A neighbour that disturbs one round moves a mean and hardly a rank. Assumes that differences
    are symmetric about their centre.

    Raises
    ------
    ValueError
        With unequal lengths or too few pairs for the level.

    Examples
    --------
    >>> difference([2.0, 3.0, 4.0, 5.0, 6.0, 99.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    (1.0, 1.0, 93.0)
    """
    above, below = np.asarray(ours, float), np.asarray(theirs, float)
    if above.shape != below.shape:
        raise ValueError(f"pairs: {above.size} and {below.size} values; wanted equally many")
    steps = above - below
    first, second = np.triu_indices(steps.size)
    walsh = np.sort((steps[first] + steps[second]) / 2)
    outside = _rank(steps.size, (1 - level) / 2)
    if outside < 1:
        raise ValueError(f"pairs: {steps.size} pairs; wanted more for {level:.0%} confidence")
    return float(np.median(walsh)), float(walsh[outside - 1]), float(walsh[-outside])


def _rank(n: int, tail: float) -> int:
    """The largest k with P(signed-rank sum < k) <= tail, from the exact null distribution."""
    ways = np.ones(1)
    for rank in range(1, n + 1):
        grown = np.zeros(ways.size + rank)
        grown[: ways.size] += ways
        grown[rank:] += ways
        ways = grown / 2
    return int(np.searchsorted(np.cumsum(ways), tail, side="right"))
