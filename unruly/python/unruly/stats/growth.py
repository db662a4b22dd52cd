"""Whether something only grows: its rate of growth with an interval, and whether it has stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from unruly.errors import ParameterError
from unruly.stats.interval import Interval
from unruly.stats.means import mean_interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

BLOCKS_MAX: Final = 30
SECONDS_MIN: Final = 6
METHOD: Final = "growth between blocks of seconds, Student's t"


@dataclass(frozen=True)
class Growth:
    """How a level grows over time.

    ``rate`` is the growth per second with its interval. ``grown`` is the growth from the first
    block to the last. ``late_share`` is the share of ``grown`` in the second half of the time: 0.5
    for a straight line, about 0 for a level that has stopped growing, None without growth.
    """

    rate: Interval
    grown: float
    late_share: float | None

    @property
    def goes_on(self) -> bool:
        """Whether the level grows beyond chance and did not stop in the second half."""
        return (self.rate.low or 0.0) > 0 and (self.late_share or 0.0) >= 0.25


def growth(per_second: ArrayLike, level: float = 0.95) -> Growth:
    """Measure how fast a level that is read each second grows.

    Parameters
    ----------
    per_second : array_like, shape (seconds,), float64
        The level (bytes of memory) in each second, in order of time. Finite.
    level : float
        In (0, 1).

    Returns
    -------
    Growth

    Raises
    ------
    ParameterError
        With fewer than 6 seconds, or a value that is not finite.

    Notes
    -----
    First the seconds are averaged in up to 30 blocks of equal length. Then each step from block to
    block is divided by the time between their middles. The result is the interval of the mean of
    these rates with Student's t (`mean_interval`). A constant level fluctuates up and down, so its
    rates differ widely: the interval is wide and contains 0. Growth is not a leak while the level
    approaches a bound (a heap that is still filling): read ``late_share`` and the size, too.

    References
    ----------
    .. [1] A. M. Law, "Simulation Modeling and Analysis", section 9.5 (batch means).

    Examples
    --------
    >>> leak = growth(np.arange(60.0) * 2e6 + np.random.default_rng(1).normal(0, 1e5, 60))
    >>> round(leak.rate.low / 1e6, 2), round(leak.rate.high / 1e6, 2), leak.goes_on
    (1.98, 2.02, True)
    >>> level = growth(np.random.default_rng(1).normal(1e8, 1e6, 60))
    >>> level.rate.low < 0 < level.rate.high, level.goes_on
    (True, False)

    The first grows by 2 MB per second. The second does not grow beyond chance.
    """
    values = np.asarray(per_second, dtype=np.float64)
    if values.ndim != 1 or values.size < SECONDS_MIN or not np.all(np.isfinite(values)):
        raise ParameterError(
            "per_second", f"has shape {values.shape} or a value that is not finite",
            f"{SECONDS_MIN} seconds or more", "leave out seconds in which it was not read",
        )  # fmt: skip
    places = np.arange(values.size) * min(BLOCKS_MAX, values.size) // values.size
    sizes = np.bincount(places)
    levels = np.bincount(places, values) / sizes
    middles = np.bincount(places, np.arange(values.size)) / sizes
    found = mean_interval(np.diff(levels) / np.diff(middles), level)
    grown = float(levels[-1] - levels[0])
    late = float(levels[-1] - levels[levels.size // 2]) / grown if grown > 0 else None
    rate = Interval(
        grown / float(middles[-1] - middles[0]), found.low, found.high, level, int(values.size),
        found.n_effective, METHOD,
    )  # fmt: skip
    return Growth(rate, grown, late)
