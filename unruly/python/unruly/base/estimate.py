"""One number of a run as people read it: the estimate, its interval, and why one is missing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from unruly.quantity import duration, percent, unit_of

PERCENT: Final = (0.01, "%")
DIGITS: Final = (2, 4)
"""The fewest and the most significant digits beside an interval."""


@dataclass(frozen=True)
class Estimate:
    """A number with its confidence interval.

    Attributes
    ----------
    value : float or None
        The estimate: nanoseconds when `unit` is ``"ns"``, else a share from 0 to 1. None when the
        run cannot say; `reason` then says why.
    low, high : float or None
        The two-sided interval, in the same unit. None when there is no interval, or no bound on
        that side.
    level : float or None
        The confidence of the interval, such as 0.95. None when there is no interval.
    unit : str
        ``"ns"`` or ``"share"``.
    reason : str
        Why the value or its interval is missing. Empty when there is an interval, and for a number
        that is only ever stated for this run, such as a mean.

    Examples
    --------
    >>> print(Estimate(4.93e6, 4.1e6, 5.96e6, 0.95))
    4.9 ms [4.1, 6.0]
    >>> print(Estimate(4.93e6, reason="the run is too short; run about 3 min"))
    4.93 ms (no interval: the run is too short; run about 3 min)
    >>> Estimate(4.93e6).ms, float(Estimate(0.002, unit="share"))
    (4.93, 0.002)
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    unit: str = "ns"
    reason: str = ""

    @property
    def us(self) -> float:
        """The estimate in microseconds; NaN when there is none."""
        return float(self) / 1e3

    @property
    def ms(self) -> float:
        """The estimate in milliseconds; NaN when there is none."""
        return float(self) / 1e6

    @property
    def s(self) -> float:
        """The estimate in seconds; NaN when there is none."""
        return float(self) / 1e9

    def __float__(self) -> float:
        return math.nan if self.value is None else float(self.value)

    def __str__(self) -> str:
        write = percent if self.unit == "share" else duration
        if self.value is None:
            return f"none ({self.reason})" if self.reason else "none"
        if self.low is None or self.high is None:
            return write(self.value) + (f" (no interval: {self.reason})" if self.reason else "")
        return self._with_interval(self.value, self.low, self.high)

    __repr__ = __str__

    def _with_interval(self, value: float, low: float, high: float) -> str:
        """Write all three numbers in one unit, with enough digits to separate the bounds."""
        largest = value or high
        scale, unit = PERCENT if self.unit == "share" else unit_of(largest)
        digits, most = DIGITS
        if high > low and largest > 0:
            needed = 1 + math.ceil(math.log10(largest / (high - low)))
            digits = min(most, max(digits, needed))
        exponent = math.floor(math.log10(largest / scale)) if largest > 0 else digits - 1
        places = max(0, digits - 1 - exponent)
        numbers = [f"{number / scale:.{places}f}" for number in (value, low, high)]
        return f"{numbers[0]} {unit} [{numbers[1]}, {numbers[2]}]"
