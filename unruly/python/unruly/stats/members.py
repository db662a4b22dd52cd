"""How many correct members of a group are slower than a timeout, and what that saves in replicas.

Visigoth fault tolerance needs f + s + 1 replicas to survive f crashes when each process sees at
most s correct but slow ones: 2 f + 1 where nothing may be assumed of time, f + 1 where everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Annotated

import numpy as np

from unruly.errors import ParameterError
from unruly.stats.interval import Interval
from unruly.stats.means import mean_interval
from unruly.stats.share import share_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from unruly.contract import Keywords, Positive

BLOCKS_MAX = 30
SUBSETS_MAX = 500
"""A larger group with up to this many subsets uses all of them, else this many drawn ones."""


@dataclass(frozen=True)
class SlowMembers:
    """s(T): slow correct members, from the worst observer's eyes, over windows.

    ``shares[k]`` is the share of windows with at most k slow members (k = 0 ... size - 1), with its
    interval. ``s`` is the smallest k that holds in the wanted share of windows: its ``low`` and
    ``high`` are the smallest k whose share may (upper bound) and surely does (lower bound) reach
    it. ``mean`` is the mean over windows of the worst observer's count.
    """

    timeout_ns: float
    size: int
    windows: int
    shares: tuple[Interval, ...]
    s: Interval
    mean: Interval
    confidence: float


@dataclass(frozen=True)
class Replicas:
    """n(T) = f + s(T) + 1, between f + 1 (synchrony) and 2 f + 1 (no assumption of time).

    ``s`` is that of groups of ``size``, by which ``n.high`` came out smallest.
    """

    timeout_ns: float
    faults: Positive
    n: Interval
    s: Interval
    size: Annotated[int, Keywords(minimum=2)]
    synchronous: int
    asynchronous: int

    @property
    def saves(self) -> int:
        """How many replicas fewer than 2 f + 1 are surely enough."""
        return self.asynchronous - int(self.n.high or self.asynchronous)


def slow_members(
    latencies_ns: ArrayLike,
    timeouts_ns: ArrayLike,
    size: int,
    *,
    windows: ArrayLike | None = None,
    confidence: float = 0.99,
    level: float = 0.95,
    seed: int = 0,
) -> list[SlowMembers]:
    """Count slow members of groups of `size`, as the worst observer sees them, in each window.

    Parameters
    ----------
    latencies_ns : array_like, shape (groups, members, members), float64
        What member i saw of member j in one window: its slowest reply ("slower than T" is then:
        any reply later than T), or a percentile of them (then: more than that share later). A group
        measured in several windows is there several times, in order of time. ``inf`` where a reply
        never came. NaN for a pair that was not measured; a member that is in no pair is not one.
        The diagonal is not looked at: a process is not slow to itself.
    timeouts_ns : array_like, shape (m,), float64
    size : int
        Of the groups that are asked about; larger measured groups are cut down to it, all subsets
        where there are at most 500, else 500 drawn from the seed; smaller ones are left out.
    windows : array_like, shape (groups,), int, optional
        The window of each group, ascending; by default each is one of its own.
    confidence : float
        The share of windows in which s must hold, in (0, 1).
    level : float
        Of the intervals.
    seed : int
        Of the draws.

    Returns
    -------
    list of SlowMembers
        In the order of `timeouts_ns`.

    Raises
    ------
    ParameterError
        If no measured group has `size` members, or an argument is out of its range.

    Notes
    -----
    For one observer, the slow among its size - 1 peers drawn from a larger group are
    hypergeometric; the worst of several observers has no such formula, hence the subsets. The unit
    of the interval is the window (in up to 30 blocks, see `share_interval`): more subsets of one
    window say nothing about other windows. "Any reply" in a long window counts members that were
    slow at different moments as if they were slow together, which errs on the safe side. If no
    window out of W exceeded T, the proven share is at most 1 - 3.7 / W.

    References
    ----------
    .. [1] D. Porto et al., "Visigoth fault tolerance", EuroSys 2015.

    Examples
    --------
    >>> calm, stalled = np.full((3, 3), 1e6), np.full((3, 3), 1e6)
    >>> stalled[:, 2] = 4e7
    >>> tight, loose = slow_members([calm] * 300 + [stalled] * 100, [1e7, 1e8], 3, confidence=0.9)
    >>> [round(share.estimate, 2) for share in tight.shares], tight.s.estimate
    ([0.75, 1.0, 1.0], 1.0)
    >>> loose.s.estimate, loose.s.high
    (0.0, 0.0)

    With T = 10 ms nobody was slow in 75 % of the windows, and at most one member in all of them;
    with 100 ms nobody ever was, which 400 windows prove for at least 90 % of all windows.
    """
    table = np.asarray(latencies_ns, dtype=np.float64)
    limits = np.asarray(timeouts_ns, dtype=np.float64)
    if table.ndim != 3 or table.shape[1] != table.shape[2]:
        raise ParameterError(
            "latencies_ns", f"has shape {table.shape}", "(groups, members, members)", "NaN pads"
        )
    if not (0 < confidence < 1 and 0 < level < 1):
        raise ParameterError(
            "confidence, level", f"are {confidence}, {level}", "inside (0, 1)", "use 0.99, 0.95"
        )
    if size < 2:
        raise ParameterError("size", f"is {size}", "2 or more", "a group has two members at least")
    places = np.arange(len(table)) if windows is None else np.asarray(windows, dtype=np.int64)
    members = [_members(group) for group in table]
    large = [place for place, found in enumerate(members) if found.size >= size]
    if not large:
        most = max((found.size for found in members), default=0)
        raise ParameterError(
            "size", f"is {size}, the largest measured group has {most}", "a group as large",
            "measure larger groups",
        )  # fmt: skip
    rng = np.random.default_rng(seed)
    subsets: dict[int, NDArray[np.intp]] = {}
    counted = np.zeros((limits.size, len(large), size))
    for row, place in enumerate(large):
        who = members[place]
        if who.size not in subsets:
            subsets[who.size] = _subsets(who.size, size, rng)
        square = table[place][np.ix_(who, who)]
        counted[:, row] = _at_most(square, limits, subsets[who.size], size)
    found = []
    for limit, of_groups in zip(limits, counted, strict=True):
        shares, s = smallest_count(
            of_groups, windows=places[large], confidence=confidence, level=level
        )  # fmt: skip
        mean = _mean(of_groups, places[large], level)
        found.append(SlowMembers(float(limit), size, s.n, shares, s, mean, confidence))
    return found


def replicas_needed(slow: Sequence[SlowMembers], faults: int) -> list[Replicas]:
    """Return n(T) = f + s(T) + 1, at most 2 f + 1, for each timeout.

    Parameters
    ----------
    slow : sequence of SlowMembers
        As `slow_members` gives them, of one group size or of several; s is that of the wanted share
        of windows.
    faults : int
        f, the crashes to survive; 1 or more.

    Returns
    -------
    list of Replicas
        By ascending timeout. ``n.high`` is the number that surely suffices: use it to decide.

    Raises
    ------
    ParameterError
        If `faults` is below 1, or `slow` is empty.

    Notes
    -----
    s grows with the group. The s of groups of m members proves n = f + s + 1 when n <= m, because a
    smaller group has no more slow members. When n > m it proves nothing, and the cap remains. If
    several group sizes were measured, the smallest n counts. This assumes that slowness and crashes
    are independent, that later load is like this run, and that members only crash.

    References
    ----------
    .. [1] D. Porto et al., "Visigoth fault tolerance", EuroSys 2015.

    Examples
    --------
    >>> calm = slow_members(np.full((400, 5, 5), 1e6), [1e7], 5)
    >>> [found] = replicas_needed(calm, 2)
    >>> found.n.estimate, found.n.high, found.asynchronous, found.saves
    (3.0, 3.0, 5, 2)

    Nobody was ever slower than 10 ms: three replicas survive two crashes, where five are usual.
    """
    if faults < 1 or not slow:
        raise ParameterError("faults", f"is {faults}", "1 or more", "f = 1 survives one crash")
    least, most = faults + 1, 2 * faults + 1
    found = []
    for timeout in sorted({it.timeout_ns for it in slow}):
        held = [it for it in slow if it.timeout_ns == timeout]
        # of sizes that say the same, the largest group says most
        held.sort(
            key=lambda it: (_needed(it, "high", faults), _needed(it, "estimate", faults), -it.size)
        )
        best = held[0]
        low, estimate, high = (
            float(min(_needed(it, bound, faults) for it in held))
            for bound in ("low", "estimate", "high")
        )
        n = Interval(
            estimate, low, high, best.s.level, best.s.n, best.s.n_effective,
            "f + s + 1, at most 2 f + 1; " + best.s.method,
        )  # fmt: skip
        found.append(Replicas(timeout, faults, n, best.s, best.size, least, most))
    return found


def _needed(slow: SlowMembers, bound: str, faults: int) -> float:
    n = faults + 1 + float(getattr(slow.s, bound))
    most = 2 * faults + 1
    return n if n <= min(slow.size, most) else float(most)


def crossing(replicas: Sequence[Replicas], n: int) -> tuple[float | None, float | None]:
    """Return the smallest T from which on n replicas are enough: surely, and by the estimate.

    Parameters
    ----------
    replicas : sequence of Replicas
        With ascending timeouts.
    n : int

    Returns
    -------
    tuple of (float or None, float or None)
        Timeouts in ns; None where no measured T does.

    Examples
    --------
    >>> slow = slow_members(np.full((400, 3, 3), 1e6), [5e5, 2e6, 1e7], 3)
    >>> crossing(replicas_needed(slow, 1), 2)
    (2000000.0, 2000000.0)

    From T = 2 ms on two replicas do what three do without an assumption of time.
    """
    found: list[float | None] = []
    for bound in ("high", "estimate"):
        enough: float | None = None
        for it in reversed(replicas):
            if getattr(it.n, bound) > n:
                break
            enough = it.timeout_ns
        found.append(enough)
    return found[0], found[1]


def _members(square: NDArray[np.float64]) -> NDArray[np.intp]:
    """Those that are in a pair; the diagonal says nothing."""
    seen = ~np.isnan(square)
    np.fill_diagonal(seen, val=False)
    return np.flatnonzero(seen.any(axis=0) | seen.any(axis=1))


def _subsets(members: int, size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    if comb(members, size) <= SUBSETS_MAX:
        return np.array(list(combinations(range(members), size)), dtype=np.intp)
    drawn = [rng.choice(members, size, replace=False) for _ in range(SUBSETS_MAX)]
    return np.array(drawn, dtype=np.intp)


def _at_most(
    square: NDArray[np.float64],
    limits: NDArray[np.float64],
    subsets: NDArray[np.intp],
    size: int,
) -> NDArray[np.float64]:
    """Share of the subsets whose worst observer sees at most k slow, (timeouts, size)."""
    others = np.where(np.eye(len(square), dtype=bool), np.nan, square)
    # (subsets, observers, members): the worst observer's count, for every timeout
    cut = others[subsets[:, :, None], subsets[:, None, :]]
    with np.errstate(invalid="ignore"):
        worst = np.array([(cut > limit).sum(axis=2).max(axis=1) for limit in limits])
    shares = (worst[:, :, None] <= np.arange(size)[None, None, :]).mean(axis=1)
    return np.asarray(shares)


def smallest_count(
    counted: ArrayLike,
    *,
    windows: ArrayLike | None = None,
    confidence: float = 0.99,
    level: float = 0.95,
) -> tuple[tuple[Interval, ...], Interval]:
    """Find the smallest k that a count does not exceed in the wanted share of windows.

    Parameters
    ----------
    counted : array_like, shape (groups, K), float64
        For each group in its window, in order of time: the chance (0 or 1, where nothing is drawn)
        that its count is at most k = 0 ... K - 1. The last is 1 by definition.
    windows : array_like, shape (groups,), int, optional
        The window of each group, ascending; by default each is one of its own.
    confidence, level : float
        As for `slow_members`.

    Returns
    -------
    tuple of (tuple of Interval, Interval)
        The share of windows with at most k, for every k; and the smallest k.

    Notes
    -----
    ``low`` and ``high`` of k are the smallest whose share may and whose share surely reaches
    `confidence`. A window's groups are averaged: they are no windows of their own.

    Examples
    --------
    >>> shares, k = smallest_count([[1, 1]] * 300 + [[0, 1]] * 100, confidence=0.9)
    >>> round(shares[0].estimate, 2), k.estimate
    (0.75, 1.0)
    """
    table = np.asarray(counted, dtype=np.float64)
    places = np.arange(len(table)) if windows is None else np.asarray(windows, dtype=np.int64)
    sums, totals = _by_block(table, places)
    shares = [
        # rounding must not make more hits than windows
        share_interval(np.minimum(column, totals), totals, level)
        for column in sums.T
    ]
    # nobody can see more than all others late: that is known, not measured
    last = shares[-1]
    shares[-1] = Interval(1.0, 1.0, 1.0, level, last.n, last.n_effective, "by definition")

    def smallest(bound: str) -> float:
        enough = confidence - 1e-12
        return float(next(k for k, it in enumerate(shares) if getattr(it, bound) >= enough))

    estimate, low, high = (smallest(bound) for bound in ("estimate", "high", "low"))
    at = shares[int(estimate)]
    method = f"smallest count in {confidence:g} of the windows; " + at.method
    found = Interval(
        estimate, min(low, estimate), high, level, int(totals.sum()), at.n_effective, method
    )
    return tuple(shares), found


def _mean(counted: NDArray[np.float64], windows: NDArray[np.int64], level: float) -> Interval:
    """Mean of the count over windows: the sum of the chances that it is more than k."""
    sums, totals = _by_block(counted, windows)
    blocks = (totals[:, None] - sums).sum(axis=1)[totals > 0] / totals[totals > 0]
    found = mean_interval(blocks, level)
    whole = float((totals[:, None] - sums).sum() / totals.sum())
    # blocks may differ by a window
    low = None if found.low is None else max(0.0, min(whole, found.low))
    high = None if found.high is None else max(whole, found.high)
    return Interval(
        whole, low, high, level, int(totals.sum()), found.n_effective, found.method
    )  # fmt: skip


def _by_block(
    counted: NDArray[np.float64], windows: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sum windows (the mean of their groups) into blocks: (blocks, K) and (blocks,)."""
    _, place = np.unique(windows, return_inverse=True)
    groups = np.bincount(place)
    count = groups.size
    blocks = min(BLOCKS_MAX, count)
    sums = np.zeros((max(2, blocks), counted.shape[1]))
    np.add.at(sums, place * blocks // count, counted / groups[place][:, None])
    totals = np.bincount(np.arange(count) * blocks // count, minlength=len(sums)).astype(float)
    return sums, totals
