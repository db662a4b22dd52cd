"""Is B different from A: quantile by quantile, with an error that is one for all of them.

Three designs, from strong to weak. *Pairs* (an A beside a B, the order by a coin): the exact
sign-flip test over all quantiles at once; it needs nothing but the coin. *Groups* of runs: an exact
permutation of the labels. *One run each*: blocks of time inside the runs stand in for repetitions,
which cannot see how runs differ from one another; so an allowance for that is part of the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

from unruly.errors import ParameterError
from unruly.stats.interval import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

EXACT_PAIRS: Final = 20
FLIPS: Final = 100_000
SEED: Final = 1
CHUNK: Final = 1 << 16
GROUP_LEAST: Final = 4
ARRANGEMENTS_MAX: Final = 20_000
DETECTABLE: Final = 2.8
"""Standard errors of a shift that is found with power 0.8 at the 5 % level."""
NEEDED: Final = 7.85


@dataclass(frozen=True)
class Shift:
    """B against A at the quantiles of a grid.

    ``ratios`` are B over A, one interval a quantile (each at its own level); ``p_value`` is of all
    of them together, ``largest`` the index of the quantile that says most. ``detectable`` is for
    each quantile the ratio that this many repetitions find with power 0.8 (None: unknown).
    """

    ratios: tuple[Interval, ...]
    p_value: float
    largest: int
    detectable: tuple[float | None, ...]
    n: int
    method: str


def paired_shift(logs_a: ArrayLike, logs_b: ArrayLike, level: float = 0.95) -> Shift:
    """Compare pairs: the exact sign-flip test, with one sign vector for all quantiles.

    Parameters
    ----------
    logs_a, logs_b : array_like, shape (pairs, quantiles), float64
        Logarithms of the quantiles of each run; row i of both is one pair. No NaN.
    level : float
        Of the interval of each ratio.

    Returns
    -------
    Shift
        An interval's bounds are None with fewer pairs than can give that level (6 at 95 %).

    Raises
    ------
    ParameterError
        If the shapes differ, there is no pair, or a value is not finite.

    Notes
    -----
    Under the null hypothesis swapping A and B inside a pair changes nothing, because a coin decided
    which came first; the p-value is the share of all 2^m sign vectors whose largest
    |sum s_i d_ij| / sqrt(sum d_ij^2) reaches the one that was seen. Neither independence of
    requests nor stationarity is assumed. Without a coin do not use it: under drift a fixed ABAB
    alarms in 94-100 %. Five pairs can never reach p < 0.05.

    The interval is that of the signed ranks: sorted Walsh averages (d_i + d_j)/2.

    References
    ----------
    .. [1] R. A. Fisher, "The Design of Experiments", 1935, section 21.
    .. [2] M. Hollander and D. A. Wolfe, "Nonparametric Statistical Methods", section 3.3.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.log([[1.0], [1.1], [0.9], [1.0], [1.2], [1.0], [0.8], [1.0], [1.1], [1.0]])
    >>> found = paired_shift(a, a + np.log(1.1) + np.linspace(-0.01, 0.01, 10)[:, None])
    >>> round(found.ratios[0].estimate, 2), round(found.p_value, 4)
    (1.1, 0.002)

    B is slower by a tenth; of 1,024 ways to swap the pairs only this one and its mirror are as far.
    """
    first, second = _table(logs_a, "logs_a"), _table(logs_b, "logs_b")
    if first.shape != second.shape or first.shape[0] == 0:
        raise ParameterError(
            "logs_b", f"has shape {second.shape}", f"{first.shape}, a pair at least", "pair them"
        )
    differences = second - first
    pairs = differences.shape[0]
    p_value, largest = _sign_flips(differences)
    ratios = tuple(_walsh(differences[:, place], level) for place in range(differences.shape[1]))
    spread = differences.std(axis=0, ddof=1) if pairs > 1 else np.full(differences.shape[1], np.nan)
    return Shift(
        ratios,
        p_value,
        largest,
        tuple(_detectable(float(sd), pairs) for sd in spread),
        pairs,
        "pairs, exact sign flips" if pairs <= EXACT_PAIRS else f"pairs, {FLIPS:,} sign flips",
    )


def grouped_shift(logs_a: ArrayLike, logs_b: ArrayLike, level: float = 0.95) -> Shift:
    """Compare two groups of runs that are not paired: an exact permutation of the labels.

    Parameters
    ----------
    logs_a, logs_b : array_like, shape (runs of A, quantiles) and (runs of B, quantiles)
        Logarithms of the quantiles of each run. No NaN.
    level : float
        Of the interval of each ratio (Welch's t on the logarithms).

    Returns
    -------
    Shift
        ``p_value`` is 1 with fewer than four runs on a side: no arrangement of so few is rare.

    Raises
    ------
    ParameterError
        As of `paired_shift`; fewer than two runs on a side.

    Notes
    -----
    Assumes that runs are exchangeable if A and B are the same: taken in random order. All of A
    before all of B is not that; drift between them is then part of the difference.

    References
    ----------
    .. [1] E. J. G. Pitman, "Significance tests which may be applied to samples from any
       populations", 1937.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.log([[1.0], [1.1], [0.9], [1.0], [1.05]])
    >>> found = grouped_shift(a, a + np.log(2))
    >>> round(found.ratios[0].estimate, 2), round(found.p_value, 3)
    (2.0, 0.008)

    Of 252 ways to call five of ten runs A, two split them this far.
    """
    first, second = _table(logs_a, "logs_a"), _table(logs_b, "logs_b")
    if first.shape[1] != second.shape[1] or min(first.shape[0], second.shape[0]) < 2:
        raise ParameterError(
            "logs_b", f"has shape {second.shape}", "two runs or more a side", "measure again"
        )
    sizes = first.shape[0], second.shape[0]
    distance = second.mean(axis=0) - first.mean(axis=0)
    variances = first.var(axis=0, ddof=1) / sizes[0], second.var(axis=0, ddof=1) / sizes[1]
    error = np.sqrt(variances[0] + variances[1])
    freedom = np.maximum(
        1.0,
        (variances[0] + variances[1]) ** 2
        / np.maximum(
            variances[0] ** 2 / (sizes[0] - 1) + variances[1] ** 2 / (sizes[1] - 1),
            np.finfo(float).tiny,
        ),
    )
    reach = special.stdtrit(freedom, (1 + level) / 2) * error
    p_value, largest = _relabelled(first, second)
    ratios = tuple(
        Interval(
            float(np.exp(middle)),
            float(np.exp(middle - wide)),
            float(np.exp(middle + wide)),
            level,
            sum(sizes),
            float(free),
            "Welch's t on the logarithms of runs",
        )
        for middle, wide, free in zip(distance, reach, freedom, strict=True)
    )
    detectable = tuple(float(np.exp(DETECTABLE * wide)) for wide in error)
    return Shift(ratios, p_value, largest, detectable, sum(sizes), "runs, exact relabelling")


def interval_of_ratio(
    a: tuple[float, float | None, float | None], b: tuple[float, float | None, float | None]
) -> tuple[float, float | None, float | None]:
    """Ratio of two independent estimates with their intervals: B over A, low, high.

    Parameters
    ----------
    a, b : tuple of (estimate, low, high)
        Estimates are positive; a bound that does not exist is None, and one of 0 or less says as
        little: on logarithms it is infinitely far.

    Returns
    -------
    tuple of (ratio, low, high)
        At the level of the two intervals; a bound that needs one that does not exist is None.

    References
    ----------
    .. [1] A. Donner and G. Y. Zou, "Closed-form confidence intervals for functions of the normal
       mean and standard deviation", 2012: variances recovered from the limits, on logarithms.

    Examples
    --------
    >>> [round(x, 2) for x in interval_of_ratio((10.0, 9.0, 11.0), (20.0, 18.0, 22.0))]
    [2.0, 1.74, 2.31]
    """
    if not (a[0] > 0 and b[0] > 0):
        raise ParameterError(
            "interval_of_ratio",
            f"estimates are {a[0]:g} and {b[0]:g}",
            "both above 0",
            "leave it out",
        )
    ratio = np.log(b[0]) - np.log(a[0])
    low = high = None
    a, b = (_positive(it) for it in (a, b))
    if b[1] is not None and a[2] is not None:
        low = float(np.exp(ratio - np.hypot(np.log(b[0] / b[1]), np.log(a[2] / a[0]))))
    if b[2] is not None and a[1] is not None:
        high = float(np.exp(ratio + np.hypot(np.log(b[2] / b[0]), np.log(a[0] / a[1]))))
    return float(np.exp(ratio)), low, high


def _positive(
    found: tuple[float, float | None, float | None],
) -> tuple[float, float | None, float | None]:
    """An estimate with those of its bounds that are above 0."""
    low, high = (bound if bound is not None and bound > 0 else None for bound in found[1:])
    return found[0], low, high


def pairs_needed(spread: float, ratio: float) -> float:
    """Return how many pairs find a shift of `ratio` with power 0.8, the pairs' logs spread so.

    Examples
    --------
    >>> round(pairs_needed(0.99, 1.1))
    847

    With stalls of which one pair's p99 differs from the next's by a factor of e, a shift of a tenth
    would take 847 pairs.
    """
    return float(NEEDED * (spread / np.log(ratio)) ** 2)


def _table(values: ArrayLike, name: str) -> NDArray[np.float64]:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 2 or not np.all(np.isfinite(found)):
        raise ParameterError(
            name, f"has shape {found.shape} or holds NaN", "(runs, quantiles), finite", "check it"
        )
    return found


def _sign_flips(differences: NDArray[np.float64]) -> tuple[float, int]:
    pairs = differences.shape[0]
    scale = np.sqrt((differences**2).sum(axis=0))
    scale = np.where(scale > 0, scale, 1.0)
    seen = np.abs(differences.sum(axis=0)) / scale
    bar = seen.max() * (1 - 1e-12)
    total = 2**pairs if pairs <= EXACT_PAIRS else FLIPS
    rng = np.random.default_rng(SEED)
    reached = 0
    for first in range(0, total, CHUNK):
        size = min(CHUNK, total - first)
        if pairs <= EXACT_PAIRS:
            numbers = np.arange(first, first + size)
            signs = ((numbers[:, None] >> np.arange(pairs)) & 1) * 2.0 - 1.0
        else:
            signs = rng.integers(0, 2, (size, pairs)) * 2.0 - 1.0
        reached += int(((np.abs(signs @ differences) / scale).max(axis=1) >= bar).sum())
    # drawn sign flips count the observed signs as one more draw, so that p is never 0
    p_value = reached / total if pairs <= EXACT_PAIRS else (reached + 1) / (total + 1)
    return p_value, int(seen.argmax())


def _walsh(differences: NDArray[np.float64], level: float) -> Interval:
    pairs = differences.size
    upper = np.triu_indices(pairs)
    averages = np.sort((differences[upper[0]] + differences[upper[1]]) / 2)
    middle = float(np.exp(np.median(averages)))
    rank = _signed_rank(pairs, (1 - level) / 2)
    low = float(np.exp(averages[rank - 1])) if rank else None
    high = float(np.exp(averages[averages.size - rank])) if rank else None
    return Interval(
        middle, low, high, level, pairs, float(pairs), "Walsh averages", rank or None,
        averages.size - rank + 1 if rank else None,
    )  # fmt: skip


def _signed_rank(pairs: int, alpha: float) -> int:
    """Largest k with P(T <= k - 1) <= alpha, T the signed-rank sum under symmetry; 0 for none.

    Examples
    --------
    >>> _signed_rank(10, 0.025), _signed_rank(5, 0.025)
    (9, 0)
    """
    ways = np.ones(1)
    for rank in range(1, pairs + 1):
        longer = np.zeros(ways.size + rank)
        longer[: ways.size] += ways / 2
        longer[rank:] += ways / 2
        ways = longer
    below = np.cumsum(ways)
    return int((below <= alpha).sum())


def _relabelled(first: NDArray[np.float64], second: NDArray[np.float64]) -> tuple[float, int]:
    runs, size = np.concatenate([first, second]), first.shape[0]
    scale = runs.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    seen = np.abs(second.mean(axis=0) - first.mean(axis=0)) / scale
    largest = int(seen.argmax())
    if min(size, second.shape[0]) < GROUP_LEAST:
        return 1.0, largest
    count = comb(runs.shape[0], size)
    if count <= ARRANGEMENTS_MAX:
        chosen = np.array(list(combinations(range(runs.shape[0]), size)))
    else:
        rng = np.random.default_rng(SEED)
        chosen = rng.random((ARRANGEMENTS_MAX, runs.shape[0])).argsort(axis=1)[:, :size]
    a = runs[chosen].mean(axis=1)
    b = (runs.sum(axis=0) - size * a) / (runs.shape[0] - size)
    reached = ((np.abs(b - a) / scale).max(axis=1) >= seen.max() * (1 - 1e-12)).sum()
    if count <= ARRANGEMENTS_MAX:
        return float(reached / count), largest
    return float((reached + 1) / (ARRANGEMENTS_MAX + 1)), largest


def _detectable(spread: float, repetitions: int) -> float | None:
    if not np.isfinite(spread):
        return None
    return float(np.exp(DETECTABLE * spread / np.sqrt(repetitions)))
