"""FQUEST: an interval of a steady-state quantile from one run of fixed length.

First, batches grow until the signed areas under their running quantiles look independent, and the
first batch is dropped as the warm-up. Second, the number of batches falls until areas and batch
quantiles look independent and normal. Third, both estimate the variance of the quantile. Where the
tests never pass, the widest of several intervals is given with a warning.

The running quantile of a batch is taken at 40 places instead of at every request (``PLACES``).

A. Lolos, C. Alexopoulos, D. Goldsman, K. D. Dingec, A. C. Mokashi, J. R. Wilson: *A fixed-sample-
size method for estimating steady-state quantiles*. Winter Simulation Conference, 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special, stats

from bench.rivals import LEVEL, Bounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

PLACES: Final = 40
WARMUP_BATCHES, WARMUP_LENGTH = 50, 500
SIGNIFICANCE: Final = 0.3
SLOPE, POWER = 0.2, 2.3
"""How fast the warm-up lowers its significance from one batch length to the next."""
BATCHES: Final = (32, 24, 16, 10)
SYMMETRIC: Final = 1e-3
DEEPER: Final = 8
"""How much of a batch is sorted, in multiples of what lies above the quantile."""


@dataclass(frozen=True)
class Batches:
    """The statistics of equally long batches of one series."""

    areas: Array
    quantiles: Array
    whole: float
    """The quantile of all batches together."""
    n: int

    @property
    def area_variance(self) -> float:
        """The variance of the quantile, times n, from the areas."""
        return float((self.areas**2).mean())

    @property
    def batch_variance(self) -> float:
        """The same from the batch quantiles."""
        count = self.quantiles.size
        around = float(((self.quantiles - self.whole) ** 2).sum())
        return self.n // count * around / (count - 1)


def fquest(values: Array, p: float, places: int | None = PLACES) -> Bounds:
    """Return FQUEST's 95 % interval of the p-quantile.

    Parameters
    ----------
    values : ndarray
        A run's latencies in the order of their scheduled times.
    p : float
        In (0, 1).
    places : int, optional
        Where the running quantile of a batch is taken; at every value with None.

    Returns
    -------
    Bounds
        With ``warned`` if a test of independence or normality passed with no number of batches.
    """
    rest = values[_warmup(values, p, places) :]
    found, passed = _settled(rest, p, places)
    return _tested(found) if passed else _heuristic(found)


def _warmup(values: Array, p: float, places: int | None) -> int:
    """Return the number of values to drop: the batch length at which areas look independent."""
    most = values.size // WARMUP_BATCHES
    length, step = min(WARMUP_LENGTH, most), 1
    while True:
        found = batches(values[: WARMUP_BATCHES * length], WARMUP_BATCHES, p, places)
        significance = SIGNIFICANCE * np.exp(-SLOPE * (step - 1) ** POWER)
        if not _dependent(found.areas, significance) or length == most:
            return length
        length, step = min(round(length * np.sqrt(2)), most), step + 1


def _settled(rest: Array, p: float, places: int | None) -> tuple[Batches, bool]:
    """Return the batches that pass each test in turn, or the fewest and False."""
    fewer = iter(BATCHES)
    found = _last(rest, next(fewer), p, places)
    for column in ("areas", "quantiles"):
        for rejects in (_dependent, _skewed):
            while rejects(getattr(found, column), SIGNIFICANCE):
                count = next(fewer, None)
                if count is None:
                    return found, False
                found = _last(rest, count, p, places)
    return found, True


def _last(rest: Array, count: int, p: float, places: int | None) -> Batches:
    length = rest.size // count
    return batches(rest[rest.size - count * length :], count, p, places)


def batches(values: Array, count: int, p: float, places: int | None = PLACES) -> Batches:
    """Return the areas and quantiles of this many batches; their length divides the series."""
    table = values.reshape(count, -1)
    length = table.shape[1]
    parts = length if places is None else min(places, length)
    ends = np.arange(1, parts + 1) * length // parts
    starts = np.concatenate([[0], ends[:-1]])
    # a place stands for the prefixes of its part, which weigh as much as they are long
    weights = (ends * (ends + 1) - starts * (starts + 1)) / 2
    prefixes = np.append((starts + 1 + ends) // 2, length)
    running = running_quantiles(table, prefixes, p)
    own = running[:, -1]
    below = (own[:, None] - running[:, :-1]) @ weights
    areas = np.sqrt(12) * below / length**1.5
    whole = float(np.partition(values, _rank(values.size, p))[_rank(values.size, p)])
    return Batches(areas, own, whole, values.size)


def _rank(n: int, p: float) -> int:
    """Return the place, from 0, of the order statistic that is the p-quantile of n values."""
    return max(int(np.ceil(n * p - 1e-9)) - 1, 0)


def running_quantiles(table: Array, prefixes: NDArray[np.int64], p: float) -> Array:
    """Return the p-quantile of the first k values of each row, a column for each k."""
    length = table.shape[1]
    from_top = prefixes - np.maximum(np.ceil(prefixes * p - 1e-9).astype(np.int64) - 1, 0)
    kept = min(length, DEEPER * int(from_top.max()))
    place = np.argpartition(table, length - kept, axis=1)[:, length - kept :]
    held = np.take_along_axis(table, place, axis=1)
    order = np.argsort(-held, axis=1)
    place = np.take_along_axis(place, order, axis=1)
    held = np.take_along_axis(held, order, axis=1)
    seen = np.cumsum(place[None] < prefixes[:, None, None], axis=2, dtype=np.int32)
    at = (seen >= from_top[:, None, None]).argmax(axis=2).T
    found = np.take_along_axis(held, at, axis=1)
    # a prefix of small values has its quantile below the sorted values
    for column, row in np.argwhere(seen[:, :, -1] < from_top[:, None]):
        rank = _rank(int(prefixes[column]), p)
        found[row, column] = np.partition(table[row, : prefixes[column]], rank)[rank]
    return found


def _dependent(values: Array, significance: float) -> bool:
    """Return whether von Neumann's two-sided test rejects that neighbours are independent."""
    count = values.size
    squares = float(((values - values.mean()) ** 2).sum())
    if squares == 0:
        return True
    ratio = float((np.diff(values) ** 2).sum()) / squares
    score = (ratio - 2) / np.sqrt(4 * (count - 2) / ((count - 1) * (count + 1)))
    return bool(2 * special.ndtr(-abs(score)) < significance)


