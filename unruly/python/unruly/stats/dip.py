"""Is there more than one mode: Hartigan's dip, the distance to the nearest unimodal law.

The empirical distribution of a unimodal law hugs a curve that is convex before the mode and concave
after it. The dip is half the smallest possible gap: between the greatest convex minorant before a
modal interval, the least concave majorant after it, and the distribution. The interval is narrowed
from both sides until it cannot be.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from unruly.errors import ParameterError
from unruly.stats.dips import kept

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

REDUCED: Final = 1_000
"""Longer samples are thinned to this many evenly spaced order statistics, which keep the shape."""
DRAWS: Final = 500
SEED: Final = 1
LEAST: Final = 4


@dataclass(frozen=True)
class Dip:
    """The dip, and the share of uniform samples of the same size with at least as large a dip.

    ``n_used`` is the number of values from which the dip was computed.
    """

    dip: float | None
    p_value: float | None
    n: int
    n_used: int
    reason: str = ""


def dip_test(values: ArrayLike) -> Dip:
    """Test whether values have more than one mode.

    Parameters
    ----------
    values : array_like, shape (n,), float64
        No NaN, no infinity.

    Returns
    -------
    Dip
        None with a reason for fewer than four values, or when all are equal. The p-value is that
        of 500 seeded uniform samples (the least favourable unimodal law), so never below 1/501.

    Raises
    ------
    ParameterError
        If a value is not finite.

    Notes
    -----
    A small p says that one mode does not explain the shape. It does not say how many modes there
    are. Do not use the test on readings of a coarse clock: each tick is a mode. The test assumes
    independent values.

    References
    ----------
    .. [1] J. A. Hartigan, P. M. Hartigan, "The dip test of unimodality", Annals of Statistics 1985.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> one = dip_test(rng.normal(size=300))
    >>> two = dip_test(np.concatenate([rng.normal(size=150), rng.normal(6, 1, 150)]))
    >>> one.p_value > 0.1, two.p_value < 0.01
    (True, True)

    The second sample has two modes: fewer than 1 % of uniform samples have so large a dip.
    """
    held = np.sort(np.asarray(values, dtype=np.float64).ravel())
    if held.size and not (np.isfinite(held[0]) and np.isfinite(held[-1])):
        raise ParameterError("values", "hold NaN or infinity", "finite numbers", "leave them out")
    n = int(held.size)
    if n < LEAST:
        return Dip(None, None, n, n, f"{n} values; {LEAST} are needed")
    if held[0] == held[-1]:
        return Dip(None, None, n, n, "all values are equal")
    if n > REDUCED:
        held = held[((np.arange(REDUCED) + 0.5) * n / REDUCED).astype(int)]
    found = dip_of(held)
    drawn = _drawn(int(held.size))
    # a thinned sample is smoother than a drawn one of its size: the test is then cautious
    p_value = (int((drawn >= found).sum()) + 1) / (DRAWS + 1)
    return Dip(found, p_value, n, int(held.size))


def dip_of(ordered: NDArray[np.float64]) -> float:
    """Return the dip of sorted values, two at least.

    Examples
    --------
    >>> dip_of(np.array([0.0, 1.0, 2.0, 3.0]))
    0.125

    Evenly spaced values are as unimodal as four values can be: 1/(2n).
    """
    n = ordered.size
    best, low, high = 1.0, 0, n - 1
    values = ordered.tolist()
    # the least concave majorant is the minorant of the mirrored points
    mirrored = (-ordered).tolist()
    while True:
        below, above = _hull(values, low, high), _hull(mirrored, low, high)
        gap, left, right = _widest(ordered, below, above)
        if gap <= best:
            break
        best = max(best, _off(ordered, below, left, convex=True))
        best = max(best, _off(ordered, above, right, convex=False))
        if (left, right) == (low, high):
            break
        low, high = left, right
        if gap <= best:
            break
    return float(best / (2 * n))


def _hull(values: list[float], low: int, high: int) -> NDArray[np.int64]:
    """Corners of the greatest convex minorant of points (x_i, i); plain floats are the fastest."""
    held = [low]
    for place in range(low + 1, high + 1):
        value = values[place]
        while len(held) > 1:
            first, second = held[-2], held[-1]
            base = values[first]
            turn = (values[second] - base) * (place - first) - (value - base) * (second - first)
            if turn > 0:
                break
            del held[-1]
        held.append(place)
    return np.array(held)


def _at(
    ordered: NDArray[np.float64], hull: NDArray[np.int64], x: NDArray[np.float64]
) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.interp(x, ordered[hull], hull.astype(float))
    return found


def _widest(
    ordered: NDArray[np.float64], below: NDArray[np.int64], above: NDArray[np.int64]
) -> tuple[float, int, int]:
    """The widest gap between both curves, and the modal interval that it leaves."""
    from_below = _at(ordered, above, ordered[below]) - below
    from_above = above - _at(ordered, below, ordered[above])
    first, second = int(from_below.argmax()), int(from_above.argmax())
    if from_below[first] >= from_above[second]:
        place = below[first]
        after = above[ordered[above] >= ordered[place]]
        return float(from_below[first]) + 1.0, int(place), int(after[0])
    place = above[second]
    before = below[ordered[below] <= ordered[place]]
    return float(from_above[second]) + 1.0, int(before[-1]), int(place)


def _off(ordered: NDArray[np.float64], hull: NDArray[np.int64], end: int, *, convex: bool) -> float:
    """How far the steps of the distribution are from the curve outside the modal interval."""
    kept = hull[hull <= end] if convex else hull[hull >= end]
    if kept.size < 2:
        return 0.0
    places = np.arange(kept[0], kept[-1] + 1)
    curve = _at(ordered, kept, ordered[places])
    gaps = places + 1 - curve if convex else curve - (places - 1)
    return float(gaps.max())


@lru_cache(maxsize=64)
def _drawn(n: int) -> NDArray[np.float64]:
    """Dips of uniform samples. Drawing them takes a third of the verdict of a small run."""
    found = kept().get(n)
    return draw(n) if found is None else found


def draw(n: int) -> NDArray[np.float64]:
    """Return the dips of seeded uniform samples of size n: what chance makes of one mode."""
    rng = np.random.default_rng(SEED)
    return np.array([dip_of(np.sort(rng.uniform(size=n))) for _ in range(DRAWS)])
