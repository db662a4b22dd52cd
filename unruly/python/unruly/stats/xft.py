"""XFT: crashes, Byzantine faults and slowness together, up to a majority.

Cross fault tolerance uses 2 t + 1 replicas, as crash tolerance does, and stays consistent as long
as crashed, Byzantine and partitioned (slow) replicas together are at most t, or none is Byzantine.
How much that is worth depends on how often a replica is partitioned, which is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb, inf, log10
from typing import TYPE_CHECKING

import numpy as np

from unruly.errors import ParameterError
from unruly.stats.share import share_interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from unruly.contract import OrNull
    from unruly.stats.interval import Interval

BLOCKS_MAX = 30
EXACT_MEMBERS = 20
"""Up to this many members the largest timely set is found exactly."""


@dataclass(frozen=True)
class Nines:
    """Nines, -log10(1 - P), of consistency and availability with t faults tolerated.

    CFT and XFT have 2 t + 1 replicas, BFT has 3 t + 1. Infinite where P is 1: in JSON that is null.
    """

    faults: int
    cft_consistency: OrNull
    xft_consistency: OrNull
    bft_consistency: OrNull
    cft_availability: OrNull
    xft_availability: OrNull
    bft_availability: OrNull


def partitioned_share(
    latencies_ns: ArrayLike,
    timeouts_ns: ArrayLike,
    *,
    windows: ArrayLike | None = None,
    level: float = 0.95,
) -> list[Interval]:
    """Estimate, for each timeout, the probability that a member is partitioned or slow.

    Parameters
    ----------
    latencies_ns : array_like, shape (groups, members, members), float64
        As `slow_members` takes them: what member i saw of member j in a window. NaN pads.
    timeouts_ns : array_like, shape (m,), float64
    windows : array_like, shape (groups,), int, optional
        The window of each group, ascending; by default each is one of its own.
    level : float

    Returns
    -------
    list of Interval
        In the order of `timeouts_ns`; ``n`` counts (member, window).

    Raises
    ------
    ParameterError
        If there is no group of two members.

    Notes
    -----
    A member is partitioned when it is outside the largest set of members of which every two hear
    each other within T, both ways, in all of the window. Up to 20 members that set is found
    exactly; in larger groups by leaving out the member with most late pairs until none is left,
    which can only find a smaller set, and so err on the safe side. Blocks of windows give the
    interval (`share_interval`), so that slow windows that come together count for less.

    References
    ----------
    .. [1] S. Liu, P. Viotti, C. Cachin, V. Quema, M. Vukolic, "XFT: practical fault tolerance
       beyond crashes", OSDI 2016.

    Examples
    --------
    >>> calm, cut = np.full((3, 3), 1e6), np.full((3, 3), 1e6)
    >>> cut[0, 2] = np.inf
    >>> [found] = partitioned_share([calm] * 9 + [cut], [1e7])
    >>> round(found.estimate, 4), found.n
    (0.0333, 30)

    In one of ten windows one of three members could not be heard: 3.3 % of members and windows.
    """
    table = np.asarray(latencies_ns, dtype=np.float64)
    limits = np.asarray(timeouts_ns, dtype=np.float64)
    if table.ndim != 3 or table.shape[1] != table.shape[2]:
        raise ParameterError(
            "latencies_ns", f"has shape {table.shape}", "(groups, members, members)", "NaN pads"
        )
    places = np.arange(len(table)) if windows is None else np.asarray(windows, dtype=np.int64)
    names, place = np.unique(places, return_inverse=True)
    blocks = min(BLOCKS_MAX, names.size)
    block = place * blocks // max(1, names.size)
    outside, members = np.zeros((limits.size, max(2, blocks))), np.zeros(max(2, blocks))
    for row, group in enumerate(table):
        both = np.fmax(group, group.T)
        np.fill_diagonal(both, np.nan)
        who = np.flatnonzero(~np.isnan(both).all(axis=0))
        square = both[np.ix_(who, who)]
        members[block[row]] += who.size
        for number, limit in enumerate(limits):
            with np.errstate(invalid="ignore"):
                outside[number, block[row]] += _left_out(square > limit)
    if members.sum() == 0:
        raise ParameterError("latencies_ns", "has no pair", "groups of two or more", "measure them")
    return [share_interval(row, members, level) for row in outside]


def xft(
    faults: int, partitioned: float, *, crashed: float = 9e-4, byzantine: float = 1e-4
) -> Nines:
    """Return the nines of consistency and availability of CFT, XFT and BFT.

    Parameters
    ----------
    faults : int
        t, 1 or more.
    partitioned : float
        Probability that a correct replica is partitioned or slow at the chosen timeout.
    crashed, byzantine : float
        Probabilities that a replica has crashed, and that it is faulty in any other way. They
        cannot be measured from latencies. The defaults are an example: a machine is correct with
        three nines, and benign with four.

    Returns
    -------
    Nines

    Raises
    ------
    ParameterError
        If `faults` is below 1, or a probability is outside [0, 1], or they sum to more than 1.

    Notes
    -----
    Replicas fail independently and alike; that is the weakest assumption, since stalls of one host
    or network are shared. With i Byzantine, j crashed and k partitioned (and correct) of n
    replicas, t = (n - 1) // 2 for CFT and XFT and (n - 1) // 3 for BFT:

    - CFT is consistent iff i = 0; available iff i = 0 and n - j - k >= n - t.
    - XFT is consistent iff i = 0 or i + j + k <= t; available iff i + j + k <= t.
    - BFT is consistent iff i <= t; available iff i + j + k <= t.

    XFT's gain over CFT needs a majority that is correct *and* timely, hence the timeout.

    References
    ----------
    .. [1] S. Liu, P. Viotti, C. Cachin, V. Quema, M. Vukolic, "XFT: practical fault tolerance
       beyond crashes", OSDI 2016, section 6.

    Examples
    --------
    >>> found = xft(1, 1e-3, crashed=9e-4, byzantine=1e-4)
    >>> [round(x, 1) for x in (found.cft_consistency, found.xft_consistency)]
    [3.5, 5.9]

    Where each replica is Byzantine with 0.01 %, crashed with 0.09 % and slow with 0.1 %, three of
    them are consistent with three nines under crash tolerance and nearly six under XFT.
    """
    chances = (byzantine, crashed, partitioned)
    if faults < 1:
        raise ParameterError("faults", f"is {faults}", "1 or more", "t = 1 is three replicas")
    if not all(0 <= p <= 1 for p in chances) or crashed + byzantine > 1:
        raise ParameterError(
            "partitioned, crashed, byzantine", f"are {partitioned}, {crashed}, {byzantine}",
            "probabilities, the last two summing to at most 1", "0.001 is one in a thousand",
        )  # fmt: skip
    small, large = 2 * faults + 1, 3 * faults + 1
    bad = dict.fromkeys(("cft_c", "xft_c", "cft_a", "xft_a", "bft_c", "bft_a"), 0.0)
    for i, j, k, chance in _states(small, *chances):
        wrong = i + j + k > faults
        bad["cft_c"] += chance * (i > 0)
        bad["xft_c"] += chance * (i > 0 and wrong)
        bad["cft_a"] += chance * (i > 0 or wrong)
        bad["xft_a"] += chance * wrong
    for i, j, k, chance in _states(large, *chances):
        bad["bft_c"] += chance * (i > faults)
        bad["bft_a"] += chance * (i + j + k > faults)
    names = ("cft_c", "xft_c", "bft_c", "cft_a", "xft_a", "bft_a")
    return Nines(faults, *(_nines(bad[name]) for name in names))


def _nines(missing: float) -> float:
    return inf if missing <= 0 else max(0.0, -log10(min(1.0, missing)))


def _states(
    n: int, byzantine: float, crashed: float, partitioned: float
) -> list[tuple[int, int, int, float]]:
    """Every (Byzantine, crashed, partitioned) with its chance; 1 - P would lose the digits."""
    correct = 1 - byzantine - crashed
    slow, timely = correct * partitioned, correct * (1 - partitioned)
    return [
        (
            i,
            j,
            k,
            comb(n, i)
            * comb(n - i, j)
            * comb(n - i - j, k)
            * byzantine**i
            * crashed**j
            * slow**k
            * timely ** (n - i - j - k),
        )
        for i in range(n + 1)
        for j in range(n - i + 1)
        for k in range(n - i - j + 1)
    ]


def _left_out(late: NDArray[np.bool_]) -> int:
    """Fewest members to leave out so that no late pair is left: a smallest vertex cover."""
    if not late.any():
        return 0
    if len(late) > EXACT_MEMBERS:
        return _greedy(late)
    # a member's late pairs as the bits of a number
    return _cover(tuple((late @ (1 << np.arange(len(late)))).tolist()))


@lru_cache(maxsize=4096)
def _cover(edges: tuple[int, ...]) -> int:
    """Branch on the member with most late pairs: it goes, or all that it is late with."""
    degrees = [row.bit_count() for row in edges]
    most = max(degrees)
    if most == 0:
        return 0
    if most == 1:
        return sum(degrees) // 2
    top = degrees.index(most)
    without = _cover(_removed(edges, 1 << top))
    kept = most + _cover(_removed(edges, edges[top]))
    return min(1 + without, kept)


def _removed(edges: tuple[int, ...], gone: int) -> tuple[int, ...]:
    return tuple(0 if gone >> place & 1 else row & ~gone for place, row in enumerate(edges))


def _greedy(late: NDArray[np.bool_]) -> int:
    left, gone = late.copy(), 0
    while left.any():
        top = int(left.sum(axis=0).argmax())
        left[top, :] = left[:, top] = False
        gone += 1
    return gone
