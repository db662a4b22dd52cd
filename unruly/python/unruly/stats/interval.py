"""A value with its uncertainty, and the order-statistic interval of a quantile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

# Numbers that were kept are read again by the types of this class, so they exist when it runs.
from unruly.contract import LEFT_OUT, Count, Level
from unruly.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

EXHAUSTIVE = 2_000
"""Up to this many values every rank is looked at."""


@dataclass(frozen=True)
class Interval:
    """An estimate that knows how sure it is.

    ``low`` or ``high`` is None when that side does not exist (no bound can be given, or the
    interval is one-sided by intent; ``method`` says which). Ranks are 1-based order statistics.
    """

    estimate: float | None
    low: float | None
    high: float | None
    level: Level
    n: Count
    n_effective: float | None
    method: str
    low_rank: int | None = field(default=None, metadata=LEFT_OUT)
    high_rank: int | None = field(default=None, metadata=LEFT_OUT)


def quantile(values: ArrayLike, p: float) -> float:
    """Quantile by linear interpolation (Hyndman and Fan's type 7), with censored values.

    Parameters
    ----------
    values : array_like, shape (n,), float64
        Latencies in ns. ``inf`` is a request that failed: its latency is only known to be larger.
        No NaN.
    p : float
        In [0, 1].

    Returns
    -------
    float
        NaN when the rank falls among the infinite values, or when `values` is empty.

    Notes
    -----
    Assumes nothing; it describes these rows. It is not an estimate of a future run without an
    interval: see `block_interval`.

    References
    ----------
    .. [1] R. J. Hyndman and Y. Fan, "Sample quantiles in statistical packages", 1996.

    Examples
    --------
    >>> quantile([1.0, 2.0, 3.0, float("inf")], 0.5)
    2.5
    >>> quantile([1.0, 2.0, 3.0, float("inf")], 0.9)
    nan

    One of four requests failed: the median is 2.5, the p90 lies among the failed.
    """
    _check_p(p, inclusive=True)
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if ordered.size == 0:
        return float("nan")
    place = p * (ordered.size - 1)
    below = int(np.floor(place))
    share = place - below
    low, high = ordered[below], ordered[min(below + 1, ordered.size - 1)]
    if share == 0:
        return float(low) if np.isfinite(low) else float("nan")
    return float(low + (high - low) * share) if np.isfinite(high) else float("nan")


def quantile_ranks_iid(n: int, p: float, level: float) -> tuple[int | None, int | None]:
    """Return the 1-based ranks whose values enclose the p-quantile of independent values.

    Parameters
    ----------
    n : int
        Number of values.
    p : float
        In (0, 1).
    level : float
        Two-sided; each side misses with probability at most (1 - level) / 2.

    Returns
    -------
    tuple of (int or None, int or None)
        None where no order statistic is far enough out.

    Raises
    ------
    ParameterError
        If `p` or `level` is not inside (0, 1), or `n` is negative.

    Notes
    -----
    The number of values below the quantile is binomial(n, p). The low rank is the largest r with
    P(X >= r) >= 1 - alpha/2, the high rank the smallest s with P(X <= s - 1) >= 1 - alpha/2.
    Do not use it for latencies of one run: stalls come in bursts, and a nominal 95 % covers 5 %.

    References
    ----------
    .. [1] W. J. Conover, "Practical Nonparametric Statistics", section 3.2.

    Examples
    --------
    >>> quantile_ranks_iid(1000, 0.99, 0.99)
    (981, 998)

    Of a thousand sorted independent values, the p99 lies between the 981st and the 998th with 99 %.
    """
    _check_p(p)
    _check_p(level, name="level")
    if n < 0:
        raise ParameterError("n", f"is {n}", "0 or more", "count the values")
    alpha = (1 - level) / 2
    # P(X >= r) >= 1 - alpha  <=>  P(X <= r - 1) <= alpha: the largest such r.
    rank = np.arange(0, n + 1) if n <= EXHAUSTIVE else _around(n, p)
    low = int(rank[special.bdtr(rank - 1.0, n, p) <= alpha].max(initial=0))
    return (low if low >= 1 else None, _upper_rank(n, p, alpha))


def quantile_interval_iid(values: ArrayLike, p: float, level: float = 0.95) -> Interval:
    """Order-statistic interval of a quantile, for independent values.

    Parameters
    ----------
    values : array_like, shape (n,), float64
        ``inf`` for failed requests; no NaN.
    p : float
        In (0, 1).
    level : float
        Two-sided.

    Returns
    -------
    Interval
        A side that does not exist, or falls among the failed, is None.

    Raises
    ------
    ParameterError
        If `p` or `level` is not inside (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> found = quantile_interval_iid(np.arange(1, 1001), 0.99, 0.99)
    >>> (found.low, found.high)
    (981.0, 998.0)

    The p99 of these independent values lies between 981 and 998 with 99 % confidence.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    low, high = quantile_ranks_iid(ordered.size, p, level)

    def at(rank: int | None) -> float | None:
        if rank is None or not np.isfinite(ordered[rank - 1]):
            return None
        return float(ordered[rank - 1])

    estimate = quantile(ordered, p)
    return Interval(
        estimate if np.isfinite(estimate) else None,
        at(low),
        at(high),
        level,
        int(ordered.size),
        float(ordered.size) * (1 - p),
        "order statistics, independent values",
        low,
        high,
    )


def promise_iid(n: int, p: float, level: float = 0.95) -> int | None:
    """Return the rank of the one-sided upper bound of the p-quantile; None when n is too small.

    Examples
    --------
    >>> promise_iid(298, 0.99), promise_iid(299, 0.99)
    (None, 299)

    For a one-sided 95 % bound of the p99, 299 independent values are needed.
    """
    _check_p(p)
    _check_p(level, name="level")
    return _upper_rank(n, p, 1 - level)


def _upper_rank(n: int, p: float, alpha: float) -> int | None:
    """Smallest s with P(X <= s - 1) >= 1 - alpha, when there is one."""
    rank = np.arange(1, n + 1) if n <= EXHAUSTIVE else _around(n, p)
    enough = rank[special.bdtr(rank - 1.0, n, p) >= 1 - alpha]
    return int(enough.min()) if enough.size else None


def _around(n: int, p: float) -> NDArray[np.int64]:
    """Ranks within twelve standard deviations of the quantile's: all that any level can need."""
    reach = 12 * np.sqrt(n * p * (1 - p)) + 2
    return np.arange(max(1, int(n * p - reach)), min(n, int(n * p + reach)) + 1)


def _check_p(p: float, *, name: str = "p", inclusive: bool = False) -> None:
    inside = 0 <= p <= 1 if inclusive else 0 < p < 1
    if not inside:
        raise ParameterError(name, f"is {p}", "between 0 and 1", "0.99 is the p99")
