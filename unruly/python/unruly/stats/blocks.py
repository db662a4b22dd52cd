"""An interval for a tail quantile that survives stalls, and knows when to abstain.

Latencies of one run are not independent: a stall delays hundreds of requests together, so a naive
interval of the p99 covers the truth in 5 % of runs. What counts is the number of independent tail
*episodes*. The run is cut into 30 blocks of equal time; the variance between blocks of the number
of values above an edge, relative to what independence would give, is the design effect; a
Clopper-Pearson interval on n / design effect, inverted over the bucket edges, is the interval. The
design effect is taken at the estimate and at twice its mass, and is inflated for its own degrees of
freedom and the blocks' lag-1 correlation; both are corrected for what a correlation hides from so
few blocks. The method abstains with fewer than 7 episodes (A1), when
the tail drifts (A2a), and when the body drifts and the tail follows it (A2b).

The rules and their coverage tables: unruly/docs/methods/block-interval.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from unruly.errors import ParameterError
from unruly.stats.histogram import bucket_edges
from unruly.stats.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from unruly.contract import Refusal

BLOCKS = 30
EPISODES_MIN = 7.0
TAIL_DRIFT_MAX = 0.5
"""A2a: lag-1 correlation of the blocks at the estimate or at twice its mass."""
BODY_DRIFT_MAX = 0.35
"""A2b: the same of the median or the p75, after neighbouring blocks were merged."""
FOLLOWS_MAX = 0.36
"""A2b: correlation of tail and median, the two-sided 5 % point for 30 pairs."""
MERGED_MOST = 20
"""Neighbouring blocks are merged in pairs until there are no more than these: 30 become 15."""
BODY_MASSES = (0.5, 0.25)
REJECTIONS_MAX = 60
EDGES_AT_ONCE = 128
UNSEEN_EPISODES = 3.7
METHOD = "block design effect, Clopper-Pearson over bucket edges"
MEMORY_MAX = 0.8
"""Correlation of neighbouring blocks beyond which the design effect grows no more."""
SEEN_MIN = 0.3
"""Least share of the variance that blocks with a memory are taken to show; for few blocks."""
ROUNDING = 8 * float(np.finfo(np.float64).eps)
"""Largest relative error of a share of counts that was computed."""
DRIFTS = ("A2a", "A2b")
"""The rules that abstain because latency drifted, not because the run was short."""


@dataclass(frozen=True)
class BlockInterval:
    """What the block method says of one quantile.

    ``interval`` is None when it abstains (then ``abstained`` is "A1", "A2a" or "A2b", ``reason``
    says why in plain words and ``details`` with which numbers). ``lower_bound`` (p-quantile >=
    this, one-sided 1 - alpha/2) stands even then. ``promise`` is the one-sided upper bound; None
    when the method abstains or no finite bound exists. ``n_effective`` counts independent tail
    episodes, n (1 - p) / deff. ``tail_drift`` is the largest lag-1 correlation of the blocks in
    the tail.
    """

    interval: Interval | None
    promise: Interval | None
    lower_bound: float | None
    n_effective: float
    design_effect: float
    tail_drift: float
    abstained: Refusal | None
    reason: str | None
    needed_factor: float
    """Times this run's length would about do (factor 2 either way; at least, after a drift)."""
    details: str = ""
    note: str = ""
    """Of an answer: the body drifted and the tail did not follow."""


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
    not use it with stalls of infinite variance (12-22 % false promises), nor for stalls that did
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
    return block_intervals(buckets, counts, {p: estimate}, level=level)[p]


def block_intervals(
    buckets: ArrayLike,
    counts: ArrayLike,
    estimates: Mapping[float, float | None],
    *,
    level: float = 0.95,
) -> dict[float, BlockInterval]:
    """Return the `block_interval` of each p, given its exact quantile (ns), with shared work."""
    edges = _Edges.build(buckets, counts)
    return {
        p: _said(_Tail.of(edges, p, level), estimate, level, level)
        for p, estimate in estimates.items()
    }


