"""Correlation whose interval knows that neighbours in time resemble each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from unruly.errors import ParameterError
from unruly.stats.interval import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

BLOCKS_MIN = 8
RESAMPLES = 400


@dataclass(frozen=True)
class Association:
    """Pearson and Spearman of one pair of series, with block-bootstrap intervals."""

    pearson: Interval
    spearman: Interval
    p_value: float
    """Two-sided, of Spearman: its Fisher z over the bootstrap's standard error."""


def correlation(
    x: ArrayLike, y: ArrayLike, blocks: ArrayLike, *, level: float = 0.95, seed: int = 0
) -> Association:
    """Correlate two series, resampling whole blocks of time.

    Parameters
    ----------
    x, y : array_like, shape (n,), float64
        One value for each unit. No NaN, no infinity.
    blocks : array_like, shape (n,), int
        The block of time of each unit; blocks are resampled whole.
    level : float
        Of both intervals.
    seed : int
        Of the resampling: the same input gives the same interval.

    Returns
    -------
    Association

    Raises
    ------
    ParameterError
        With fewer than 8 blocks, fewer than 8 units, or a series that does not vary.

    Notes
    -----
    Assumes that blocks are longer than the memory of the series. Spearman resamples the ranks of
    the whole sample, not ranks taken anew. Correlation is not cause; do not use it on counters that
    only grow.

    References
    ----------
    .. [1] H. R. Kuensch, "The jackknife and the bootstrap for general stationary observations",
    1989.

    Examples
    --------
    >>> rng = np.random.default_rng(3)
    >>> x = rng.normal(size=300)
    >>> found = correlation(x, x + rng.normal(size=300), np.arange(300) // 10)
    >>> bool(found.pearson.low > 0.5), found.p_value < 0.001
    (True, True)

    Half of the variance is shared, and the interval leaves no doubt that it is not zero.
    """
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    names, place = np.unique(np.asarray(blocks), return_inverse=True)
    if names.size < BLOCKS_MIN or first.size < BLOCKS_MIN:
        raise ParameterError(
            "blocks", f"are {names.size}", f"{BLOCKS_MIN} or more", "measure for longer"
        )
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        raise ParameterError("x, y", "do not vary", "two series that vary", "leave it out")
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(names.size, np.full(names.size, 1 / names.size), RESAMPLES)
    ranks = _ranks(first), _ranks(second)
    pearson, _ = _bootstrap(first, second, place, draws, level, "Pearson")
    spearman, p_value = _bootstrap(*ranks, place, draws, level, "Spearman")
    return Association(pearson, spearman, p_value)


def benjamini_hochberg(p_values: ArrayLike) -> NDArray[np.float64]:
    """Return q values: the false discovery rate at which each would be called.

    Parameters
    ----------
    p_values : array_like, shape (m,), float64
        One for each metric tried, also those that look like nothing.

    Returns
    -------
    ndarray, shape (m,), float64

    Notes
    -----
    Assumes independent or positively dependent tests. The same numbers as
    ``scipy.stats.false_discovery_control`` (a test compares), whose import takes a second.

    References
    ----------
    .. [1] Y. Benjamini and Y. Hochberg, "Controlling the false discovery rate", 1995.

    Examples
    --------
    >>> benjamini_hochberg([0.01, 0.04, 0.9]).round(3).tolist()
    [0.03, 0.06, 0.9]
    """
    values = np.asarray(p_values, dtype=np.float64)
    if values.size == 0:
        return values
    order = np.argsort(values)[::-1]
    scaled = values[order] * values.size / np.arange(values.size, 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(scaled))
    return adjusted


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks, ties sharing their mean."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: NDArray[np.float64] = last - (counts - 1) / 2
    return means[place]


def _bootstrap(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    place: NDArray[np.intp],
    draws: NDArray[np.int64],
    level: float,
    name: str,
) -> tuple[Interval, float]:
    """Percentile interval from sums of each block: no resample is ever built."""
    centred_x, centred_y = x - x.mean(), y - y.mean()
    columns = (
        np.ones_like(x),
        centred_x,
        centred_y,
        centred_x**2,
        centred_y**2,
        centred_x * centred_y,
    )
    sums = np.array([np.bincount(place, weights=column) for column in columns])
    estimate = float(_from_sums(sums.sum(axis=1)[:, None])[0])
    resampled = _from_sums(sums @ draws.T)
    resampled = resampled[np.isfinite(resampled)]
    alpha = (1 - level) / 2
    low, high = np.quantile(resampled, [alpha, 1 - alpha])
    fisher = np.arctanh(np.clip(resampled, -0.999999, 0.999999))
    error = float(fisher.std(ddof=1))
    score = np.arctanh(np.clip(estimate, -0.999999, 0.999999)) / max(error, 1e-12)
    # blocks are few: Student's t with one less than their number
    p_value = float(2 * special.stdtr(draws.shape[1] - 1, -abs(score)))
    effective = min(float(x.size), 1 / max(error, 1e-12) ** 2 + 3)
    method = f"{name}, percentile interval over {draws.shape[1]} blocks of time"
    return Interval(
        estimate, float(low), float(high), level, int(x.size), effective, method
    ), p_value


def _from_sums(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    n, x, y, xx, yy, xy = sums
    with np.errstate(invalid="ignore", divide="ignore"):
        found: NDArray[np.float64] = (xy - x * y / n) / np.sqrt((xx - x * x / n) * (yy - y * y / n))
    return np.clip(found, -1, 1)
