"""Which factor of an experiment explains a number: analysis of variance, type II."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final

import numpy as np
import scipy

from unruly.errors import ParameterError
from unruly.stats.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

RESIDUAL: Final = "residual"
EXACT_SHARE: Final = 1e-13
"""A residual below this share of the total is rounding error: the factors explain everything."""


@dataclass(frozen=True)
class Effect:
    """The variance that one factor (``a``) or interaction (``a:b``) explains, or the residual.

    ``share`` is the share of the total sum of squares. ``partial`` is the share of the variance
    that the other factors leave, with its interval from the noncentral F. A value that cannot be
    computed is None, and ``reason`` says why.
    """

    factor: str
    sum_squares: float | None
    freedom: int
    f: float | None
    p_value: float | None
    share: float | None
    partial: Interval | None
    reason: str = ""


def analysis_of_variance(
    values: ArrayLike,
    factors: Mapping[str, Sequence[object]],
    *,
    interactions: bool = False,
    level: float = 0.95,
) -> tuple[Effect, ...]:
    """Split the variance of a number over the factors of an experiment.

    Parameters
    ----------
    values : array_like, shape (n,), float64
        One number for each observation (a cell's p99 in one repeat). No NaN.
    factors : mapping of str to sequence, each of length n
        Levels, of any kind; they are categories, not numbers.
    interactions : bool
        Of every two factors as well.
    level : float
        Of the interval of the partial share.

    Returns
    -------
    tuple of Effect
        A row for each factor and interaction, then the residual. A factor of one level is there
        with its reason; a design that is unbalanced or incomplete is computed as it is.

    Raises
    ------
    ParameterError
        If lengths differ, a value is NaN or infinite, there are fewer than two values, or no
        factor.

    Notes
    -----
    Type II: each factor after all others that do not contain it. Values are first centred on their
    mean, so that an offset of 10^13 costs no digits. F needs residual degrees of freedom: with one
    observation a cell and all interactions there are none. The p-values assume normal, equal,
    independent errors; maxima are not such: read the share, and distrust a p-value near 0.05.

    References
    ----------
    .. [1] NIST StRD, analysis of variance: SiRstv, SmLs01 to SmLs09.
    .. [2] G. Cumming, S. Finch 2001, for intervals by the noncentral F.

    Examples
    --------
    >>> found = analysis_of_variance([1.0, 1.2, 3.0, 3.2], {"size": ["s", "s", "l", "l"]})
    >>> (found[0].factor, round(found[0].f, 1), round(found[0].share, 3))
    ('size', 200.0, 0.99)

    The size explains 99 % of the variance of these four numbers.
    """
    numbers = _checked(values, factors)
    known = {name: np.unique([str(it) for it in held], return_inverse=True) for name, held in
             factors.items()}  # fmt: skip
    varied = [name for name, (levels, _) in known.items() if levels.size > 1]
    constant = [
        Effect(name, None, 0, None, None, None, None, "it has one level")
        for name in known
        if name not in varied
    ]
    total = float((numbers**2).sum())
    if total == 0:
        same = "all values are equal"
        return (
            *[Effect(name, 0.0, 0, None, None, None, None, same) for name in varied],
            *constant,
            Effect(RESIDUAL, 0.0, numbers.size - 1, None, None, None, None, same),
        )
    terms: list[tuple[str, ...]] = [(name,) for name in varied]
    if interactions:
        terms += list(combinations(varied, 2))
    columns = {term: _columns([known[name][1] for name in term]) for term in terms}
    left, freedom = _left(numbers, [columns[term] for term in terms])
    if left < EXACT_SHARE * total:
        left = 0.0
    rows = [_effect(term, terms, columns, numbers, (left, freedom, total), level) for term in terms]
    share = left / total
    return (*rows, *constant, Effect(RESIDUAL, left, freedom, None, None, share, None))


def _checked(values: ArrayLike, factors: Mapping[str, Sequence[object]]) -> NDArray[np.float64]:
    # the offset goes before anything is squared: longdouble sums keep its digits
    raw = np.asarray(values, dtype=np.longdouble)
    if raw.ndim != 1 or raw.size < 2 or not np.all(np.isfinite(raw)):
        raise ParameterError(
            "values", f"have shape {raw.shape} or hold NaN", "two finite numbers or more", "look"
        )
    if not factors:
        raise ParameterError("factors", "are none", "one or more", "vary something")
    for name, held in factors.items():
        if len(held) != raw.size:
            raise ParameterError(
                name, f"has {len(held)} levels", f"one for each of {raw.size} values", "align them"
            )
    return np.asarray(raw - raw.mean(), dtype=np.float64)


def _columns(codes: list[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Indicator columns of a factor without its first level; of an interaction their products."""
    found = np.ones((codes[0].size, 1))
    for held in codes:
        indicators = (held[:, None] == np.arange(1, held.max() + 1)[None, :]).astype(float)
        found = (found[:, :, None] * indicators[:, None, :]).reshape(held.size, -1)
    return found


def _left(values: NDArray[np.float64], columns: list[NDArray[np.float64]]) -> tuple[float, int]:
    """Residual sum of squares and degrees of freedom of a model with an intercept."""
    design = np.hstack([np.ones((values.size, 1)), *columns])
    # factors that determine one another lower the rank
    coefficients, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    return float(((values - design @ coefficients) ** 2).sum()), values.size - int(rank)


def _effect(
    term: tuple[str, ...],
    terms: list[tuple[str, ...]],
    columns: dict[tuple[str, ...], NDArray[np.float64]],
    values: NDArray[np.float64],
    whole: tuple[float, int, float],
    level: float,
) -> Effect:
    left, left_freedom, total = whole
    # what does not contain the term stays in both models
    others = [columns[other] for other in terms if not set(term) <= set(other)]
    without, freedom_without = _left(values, others)
    with_it, freedom_with = _left(values, [*others, columns[term]])
    explained, freedom = max(0.0, without - with_it), freedom_without - freedom_with
    name = ":".join(term)
    if freedom == 0:
        return Effect(name, None, 0, None, None, None, None, "the other factors determine it")
    share = explained / total
    if left_freedom == 0 or left == 0:
        reason = (
            "no residual degrees of freedom: repeat the cells"
            if left_freedom == 0
            else "nothing is left over: the factors explain all"
        )
        return Effect(name, explained, freedom, None, None, share, None, reason)
    f = explained / freedom / (left / left_freedom)
    p_value = float(scipy.stats.f.sf(f, freedom, left_freedom))
    partial = _partial(f, freedom, left_freedom, values.size, level)
    return Effect(name, explained, freedom, float(f), p_value, share, partial)


def _at_most(f: float, freedom: int, left: int, noncentrality: float) -> float:
    """Probability that a noncentral F is at most this large.

    SciPy's series does not converge for large noncentralities and returns NaN. There the first two
    moments of the noncentral chi-square give a central F that is as good as equal (Patnaik 1949).
    """
    with np.errstate(all="ignore"):
        exact = float(scipy.stats.ncf.cdf(f, freedom, left, noncentrality))
    if np.isfinite(exact):
        return exact
    mean = freedom + noncentrality
    like = mean**2 / (freedom + 2 * noncentrality)
    return float(scipy.stats.f.cdf(f * freedom / mean, like, left))


def _partial(f: float, freedom: int, left: int, n: int, level: float) -> Interval:
    """Partial share with its interval: noncentralities at which this F is at either end."""
    alpha = (1 - level) / 2

    def noncentrality(mass: float) -> float:
        def off(value: float) -> float:
            return _at_most(f, freedom, left, value) - mass

        if off(0.0) <= 0:
            return 0.0
        top = 10.0 * (f * freedom + freedom + 10)
        return float(scipy.optimize.brentq(off, 0.0, top)) if off(top) < 0 else top

    low, high = (value / (value + n) for value in map(noncentrality, (1 - alpha, alpha)))
    estimate = f * freedom / (f * freedom + left)
    return Interval(
        estimate, min(low, estimate), max(high, estimate), level, n, float(left), "noncentral F"
    )
