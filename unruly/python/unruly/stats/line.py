"""A straight line through points, with intervals of its slope and intercept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import scipy

from unruly.errors import ParameterError
from unruly.stats.interval import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

METHOD: Final = "least squares, t"


@dataclass(frozen=True)
class Line:
    """y = slope x + intercept; ``r`` is Pearson's. None throughout when ``reason`` says why."""

    slope: Interval | None
    intercept: Interval | None
    r: float | None
    n: int
    reason: str = ""


def line_fit(x: ArrayLike, y: ArrayLike, level: float = 0.95) -> Line:
    """Fit a line by least squares.

    Parameters
    ----------
    x, y : array_like, shape (n,), float64
        No NaN.
    level : float
        Of the intervals.

    Returns
    -------
    Line
        Without a fit for fewer than three points, or when all x are equal.

    Raises
    ------
    ParameterError
        If shapes differ or a value is not finite.

    Notes
    -----
    The intervals assume errors of one size. Means and tails spread over decades do not have that:
    the largest cells then decide, and r says more about them than about the line. Look at the
    picture.

    References
    ----------
    .. [1] F. J. Anscombe, "Graphs in statistical analysis", 1973, for why to look.

    Examples
    --------
    >>> found = line_fit([1.0, 2, 3, 4], [2.1, 3.9, 6.2, 7.8])
    >>> (round(found.slope.estimate, 2), round(found.r, 3))
    (1.94, 0.998)
    """
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1:
        raise ParameterError("y", f"has shape {second.shape}", f"{first.shape}", "align them")
    if not (np.all(np.isfinite(first)) and np.all(np.isfinite(second))):
        raise ParameterError("x, y", "hold NaN or infinity", "finite numbers", "leave them out")
    n = int(first.size)
    if n < 3 or np.ptp(first) == 0:
        reason = f"{n} points; 3 are needed" if n < 3 else "all x are equal"
        return Line(None, None, None, n, reason)
    found = scipy.stats.linregress(first, second)
    reach = float(scipy.special.stdtrit(n - 2, (1 + level) / 2))

    def around(value: float, error: float) -> Interval:
        return Interval(
            value, value - reach * error, value + reach * error, level, n, float(n - 2), METHOD
        )

    return Line(
        around(float(found.slope), float(found.stderr)),
        around(float(found.intercept), float(found.intercept_stderr)),
        float(found.rvalue),
        n,
    )