def _skewed(values: Array, significance: float) -> bool:
    """Return whether the Shapiro-Wilk test rejects that the values are normal."""
    return bool(np.ptp(values) == 0 or stats.shapiro(values).pvalue < significance)


def _student(freedom: int) -> float:
    return float(special.stdtrit(freedom, 1 - (1 - LEVEL) / 2))


def _tested(found: Batches) -> Bounds:
    """Return the interval of batches that passed: both variances together."""
    count = found.areas.size
    freedom = 2 * count - 1
    variance = (count * found.area_variance + (count - 1) * found.batch_variance) / freedom
    half = _student(freedom) * float(np.sqrt(variance / found.n))
    return Bounds(found.whole - half, found.whole + half)


def _heuristic(found: Batches) -> Bounds:
    """Return the hull of the intervals that each variance gives, and of a skewness-adjusted one."""
    count, mean = found.areas.size, float(found.quantiles.mean())
    half = max(
        _student(count) * float(np.sqrt(found.area_variance / found.n)),
        _student(count - 1) * float(np.sqrt(found.batch_variance / found.n)),
    )
    arms = _willink(found)
    low = min(found.whole - half, mean - half, *arms)
    high = max(found.whole + half, mean + half, *arms)
    return Bounds(low, high, warned=True)


def _willink(found: Batches) -> tuple[float, float]:
    """Return the interval around the quantile that allows for skewed and correlated batches."""
    count, values = found.quantiles.size, found.quantiles
    off = values - values.mean()
    squares = float(off @ off)
    if squares == 0:
        return found.whole, found.whole
    skew = float(stats.skew(values, bias=False)) / (6 * np.sqrt(count))
    memory = float(off[1:] @ off[:-1]) / squares
    wider = max(1.0, np.sqrt((1 + memory) / (1 - memory)))
    scale = wider * np.sqrt(((values - found.whole) ** 2).sum() / (count - 1) / count)

    def bent(z: float) -> float:
        if abs(skew) <= SYMMETRIC:
            return z
        return float((np.cbrt(1 + 6 * skew * (z - skew)) - 1) / (2 * skew))

    student = _student(count - 1)
    return found.whole - bent(student) * scale, found.whole - bent(-student) * scale
