"""An interval for a tail quantile that survives stalls, and knows when to abstain.

Latencies of one run are not independent: a stall delays hundreds of requests together, so a naive
interval of the p99 covers the truth in 5 % of runs. What counts is the number of independent tail
*episodes*. The run is cut into 30 blocks of equal time; the variance between blocks of the number
of values above an edge, relative to what independence would give, is the design effect; a
Clopper-Pearson interval on n / design effect, inverted over the bucket edges, is the interval. The
design effect is taken at the estimate and at twice its mass, and is inflated for its own degrees of
freedom and the blocks' lag-1 correlation. With fewer than 7 episodes, or blocks whose level
wanders, the method abstains.

The letter of the method and its coverage tables: docs/methods/block-interval.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from unruly.errors import ParameterError
from unruly.stats.histogram import bucket_edges
from unruly.stats.interval import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

BLOCKS = 30
EPISODES_MIN = 7.0
WANDER_LIMIT = 0.5
REJECTIONS_MAX = 60
UNSEEN_EPISODES = 3.7
METHOD = "block design effect, Clopper-Pearson over bucket edges"


@dataclass(frozen=True)
class BlockInterval:
    """What the block method says of one quantile.

    ``interval`` is None when it abstains (then ``abstained`` is "A1" or "A2" and ``reason`` says
    why in words). ``lower_bound`` (p-quantile >= this, one-sided 1 - alpha/2) stands even then.
    ``promise`` is the one-sided upper bound; None when it abstains or no finite bound exists.
    ``n_effective`` counts independent tail episodes, n (1 - p) / deff. ``wander`` is the largest
    lag-1 correlation of the blocks.
    """

    interval: Interval | None
    promise: Interval | None
    lower_bound: float | None
    n_effective: float
    design_effect: float
    wander: float
    abstained: str | None
    reason: str | None
    needed_factor: float
    """Times this run's length would about do (factor 2 either way)."""


def block_interval(
    buckets: ArrayLike,
    counts: ArrayLike,
    p: float,
    *,
    estimate: float | None = None,
    level: float = 0.95,
) -> BlockInterval:
    """Interval and one-sided promise of the p-quantile from block histograms.

    Parameters
    ----------
    buckets : array_like, shape (m,), int
        Ascending indices of the logarithmic buckets (see `bucket_index`) that hold anything.
    counts : array_like, shape (m, blocks), int
        Values in each bucket and each of the equal-time blocks; blocks may hold unequal counts,
        also 0. No NaN. A failed request counts in the bucket ``FAILED_BUCKET``.
    p : float
        In (0, 1): 0.99 for the p99.
    estimate : float, optional
        The exact quantile (ns) to report; the bucket's middle when it is not given.
    level : float
        Two-sided level of the interval, and level of the one-sided promise.

    Returns
    -------
    BlockInterval
        Bounds in ns. A bound that falls among the failed or beyond the data is None.

    Raises
    ------
    ParameterError
        If `p` or `level` is not inside (0, 1), or shapes do not match.

    Notes
    -----
    Assumes: latency from the *intended* time, and that the run saw what it should be judged by. Do
    not use it with stalls of infinite variance (12-17 % false promises), nor for stalls that did
    not occur: see `blind_spot`. Claim "at least 95 %".

    References
    ----------
    .. [1] E. L. Korn and B. I. Graubard, "Confidence intervals for proportions with small expected
       number of positive counts estimated from survey data", 1998.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> from unruly.stats.histogram import bucket_index
    >>> index = bucket_index(rng.lognormal(12, 0.5, 30_000)).reshape(30, 1000)
    >>> buckets = np.unique(index)
    >>> counts = np.array([(index == b).sum(axis=1) for b in buckets])
    >>> found = block_interval(buckets, counts, 0.99)
    >>> truth = np.exp(12 + 0.5 * 2.3263)
    >>> found.abstained is None, bool(found.interval.low < truth < found.interval.high)
    (True, True)

    The p99 lies in the interval with at least 95 % confidence; the truth, 520 us, does.
    """
    edges = _Edges.build(buckets, counts, p, level)
    two_sided = edges.at((1 - level) / 2)
    one_sided = edges.at(1 - level)
    episodes = two_sided.episodes
    low, high = edges.lower_bound(two_sided), edges.upper_bound(two_sided)
    shown = estimate if estimate is not None else edges.estimate()
    abstained, reason = _abstention(episodes, edges.wander)
    interval = promise = None
    if abstained is None and shown is not None:
        interval = Interval(
            shown, _least(low, shown), _most(high, shown), level, edges.n, episodes, METHOD
        )
        bound = _most(edges.upper_bound(one_sided), shown)
        if bound is not None:
            promise = Interval(
                shown, None, bound, level, edges.n, one_sided.episodes, METHOD + ", one-sided"
            )
    factor = EPISODES_MIN / episodes if episodes > 0 else float("inf")
    if abstained == "A2":
        factor = max(factor, float(edges.blocks))
    return BlockInterval(
        interval,
        promise,
        _least(low, shown) if low is not None else None,
        episodes,
        two_sided.design_effect,
        edges.wander,
        abstained,
        reason,
        max(1.0, factor),
    )


