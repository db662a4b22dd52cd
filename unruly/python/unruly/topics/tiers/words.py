"""Tiers and their numbers in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.quantity import percent

if TYPE_CHECKING:
    from unruly.stats import Interval
    from unruly.topics.tiers.model import Tier, Tiers


def share_of(share: Interval) -> str:
    """Return a share with its interval, which is cut to 0 and 1."""
    low, high = max(0.0, share.low or 0.0), min(1.0, 1.0 if share.high is None else share.high)
    return f"{percent(share.estimate or 0.0)} [{percent(low)}, {percent(high)}]"


def place_of(found: Tiers, it: Tier) -> str:
    """Name a tier, and its cell where there are several."""
    return f"{it.tier}{cell_of(found, it.cell)}"


def cell_of(found: Tiers, cell: str) -> str:
    """Return the cell in parentheses; nothing in a run of one cell."""
    return f" ({cell})" if len({row.cell for row in found.rows}) > 1 else ""
