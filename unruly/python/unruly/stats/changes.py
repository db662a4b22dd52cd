"""When the level of a percentile changed: change points that a memory does not pretend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from unruly.errors import ParameterError
from unruly.stats.interval import Interval
from unruly.stats.means import standard_error

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

SHORTEST = 5
"""Blocks on either side of a change, at least."""
EFFECTIVE_MIN = 10.0
RESAMPLES = 499
WARM_UP = 50
CAUTION = 1.2
"""Standard errors that are added to the correlation of neighbours."""
CAUTION_DIFFERENCED = 1.5
TRIMMED = 0.9


@dataclass(frozen=True)
class ChangePoint:
    """One change: the new level begins with block ``block``.

    ``place`` is the interval of that block. ``before_ns`` and ``after_ns`` are the geometric means
    of the finite levels on either side up to the next change, ``ratio`` after over before.
    """

    block: int
    place: Interval
    before_ns: float | None
    after_ns: float | None
    ratio: Interval
    p_value: float


@dataclass(frozen=True)
class ChangePoints:
    """All changes in order of time; ``abstained`` says why none could be looked for."""

    points: tuple[ChangePoint, ...]
    memory: float
    """The correlation of neighbours that the test allowed for."""
    abstained: str | None


def change_points(
    levels_ns: ArrayLike, *, alpha: float = 0.05, level: float = 0.95, seed: int = 0
) -> ChangePoints:
    """Find where the level of a percentile changed.

    Parameters
    ----------
    levels_ns : array_like, shape (blocks,), float64
        The p99 (say) of each block of equal time, in order; ``inf`` where it falls among the
        failed, NaN where nothing was measured: such a block is passed over.
    alpha : float
        The chance of an alarm where nothing changed, in (0, 0.5).
    level : float
        Of the intervals.
    seed : int
        Of the resampling: the same input gives the same answer.

    Returns
    -------
    ChangePoints

    Raises
    ------
    ParameterError
        With fewer than 10 blocks, or `alpha` out of range.

    Notes
    -----
    Binary segmentation: the largest standardised difference of the means on both sides of a split,
    over normal scores of the ranks (a failed block is the largest; one outlier moves nothing). Its
    p value comes from series without a change: the blocks' innovations, drawn anew, filtered by the
    correlation of neighbours that remains once the split's own levels are taken away, plus its bias
    and 1.2 standard errors. Each half is searched at half the alpha. Where so much memory leaves
    fewer than 10 independent blocks it abstains: drifting and changing look alike. Simulated on
    stationary input of 30 to 200 blocks it alarms in at most 5 % up to a correlation of 0.6, in 4
    to 6 % at 0.8. Do not
    use it on blocks of fewer than 100 requests: their p99 is their maximum.

    References
    ----------
    .. [1] A. J. Scott, M. Knott, "A cluster analysis method for grouping means in the analysis of
       variance", 1974 (binary segmentation).
    .. [2] P. Buehlmann, "Sieve bootstrap for time series", 1997.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> quiet, slower = rng.lognormal(13, 0.2, 40), rng.lognormal(13.4, 0.2, 20)
    >>> found = change_points(np.concatenate([quiet, slower]))
    >>> [change] = found.points
    >>> change.place.low, change.block, change.place.high
    (37.0, 41, 44.0)
    >>> round(change.ratio.low, 1), round(change.ratio.high, 1)
    (1.3, 1.6)
    >>> change_points(quiet).points
    ()

    From about the 41st block on the p99 is 1.3 to 1.6 times what it was; the first part alone is
    steady.
    """
    table = np.asarray(levels_ns, dtype=np.float64)
    if not 0 < alpha < 0.5:
        raise ParameterError("alpha", f"is {alpha}", "inside (0, 0.5)", "use 0.05")
    kept = np.flatnonzero(~np.isnan(table))
    if table.ndim != 1 or kept.size < 2 * SHORTEST:
        raise ParameterError(
            "levels_ns", f"has {kept.size} blocks with a level", f"{2 * SHORTEST} or more",
            "cut the run finer",
        )  # fmt: skip
    values = table[kept]
    rng = np.random.default_rng(seed)
    whole = _Split.of(values)
    if whole.effective < EFFECTIVE_MIN:
        return ChangePoints((), whole.memory, (
            f"the blocks' correlation of {whole.memory:.2f} leaves {whole.effective:.1f} "
            f"independent ones where {EFFECTIVE_MIN:g} are needed: drifting or changing"
        ))  # fmt: skip
    found: dict[int, tuple[float, Interval]] = {}
    held = [(0, values.size, alpha)]
    while held:
        begin, end, share = held.pop()
        if end - begin < 2 * SHORTEST:
            continue
        split = _Split.of(values[begin:end])
        if split.effective < EFFECTIVE_MIN and begin + (values.size - end) > 0:
            continue
        p_value = split.p_value(rng)
        if p_value > share:
            continue
        at = begin + split.at
        found[at] = p_value, split.place(rng, level, begin, kept)
        held += [(begin, at, share / 2), (at, end, share / 2)]
    return ChangePoints(_points(values, kept, found, level), whole.memory, None)


@dataclass(frozen=True)
class _Split:
    """The best split of a stretch, and what its blocks remember."""

    at: int
    size: float
    means: NDArray[np.float64]
    rest: NDArray[np.float64]
    memory: float

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> _Split:
        scores = _scores(values[None, :])[0]
        profile = _profile(scores[None, :])[0]
        at = int(profile.argmax()) + SHORTEST
        means = np.empty_like(scores)
        means[:at], means[at:] = scores[:at].mean(), scores[at:].mean()
        rest, count = scores - means, scores.size
        squares = float((rest**2).sum())
        lag = float((rest[1:] * rest[:-1]).sum()) / squares if squares else 0.0
        lag += (2 + 4 * lag) / count
        lag += CAUTION * float(np.sqrt(max(0.0, 1 - lag**2) / count))
        lag = min(max(lag, 0.0), 0.98, _differenced(scores))
        return cls(at, float(profile.max()), means, rest, lag)

    @property
    def effective(self) -> float:
        """Independent blocks that this stretch is worth."""
        return self.rest.size * (1 - self.memory) / (1 + self.memory)

    def p_value(self, rng: np.random.Generator) -> float:
        """Chance of so large a difference in a stretch without a change."""
        made = _scores(self._drawn(rng))
        beyond = int((_profile(made).max(axis=1) >= self.size).sum())
        return (1 + beyond) / (RESAMPLES + 1)

    def place(
        self, rng: np.random.Generator, level: float, begin: int, kept: NDArray[np.intp]
    ) -> Interval:
        """Where the change is found again when the same levels are drawn with other noise."""
        again = _profile(self.means[None, :] + self._drawn(rng)).argmax(axis=1) + SHORTEST
        tail = (1 - level) / 2
        low, high = np.quantile(again, [tail, 1 - tail], method="nearest").astype(int)
        low, high = min(low, self.at), max(high, self.at)
        last = kept.size - 1
        return Interval(
            float(kept[begin + self.at]), float(kept[begin + low]),
            float(kept[min(begin + high, last)]), level, self.rest.size, self.effective,
            "sieve bootstrap of the place",
        )  # fmt: skip

    def _drawn(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Rows of noise with this stretch's innovations and memory."""
        fresh = self.rest[1:] - self.memory * self.rest[:-1]
        fresh = fresh - fresh.mean()
        draws = fresh[rng.integers(0, fresh.size, (RESAMPLES, self.rest.size + WARM_UP))]
        return _remembering(draws, self.memory)[:, WARM_UP:]


