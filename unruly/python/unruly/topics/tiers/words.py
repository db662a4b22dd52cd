"""Numbers of tiers in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.quantity import percent

if TYPE_CHECKING:
    from unruly.stats import Interval


def share_of(share: Interval) -> str:
    """Return a share with its interval, which is cut to 0 and 1."""
    low, high = max(0.0, share.low or 0.0), min(1.0, 1.0 if share.high is None else share.high)
    return f"{percent(share.estimate or 0.0)} [{percent(low)}, {percent(high)}]"