def block_ladder(
    buckets: ArrayLike,
    counts: ArrayLike,
    estimates: Mapping[float, float | None],
    *,
    level: float = 0.95,
) -> dict[float, BlockInterval]:
    """Intervals and promises of several quantiles, of which only the highest will be published.

    Parameters
    ----------
    buckets, counts : array_like
        As in `block_interval`.
    estimates : mapping of float to float or None
        The exact quantile (ns) of each p in (0, 1).
    level : float
        Two-sided level of the intervals. The promises are one-sided at 1 - (1 - level) / 2: the
        highest promise is chosen after seeing the data, and that choice costs coverage.

    Returns
    -------
    dict of float to BlockInterval
        For each p. The answers are not monotone in p: when the body drifts and the tail does not
        follow, the p99 is answered and the median is not.

    Raises
    ------
    ParameterError
        As `block_interval`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> from unruly.stats.histogram import bucket_index
    >>> index = bucket_index(rng.lognormal(12, 0.5, 30_000)).reshape(30, 1000)
    >>> buckets = np.unique(index)
    >>> counts = np.array([(index == b).sum(axis=1) for b in buckets])
    >>> found = block_ladder(buckets, counts, {0.5: None, 0.99: None, 0.9999: None})
    >>> [it.abstained for it in found.values()], found[0.99].promise.level
    ([None, None, 'A1'], 0.975)
    """
    edges = _Edges.build(buckets, counts)
    one_sided = 1 - (1 - level) / 2
    return {
        p: _said(_Tail.of(edges, p, level), estimate, level, one_sided)
        for p, estimate in estimates.items()
    }


