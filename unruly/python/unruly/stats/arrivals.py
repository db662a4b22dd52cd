"""Bursty arrivals: the index of dispersion of counts, and the two-state process that has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from unruly.errors import ParameterError
from unruly.quantity import duration, percent
from unruly.stats.interval import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

RELAXATIONS = 20.0
"""A window of t = 20 / s sees 95 % of the dispersion; the rest is known and put back."""
WINDOWS_MIN = 51
"""Below, the standard error sqrt(2 / (M - 1)) is above a fifth of the estimate."""
WINDOWS_ENOUGH = 2_000
"""With more windows than this (3 % standard error) longer ones are taken: they see more of I."""
LEVEL_WINDOWS_MIN = 10
FASTEST = 2_000.0
"""The largest s tried, per bin: beyond, every window sees all of the dispersion."""
GRID = 500
GAIN_MIN = 25.0
"""What a rising curve must explain (chi squared; neighbouring windows are one another's parts)."""
GROWTH_FACTOR = 8
"""How much longer windows may be in which a curve that still grows is doubted."""
GROWTH_MAX = 3.0


@dataclass(frozen=True)
class Mmpp2:
    """A Poisson process whose rate switches between two states; all rates per second.

    ``burst_hz`` and ``calm_hz`` are the arrival rates l1 and l2; ``leave_burst_hz`` = r12 and
    ``leave_calm_hz`` = r21 the rates of switching.
    """

    burst_hz: float
    calm_hz: float
    leave_burst_hz: float
    leave_calm_hz: float

    @property
    def switching_hz(self) -> float:
        """Return s = r12 + r21: the process forgets its state as exp(-s t)."""
        return self.leave_burst_hz + self.leave_calm_hz

    @property
    def mean_hz(self) -> float:
        """The mean rate (l1 r21 + l2 r12) / s."""
        weighed = self.burst_hz * self.leave_calm_hz + self.calm_hz * self.leave_burst_hz
        return weighed / self.switching_hz

    def dispersion(self, window_s: float | None = None) -> float:
        """Return I, or I(t) of counts in windows of `window_s`."""
        s = self.switching_hz
        apart = (self.burst_hz - self.calm_hz) ** 2 * self.leave_burst_hz * self.leave_calm_hz
        beyond = 2 * apart / (s**3 * self.mean_hz)
        return 1 + beyond * (1.0 if window_s is None else float(_seen(s * window_s)))


def mmpp2(mean_hz: float, dispersion: float, burst_share: float, burst_factor: float) -> Mmpp2:
    """Return the two-state process with this mean rate and index of dispersion.

    Parameters
    ----------
    mean_hz : float
        L, arrivals a second; above 0.
    dispersion : float
        I; 1 is a Poisson process (both states are alike), below 1 there is no such process.
    burst_share : float
        a, the share of time in bursts; in (0, 1).
    burst_factor : float
        b, the rate in a burst over the mean; above 1, at most 1 / a.

    Returns
    -------
    Mmpp2
        With l1 = b L, l2 = L (1 - a b) / (1 - a), s = 2 a L (b - 1)^2 / ((1 - a) (I - 1)),
        r12 = (1 - a) s, r21 = a s.

    Raises
    ------
    ParameterError
        If an argument is outside its range.

    Notes
    -----
    The same I can be had by rare long bursts or by many short ones of more: a and b say which. The
    mean length of a burst is 1 / r12. Do not use it to imitate arrivals whose I(t) never settles.

    References
    ----------
    .. [1] N. Mi, G. Casale, L. Cherkasova, E. Smirni, "Injecting realistic burstiness to a
       traditional client-server benchmark", 2009.

    Examples
    --------
    >>> process = mmpp2(500, 100, 0.2, 3)
    >>> [round(x, 4) for x in (process.switching_hz, process.burst_hz, process.calm_hz)]
    [10.101, 1500.0, 250.0]
    >>> round(process.dispersion(), 6), round(process.mean_hz, 6)
    (100.0, 500.0)

    500 arrivals a second on average, with I = 100: bursts of 1,500/s that last 0.12 s.
    """
    a, b = burst_share, burst_factor
    if not (mean_hz > 0 and np.isfinite(mean_hz)):
        raise ParameterError("mean_hz", f"is {mean_hz}", "above 0", "500 is 500 a second")
    if not (dispersion >= 1 and np.isfinite(dispersion)):
        raise ParameterError("dispersion", f"is {dispersion}", "1 or more", "1 is Poisson")
    if not (0 < a < 1 < b and a * b <= 1):
        raise ParameterError(
            "burst_share, burst_factor", f"are {a}, {b}", "0 < a < 1 < b <= 1 / a", "try 0.2, 3"
        )
    if dispersion == 1:
        return Mmpp2(float(mean_hz), float(mean_hz), 1 - a, a)
    s = 2 * a * mean_hz * (b - 1) ** 2 / ((1 - a) * (dispersion - 1))
    return Mmpp2(
        float(b * mean_hz), mean_hz * max(0.0, 1 - a * b) / (1 - a), (1 - a) * s, a * s
    )  # fmt: skip


@dataclass(frozen=True)
class Dispersion:
    """The index of dispersion of counts, I = I(infinity).

    ``index.estimate`` is None when nothing arrived. ``standard_error`` = I sqrt(2 / (M - 1))
    with M ``windows`` of ``window_ns``. ``raw`` is I(t) at that window, before the part that
    longer windows would see is put back. ``switching_hz`` is s of the data, None when counts are no
    more dispersed in long windows than in short ones. ``doubt`` says why not to trust it: too few
    windows, or I(t) that still grows or falls; None when there is no reason.
    """

    index: Interval
    standard_error: float | None
    raw: float | None
    window_ns: float
    windows: int
    switching_hz: float | None
    doubt: str | None


def index_of_dispersion(
    counts: ArrayLike, bin_ns: float, *, window_ns: float | None = None, level: float = 0.95
) -> Dispersion:
    """Estimate the index of dispersion from counts of arrivals in short bins.

    Parameters
    ----------
    counts : array_like, shape (bins,), int
        Arrivals in each of adjacent bins of equal length, in order of time; 0 where none came.
    bin_ns : float
        The length of a bin.
    window_ns : float, optional
        The length t of the disjoint windows; rounded up to whole bins. By default it is chosen from
        the data.
    level : float

    Returns
    -------
    Dispersion

    Raises
    ------
    ParameterError
        If there are fewer than 20 bins, a count is negative, or a window does not fit in.

    Notes
    -----
    The variance over the mean of counts in windows of t grows with t: I(t) = 1 + (I - 1) (1 - (1 -
    exp(-s t)) / (s t)). s is fitted to the curve of I(t) over windows of 1, 2, 4, ... bins (each
    weighed by its number of windows); then t = 20 / s or, where that leaves more than 2,000
    windows, longer. What such a window does not see (5 % of I - 1 at 20 / s) is put back. The
    interval is that of a variance: chi squared with M - 1 degrees of freedom. Where the curve is
    flat (Poisson, or regular) any window does; where it falls (batches at regular instants) the
    longest that leave 51 windows. Assumes one time scale of bursts; I(t) that grows beyond the
    fitted curve or falls below it in longer windows is named in ``doubt``, and so are fewer than 51
    windows. Do not use it on the arrivals of a closed loop under saturation: they are the replies'
    bursts, not the users'.

    References
    ----------
    .. [1] R. Gusella, "Characterizing the variability of arrival processes with indexes of
       dispersion", 1991.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> found = index_of_dispersion(rng.poisson(50, 36_000), 1e8)
    >>> bool(found.index.low < 1 < found.index.high), found.switching_hz
    (True, None)

    Fifty arrivals each 100 ms, an hour long, as independent as can be: I = 1 lies in the interval.
    """
    table = np.asarray(counts, dtype=np.float64)
    if table.ndim != 1 or table.size < 2 * LEVEL_WINDOWS_MIN or not np.all(table >= 0):
        raise ParameterError(
            "counts", f"have shape {table.shape} or one below 0",
            f"{2 * LEVEL_WINDOWS_MIN} bins or more, each 0 or more", "use shorter bins",
        )  # fmt: skip
    if not bin_ns > 0 or not 0 < level < 1:
        raise ParameterError(
            "bin_ns, level", f"are {bin_ns}, {level}", "above 0; inside (0, 1)", "1e8 is 100 ms"
        )
    if table.sum() == 0:
        nothing = Interval(None, None, None, level, 0, None, _METHOD)
        return Dispersion(nothing, None, None, float(bin_ns), 0, None, "nothing arrived")
    s = _switching(table)  # per bin
    asked = None if window_ns is None else int(np.ceil(window_ns / bin_ns - 1e-9))
    bins = asked if asked is not None else _window(s, table.size)
    if asked is None and _falls(table, bins):
        s, bins = None, table.size // WINDOWS_MIN
    if not 1 <= bins <= table.size // 2:
        raise ParameterError(
            "window_ns", f"is {window_ns}", "two windows in the run at least", "measure for longer"
        )
    raw, windows = _index(table, bins)
    seen = float(_seen(s * bins)) if s is not None else 1.0
    index = 1 + (raw - 1) / seen
    error = index * float(np.sqrt(2 / (windows - 1)))
    tails = special.chdtri(windows - 1, [(1 - level) / 2, (1 + level) / 2])
    low, high = (float(index * (windows - 1) / tail) for tail in tails)
    found = Interval(index, low, high, level, windows, float(windows), _METHOD)
    per_second = None if s is None else s / bin_ns * 1e9
    doubt = _doubt(table, bins, windows, index, s, bin_ns)
    return Dispersion(found, error, raw, bins * float(bin_ns), windows, per_second, doubt)


_METHOD = "variance over mean of counts in disjoint windows, chi squared"


def _seen(x: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """1 - (1 - exp(-x)) / x: the part of the dispersion that a window of x = s t sees."""
    value = np.asarray(x, dtype=np.float64)
    return np.asarray(1 + np.expm1(-value) / value)


def _index(counts: NDArray[np.float64], bins: int) -> tuple[float, int]:
    """Return variance over mean of the counts in windows of `bins` bins, and how many windows."""
    windows = counts.size // bins
    sums = counts[: windows * bins].reshape(windows, bins).sum(axis=1)
    mean = float(sums.mean())
    return (float(sums.var(ddof=1)) / mean if mean > 0 else 0.0), windows


def _switching(counts: NDArray[np.float64]) -> float | None:
    """Fit s (per bin) to I(t); None when I(t) does not rise."""
    sizes = 2 ** np.arange(int(np.log2(counts.size // LEVEL_WINDOWS_MIN)) + 1)
    curve = np.array([_index(counts, int(size)) for size in sizes])
    index, freedom = np.maximum(curve[:, 0], 1e-9), curve[:, 1] - 1
    weights = freedom / 2 / np.maximum(index, 1.0) ** 2
    rates = np.geomspace(0.5 / counts.size, FASTEST, GRID)
    shape = _seen(rates[:, None] * sizes[None, :])
    # I(t) - 1 = A shape: A by weighted least squares for each s
    amplitude = (weights * shape * (index - 1)).sum(axis=1) / (weights * shape**2).sum(axis=1)
    misfit = (weights * (index - 1 - amplitude[:, None] * shape) ** 2).sum(axis=1)
    best = int(misfit.argmin())
    flat = float((weights * (index - 1) ** 2).sum())
    if amplitude[best] <= 0 or flat - misfit[best] < GAIN_MIN:
        return None
    return float(rates[best])


def _window(s: float | None, size: int) -> int:
    relaxed = 1 if s is None else int(np.ceil(RELAXATIONS / s))
    return min(max(1, relaxed, size // WINDOWS_ENOUGH), size // 2)


def _falls(counts: NDArray[np.float64], bins: int) -> bool:
    """Return whether counts vary significantly less in the longest windows than in `bins` bins.

    They do when batches arrive at regular intervals: short windows see only the batches.
    """
    longest = counts.size // WINDOWS_MIN
    if longest <= bins:
        return False
    (short, _), (long, windows) = _index(counts, bins), _index(counts, longest)
    return long < short * (1 - GROWTH_MAX * float(np.sqrt(2 / (windows - 1))))


def _doubt(
    counts: NDArray[np.float64],
    bins: int,
    windows: int,
    index: float,
    s: float | None,
    bin_ns: float,
) -> str | None:
    if windows < WINDOWS_MIN:
        wanted = bins if s is None else max(bins, int(np.ceil(RELAXATIONS / s)))
        return (
            f"{windows} windows of {duration(bins * bin_ns)} in {duration(counts.size * bin_ns)}: "
            f"the standard error is {percent(float(np.sqrt(2 / (windows - 1))))}; run "
            f"{duration(WINDOWS_MIN * wanted * bin_ns)} or longer"
        )
    factor = 2
    while counts.size // (bins * factor) >= LEVEL_WINDOWS_MIN:
        longer, number = _index(counts, bins * factor)
        expected = index if s is None else 1 + (index - 1) * float(_seen(s * bins * factor))
        margin = GROWTH_MAX * float(np.sqrt(2 / (number - 1)))
        told = f"{longer:.3g} in windows {factor} times as long"
        if factor <= GROWTH_FACTOR and longer > expected * (1 + margin):
            return f"I(t) still grows: {told}; there are bursts of bursts, and no single index"
        if number >= WINDOWS_MIN and longer < expected * (1 - margin):
            return f"I(t) falls: {told}; arrivals come in regular batches, and no single index"
        factor *= 2
    return None
