"""A number that each repeat of a cell gives anew: its mean over repeats, with an interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

from unruly.errors import ParameterError
from unruly.stats.interval import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

METHOD: Final = "independent repeats, Student's t"


def repeats_interval(values: ArrayLike, level: float = 0.95, *, log: bool = False) -> Interval:
    """Two-sided interval of what independent repeats vary about.

    Parameters
    ----------
    values : array_like, shape (repeats,), float64
        One for each repeat. No NaN; with ``inf`` (its percentile falls among the failed) there is
        no bound, and the estimate is the median. Where all of several are, so is the lower bound.
    level : float
        In (0, 1).
    log : bool
        On logarithms: for latencies, which vary by factors. Values are then above 0.

    Returns
    -------
    Interval
        Of a single repeat without bounds.

    Raises
    ------
    ParameterError
        If there is no value, one is NaN, or `level` is not in (0, 1).

    Notes
    -----
    Assumes that repeats ran in random order, so that drift of the machine does not pass for an
    effect. Do not use it for blocks inside one run, which remember each other: `mean_interval`.

    References
    ----------
    .. [1] R. Jain, "The Art of Computer Systems Performance Analysis", section 13.2.

    Examples
    --------
    >>> found = repeats_interval([1.0, 1.1, 0.9])
    >>> round(found.estimate, 2), round(found.low, 2), round(found.high, 2)
    (1.0, 0.75, 1.25)

    Three repeats that differ by a tenth say little more than "about 1, within a quarter".
    """
    held = np.asarray(values, dtype=np.float64)
    if held.ndim != 1 or held.size == 0 or np.isnan(held).any():
        raise ParameterError(
            "values", f"have shape {held.shape} or hold NaN", "one for each repeat", "leave it out"
        )
    if not 0 < level < 1:
        raise ParameterError("level", f"is {level}", "inside (0, 1)", "use 0.95")
    n = int(held.size)
    if not np.isfinite(held).all() or n == 1:
        # inf - inf has no middle: the upper of two middle ones stands
        middle = float(np.sort(held)[n // 2])
        low = np.inf if n > 1 and np.isinf(held).all() else None
        return Interval(middle, low, None, level, n, float(n), METHOD)
    scaled = np.log(held) if log else held
    mean = float(scaled.mean())
    reach = float(special.stdtrit(n - 1, (1 + level) / 2)) * float(scaled.std(ddof=1)) / n**0.5
    ends = np.array([mean, mean - reach, mean + reach])
    estimate, low, high = (float(end) for end in (np.exp(ends) if log else ends))
    return Interval(estimate, low, high, level, n, float(n), METHOD)
