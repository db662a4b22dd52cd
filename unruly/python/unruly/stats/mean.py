"""A mean with an interval that survives bursts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from unruly.errors import ParameterError
from unruly.stats.interval import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

METHOD = "ratio of block sums, t with the blocks' own degrees of freedom"
MEMORY_MAX = 0.8
BLOCKS_MIN = 8


def request_mean_interval(sums: ArrayLike, counts: ArrayLike, level: float = 0.95) -> Interval:
    """Two-sided interval of a mean, from sums and counts in equal blocks of time.

    Parameters
    ----------
    sums : array_like, shape (blocks,), float64
        Sum of the latencies (ns) in each block. No NaN, no infinity.
    counts : array_like, shape (blocks,)
        How many there were; may differ between blocks, and be 0.
    level : float
        Two-sided level, in (0, 1).

    Returns
    -------
    Interval
        ``n_effective`` is the number of blocks over the inflation by their memory. The estimate is
        None when there is nothing; bounds are None with fewer than 8 blocks that hold anything.

    Raises
    ------
    ParameterError
        If the shapes differ, a sum is not finite, a count is negative, or `level` is not in (0, 1).

    Notes
    -----
    With e_j = s_j - n_j S/n the variance of the mean is B/(B-1) sum e_j^2 / n^2, inflated by the
    blocks' lag-1 correlation; t has 2 V^2 / (K - V^2/B) degrees of freedom, few where one block
    dominates. Assumes that the bursts which matter came, and that the level does not drift. Do not
    use it where requests failed: their latency is only known to be larger.

    References
    ----------
    .. [1] W. G. Cochran, "Sampling Techniques", section 6.3, for the ratio of sums.

    Examples
    --------
    >>> even = request_mean_interval([1000.0, 1010, 990, 1005, 995, 1002, 998, 1000], [10] * 8)
    >>> burst = request_mean_interval([1000.0, 1000, 1000, 9000, 1000, 1000, 1000, 1000], [10] * 8)
    >>> (even.estimate, round(even.low, 1), round(even.high, 1))
    (100.0, 99.5, 100.5)
    >>> (burst.estimate, burst.low < 0 < burst.high)
    (200.0, True)

    One burst of eight blocks says nothing of the mean of the next run.
    """
    total, size = np.asarray(sums, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    if total.shape != size.shape or total.ndim != 1:
        raise ParameterError("sums", f"has shape {total.shape}", "that of counts", "align them")
    if not (np.all(np.isfinite(total)) and np.all(size >= 0)):
        raise ParameterError(
            "sums, counts", "are infinite, NaN or negative", "finite sums", "leave failures out"
        )
    if not 0 < level < 1:
        raise ParameterError("level", f"is {level}", "inside (0, 1)", "use 0.95")
    n, blocks = float(size.sum()), int((size > 0).sum())
    if n == 0:
        return Interval(None, None, None, level, 0, 0.0, METHOD)
    mean = float(total.sum() / n)
    if blocks < BLOCKS_MIN:
        return Interval(mean, None, None, level, int(n), float(blocks), METHOD)
    excess = (total - mean * size)[size > 0]
    variance = float((excess**2).sum())
    if variance == 0:
        return Interval(mean, mean, mean, level, int(n), float(blocks), METHOD)
    lag = float((excess[1:] * excess[:-1]).sum()) / variance
    memory = min(max(lag + 1 / blocks, 0.0), MEMORY_MAX)
    inflation = (1 + memory) / (1 - memory)
    kurtosis = float((excess**4).sum()) - variance**2 / blocks
    freedom = blocks - 1.0
    if kurtosis > 0:
        freedom = float(np.clip(2 * variance**2 / kurtosis, 1, blocks - 1))
    error = np.sqrt(variance * blocks / (blocks - 1) * inflation) / n
    reach = float(special.stdtrit(freedom, (1 + level) / 2) * error)
    return Interval(
        mean, mean - reach, mean + reach, level, int(n), float(blocks / inflation), METHOD
    )
