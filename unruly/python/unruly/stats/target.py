"""Is a share of requests within a limit, as somebody wants it: yes, no, or not to be told yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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
    """What became of a target.

    ``within`` is the share of requests within the limit. ``outcome``: ``"met"`` or ``"missed"``
    when the whole interval is on one side of what is wanted, else ``"open"``; then ``needed`` is
    about how many requests would tell, if they are like these (None when no number would).
    """

    within: Interval
    outcome: str
    needed: int | None


def target_share(
    late: ArrayLike, totals: ArrayLike, wanted: float, level: float = 0.95
) -> TargetShare:
    """Hold the share of requests within a limit to a wanted share.

    Parameters
    ----------
    late : array_like, shape (blocks,)
        Requests over the limit in each of the equal blocks of time, failed ones included.
    totals : array_like, shape (blocks,)
        All requests of each block.
    wanted : float
        The share that is to be within the limit, in (0, 1).
    level : float
        Of the two-sided interval.

    Returns
    -------
    TargetShare

    Raises
    ------
    ParameterError
        If `wanted` is not in (0, 1), or as `share_interval` says.

    Notes
    -----
    Met and missed are each wrong in at most 2.5 % of runs at 95 %, if late requests are
    independent, or come in bursts of which a run has many. Of a run without a late request the
    bound is that of independent ones: 99.999 % takes 368,887 of them. So "met" is wrong as often as
    a run has no burst by chance: where the limit allows k late requests and they come b at a time,
    in exp(-k / b) of runs at the limit (k = 10, b = 4: 8 %). At the fewest requests that can meet a
    target k is 3.7: 16 % for pairs, 40 % for b = 4. Do not read "met" as a word on stalls that did
    not come: see `blind_spot`.

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
    """Below what is allowed, above it, or (0) on both sides."""
    return -1 if high <= allowed else 1 if low > allowed else 0


def _needed(share: float, trials: float, n: int, allowed: float, level: float) -> int | None:
    """So many requests would tell, were share and design effect to stay as they are."""
    alpha = (1 - level) / 2

    def tells(times: float) -> bool:
        many = trials * times
        late = share * many
        low = special.betaincinv(late, many - late + 1, alpha) if late else 0.0
        high = special.betaincinv(late + 1, many - late, 1 - alpha) if late < many else 1.0
        return _side(float(low), float(high), allowed) != 0

    reach = next((k for k in range(1, DOUBLINGS_MAX) if tells(2.0**k)), None)
    if reach is None:
        return None
    low, high = 2.0 ** (reach - 1), 2.0**reach
    while (high - low) * n > 0.5:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if tells(middle) else (middle, high)
    return int(np.ceil(high * n))