def _remembering(draws: NDArray[np.float64], memory: float) -> NDArray[np.float64]:
    """Each row as an autoregression of order one, with the row's values as its innovations.

    ``scipy.signal.lfilter`` gives the same (a test compares); its import takes as long as the
    analysis of a short run.
    """
    made = np.ascontiguousarray(draws.T)
    for place in range(1, len(made)):
        made[place] += memory * made[place - 1]
    return made.T


def _scores(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Normal scores of the ranks of each row; equal values share theirs."""
    below = np.empty(rows.shape)
    for number, row in enumerate(rows):
        ordered = np.sort(row)
        left = np.searchsorted(ordered, row, "left")
        below[number] = (left + np.searchsorted(ordered, row, "right")) / 2
    scores: NDArray[np.float64] = special.ndtri(below / rows.shape[1])
    return scores


def _differenced(scores: NDArray[np.float64]) -> float:
    """An upper bound of the memory to which a few more changes in the same stretch are nothing.

    The differences of blocks one and two apart have variances of ratio 1 + r; a tenth is trimmed,
    among them those across a change.
    """
    spreads = []
    for apart in (1, 2):
        squares = np.sort((scores[apart:] - scores[:-apart]) ** 2)
        spreads.append(float(squares[: int(TRIMMED * squares.size)].sum()) / squares.size)
    lag = spreads[1] / spreads[0] - 1 if spreads[0] > 0 else 0.98
    return max(0.0, lag + CAUTION_DIFFERENCED * 2 / float(np.sqrt(scores.size)))


def _profile(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standardised difference of the means before and after each possible split of each row."""
    count = rows.shape[1]
    sums = np.cumsum(rows, axis=1)
    place = np.arange(SHORTEST, count - SHORTEST + 1)
    whole = sums[:, -1:]
    apart = np.abs(sums[:, place - 1] - place * whole / count)
    profile: NDArray[np.float64] = apart / np.sqrt(place * (count - place) / count)
    return profile


def _points(
    values: NDArray[np.float64],
    kept: NDArray[np.intp],
    found: dict[int, tuple[float, Interval]],
    level: float,
) -> tuple[ChangePoint, ...]:
    edges = [0, *sorted(found), values.size]
    points = []
    for before, at, after in zip(edges, edges[1:], edges[2:], strict=False):
        parts = [_logs(values[before:at]), _logs(values[at:after])]
        means = [float(np.exp(part.mean())) if part.size else None for part in parts]
        p_value, place = found[at]
        points.append(
            ChangePoint(
                int(kept[at]), place, means[0], means[1], _ratio(parts[0], parts[1], level), p_value
            )
        )  # fmt: skip
    return tuple(points)


def _logs(values: NDArray[np.float64]) -> NDArray[np.float64]:
    finite: NDArray[np.float64] = np.log(np.maximum(values[np.isfinite(values)], 1.0))
    return finite


def _ratio(before: NDArray[np.float64], after: NDArray[np.float64], level: float) -> Interval:
    size, method = int(before.size + after.size), "ratio of geometric means of blocks, Welch"
    if min(before.size, after.size) < 2:
        return Interval(None, None, None, level, size, None, method)
    apart = float(after.mean() - before.mean())
    found = [standard_error(part) for part in (before, after)]
    parts, freedoms = [error**2 for error, _ in found], [free for _, free in found]
    whole = sum(parts)
    if whole == 0:
        ratio = float(np.exp(apart))
        return Interval(ratio, ratio, ratio, level, size, float(size), method)
    freedom = whole**2 / sum(part**2 / free for part, free in zip(parts, freedoms, strict=True))
    reach = float(special.stdtrit(freedom, (1 + level) / 2) * np.sqrt(whole))
    low, middle, high = (float(np.exp(apart + step)) for step in (-reach, 0.0, reach))
    return Interval(middle, low, high, level, size, freedom + 1, method)