def blind_spot(duration_ns: float, p: float) -> tuple[float, float]:
    """Return (D_blind, T/3) in ns: the stall, and the time between events, that a run cannot see.

    Parameters
    ----------
    duration_ns : float
        Measured time T.
    p : float
        The quantile of the promise.

    Returns
    -------
    tuple of float
        Stalls longer than D_blind = (1 - p) T / 3.7 may exist, unseen, and change the quantile.
        Nothing is known of what happens less often than every T/3 (rule of three: no event in T
        means, with 95 %, fewer than 3 in T).

    Examples
    --------
    >>> stall_ns, every_ns = blind_spot(30e9, 0.99)
    >>> round(stall_ns / 1e6), every_ns / 1e9
    (81, 10.0)

    A calm run of 30 s says nothing of stalls over 81 ms, nor of what comes less often than every
    10 s.
    """
    return (1 - p) * duration_ns / UNSEEN_EPISODES, duration_ns / 3


@dataclass(frozen=True)
class _Level:
    """The tests at every edge, for one alpha'."""

    alpha: float
    effects: NDArray[np.float64]
    design_effect: float
    episodes: float


@dataclass(frozen=True)
class _Edges:
    """Candidate edges q_i = upper edge of bucket i: what lies above each, by block and in all."""

    buckets: NDArray[np.int64]
    total: NDArray[np.float64]
    """S(q_i), shape (m,)."""
    variance: NDArray[np.float64]
    fourth: NDArray[np.float64]
    lag: NDArray[np.float64]
    n: int
    blocks: int
    tail: float
    """pi0 = 1 - p."""
    first: int
    """Index of q1, the estimate."""
    second: int
    """Index of q2, twice its mass."""

    @classmethod
    def build(cls, buckets: ArrayLike, counts: ArrayLike, p: float, level: float) -> _Edges:
        index = np.asarray(buckets, dtype=np.int64)
        table = np.asarray(counts, dtype=np.float64)
        _check(index, table, p, level)
        above = np.cumsum(table[::-1], axis=0)[::-1] - table
        total, block_counts = above.sum(axis=1), table.sum(axis=0)
        n = int(table.sum())
        # e_j = Y_j - n_j S / n;  V, K and r of section 1
        excess = above - block_counts[None, :] * (total / n)[:, None]
        squares = excess * excess
        variance = squares.sum(axis=1)
        lag = (excess[:, 1:] * excess[:, :-1]).sum(axis=1) / np.where(variance > 0, variance, 1)
        tail = 1 - p
        first = int(np.abs(total - n * tail).argmin())
        second = int(np.abs(total - min(2 * n * tail, 0.5 * n)).argmin())
        return cls(
            index,
            total,
            variance,
            (squares * squares).sum(axis=1),
            lag,
            n,
            table.shape[1],
            tail,
            first,
            second,
        )

    @property
    def wander(self) -> float:
        """The largest lag-1 correlation of the blocks at p50, p90, q2 and q1."""
        median, ninetieth = (
            int(np.abs(self.total - self.n * mass).argmin()) for mass in (0.5, 0.1)
        )
        return float(max(self.lag[[median, ninetieth, self.second, self.first]]))

    def at(self, alpha: float) -> _Level:
        """Design effects at every edge; c0 is their floor: 1, q1 and q2."""
        effects = self._design_effects(alpha)
        floor = float(max(1.0, effects[self.first], effects[self.second]))
        return _Level(alpha, np.maximum(floor, effects), floor, self.n * self.tail / floor)

    def upper_bound(self, level: _Level) -> float | None:
        """U: the outermost edge accepted, as the upper edge of the bucket above it; None is inf."""
        _, edges = bucket_edges(self.buckets)
        accepted = self._p_low(level) >= level.alpha
        if accepted[-1]:  # an empty tail (S = 0, c = c0) is not too few
            return None
        beyond = np.flatnonzero(accepted[self.first :])
        # narrower than a bucket: the edge just above q1's, not infinity
        place = self.first + (int(beyond[-1]) if beyond.size else 0)
        return _finite(edges[min(place + 1, self.buckets.size - 1)])

    def lower_bound(self, level: _Level) -> float | None:
        """L: the lowest edge accepted, scanning down from q1; the bucket's lower edge."""
        edges, _ = bucket_edges(self.buckets)
        accepted = self._p_high(level) >= level.alpha
        found, rejected = self.first, 0
        for place in range(self.first, -1, -1):
            rejected = 0 if accepted[place] else rejected + 1
            if accepted[place]:
                found = place
            if rejected >= REJECTIONS_MAX:
                break
        return _finite(edges[found])

    def estimate(self) -> float | None:
        """The geometric middle of the estimate's bucket."""
        low, high = bucket_edges(self.buckets)
        return _finite(float(np.sqrt(low[self.first] * high[self.first])))

    def _design_effects(self, alpha: float) -> NDArray[np.float64]:
        varied = (self.total > 0) & (self.variance > 0) & (self.total < self.n)
        total, variance = np.where(varied, self.total, 1), np.where(varied, self.variance, 1)
        share = np.where(varied, total / self.n, 0.5)
        ratio = variance * self.blocks / (self.blocks - 1) / (total * (1 - share))
        spread = self.fourth - variance**2 / self.blocks
        # blocks without spread of their own, and those past the bound, count as B - 1
        least = 2 * variance**2 / self.blocks
        freedom = np.clip(2 * variance**2 / np.maximum(spread, least), 1, self.blocks - 1)
        memory = np.clip(self.lag + 1 / self.blocks, 0, 0.8)
        widened = (special.stdtrit(freedom, 1 - alpha) / special.ndtri(1 - alpha)) ** 2
        return np.where(varied, ratio * widened * (1 + memory) / (1 - memory), 0.0)

    def _p_low(self, level: _Level) -> NDArray[np.float64]:
        """Probability of at most this many above each edge, were it the quantile."""
        trials, successes = self.n / level.effects, self.total / level.effects
        whole = successes >= trials
        rest = np.where(whole, 1.0, trials - successes)
        return np.where(whole, 1.0, 1 - special.betainc(successes + 1, rest, self.tail))

    def _p_high(self, level: _Level) -> NDArray[np.float64]:
        trials, successes = self.n / level.effects, self.total / level.effects
        none = successes <= 0
        some = np.where(none, 1.0, successes)
        return np.where(none, 1.0, special.betainc(some, trials - successes + 1, self.tail))


