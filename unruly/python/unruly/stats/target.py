"""Whether the wanted share of requests is within a limit: yes, no, or not decided yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from scipy import special

from unruly.errors import ParameterError
from unruly.stats.interval import Interval
from unruly.stats.share import share_interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

DOUBLINGS_MAX: Final = 40
"""Of the run: a question that a million million times as many do not answer has no answer."""


@dataclass(frozen=True)
class TargetShare:
    """Whether a target was met.

    ``within`` is the share of requests within the limit. ``outcome`` is ``"met"`` or ``"missed"``
    if the whole interval is on one side of the wanted share, else ``"open"``. If it is open,
    ``needed`` is about how many similar requests would decide (None if no number would).
    """

    within: Interval
    outcome: Literal["met", "missed", "open"]
    needed: int | None


def target_share(
    late: ArrayLike, totals: ArrayLike, wanted: float, level: float = 0.95
) -> TargetShare:
    """Compare the share of requests within a limit with a wanted share.

    Parameters
    ----------
    late : array_like, shape (blocks,)
        Number of requests over the limit in each block of equal time, failed ones included.
    totals : array_like, shape (blocks,)
        Number of all requests in each block.
    wanted : float
        The share that should be within the limit, in (0, 1).
    level : float
        The confidence level of the two-sided interval.

    Returns
    -------
    TargetShare

    Raises
    ------
    ParameterError
        If `wanted` is not in (0, 1), or as `share_interval` says.

    Notes
    -----
    "Met" and "missed" are each wrong in at most 2.5 % of runs at 95 %, if late requests are
    independent or if a run has many bursts of them. A run without a late request has the bound of
    independent requests: 99.999 % takes 368,887 of them. So "met" is wrong as often as a run has no
    burst by chance. If the limit allows k late requests and they come b at a time, that is
    exp(-k / b) of the runs at the limit (k = 10, b = 4: 8 %). At the fewest requests that can meet
    a target k is 3.7: 16 % for pairs, 40 % for b = 4. "Met" says nothing about stalls that did not
    occur during the run: see `blind_spot`.

    References
    ----------
    .. [1] E. L. Korn and B. I. Graubard, "Confidence intervals for proportions with small expected
       number of positive counts estimated from survey data", 1998.

    Examples
    --------
    >>> clean = target_share([0] * 30, [1_000] * 30, 0.99999)
    >>> clean.outcome, clean.needed
    ('open', 368887)
    >>> target_share([0] * 30, [13_000] * 30, 0.99999).outcome
    'met'

    Thirty thousand requests without a late one do not say that fewer than one in 100,000 is late;
    390,000 do.
    """
    if not 0 < wanted < 1:
        raise ParameterError("wanted", f"is {wanted}", "inside (0, 1)", "0.99999 is 99.999 %")
    found = share_interval(late, totals, level)
    if found.estimate is None or found.low is None or found.high is None:
        return TargetShare(found, "open", None)
    within = Interval(
        1 - found.estimate, 1 - found.high, 1 - found.low, level, found.n, found.n_effective,
        found.method,
    )  # fmt: skip
    side = _side(found.low, found.high, 1 - wanted)
    if side:
        return TargetShare(within, "met" if side < 0 else "missed", None)
    trials = found.n_effective or 0.0
    return TargetShare(within, "open", _needed(found.estimate, trials, found.n, 1 - wanted, level))


def _side(low: float, high: float, allowed: float) -> int:
    """Return -1 if the interval is at most the allowed share, 1 if above it, 0 if it has both."""
    return -1 if high <= allowed else 1 if low > allowed else 0


def _needed(share: float, trials: float, n: int, allowed: float, level: float) -> int | None:
    """Return how many requests decide if share and design effect stay; None if no number does."""
    alpha = (1 - level) / 2

    def decides(times: float) -> bool:
        many = trials * times
        late = share * many
        low = special.betaincinv(late, many - late + 1, alpha) if late else 0.0
        high = special.betaincinv(late + 1, many - late, 1 - alpha) if late < many else 1.0
        return _side(float(low), float(high), allowed) != 0

    reach = next((k for k in range(1, DOUBLINGS_MAX) if decides(2.0**k)), None)
    if reach is None:
        return None
    low, high = 2.0 ** (reach - 1), 2.0**reach
    while (high - low) * n > 0.5:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if decides(middle) else (middle, high)
    return int(np.ceil(high * n))
