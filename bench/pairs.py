"""Ratios of interleaved pairs: what a machine does to one side of a pair it does to the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Ratio:
    """The geometric mean of the ratios of pairs, with its Student interval on the log scale."""

    estimate: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        """``1.04 [1.02, 1.06]``."""
        return f"{self.estimate:.3g} [{self.low:.3g}, {self.high:.3g}]"


def ratio(ours: ArrayLike, theirs: ArrayLike, level: float = 0.95) -> Ratio:
    """Compare two equally long columns of positive values, pair by pair.

    Raises
    ------
    ValueError
        With fewer than three pairs, unequal lengths, or a value that is not positive.

    Examples
    --------
    >>> str(ratio([2.0, 2.2, 1.8], [1.0, 1.1, 0.9]))
    '2 [2, 2]'
    """
    above, below = np.asarray(ours, float), np.asarray(theirs, float)
    if above.shape != below.shape or above.size < 3:
        raise ValueError(f"pairs: {above.size} and {below.size} values; wanted three pairs or more")
    if not (np.all(above > 0) and np.all(below > 0)):
        raise ValueError("pairs: a value is not positive; wanted values above 0")
    logs = np.log(above / below)
    centre, error = logs.mean(), logs.std(ddof=1) / np.sqrt(logs.size)
    reach = stats.t.ppf((1 + level) / 2, logs.size - 1) * error
    low, estimate, high = (float(np.exp(centre + step)) for step in (-reach, 0.0, reach))
    return Ratio(estimate, low, high, int(logs.size))


def difference(
    ours: ArrayLike, theirs: ArrayLike, level: float = 0.95
) -> tuple[float, float, float]:
    """Mean difference of pairs with its Student interval: estimate, low, high."""
    steps = np.asarray(ours, float) - np.asarray(theirs, float)
    centre, error = steps.mean(), steps.std(ddof=1) / np.sqrt(steps.size)
    reach = stats.t.ppf((1 + level) / 2, steps.size - 1) * error
    return float(centre), float(centre - reach), float(centre + reach)
