"""Quantiles of latencies whose source kept bins, not values: what can be said, and how surely.

A bin says that `count` values lie somewhere between its edges. Inside a bin values are taken as
uniform, which is a convention; that the value lies between the edges is a fact. Every quantile
therefore comes with the two edges between which it lies whatever the values inside the bins were,
and a quantile whose bin is so coarse that the number would be the convention's own is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from unruly.errors import ParameterError
from unruly.quantity import duration
from unruly.stats.histogram import WIDTH, bucket_edges, bucket_index

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

FINE = 0.02
"""A bin narrower than this, relative to its lower edge, counts as a value."""
QUARTILE = 0.75
CHUNK = 2_000_000
OVERLAPPING_MAX = 4_000
"""So many overlapping bins are evaluated as they are; more are first laid over fine buckets."""
FINER = 0.0005


@dataclass(frozen=True)
class BinQuantile:
    """One quantile: ``value`` (None when refused, then ``reason`` says why).

    ``low`` and ``high`` enclose it whatever the values inside the bins were.
    """

    value: float | None
    low: float | None
    high: float | None
    reason: str | None


def bin_quantile(low: ArrayLike, high: ArrayLike, count: ArrayLike, p: float) -> BinQuantile:
    """Quantile of binned values: linear inside the bin, or refused where the bin is too coarse.

    Parameters
    ----------
    low, high : array_like, shape (m,), float64
        Edges of each bin, ns; bins may overlap and come in any order. Equal edges are one exact
        value; an infinite upper edge is a request that failed, or an open bin. No NaN.
    count : array_like, shape (m,), float64
        Values in each bin; may be fractions (4 % of n lie between the p95 and the p99).
    p : float
        In (0, 1).

    Returns
    -------
    BinQuantile
        ``value`` is None when the rank falls among the failed, when there is nothing, or when the
        bin that holds it is wider than 2 % and also holds the p75 or the maximum (for ``p`` up to
        0.75: when ``high`` is over twice ``low``): then the number would say how bins are cut.

    Raises
    ------
    ParameterError
        If shapes differ, an edge is NaN, a bin is upside down, or a count is negative.

    Notes
    -----
    The rank is p n; where bins meet just there, the bounds are those of the two ranks beside it. Do
    not average percentiles of several histograms: add the bins.

    References
    ----------
    .. [1] The rule of the p75 and the maximum: the magical 1 % paper, appendix A.1.

    Examples
    --------
    >>> found = bin_quantile([0, 100, 200], [100, 200, 400], [900, 80, 20], 0.95)
    >>> found.value, found.low, found.high
    (162.5, 100.0, 200.0)
    >>> bin_quantile([0, 100, 200], [100, 200, 400], [900, 80, 20], 0.99).reason
    'it falls into the bin of the maximum, 200 ns to 400 ns'

    The p95 lies between 100 and 200 ns, evenly spread at 162.5; of the p99 nothing finer than its
    bin is known, which also holds the largest value.
    """
    if not 0 < p < 1:
        raise ParameterError("p", f"is {p}", "between 0 and 1", "0.99 is the p99")
    lower, upper, mass = _checked(low, high, count)
    total = mass.sum()
    if total == 0:
        return BinQuantile(None, None, None, "there are no values")
    kept = np.isfinite(upper)
    target = p * total
    if target > mass[kept].sum():
        failed = total - mass[kept].sum()
        return BinQuantile(
            None, None, None, f"its rank falls among the {failed:.0f} of {total:.0f} that failed"
        )
    lower, upper, mass = lower[kept], upper[kept], mass[kept]
    bounds = (
        _at_edge(lower, mass, target, "right"),
        _at_edge(upper, mass, target, "left"),
    )
    value = _interpolated(lower, upper, mass, target)
    bounds = min(bounds[0], value), max(bounds[1], value)
    reason = None
    if p <= QUARTILE and bounds[1] > 2 * bounds[0]:
        reason = (
            f"it lies between {duration(bounds[0])} and {duration(bounds[1])}, over a factor of two"
        )
    elif p > QUARTILE and bounds[1] > bounds[0] * (1 + FINE):
        reason = _too_coarse(lower, upper, mass, total, value)
    return BinQuantile(None if reason else value, *bounds, reason)


def bin_count_above(
    low: ArrayLike, high: ArrayLike, count: ArrayLike, limit: float
) -> tuple[float, float]:
    """Return the least and the most values that can lie above `limit`; failed ones do not count.

    Examples
    --------
    >>> bin_count_above([0, 100, 200], [100, 200, 400], [900, 80, 20], 150)
    (20.0, 100.0)
    """
    lower, upper, mass = _checked(low, high, count)
    kept = np.isfinite(upper)
    surely = mass[kept & (lower > limit)].sum()
    return float(surely), float(mass[kept & (upper > limit)].sum())


def spread(
    low: ArrayLike, high: ArrayLike, count: ArrayLike, width: float = WIDTH
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Lay bins over logarithmic buckets, uniform inside each bin.

    Parameters
    ----------
    low, high, count : array_like, shape (m,)
        As of `bin_quantile`.
    width : float
        Relative width of a bucket.

    Returns
    -------
    tuple of (buckets, counts)
        Ascending bucket indices (see `bucket_index`) and what lies in each; failed values in
        ``FAILED_BUCKET``. The counts sum to the sum of `count`.

    Examples
    --------
    >>> buckets, counts = spread([1002.0], [1012.0], [10.0])
    >>> [round(float(x), 2) for x in counts]
    [2.99, 5.02, 1.99]

    Ten values between 1002 and 1012 ns touch three buckets of 0.5 %; five lie in the middle one.
    """
    lower, upper, mass = _checked(low, high, count)
    start, end = bucket_index(lower, width), bucket_index(upper, width)
    # a bin that ends on a bucket's edge does not reach into the next one
    pieces = end - start + 1
    owner = np.repeat(np.arange(mass.size), pieces)
    place = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    bucket = start[owner] + place
    single = pieces[owner] == 1
    left, right = bucket_edges(bucket, width)
    with np.errstate(invalid="ignore", divide="ignore"):
        length = upper[owner] - lower[owner]
        inside = np.minimum(right, upper[owner]) - np.maximum(
            np.where(bucket == 0, 0.0, left), lower[owner]
        )
        share = np.where(single, 1.0, np.clip(inside / length, 0.0, 1.0))
    names, where = np.unique(bucket, return_inverse=True)
    counts = np.zeros(names.size)
    np.add.at(counts, where, share * mass[owner])
    filled = counts > 0
    return names[filled].astype(np.int64), counts[filled]


