"""Published intervals of a quantile, beside which the interval that survives stalls is measured.

Each takes the latencies of one run in the order of their scheduled times. None of them abstains;
FQUEST can add a warning. FQUEST has a file of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Final

import numpy as np

from unruly.stats import quantile_ranks_iid
from unruly.stats.claims import early_stopping_over

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

LEVEL: Final = 0.95
LATTE_CORRELATED: Final = 0.2
LATTE_RESAMPLES: Final = 100
LATTE_NORMAL: Final = 1.96


@dataclass(frozen=True)
class Bounds:
    """What a method says of one quantile: None where it has no bound on that side."""

    low: float | None
    high: float | None
    warned: bool = False
    """True if the method itself says that the run is too small for it."""

    @property
    def given(self) -> bool:
        """True if there is any bound."""
        return self.low is not None or self.high is not None

    def holds(self, truth: float) -> bool:
        """Return whether the truth is on the right side of each bound."""
        return (self.low is None or self.low <= truth) and (self.high is None or truth <= self.high)

    @property
    def width(self) -> float | None:
        """The distance between the bounds, if there are two."""
        return None if self.low is None or self.high is None else self.high - self.low


independent_ranks = cache(partial(quantile_ranks_iid, level=LEVEL))
"""The ranks of n values and a p: those of one length serve all its runs."""


def independent(ordered: Array, p: float) -> Bounds:
    """Return the two-sided order-statistic interval, as if requests were independent."""
    ranks = independent_ranks(ordered.size, p)
    low, high = (float(ordered[rank - 1]) if rank else None for rank in ranks)
    return Bounds(low, high)


def mlperf(ordered: Array, p: float) -> Bounds:
    """Return the one-sided 99 % bound of MLPerf's early stopping for a single stream."""
    over = early_stopping_over(ordered.size, p)
    return Bounds(None, float(ordered[-over]) if over else None)


def latte_effective_size(latencies: Array) -> int:
    """Return how many independent requests latte takes a run for.

    It doubles the length of a batch while the variance of the batch means, relative to independent
    requests, is over a fifth of that length.
    """
    means, length, longest = latencies, 1, 1.0
    whole = float(latencies.var(ddof=1))
    while means.size > 1:
        correlated = length * float(means.var(ddof=1)) / whole
        if correlated <= LATTE_CORRELATED * length:
            break
        longest = max(longest, correlated)
        means = means[: means.size // 2 * 2].reshape(-1, 2).mean(axis=1)
        length *= 2
    return int(latencies.size / longest)


def latte(latencies: Array, ordered: Array, p: float, rng: np.random.Generator) -> Bounds:
    """Return latte's interval: resamples of its effective size, and a normal multiple of them.

    A quantile of a resample from a run's own values is the value at a rank that is beta
    distributed, so that no resample has to be drawn.
    """
    size = latte_effective_size(latencies)
    if size < 2:
        return Bounds(None, None)
    rank = max(int(np.ceil(p * size)), 1)
    places = rng.beta(rank, size - rank + 1, LATTE_RESAMPLES) * ordered.size
    resampled = ordered[np.minimum(places.astype(np.int64), ordered.size - 1)]
    error = LATTE_NORMAL * float(resampled.std(ddof=1))
    estimate = float(ordered[int(np.ceil(p * ordered.size)) - 1])
    return Bounds(estimate - error, estimate + error)
