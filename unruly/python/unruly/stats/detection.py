"""Failure detection by timeout: how often it is wrong, how long it takes, whom it never suspects.

Everybody who was measured was alive, so that every suspicion is a false one. An observer pings each
peer every period; it suspects a peer from the moment that a reply is later than the timeout T,
until the reply comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unruly.errors import ParameterError
from unruly.stats.interval import Interval
from unruly.stats.share import share_interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

HOUR_NS = 3_600e9


@dataclass(frozen=True)
class Detection:
    """What a detector with this timeout does; times in ns.

    ``false_per_hour`` is of one observer that watches one peer: a group of n has n (n - 1) such
    pairs. A crash is known at most ``detection_max_ns`` = P + T after it, and on average
    ``detection_mean_ns`` = P / 2 + T, because it falls at a random moment between two pings.
    """

    timeout_ns: float
    suspicions: int
    false_per_hour: Interval
    detection_mean_ns: float
    detection_max_ns: float


def suspected_from(
    latencies_ns: ArrayLike, sent_ns: ArrayLike, pairs: ArrayLike
) -> NDArray[np.float64]:
    """Return, for each ping, the smallest timeout with which it starts a suspicion of its own.

    Assumes that replies of a pair come in the order of its pings, as on one connection.

    Parameters
    ----------
    latencies_ns : array_like, shape (n,), float64
        Time of each reply since its ping; ``inf`` where none came. No NaN.
    sent_ns : array_like, shape (n,), int64
        When each ping was due; ascending within each pair.
    pairs : array_like, shape (n,), int
        The (observer, peer) of each ping.

    Returns
    -------
    ndarray, shape (n,), float64
        A ping starts a suspicion for every T with returned value <= T < latency: with a smaller T
        the one before it was still unanswered when this one ran out, and the suspicion is the old
        one going on.

    Examples
    --------
    >>> suspected_from([9.0, 4.0, 1.0], [0, 2, 4], [0, 0, 0]).tolist()
    [0.0, 7.0, 2.0]

    A ping every 2 ns; the first reply took 9, the second 4. With T = 3 the second ping is late too,
    but the peer is already suspected: one suspicion, not two.
    """
    took = np.asarray(latencies_ns, dtype=np.float64)
    sent, pair = np.asarray(sent_ns, dtype=np.int64), np.asarray(pairs)
    order = np.lexsort((sent, pair))
    until = np.zeros(took.size)
    if took.size > 1:
        ordered, who = took[order], pair[order]
        apart = np.diff(sent[order]).astype(np.float64)
        until[order[1:]] = np.where(who[1:] == who[:-1], ordered[:-1] - apart, 0.0)
    return np.maximum(until, 0.0)


def failure_detection(
    latencies_ns: ArrayLike,
    timeouts_ns: ArrayLike,
    *,
    period_ns: float,
    blocks: ArrayLike,
    sent_ns: ArrayLike | None = None,
    pairs: ArrayLike | None = None,
    level: float = 0.95,
) -> list[Detection]:
    """Say what a failure detector would have done with each timeout.

    Parameters
    ----------
    latencies_ns : array_like, shape (n,), float64
        Time of each reply of a live peer since its ping; ``inf`` where none came. No NaN.
    timeouts_ns : array_like, shape (m,), float64
        Above 0.
    period_ns : float
        Between two pings of one observer to one peer.
    blocks : array_like, shape (n,), int
        The block of equal time of each ping, 0 and up.
    sent_ns, pairs : array_like, shape (n,), optional
        When each ping was due, and whose it is. With both, late pings in a row that are one
        suspicion count once; without, each late ping counts.
    level : float
        Of the intervals.

    Returns
    -------
    list of Detection
        In the order of `timeouts_ns`.

    Raises
    ------
    ParameterError
        If a timeout or the period is not above 0, or there are no pings.

    Notes
    -----
    The rate's interval is that of a share (`share_interval`), which survives suspicions that come
    in bursts, as they do. Assumes that replies of a pair come in order, and that nobody was down:
    take out what an injected fault made. Do
    not extrapolate beyond the longest latency: a timeout that was never exceeded has a rate between
    0 and the upper bound.

    References
    ----------
    .. [1] W. Chen, S. Toueg, M. K. Aguilera, "On the quality of service of failure detectors",
       2002.

    Examples
    --------
    >>> took = [1e6] * 98 + [5e7] * 2
    >>> short, long = failure_detection(
    ...     took, [1e7, 1e8], period_ns=1e9, blocks=[i // 10 for i in range(100)]
    ... )
    >>> short.suspicions, round(short.false_per_hour.estimate), short.detection_max_ns / 1e9
    (2, 72, 1.01)
    >>> long.suspicions, long.false_per_hour.estimate, round(long.false_per_hour.high)
    (0, 0.0, 130)

    With T = 10 ms each observer would wrongly suspect each peer 72 times an hour; with 100 ms it
    never did, which after a hundred pings means: at most 130 times an hour.
    """
    took, block = np.asarray(latencies_ns, dtype=np.float64), np.asarray(blocks, dtype=np.int64)
    limits = np.asarray(timeouts_ns, dtype=np.float64)
    if took.size == 0 or took.shape != block.shape:
        raise ParameterError(
            "latencies_ns", f"have shape {took.shape}", "one or more, each with its block",
            "measure pings",
        )  # fmt: skip
    known = sent_ns is not None and pairs is not None
    since = suspected_from(took, sent_ns, pairs) if known else np.zeros(took.size)  # type: ignore[arg-type]
    count = max(2, int(block.max()) + 1)
    late = np.array(
        [np.bincount(block[(since <= limit) & (took > limit)], minlength=count) for limit in limits]
    ).reshape(limits.size, count)
    pings = np.bincount(block, minlength=count)
    return suspicions(late, pings, limits, period_ns=period_ns, level=level)


def suspicions(
    late: ArrayLike,
    pings: ArrayLike,
    timeouts_ns: ArrayLike,
    *,
    period_ns: float,
    level: float = 0.95,
) -> list[Detection]:
    """Do what `failure_detection` does, from counts.

    Parameters
    ----------
    late : array_like, shape (m, blocks), int
        Suspicions that began in each block, for each timeout.
    pings : array_like, shape (blocks,), int
        All pings of each block.
    timeouts_ns : array_like, shape (m,), float64
    period_ns : float
    level : float

    Examples
    --------
    >>> [found] = suspicions([[1, 0, 0, 1]], [900] * 4, [1e8], period_ns=1e9)
    >>> found.false_per_hour.estimate
    2.0
    """
    table = np.asarray(late, dtype=np.float64)
    limits = np.asarray(timeouts_ns, dtype=np.float64)
    if not period_ns > 0:
        raise ParameterError("period_ns", f"is {period_ns}", "above 0", "1e9 is a ping a second")
    if limits.ndim != 1 or not np.all(limits > 0):
        raise ParameterError("timeouts_ns", f"are {limits}", "above 0", "1e6 is a millisecond")
    per_hour = HOUR_NS / period_ns
    found = []
    for limit, row in zip(limits, table, strict=True):
        share = share_interval(row, pings, level)
        estimate, low, high = (
            None if x is None else x * per_hour for x in (share.estimate, share.low, share.high)
        )
        rate = Interval(estimate, low, high, level, share.n, share.n_effective, share.method)
        mean_ns, most_ns = period_ns / 2 + float(limit), period_ns + float(limit)
        found.append(Detection(float(limit), int(row.sum()), rate, mean_ns, most_ns))
    return found


def accuracy_set(worst_ns: ArrayLike, timeouts_ns: ArrayLike) -> NDArray[np.int64]:
    """Count the peers that every observer sees within each timeout: the size of Gamma.

    Parameters
    ----------
    worst_ns : array_like, shape (..., observers, members), float64
        The slowest reply of each pair (or a percentile of them) in a window; ``inf`` where one was
        missing, NaN for a pair that was not measured, such as a member and itself.
    timeouts_ns : array_like, shape (m,), float64

    Returns
    -------
    ndarray of int, shape (m, ...)
        Members that at least one observer measured, and that no observer saw later than T.

    Notes
    -----
    A detector that is accurate about these members alone is Gamma-accurate; which set size an
    algorithm needs is the algorithm's to say. Assumes that the peers were alive. Do not compare
    windows of different length: the slowest of more replies is slower.

    References
    ----------
    .. [1] R. Guerraoui, A. Schiper, "Gamma-accurate failure detectors", 1996.

    Examples
    --------
    >>> nan = float("nan")
    >>> worst = [[nan, 2.0, 9.0], [3.0, nan, 4.0], [1.0, 2.0, nan]]
    >>> accuracy_set(worst, [1.0, 3.0, 5.0, 9.0]).tolist()
    [0, 2, 2, 3]

    Within 3 ns every observer has heard from the first two members; from the third only within 9.
    """
    worst = np.asarray(worst_ns, dtype=np.float64)
    limits = np.asarray(timeouts_ns, dtype=np.float64)
    if worst.ndim < 2:
        raise ParameterError("worst_ns", f"has shape {worst.shape}", "(observers, members)", "pair")
    seen = ~np.isnan(worst)
    slowest = np.where(seen, worst, -np.inf).max(axis=-2)
    within = (slowest[None] <= limits.reshape(-1, *[1] * slowest.ndim)) & seen.any(axis=-2)
    counted: NDArray[np.int64] = within.sum(axis=-1, dtype=np.int64)
    return counted
