"""The share of a throughput that is left under load: a ratio over pairs of repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from unruly.errors import ParameterError
from unruly.stats.interval import Interval
from unruly.stats.repeats import repeats_interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

PAIRED: Final = "ratio of each pair of repeats, on the logarithm"
SINGLE: Final = "ratio of one pair, which has no bounds"


def kept_share(loaded: ArrayLike, unloaded: ArrayLike, level: float = 0.95) -> Interval:
    """Return which share of the unloaded throughput is left under load, over pairs of repeats.

    Parameters
    ----------
    loaded, unloaded : array_like, shape (pairs,), float64
        The throughput of each repeat under load, and without load; `unloaded` above 0.
    level : float
        In (0, 1).

    Returns
    -------
    Interval
        The geometric mean of the pairs' ratios; a single pair has no bounds. A throughput of 0 has
        no logarithm: then it is the mean of the ratios themselves, with no bound below 0.

    Raises
    ------
    ParameterError
        If shapes differ, there is no pair, a value is negative or not finite, or a throughput
        without load is 0.

    Notes
    -----
    A repeat of all cells is one round of the experiment, so a disturbance of the shared machine
    during a round affects both halves of its pair. The interval is Student's t over the rounds:
    with two rounds it is wide, as it should be. Do not pair trials of different rounds.

    References
    ----------
    .. [1] R. Jain, "The Art of Computer Systems Performance Analysis", section 13.4.1 (paired
       observations).

    Examples
    --------
    >>> found = kept_share([310.0, 295, 305], [955.0, 957, 956])
    >>> round(found.estimate, 3), round(found.low, 3), round(found.high, 3)
    (0.317, 0.297, 0.339)

    Under load about a third of the bandwidth is left.
    """
    one, other = np.asarray(loaded, dtype=np.float64), np.asarray(unloaded, dtype=np.float64)
    whole = one.ndim == 1 and one.shape == other.shape and one.size > 0
    if not whole or not (np.all(np.isfinite(one) & (one >= 0)) and np.all(other > 0)):
        raise ParameterError(
            "loaded, unloaded", f"have shapes {one.shape}, {other.shape} or a value that is none",
            "one for each repeat, above 0 without the load", "leave out the pairs without a base",
        )  # fmt: skip
    ratios = one / other
    if ratios.size == 1:
        return Interval(float(ratios[0]), None, None, level, 1, 1.0, SINGLE)
    log = bool(np.all(ratios > 0))
    found = repeats_interval(ratios, level, log=log)
    low = found.low if log or found.low is None else max(0.0, found.low)
    method = PAIRED if log else PAIRED.removesuffix(", on the logarithm")
    return Interval(found.estimate, low, found.high, level, found.n, found.n_effective, method)
