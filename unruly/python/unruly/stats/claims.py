"""What a percentile is worth when its tool takes requests for independent.

Two such claims are common: the interval between two order statistics, and the bound of MLPerf's
early stopping. How often they hold on data that depend as these do is found by resampling: whole
blocks of time are drawn with replacement, so that a stall stays a stall.

The page: unruly/docs/methods/audit.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special, stats

from unruly.errors import ParameterError
from unruly.stats.blocks import BLOCKS, MEMORY_MAX, SEEN_MIN, block_interval
from unruly.stats.histogram import bucket_index
from unruly.stats.interval import quantile, quantile_ranks_iid

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from unruly.stats.blocks import BlockInterval

LEVEL: Final = 0.95
EARLY_LEVEL: Final = 0.99
"""Confidence of MLPerf's early stopping."""
PIECES_A_BLOCK: Final = 100
PIECES: Final = BLOCKS * PIECES_A_BLOCK
RESAMPLES: Final = 4_000
MEMORY_SHOWN: Final = 0.15
"""Correlation of neighbouring blocks from which bursts are taken to outlast a block."""
FEWEST: Final = 100
"""The fewest requests that are judged."""


@dataclass(frozen=True)
class Held:
    """How often a claim holds on data that depend as these do: a share, and its 95 % interval."""

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Claims:
    """One percentile of one file: claims of it, and how often such claims hold."""

    p: float
    n: int
    failed: int
    estimate: float | None
    """The percentile of the file (ns); None where it falls among the failed."""
    low: float | None
    """Bounds (ns) of the interval that independent requests would have at 95 %."""
    high: float | None
    bound: float | None
    """MLPerf's early stopping: the percentile is claimed to be at most this (ns), at 99 %."""
    interval_held: Held | None
    """None when the file cannot decide it: `own` says why."""
    bound_held: Held | None
    beyond: int
    """Requests beyond the percentile."""
    own: BlockInterval
    """The interval that survives stalls, or the reason why there is none."""
    high_failed: bool = False
    """The upper bound of the interval is a failed request, so `high` is None."""

    @property
    def episodes(self) -> float:
        """Independent episodes of requests beyond the percentile."""
        return self.own.n_effective


@cache
def early_stopping_over(n: int, p: float, confidence: float = EARLY_LEVEL) -> int:
    """Return how many of n queries may be over the bound of MLPerf's early stopping.

    It is the largest t with P(Binomial(n, 1 - p) <= t) <= 1 - confidence, and 0 if there is none.

    Examples
    --------
    >>> early_stopping_over(661, 0.99), early_stopping_over(662, 0.99)
    (0, 1)
    """
    counts = np.arange(int(n * (1 - p)) + 1)
    allowed = counts[special.bdtr(counts, n, 1 - p) <= 1 - confidence]
    return int(allowed[-1]) if allowed.size else 0