def _said(tail: _Tail, estimate: float | None, level: float, promise_level: float) -> BlockInterval:
    """Interval and promise of one quantile, or why there is none."""
    two_sided = tail.at((1 - level) / 2)
    episodes = two_sided.episodes
    shown = estimate if estimate is not None else tail.estimate()
    abstained, reason, details = _abstention(tail, episodes)
    interval = promise = None
    low = _least(tail.lower_bound(two_sided), shown)
    if abstained is None and shown is not None:
        n, high = tail.edges.n, _most(tail.upper_bound(two_sided), shown)
        interval = Interval(shown, low, high, level, n, episodes, METHOD)
        one_sided = tail.at(1 - promise_level)
        same = one_sided.alpha == two_sided.alpha
        bound = high if same else _most(tail.upper_bound(one_sided), shown)
        if bound is not None:
            method = METHOD + ", one-sided"
            promise = Interval(shown, None, bound, promise_level, n, one_sided.episodes, method)
    factor = EPISODES_MIN / episodes if episodes > 0 else float("inf")
    if abstained in DRIFTS:
        factor = max(factor, float(tail.edges.blocks))
    drifted = abstained is None and tail.body_drift > TAIL_DRIFT_MAX
    return BlockInterval(
        interval,
        promise,
        low,
        episodes,
        two_sided.design_effect,
        tail.drift,
        abstained,
        reason,
        max(1.0, factor),
        details,
        "typical latency drifted during the run, the tail did not follow" if drifted else "",
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
        The run says nothing about events rarer than one in T/3 (rule of three: no event in T
        means, with 95 % confidence, fewer than 3 in T).

    Examples
    --------
    >>> stall_ns, every_ns = blind_spot(30e9, 0.99)
    >>> round(stall_ns / 1e6), every_ns / 1e9
    (81, 10.0)

    A calm run of 30 s does not rule out stalls over 81 ms, nor events rarer than one in 10 s.
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
    excess: NDArray[np.float64]
    """e_j(q_i), shape (m, blocks)."""
    variance: NDArray[np.float64]
    fourth: NDArray[np.float64]
    lag: NDArray[np.float64]
    n: int
    blocks: int
    held: dict[tuple[float, bool], NDArray[np.float64]] = field(default_factory=dict)
    """Design effects, by alpha and correction: those of one run serve all its quantiles."""

    @classmethod
    def build(cls, buckets: ArrayLike, counts: ArrayLike) -> _Edges:
        index = np.asarray(buckets, dtype=np.int64)
        table = np.asarray(counts, dtype=np.float64)
        _check(index, table)
        above = np.cumsum(table[::-1], axis=0)[::-1] - table
        total, block_counts = above.sum(axis=1), table.sum(axis=0)
        n = int(table.sum())
        # e_j = Y_j - n_j S / n;  V, K and r of section 1
        excess = above - block_counts[None, :] * (total / n)[:, None]
        # blocks with exactly their share would else correlate by their rounding errors
        excess[np.abs(excess) <= ROUNDING * block_counts[None, :]] = 0.0
        squares = excess * excess
        variance = squares.sum(axis=1)
        lag = (excess[:, 1:] * excess[:, :-1]).sum(axis=1) / np.where(variance > 0, variance, 1)
        fourth = (squares * squares).sum(axis=1)
        return cls(index, total, excess, variance, fourth, lag, n, table.shape[1])

    @cached_property
    def latencies(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Lower and upper edge (ns) of each bucket."""
        return bucket_edges(self.buckets)

    @cached_property
    def body(self) -> list[int]:
        """The edges of the median and the p75."""
        return [self.nearest(mass) for mass in BODY_MASSES]

    @cached_property
    def slow_body_drift(self) -> float:
        """The larger lag-1 correlation of merged blocks at the edges of the body."""
        return max(_merged_lag(self.excess[place]) for place in self.body)

    def nearest(self, mass: float) -> int:
        """The edge above which this share lies, as nearly as may be."""
        return int(np.abs(self.total - self.n * mass).argmin())

    def effects(self, alpha: float, mass: float) -> NDArray[np.float64]:
        """Design effects at every edge, for a quantile with this mass beyond it.

        So few values that the method refuses anyway are neighbours by coincidence, and show no
        memory to correct for: the lower bound of such a quantile would only be wider.
        """
        key = alpha, self.n * mass >= EPISODES_MIN
        if key not in self.held:
            self.held[key] = self._design_effects(*key)
        return self.held[key]

    def _design_effects(self, alpha: float, corrected: bool) -> NDArray[np.float64]:
        varied = (self.total > 0) & (self.variance > 0) & (self.total < self.n)
        total, variance = np.where(varied, self.total, 1), np.where(varied, self.variance, 1)
        share = np.where(varied, total / self.n, 0.5)
        ratio = variance * self.blocks / (self.blocks - 1) / (total * (1 - share))
        spread = self.fourth - variance**2 / self.blocks
        # blocks without spread of their own, and those past the bound, count as B - 1
        least = 2 * variance**2 / self.blocks
        freedom = np.clip(2 * variance**2 / np.maximum(spread, least), 1, self.blocks - 1)
        # a correlation of few blocks is too low on average, the lower the stronger it is
        missing = (1 + 4 * corrected * np.maximum(self.lag, 0)) / self.blocks
        memory = np.clip(self.lag + missing, 0, MEMORY_MAX)
        longer = (1 + memory) / (1 - memory)
        # blocks with a memory lie closer to their own mean, and say less about their variance
        seen = np.maximum(1 - corrected * (longer - 1) / (self.blocks - 1), SEEN_MIN)
        squared = corrected * memory**2
        freedom = np.maximum(freedom * (1 - squared) / (1 + squared), 1)
        widened = (special.stdtrit(freedom, 1 - alpha) / special.ndtri(1 - alpha)) ** 2
        return np.where(varied, ratio / seen * widened * longer, 0.0)


@dataclass(frozen=True)
class _Tail:
    """One quantile over the edges."""

    edges: _Edges
    mass: float
    """pi0 = 1 - p."""
    first: int
    """Index of q1, the estimate."""
    second: int
    """Index of q2, twice its mass."""

    @classmethod
    def of(cls, edges: _Edges, p: float, level: float) -> _Tail:
        if not (0 < p < 1 and 0 < level < 1):
            raise ParameterError("p, level", f"are {p}, {level}", "inside (0, 1)", "use 0.99, 0.95")
        mass = 1 - p
        return cls(edges, mass, edges.nearest(mass), edges.nearest(min(2 * mass, 0.5)))

    @property
    def drift(self) -> float:
        """A2a: the larger lag-1 correlation of the blocks at q1 and q2."""
        return float(max(self.edges.lag[[self.first, self.second]]))

    @property
    def body_drift(self) -> float:
        """The same at the median and the p75."""
        return float(max(self.edges.lag[self.edges.body]))

    @property
    def slow_body_drift(self) -> float:
        """A2b: the same over merged blocks, which forget what lasts seconds and not a drift."""
        return self.edges.slow_body_drift

    @property
    def follows(self) -> float:
        """A2b: how closely the tail moves with the median, from block to block."""
        tail = self.edges.excess[self.second]
        median = self.edges.excess[self.edges.body[0]]
        size = float(np.sqrt((tail @ tail) * (median @ median)))
        return float(tail @ median) / size if size > 0 else 0.0

    def at(self, alpha: float) -> _Level:
        """Design effects at every edge; c0 is their floor: 1, q1 and q2."""
        effects = self.edges.effects(alpha, self.mass)
        floor = float(max(1.0, effects[self.first], effects[self.second]))
        return _Level(alpha, np.maximum(floor, effects), floor, self.edges.n * self.mass / floor)

    def upper_bound(self, level: _Level) -> float | None:
        """U: the outermost edge accepted, as the upper edge of the bucket above it; None is inf."""
        _, edges = self.edges.latencies
        size = edges.size
        outermost = self.first
        for end in range(size, self.first, -EDGES_AT_ONCE):
            begin = max(self.first, end - EDGES_AT_ONCE)
            accepted = np.flatnonzero(self._p_low(level, slice(begin, end)) >= level.alpha)
            if accepted.size:
                outermost = begin + int(accepted[-1])
                break
        if outermost == size - 1 and accepted.size:
            # an empty tail (S = 0, c = c0) is not too few
            return None
        # narrower than a bucket: the edge just above q1's, not infinity
        return _finite(edges[min(outermost + 1, size - 1)])

    def lower_bound(self, level: _Level) -> float | None:
        """L: the lowest edge accepted, scanning down from q1; the bucket's lower edge."""
        edges, _ = self.edges.latencies
        found, rejected = self.first, 0
        # the scan mostly ends long before the first edge, and a probability takes a microsecond
        for end in range(self.first + 1, 0, -REJECTIONS_MAX):
            begin = max(0, end - REJECTIONS_MAX)
            accepted = (self._p_high(level, slice(begin, end)) >= level.alpha).tolist()
            for place in range(end - 1, begin - 1, -1):
                rejected = 0 if accepted[place - begin] else rejected + 1
                if accepted[place - begin]:
                    found = place
                if rejected >= REJECTIONS_MAX:
                    return _finite(edges[found])
        return _finite(edges[found])

    def estimate(self) -> float | None:
        """The geometric middle of the estimate's bucket."""
        low, high = self.edges.latencies
        return _finite(float(np.sqrt(low[self.first] * high[self.first])))

    def _p_low(self, level: _Level, some_edges: slice) -> NDArray[np.float64]:
        """Probability of at most this many above each of these edges, were it the quantile."""
        effects, total = level.effects[some_edges], self.edges.total[some_edges]
        trials, successes = self.edges.n / effects, total / effects
        whole = successes >= trials
        rest = np.where(whole, 1.0, trials - successes)
        return np.where(whole, 1.0, 1 - special.betainc(successes + 1, rest, self.mass))

    def _p_high(self, level: _Level, some_edges: slice) -> NDArray[np.float64]:
        """Probability of at least this many above each of these edges, were it the quantile."""
        effects, total = level.effects[some_edges], self.edges.total[some_edges]
        trials, successes = self.edges.n / effects, total / effects
        none = successes <= 0
        some = np.where(none, 1.0, successes)
        return np.where(none, 1.0, special.betainc(some, trials - successes + 1, self.mass))


def _merged_lag(excess: NDArray[np.float64]) -> float:
    """Lag-1 correlation after neighbours were merged in pairs; an odd last one joins its pair."""
    while excess.size > MERGED_MOST:
        excess = np.add.reduceat(excess, np.arange(0, excess.size - 1, 2))
    variance = float(excess @ excess)
    return float(excess[1:] @ excess[:-1]) / variance if variance > 0 else 0.0


def _check(index: NDArray[np.int64], table: NDArray[np.float64]) -> None:
    if table.ndim != 2 or table.shape[0] != index.size or index.size == 0 or table.shape[1] < 2:
        raise ParameterError(
            "counts",
            f"has shape {table.shape} for {index.size} buckets",
            "(buckets, blocks), two blocks at least",
            "one row for each bucket",
        )
    if np.any(np.diff(index) <= 0):
        raise ParameterError("buckets", "are not ascending", "each once, ascending", "sort them")


def _abstention(tail: _Tail, episodes: float) -> tuple[Refusal | None, str | None, str]:
    """Which rule abstains, why in plain words, and with which numbers."""
    if tail.drift > TAIL_DRIFT_MAX:
        details = (
            f"neighbouring blocks of time correlate by {tail.drift:.2f} in the tail; at most "
            f"{TAIL_DRIFT_MAX:g} is allowed"
        )
        return "A2a", "the tail drifted during the run", details
    if tail.slow_body_drift > BODY_DRIFT_MAX and tail.follows > FOLLOWS_MAX:
        details = (
            f"longer blocks of time correlate by {tail.slow_body_drift:.2f} in the body (at most "
            f"{BODY_DRIFT_MAX:g} is allowed), and the tail follows the body by "
            f"{tail.follows:.2f} (at most {FOLLOWS_MAX:g})"
        )
        return "A2b", "latency drifted during the run", details
    if episodes < EPISODES_MIN:
        details = f"{episodes:.1f} independent tail episodes; {EPISODES_MIN:g} are needed"
        return "A1", "not enough data", details
    return None, None, ""


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _least(bound: float | None, estimate: float | None) -> float | None:
    return bound if estimate is None or bound is None else min(bound, estimate)


def _most(bound: float | None, estimate: float | None) -> float | None:
    return None if bound is None or estimate is None else max(bound, estimate)
