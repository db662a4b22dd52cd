"""The rate of faults at which recoveries cost the clients as much time as outliers do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from unruly.errors import ParameterError
from unruly.stats.comparison import interval_of_ratio
from unruly.stats.interval import Interval, quantile_interval_iid
from unruly.stats.means import mean_interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

METHOD: Final = "blocks of time over order statistics, variances recovered from the limits"
OUTLIER_SDS: Final = 3.0
"""An outlier is this many standard deviations above the mean."""
FAULTS_LEAST: Final = 6
"""With fewer, the median recovery has no 95 % interval."""
BLOCKS_LEAST: Final = 6
SHARING_LEAST: Final = 2.0
"""Blocks that share the loss, as an effective number: below it there is no interval."""


@dataclass(frozen=True)
class BreakEven:
    """The rate of faults at which outliers and recoveries cost one client the same time.

    ``faults_hz`` is that rate in faults a second: outliers cost more below it. ``outliers_ns`` is
    the time that fault-free outliers cost one client in each second, ``fault_ns`` the time that one
    fault costs it, both in ns.
    """

    faults_hz: Interval
    outliers_ns: Interval
    fault_ns: Interval


def outlier_limit(mean: float, sd: float) -> float:
    """Return the limit of the project's outliers: the mean and three standard deviations.

    Examples
    --------
    >>> outlier_limit(10.0, 2.0)
    16.0
    """
    return mean + OUTLIER_SDS * sd


def break_even_faults(
    excess_ns: ArrayLike,
    block_s: float,
    recoveries_ns: ArrayLike,
    median_ns: float,
    *,
    clients: int = 1,
    level: float = 0.95,
) -> BreakEven:
    """Return the rate of faults at which recoveries cost a client as much time as outliers do.

    Parameters
    ----------
    excess_ns : array_like, shape (blocks,), float64
        The excess of all fault-free outliers (see `outlier_limit`) over the fault-free median,
        summed in each of 6 or more equal blocks of fault-free time, in order of time. A block
        without an outlier is 0. Finite, 0 or more, and not all 0.
    block_s : float
        The length of a block in seconds.
    recoveries_ns : array_like, shape (faults,), float64
        The total recovery of each of 6 or more faults.
    median_ns : float
        The median latency of the fault-free requests.
    clients : int
        The number of clients that made the requests.
    level : float
        In (0, 1).

    Returns
    -------
    BreakEven

    Raises
    ------
    ParameterError
        With fewer than 6 blocks or recoveries, without any excess, with a block, a number of
        clients or a median recovery that is not above its least value.

    Notes
    -----
    The outliers cost one client the mean of the blocks, divided by their length and by the number
    of clients. One fault costs a client the median recovery less the fault-free median. The first
    over the second is the break-even rate. The mean has the interval of `mean_interval`, the median
    that of `quantile_interval_iid`; `interval_of_ratio` combines both on the logarithm. The
    interval is unknown if nearly all the excess is in one block. The fault-free median is taken as
    known: its own error is far smaller. Assumes that each client has one request open at a time,
    that each fault stops every client for the median recovery, and that time is lost as latency
    only. Do not use it for an open loop whose requests pile up during the recovery: each of them
    loses time, and a fault costs more than is counted here.

    References
    ----------
    .. [1] A. Donner and G. Y. Zou, 2012, as `interval_of_ratio`.

    Examples
    --------
    >>> excess = [9e6, 11e6, 10e6, 8e6, 12e6, 10e6, 9e6, 11e6]
    >>> found = break_even_faults(excess, 10.0, [201e6, 203e6, 199e6, 202e6, 200e6, 201e6], 1e6)
    >>> round(1 / found.faults_hz.estimate), round(found.fault_ns.estimate / 1e6)
    (200, 200)

    Outliers cost a client 1 ms a second, and one fault costs it 200 ms. Outliers cost more than
    faults as long as there is less than one fault in 200 s.
    """
    excess = np.asarray(excess_ns, dtype=np.float64)
    totals = np.asarray(recoveries_ns, dtype=np.float64)
    _check(excess, block_s, totals, clients)
    found = mean_interval(excess / block_s / clients, level)
    back = quantile_interval_iid(totals, 0.5, level)
    if back.estimate is None or back.estimate <= median_ns:
        raise ParameterError(
            "recoveries_ns", f"have a median of {back.estimate}", f"above {median_ns}",
            "leave it out: a fault costs no time",
        )  # fmt: skip
    lost, cost = float(excess.mean()) / block_s / clients, back.estimate - median_ns
    bounds = [
        (_floor(found.low), found.high),
        (_floor(back.low, median_ns), _floor(back.high, median_ns)),
    ]
    rate, low, high = interval_of_ratio((cost, *bounds[1]), (lost, *bounds[0]))
    if excess.sum() ** 2 < SHARING_LEAST * (excess**2).sum():
        low = high = None
    return BreakEven(
        Interval(rate, low, high, level, back.n, found.n_effective, METHOD),
        Interval(lost, *bounds[0], level, found.n, found.n_effective, found.method),
        Interval(cost, *bounds[1], level, back.n, back.n_effective, back.method),
    )


def _check(
    excess: NDArray[np.float64], block_s: float, totals: NDArray[np.float64], clients: int
) -> None:
    known = np.all(np.isfinite(excess) & (excess >= 0)) and np.all(np.isfinite(totals))
    if excess.ndim != 1 or excess.size < BLOCKS_LEAST or not known or excess.sum() == 0:
        raise ParameterError(
            "excess_ns", f"has shape {excess.shape} or a value that is none",
            f"{BLOCKS_LEAST} blocks or more, finite, 0 or more, not all 0", "0 without an outlier",
        )  # fmt: skip
    if totals.ndim != 1 or totals.size < FAULTS_LEAST or block_s <= 0 or clients < 1:
        raise ParameterError(
            "recoveries_ns, block_s, clients",
            f"have shape {totals.shape}, {block_s}, {clients}",
            f"{FAULTS_LEAST} recoveries or more, a length above 0, and a client",
            "leave it out",
        )


def _floor(bound: float | None, less: float = 0.0) -> float | None:
    return None if bound is None else max(0.0, bound - less)