def claims(values: ArrayLike, p: float, *, seed: int = 1) -> Claims:
    """Judge the claims of tools that take requests for independent.

    Parameters
    ----------
    values : array_like, shape (n,), float64
        Latencies (ns) in the order of their times; ``inf`` for failed requests. No NaN.
    p : float
        In (0, 1): 0.99 for the p99.
    seed : int
        Of the resampling.

    Returns
    -------
    Claims

    Raises
    ------
    ParameterError
        If there are fewer than 100 values, or `p` is not inside (0, 1).

    Notes
    -----
    The truth of a resample is the percentile of the file itself. Do not use it for values that are
    sorted, or whose order is not that of time. A file that is too short for its own dependence has
    no share: nothing in it can show one.

    Examples
    --------
    >>> import numpy as np
    >>> found = claims(np.random.default_rng(1).lognormal(14, 0.5, 30_000), 0.99)
    >>> found.interval_held.low <= 0.95 <= found.interval_held.high
    True
    """
    latencies = np.asarray(values, dtype=np.float64)
    n = latencies.size
    if n < FEWEST:
        raise ParameterError(
            "values", f"has {n}", f"{FEWEST} requests or more", "measure for longer"
        )
    ordered = np.sort(latencies)
    estimate = quantile(ordered, p)
    ranks = quantile_ranks_iid(n, p, LEVEL)
    over = early_stopping_over(n, p)
    own = _own(latencies, p, estimate)
    interval_held = bound_held = None
    if np.isfinite(estimate) and own.abstained is None:
        above, reached = latencies > estimate, latencies >= estimate
        counts, share = _by_block(reached), n * (1 - p)
        spread = _Spread(_degrees(counts), _memory(counts))
        drawn = resampled(np.stack([above, reached]), p, seed=seed)
        # the interval holds unless too many or too few requests are beyond the truth
        low = np.inf if ranks[0] is None else n - ranks[0] - share
        high = -np.inf if ranks[1] is None else n - ranks[1] + 1 - share
        interval_held = _held(drawn, (low, high), spread)
        bound_held = _held(drawn, (np.inf, over - share), spread) if over else None
    return Claims(
        p, n, int(np.isinf(latencies).sum()), _finite(estimate),
        _at(ordered, ranks[0]), _at(ordered, ranks[1]),
        _at(ordered, n - over + 1 if over else None), interval_held, bound_held,
        int((latencies > estimate).sum()), own,
        ranks[1] is not None and bool(np.isinf(ordered[ranks[1] - 1])),
    )  # fmt: skip


