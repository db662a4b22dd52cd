"""What a service earns under a service level agreement with steps, and where it starts to lose."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot
from typing import TYPE_CHECKING

import numpy as np

from unruly.errors import ParameterError
from unruly.stats.means import mean_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from unruly.contract import Count
    from unruly.stats.interval import Interval

HOUR_NS = 3_600e9


@dataclass(frozen=True)
class SlaTable:
    """Steps: a request that took at most ``at_most_ns[i]`` pays ``pays[i]``; beyond, the last.

    Upper bounds are inclusive. ``pays`` has one value more than ``at_most_ns``; a penalty is
    negative. Money is in whatever unit the agreement has.

    Raises
    ------
    ParameterError
        If bounds do not rise, or a slower request pays more than a faster one.
    """

    at_most_ns: tuple[float, ...]
    pays: tuple[float, ...]

    def __post_init__(self) -> None:
        bounds, pays = np.array(self.at_most_ns), np.array(self.pays)
        if bounds.size == 0 or pays.size != bounds.size + 1:
            raise ParameterError(
                "SLA table", f"has {bounds.size} bounds and {pays.size} payments",
                "a bound or more, and one payment more than bounds", "the last is for all beyond",
            )  # fmt: skip
        if not (np.all(np.isfinite(bounds)) and np.all(np.isfinite(pays)) and bounds[0] > 0):
            raise ParameterError(
                "SLA table", f"has {self.at_most_ns}, {self.pays}", "finite, bounds above 0",
                "200e6 is 200 ms",
            )  # fmt: skip
        if np.any(np.diff(bounds) <= 0):
            raise ParameterError(
                "SLA table", f"has the bounds {self.at_most_ns} ns", "bounds that rise",
                "write the fastest step first",
            )  # fmt: skip
        if np.any(np.diff(pays) > 0):
            raise ParameterError(
                "SLA table", f"pays {self.pays}", "payments that never rise with latency",
                "a slower answer is not worth more",
            )  # fmt: skip


DEFAULT_SLA = SlaTable((200e6, 500e6, 1e9, 2e9), (0.0020, 0.0015, 0.0013, 0.0005, -0.0047))
"""Dollars a request, of a published study of a web application."""


@dataclass(frozen=True)
class Profit:
    """What the requests of a run earn.

    ``per_hour`` has the interval over blocks of time. ``counts`` are requests of each step, the
    last those beyond all bounds, failed and censored ones included. ``lost_share`` is the part of
    what could have been earned (every request in the best step) that was not.
    """

    per_hour: Interval
    per_request: float
    counts: tuple[Count, ...]
    lost_share: float | None


def profit(
    latencies_ns: ArrayLike,
    blocks: ArrayLike,
    table: SlaTable = DEFAULT_SLA,
    *,
    duration_ns: float,
    level: float = 0.95,
) -> Profit:
    """Charge every request by the step that its latency falls into.

    Parameters
    ----------
    latencies_ns : array_like, shape (n,), float64
        Response times; ``inf`` for a request that failed or was still open at the end: it is
        charged as beyond all bounds. No NaN.
    blocks : array_like, shape (n,), int
        The block of equal time of each request, 0 and up.
    table : SlaTable
    duration_ns : float
        Of the run.
    level : float

    Returns
    -------
    Profit

    Raises
    ------
    ParameterError
        If there is no request, or `duration_ns` is not above 0.

    Notes
    -----
    Assumes that each request is worth the same and that those who wait do not leave. The interval
    is that of a mean over blocks (`mean_interval`): do not trust it when a single stall made all
    the penalties.

    References
    ----------
    .. [1] Q. Wang et al., "Response time reliability in cloud environments: an empirical study of
       n-tier applications at high resource utilization", 2012.

    Examples
    --------
    >>> took = [0.2e9, 0.2e9 + 1, 0.9e9, 1.5e9, 3e9, float("inf")] * 10
    >>> found = profit(took, np.arange(60) // 6, duration_ns=60e9)
    >>> found.counts, round(found.per_hour.estimate, 2)
    ((10, 10, 10, 10, 20), -2.46)

    At exactly 200 ms the best price is still paid; two of six requests, one slow and one failed,
    cost more than the other four bring: a loss of 2.46 dollars an hour.
    """
    took, block = np.asarray(latencies_ns, dtype=np.float64), np.asarray(blocks, dtype=np.int64)
    if took.size == 0 or took.shape != block.shape:
        raise ParameterError(
            "latencies_ns", f"have shape {took.shape}", "one or more, each with its block",
            "measure requests",
        )  # fmt: skip
    steps = np.searchsorted(np.array(table.at_most_ns), took, side="left")
    counts = np.zeros((len(table.pays), int(block.max()) + 1))
    np.add.at(counts, (steps, block), 1)
    return profit_of_counts(counts, table, duration_ns=duration_ns, level=level)


def profit_of_counts(
    counts: ArrayLike, table: SlaTable = DEFAULT_SLA, *, duration_ns: float, level: float = 0.95
) -> Profit:
    """Do what `profit` does, from the requests of each step and block.

    Parameters
    ----------
    counts : array_like, shape (steps, blocks), float64
        The last step is beyond all bounds. Blocks without a request count: nothing was earned.
    table : SlaTable
    duration_ns : float
    level : float

    Examples
    --------
    >>> found = profit_of_counts([[50, 50], [0, 0], [0, 0], [0, 0], [0, 0]], duration_ns=3600e9)
    >>> found.per_hour.estimate, found.lost_share
    (0.2, 0.0)
    """
    table_of = np.asarray(counts, dtype=np.float64)
    if table_of.ndim != 2 or len(table_of) != len(table.pays) or table_of.sum() == 0:
        raise ParameterError(
            "counts", f"have shape {table_of.shape}", f"({len(table.pays)}, blocks), not all 0",
            "one row a step",
        )  # fmt: skip
    if not duration_ns > 0:
        raise ParameterError("duration_ns", f"is {duration_ns}", "above 0", "60e9 is a minute")
    pays = np.array(table.pays)
    earned: NDArray[np.float64] = pays @ table_of
    blocks = table_of.shape[1]
    per_hour = mean_interval(earned * blocks * HOUR_NS / duration_ns, level)
    whole = float(table_of.sum())
    best = float(pays.max()) * whole
    lost = 1 - float(earned.sum()) / best if best > 0 else None
    return Profit(
        per_hour,
        float(earned.sum()) / whole,
        tuple(int(x) for x in table_of.sum(axis=1)),
        lost,
    )


@dataclass(frozen=True)
class ProfitPeak:
    """Where profit starts to fall as load grows.

    ``load`` earns most. ``falls`` is True when a higher load surely earns less (the interval of the
    difference excludes 0), None when it earns less by the estimates alone, False when no higher
    load was measured that earns less. ``falls_at`` is the lowest load above the peak that surely
    earns less.
    """

    load: float
    per_hour: Interval
    falls: bool | None
    falls_at: float | None


def profit_peak(loads: ArrayLike, profits: Sequence[Interval]) -> ProfitPeak:
    """Find the load beyond which profit falls.

    Parameters
    ----------
    loads : array_like, shape (cells,), float64
        Rising: sessions, requests a second.
    profits : sequence of Interval
        Of each load; without bounds nothing is sure.

    Returns
    -------
    ProfitPeak

    Raises
    ------
    ParameterError
        If loads do not rise, or there are fewer than two.

    Notes
    -----
    Two profits differ when the difference exceeds the root of the sum of the squares of the two
    half-widths that face each other (Zou and Donner). The peak itself is the best of several
    estimates, and so a little high: read it with its neighbours.

    References
    ----------
    .. [1] G. Y. Zou, A. Donner, "Construction of confidence limits about effect measures", 2008.

    Examples
    --------
    >>> from unruly.stats import Interval
    >>> told = [78.4, 86.7, 86.6, 83.9, 68.0]
    >>> cells = [Interval(x, x - 1, x + 1, 0.95, 30, 30.0, "") for x in told]
    >>> found = profit_peak([4600, 5200, 5400, 5600, 5800], cells)
    >>> found.load, found.falls, found.falls_at
    (5200.0, True, 5600.0)

    Profit is largest at 5,200 sessions; at 5,400 it may be the same, from 5,600 on it is less.
    """
    at = np.asarray(loads, dtype=np.float64)
    if at.size < 2 or at.size != len(profits) or np.any(np.diff(at) <= 0):
        raise ParameterError(
            "loads", f"are {at.tolist()}", "two or more that rise, a profit for each",
            "sort the cells by load",
        )  # fmt: skip
    estimates = np.array([float(it.estimate or 0.0) for it in profits])
    top = int(estimates.argmax())
    lower = [place for place in range(top + 1, at.size) if estimates[place] < estimates[top]]
    sure = [place for place in lower if _surely_less(profits[place], profits[top])]
    falls = True if sure else None if lower else False
    return ProfitPeak(
        float(at[top]), profits[top], falls, float(at[sure[0]]) if sure else None
    )  # fmt: skip


def _surely_less(one: Interval, other: Interval) -> bool:
    if one.estimate is None or other.estimate is None or one.high is None or other.low is None:
        return False
    return other.estimate - one.estimate > hypot(
        one.high - one.estimate, other.estimate - other.low
    )
