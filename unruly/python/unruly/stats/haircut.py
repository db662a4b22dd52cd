"""What the slowest share of the requests does: the haircut, and how outliers come in streaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

from unruly.errors import ParameterError
from unruly.stats.interval import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

PREDICTABLE: Final = 10.0
"""A maximum of at most this many times the mean counts as predictable."""


@dataclass(frozen=True)
class Haircut:
    """Mean, p99 and maximum before and after the slowest share is removed (same unit as given)."""

    share: float
    mean: float
    p99: float
    largest: float
    mean_after: float
    p99_after: float
    largest_after: float


def haircut(values: ArrayLike, share: float = 0.01) -> Haircut:
    """Return mean, p99 and maximum before and after removing the slowest share of the values.

    Parameters
    ----------
    values : array_like, shape (n,), float64
        Latencies. No NaN, no infinity.
    share : float
        In [0, 1); of n values the slowest round(share n) are removed.

    Returns
    -------
    Haircut

    Raises
    ------
    ParameterError
        If nothing would be left, or `share` is not in [0, 1).

    Notes
    -----
    The haircut shows that few requests cause much of the unpredictability. It is no cure: clients
    did wait for the requests that it removes.

    References
    ----------
    .. [1] The magical 1 % paper, section on the haircut.

    Examples
    --------
    >>> found = haircut([1.0] * 99 + [1000.0])
    >>> (found.largest, found.largest_after, round(found.mean, 2), found.mean_after)
    (1000.0, 1.0, 10.99, 1.0)

    One request of a hundred made the maximum a hundred times the mean.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if not 0 <= share < 1 or ordered.size - round(share * ordered.size) < 1:
        raise ParameterError("share", f"is {share}", "in [0, 1), leaving a value", "use 0.01")
    left = ordered[: ordered.size - round(share * ordered.size)]
    return Haircut(
        share,
        float(ordered.mean()),
        float(np.quantile(ordered, 0.99)),
        float(ordered[-1]),
        float(left.mean()),
        float(np.quantile(left, 0.99)),
        float(left[-1]),
    )


def smallest_haircut(values: ArrayLike, counts: ArrayLike | None = None) -> float:
    """Return the smallest share whose removal leaves a maximum of at most 10 x the mean.

    Parameters
    ----------
    values : array_like, shape (m,), float64
        Latencies, or the upper edges of the bins that hold anything. No NaN, no infinity.
    counts : array_like, shape (m,), optional
        How many are in each bin; one each when not given.

    Returns
    -------
    float
        0 when nothing has to go.

    Examples
    --------
    >>> round(smallest_haircut([1.0] * 98 + [50.0, 1000.0]), 6)
    0.02

    Both outliers have to go: without the larger one the other is still 33 times the mean.
    """
    value = np.asarray(values, dtype=np.float64)
    count = np.ones(value.size) if counts is None else np.asarray(counts, dtype=np.float64)
    order = np.argsort(value)
    value, count = value[order], count[order]
    kept, total = np.cumsum(count), float(count.sum())
    means = np.cumsum(value * count) / np.maximum(kept, 1e-300)
    fine = np.flatnonzero((value <= PREDICTABLE * means) & (count > 0))
    if fine.size == 0:
        raise ParameterError("values", "are none", "one or more", "measure something")
    return float(1 - kept[fine[-1]] / total)


def streak_length(outliers: int, streaks: int, n: int, level: float = 0.95) -> Interval:
    """Mean length of streaks of consecutive outliers, and what independence would give.

    Parameters
    ----------
    outliers, streaks, n : int
        Requests that are outliers, streaks of them (one alone is a streak of 1), and all requests.
    level : float
        Of the interval.

    Returns
    -------
    Interval
        Of the mean length, taking the lengths as geometric. None without a streak. Independent
        outliers would have a mean length of n / (n - outliers).

    Notes
    -----
    The order is that of the schedule. Do not use it for a mixture of clients whose requests do not
    wait for one another: a streak then counts clients, not time.

    References
    ----------
    .. [1] A. Wald and J. Wolfowitz, "On a test whether two samples are from the same population",
       1940.

    Examples
    --------
    >>> found = streak_length(100, 10, 10_000)
    >>> (found.estimate, found.low > 100 / 99)
    (10.0, True)

    Outliers come ten at a time; had they come by chance they would come alone.
    """
    if not 0 <= streaks <= outliers <= n:
        raise ParameterError(
            "streaks",
            f"{streaks} of {outliers} outliers of {n}",
            "streaks <= outliers <= n",
            "count",
        )
    if streaks == 0:
        return Interval(None, None, None, level, n, 0.0, "geometric lengths")
    alpha = (1 - level) / 2
    # ends of streaks among outliers are binomial: the mean length is one over their share
    low = special.betaincinv(streaks, outliers - streaks + 1, alpha)
    high = 1.0
    if streaks < outliers:
        high = float(special.betaincinv(streaks + 1, outliers - streaks, 1 - alpha))
    return Interval(
        outliers / streaks, 1 / high, float(1 / low), level, n, float(streaks),
        "geometric lengths",
    )  # fmt: skip