def _check(index: NDArray[np.int64], table: NDArray[np.float64], p: float, level: float) -> None:
    if not (0 < p < 1 and 0 < level < 1):
        raise ParameterError("p, level", f"are {p}, {level}", "inside (0, 1)", "use 0.99, 0.95")
    if table.ndim != 2 or table.shape[0] != index.size or index.size == 0 or table.shape[1] < 2:
        raise ParameterError(
            "counts",
            f"has shape {table.shape} for {index.size} buckets",
            "(buckets, blocks), two blocks at least",
            "one row for each bucket",
        )
    if np.any(np.diff(index) <= 0):
        raise ParameterError("buckets", "are not ascending", "each once, ascending", "sort them")


def _abstention(episodes: float, wander: float) -> tuple[str | None, str | None]:
    if wander > WANDER_LIMIT:
        return "A2", "the level wanders: drift, or memory longer than a thirtieth of the run"
    if episodes < EPISODES_MIN:
        return "A1", (
            f"too few independent tail episodes: {episodes:.1f} where {EPISODES_MIN:g} are needed"
        )
    return None, None


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _least(bound: float | None, estimate: float | None) -> float | None:
    return bound if estimate is None or bound is None else min(bound, estimate)


def _most(bound: float | None, estimate: float | None) -> float | None:
    return None if bound is None or estimate is None else max(bound, estimate)
