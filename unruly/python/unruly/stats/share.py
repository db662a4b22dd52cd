"""A share of requests (failed, slow) with an interval that survives bursts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from unruly.errors import ParameterError
from unruly.stats.interval import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

METHOD = "block design effect, Clopper-Pearson"
INDEPENDENT = "Clopper-Pearson"
MEMORY_MAX = 0.8


def share_interval(hits: ArrayLike, totals: ArrayLike, level: float = 0.95) -> Interval:
    """Two-sided interval of a share, from counts in equal blocks of time.

    Parameters
    ----------
    hits : array_like, shape (blocks,)
        Requests that count, such as those that failed, in each block.
    totals : array_like, shape (blocks,)
        All requests of each block; may differ between blocks, and be 0.
    level : float
        Two-sided level, in (0, 1).

    Returns
    -------
    Interval
        Between 0 and 1. ``n_effective`` is n over the design effect. Without a single hit the
        upper bound is that of independent requests, about 3.7 / n at 95 %.

    Raises
    ------
    ParameterError
        If there are fewer than two blocks, more hits than requests, or `level` is not in (0, 1).

    Notes
    -----
    The design effect is that of `block_interval` at one edge. Assumes that the bursts which matter
    came at least a few times. Do not read 0 of n as "never": see `blind_spot`.

    References
    ----------
    .. [1] E. L. Korn and B. I. Graubard, "Confidence intervals for proportions with small expected
       number of positive counts estimated from survey data", 1998.

    Examples
    --------
    >>> scattered = share_interval([1, 2, 1, 2] * 5, [1000] * 20)
    >>> in_a_burst = share_interval([0] * 19 + [30], [1000] * 20)
    >>> [round(x.estimate, 4) for x in (scattered, in_a_burst)]
    [0.0015, 0.0015]
    >>> bool(in_a_burst.high > 3 * scattered.high)
    True

    The same thirty failures of twenty thousand: in one burst they say much less of the next run.
    """
    some, whole = np.asarray(hits, dtype=np.float64), np.asarray(totals, dtype=np.float64)
    if some.shape != whole.shape or some.ndim != 1 or some.size < 2:
        raise ParameterError(
            "hits", f"has shape {some.shape}", "two blocks or more, as totals", "cut the run finer"
        )
    if not np.all((some >= 0) & (some <= whole)):
        raise ParameterError("hits", "exceed totals", "0 <= hits <= totals", "count both alike")
    if not 0 < level < 1:
        raise ParameterError("level", f"is {level}", "inside (0, 1)", "use 0.95")
    n, total = float(whole.sum()), float(some.sum())
    if n == 0:
        return Interval(None, None, None, level, 0, 0.0, METHOD)
    alpha = (1 - level) / 2
    trials = n / _design_effect(some, whole, alpha)
    successes = total / n * trials
    low = special.betaincinv(successes, trials - successes + 1, alpha) if total else 0.0
    high = special.betaincinv(successes + 1, trials - successes, 1 - alpha) if total < n else 1.0
    return Interval(total / n, float(low), float(high), level, int(n), trials, METHOD)


def independent_share(hits: int, of: int, level: float = 0.95) -> Interval:
    """Two-sided interval of a share of independent cases, such as configurations.

    Parameters
    ----------
    hits : int
        Cases that count.
    of : int
        All cases.
    level : float
        Two-sided level, in (0, 1).

    Returns
    -------
    Interval
        Between 0 and 1. Without an estimate if there is no case.

    Raises
    ------
    ParameterError
        If there are more hits than cases, either is negative, or `level` is not in (0, 1).

    Notes
    -----
    Do not use it for requests, whose bursts it does not see: see `share_interval`.

    References
    ----------
    .. [1] C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits illustrated in
       the case of the binomial", 1934.

    Examples
    --------
    >>> found = independent_share(6, 6)
    >>> found.estimate, round(found.low, 2), found.high
    (1.0, 0.54, 1.0)

    Six of six configurations: nearly half of all others may still be different.
    """
    if not 0 <= hits <= of:
        raise ParameterError("hits", f"is {hits} of {of}", "0 <= hits <= of", "count both alike")
    if not 0 < level < 1:
        raise ParameterError("level", f"is {level}", "inside (0, 1)", "use 0.95")
    if of == 0:
        return Interval(None, None, None, level, 0, 0.0, INDEPENDENT)
    alpha = (1 - level) / 2
    low = special.betaincinv(hits, of - hits + 1, alpha) if hits else 0.0
    high = special.betaincinv(hits + 1, of - hits, 1 - alpha) if hits < of else 1.0
    return Interval(hits / of, float(low), float(high), level, of, float(of), INDEPENDENT)


def _design_effect(hits: np.ndarray, totals: np.ndarray, alpha: float) -> float:
    """Variance between blocks over that of independent requests, inflated for what it rests on."""
    share, blocks = hits.sum() / totals.sum(), hits.size
    if share in (0.0, 1.0):
        return 1.0
    excess = hits - totals * share
    variance = float((excess**2).sum())
    ratio = variance * blocks / (blocks - 1) / (hits.sum() * (1 - share))
    spread = float((excess**4).sum()) - variance**2 / blocks
    # Blocks that all deviate alike leave no spread: then all of them are free.
    freedom = blocks - 1 if spread <= 0 else np.clip(2 * variance**2 / spread, 1, blocks - 1)
    lag = float((excess[1:] * excess[:-1]).sum()) / variance if variance else 0.0
    memory = min(max(lag + 1 / blocks, 0.0), MEMORY_MAX)
    widened = (special.stdtrit(freedom, 1 - alpha) / special.ndtri(1 - alpha)) ** 2
    return max(1.0, float(ratio * widened * (1 + memory) / (1 - memory)))