def _checked(
    low: ArrayLike, high: ArrayLike, count: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    lower, upper = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    mass = np.asarray(count, dtype=np.float64)
    if not lower.shape == upper.shape == mass.shape or lower.ndim != 1:
        shapes = f"{lower.shape}, {upper.shape}, {mass.shape}"
        raise ParameterError("bins", f"have shapes {shapes}", "three of one length", "align them")
    if not (np.all(lower <= upper) and np.all(mass >= 0)):
        raise ParameterError(
            "bins", "are upside down, negative or NaN", "low <= high, count >= 0", "look at them"
        )
    # what lies in an open bin is only known to be beyond, like a request that failed
    return np.where(np.isinf(upper), np.inf, lower), upper, mass


def _at_edge(
    edge: NDArray[np.float64],
    mass: NDArray[np.float64],
    target: float,
    side: Literal["left", "right"],
) -> float:
    """The value of rank `target` (right: of the next one) were every value at this edge."""
    order = np.argsort(edge, kind="stable")
    slack = 1 + 1e-12 if side == "right" else 1 - 1e-12
    reached = np.searchsorted(np.cumsum(mass[order]), target * slack, side=side)
    return float(edge[order][min(int(reached), edge.size - 1)])


def _interpolated(
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    mass: NDArray[np.float64],
    target: float,
) -> float:
    order = np.argsort(lower, kind="stable")
    lower, upper, mass = lower[order], upper[order], mass[order]
    if np.all(upper[:-1] <= lower[1:]):
        before = np.cumsum(mass) - mass
        place = int(np.searchsorted(before + mass, target * (1 - 1e-12)))
        place = min(place, mass.size - 1)
        inside = np.clip((target - before[place]) / mass[place], 0, 1) if mass[place] else 0.0
        return float(lower[place] + (upper[place] - lower[place]) * inside)
    if mass.size > OVERLAPPING_MAX:
        names, mass = spread(lower, upper, mass, FINER)
        lower, upper = bucket_edges(names, FINER)
        return _interpolated(lower, upper, mass, target)
    edges = np.unique(np.concatenate([lower, upper]))
    below = _mass_up_to(edges, lower, upper, mass)
    return float(np.interp(target, below, edges))


def _mass_up_to(
    edges: NDArray[np.float64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    mass: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Values at or below each edge, uniform inside a bin."""
    found = np.zeros(edges.size)
    step = max(1, CHUNK // mass.size)
    length = np.where(upper > lower, upper - lower, 1.0)
    for first in range(0, edges.size, step):
        part = edges[first : first + step, None]
        inside = np.where(upper > lower, np.clip((part - lower) / length, 0, 1), part >= upper)
        found[first : first + step] = inside @ mass
    return found


def _too_coarse(
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    mass: NDArray[np.float64],
    total: float,
    value: float,
) -> str | None:
    filled = mass > 0
    around = filled & (lower <= value) & (value <= upper) & (upper > lower * (1 + FINE))
    if not around.any():
        return None
    widest = f"{duration(lower[around].min())} to {duration(upper[around].max())}"
    # where bins overlap, those count that most of the mass at this place comes from
    density = mass[around] / (upper[around] - lower[around])

    def most(offending: NDArray[np.bool_]) -> bool:
        return bool(density[offending].sum() > 0.5 * density.sum())

    if most(upper[around] >= upper[filled].max()):
        return f"it falls into the bin of the maximum, {widest}"
    quartile = _interpolated(lower, upper, mass, QUARTILE * total)
    if most((lower[around] <= quartile) & (quartile < upper[around])):
        return f"it falls into the bin of the p75, {widest}"
    return None