def resampled(
    beyond: NDArray[np.bool_], p: float, *, resamples: int = RESAMPLES, seed: int = 1
) -> NDArray[np.float64]:
    """Return how many more requests than their share are beyond a limit, in resamples.

    Parameters
    ----------
    beyond : ndarray, shape (k, n), bool
        For each of k limits which requests are beyond it, in the order of their times.
    p : float
        In (0, 1).
    resamples : int
        How many.
    seed : int
        Of the draws.

    Returns
    -------
    ndarray, shape (k, resamples)
        Of each resample: its count beyond, less its requests times (1 - p).

    Notes
    -----
    A resample is 30 blocks, each a thirtieth of the file, which start anywhere and may overlap; a
    block that passes the end goes on at the beginning (circular block bootstrap). Dependence over
    more than a block is not seen.
    """
    n = beyond.shape[1]
    pieces = min(PIECES, n)
    edges = np.arange(pieces + 1) * n // pieces
    zeros = np.zeros((beyond.shape[0], 1))
    counts = np.diff(np.concatenate([zeros, np.cumsum(beyond, axis=1)], axis=1)[:, edges])
    excess = counts - np.diff(edges) * (1 - p)
    reach = np.concatenate([zeros, np.cumsum(np.tile(excess, 2), axis=1)], axis=1)
    starts = np.random.default_rng(seed).integers(0, pieces, (resamples, BLOCKS))
    blocks = reach[:, starts + max(1, pieces // BLOCKS)] - reach[:, starts]
    return np.asarray(blocks.sum(axis=2))


@dataclass(frozen=True)
class _Spread:
    """How well 30 blocks know the variance of their counts."""

    degrees: float
    memory: float
    """Times by which resamples vary too little, because bursts outlast a block."""


def _by_block(reached: NDArray[np.bool_]) -> NDArray[np.float64]:
    edges = np.arange(BLOCKS + 1) * reached.size // BLOCKS
    return np.diff(np.concatenate([[0.0], np.cumsum(reached)])[edges])


def _degrees(counts: NDArray[np.float64]) -> float:
    """Return the degrees of freedom of the variance between blocks; few where few blocks have all.

    The variance of a variance follows from the kurtosis of the counts.
    """
    kurtosis = float(stats.kurtosis(counts, fisher=False)) if counts.std() > 0 else 3.0
    return float(np.clip(2 * BLOCKS / max(kurtosis - 1, 1e-9), 2, BLOCKS - 1))


def _memory(counts: NDArray[np.float64]) -> float:
    """Return by how much the variance between blocks is too small, where neighbours are alike."""
    away = counts - counts.mean()
    variance = float(away @ away)
    lag = float(away[1:] @ away[:-1]) / variance if variance > 0 else 0.0
    if lag <= MEMORY_SHOWN:
        return 1.0
    # as in `block_interval`: few blocks show too little of their correlation and their variance
    correlation = min(lag + (1 + 4 * lag) / BLOCKS, MEMORY_MAX)
    longer = (1 + correlation) / (1 - correlation)
    return longer / max(1 - (longer - 1) / (BLOCKS - 1), SEEN_MIN)


def _held(drawn: NDArray[np.float64], limits: tuple[float, float], spread: _Spread) -> Held:
    """Return the share of resamples in which a claim holds, and its range.

    The claim holds with at most the first limit of requests above the truth and at least the second
    one at the truth or above. The range is that of a variance of so few blocks; the growth by
    memory may be needed not at all, or twice.
    """
    most, least = limits
    middle = drawn.mean(axis=1, keepdims=True)

    def share(scale: float) -> float:
        above, reached = middle + (drawn - middle) * np.sqrt(scale)
        return float(((above <= most) & (reached >= least)).mean())

    # blocks of one file lie closer to their own mean than to that of all files
    usual = share(spread.memory * BLOCKS / (BLOCKS - 1))
    low, high = stats.chi2.ppf(np.array([(1 - LEVEL) / 2, (1 + LEVEL) / 2]), spread.degrees)
    ends = [share(spread.degrees / high), share(spread.memory**2 * spread.degrees / low), usual]
    return Held(usual, min(ends), max(ends))


def _own(latencies: NDArray[np.float64], p: float, estimate: float) -> BlockInterval:
    index = bucket_index(latencies)
    buckets, place = np.unique(index, return_inverse=True)
    counts = np.zeros((buckets.size, BLOCKS), np.int64)
    np.add.at(counts, (place, np.arange(latencies.size) * BLOCKS // latencies.size), 1)
    return block_interval(buckets, counts, p, estimate=_finite(estimate))


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _at(ordered: NDArray[np.float64], rank: int | None) -> float | None:
    return None if rank is None else _finite(ordered[rank - 1])


@dataclass(frozen=True)
class Omission:
    """Requests that a load generator did not send because it waited for slow ones."""

    slow_ns: float
    """How long slow requests were open, altogether."""
    sent: int
    """Requests sent in that time."""
    expected: float
    """Requests at the rate of the other time."""
    estimate: float | None
    """The percentile (ns) if the missing ones had been sent and had waited; an estimate."""

    @property
    def share(self) -> float:
        """The share of the usual requests that was sent."""
        return self.sent / self.expected


OMITTED_SHARE: Final = 0.8
"""More of the usual requests is no sign of a load generator that waited."""
OMITTED_SIGMAS: Final = 4.0
CALM_SHARE: Final = 0.05
"""The least share of the time without slow requests that shows how many requests are usual."""


@dataclass(frozen=True)
class _SlowSpans:
    """The spans in which slow requests were open, and the rest of the time."""

    lengths: NDArray[np.float64]
    """Length of each span (ns)."""
    sent: NDArray[np.int64]
    """Requests sent in each span."""
    whole_ns: float
    others: int
    """Requests sent in the rest of the time."""

    @property
    def calm_ns(self) -> float:
        return self.whole_ns - float(self.lengths.sum())

    @property
    def shows_usual(self) -> bool:
        """Whether the rest of the time shows how many requests are usual."""
        return self.calm_ns >= CALM_SHARE * self.whole_ns and self.others >= FEWEST


def _slow_spans(
    started: NDArray[np.float64], took: NDArray[np.float64], p: float
) -> _SlowSpans | None:
    """Return when slow requests were open; None if there were none."""
    good = np.isfinite(took)
    if good.sum() < FEWEST:
        return None
    limit = quantile(np.sort(took[good]), p)
    slow = good & (took > limit)
    if not slow.any():
        return None
    begins, ends = _merged(started[slow], (started + np.where(good, took, 0))[slow])
    whole = max(float(started[-1]), float(ends[-1])) - float(started[0])
    sent = np.searchsorted(started, ends, "left") - np.searchsorted(started, begins, "left")
    return _SlowSpans(ends - begins, sent, whole, int(started.size - sent.sum()))


def can_show_omission(started_ns: ArrayLike, durations_ns: ArrayLike, p: float) -> bool:
    """Return whether `omission` can decide: whether the file shows how many requests are usual.

    Parameters
    ----------
    started_ns, durations_ns : array_like, shape (n,)
        As for `omission`.
    p : float
        As for `omission`.

    Returns
    -------
    bool
        False if there are fewer than 100 requests, or slow requests were open in more than 95 % of
        the time.
    """
    took = np.asarray(durations_ns, dtype=np.float64)
    if np.isfinite(took).sum() < FEWEST:
        return False
    found = _slow_spans(np.asarray(started_ns, dtype=np.float64), took, p)
    return found is None or found.shows_usual


def omission(started_ns: ArrayLike, durations_ns: ArrayLike, p: float) -> Omission | None:
    """Estimate coordinated omission: fewer requests sent while slow ones were open.

    Parameters
    ----------
    started_ns : array_like, shape (n,)
        When each request was sent, ascending.
    durations_ns : array_like, shape (n,), float64
        How long each took (ns); ``inf`` for failed requests, which are no slow ones here.
    p : float
        Requests beyond this quantile of those that succeeded are slow.

    Returns
    -------
    Omission or None
        None when nothing is seen: the rate of sending did not fall by a fifth, or by less than four
        standard deviations of the counts that it is computed from; or when the file cannot show it
        (`can_show_omission`).

    Notes
    -----
    Assumes that the load generator means to send evenly: a file whose load is lower by itself while
    it is slow has the same sign. Do not use it where the source has scheduled times: then the wait
    is in the latencies already. A missing request would have been
    sent at some moment of the slow span and would have waited until its end.

    Examples
    --------
    >>> import numpy as np
    >>> took = np.where(np.arange(1_000) % 100 == 50, 1e9, 1e6)
    >>> found = omission(np.concatenate([[0], np.cumsum(took)[:-1]]), took, 0.99)
    >>> found.sent, round(found.share, 4)
    (10, 0.001)
    """
    started = np.asarray(started_ns, dtype=np.float64)
    took = np.asarray(durations_ns, dtype=np.float64)
    found = _slow_spans(started, took, p)
    if found is None or not found.shows_usual:
        return None
    lengths, sent = found.lengths, found.sent
    rate = found.others / found.calm_ns
    expected = float(rate * lengths.sum())
    missing = expected - sent.sum()
    # the usual rate is known from a count too, and the less exactly the shorter the calm time is
    spread = np.sqrt(expected * (1 + lengths.sum() / found.calm_ns))
    if sent.sum() >= OMITTED_SHARE * expected or missing < OMITTED_SIGMAS * spread:
        return None
    absent = np.maximum(0, np.rint(rate * lengths - sent)).astype(np.int64)
    return Omission(
        float(lengths.sum()), int(sent.sum()), expected, _finite(_with(took, lengths, absent, p))
    )


def _merged(
    begins: NDArray[np.float64], ends: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Join spans that overlap; begins are ascending."""
    reach = np.maximum.accumulate(ends)
    first = np.concatenate([[True], begins[1:] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return begins[first], reach[last]


def _with(
    took: NDArray[np.float64], lengths: NDArray[np.float64], absent: NDArray[np.int64], p: float
) -> float:
    """Return the quantile of requests and of absent ones, which wait evenly up to each length."""
    values, weights = [took], [np.ones(took.size)]
    steps = (np.arange(20) + 0.5) / 20
    for length, count in zip(lengths[absent > 0], absent[absent > 0], strict=True):
        values.append(length * steps)
        weights.append(np.full(steps.size, count / steps.size))
    every, weight = np.concatenate(values), np.concatenate(weights)
    order = np.argsort(every)
    reach = np.cumsum(weight[order])
    return float(every[order][np.searchsorted(reach, p * reach[-1])])
