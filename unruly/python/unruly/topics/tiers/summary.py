"""What this topic says in ``summary.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unruly.topics.tiers.model import Check, Tier, Tiers


@dataclass(frozen=True)
class TiersSummary:
    """What a tap saw of each service, without its windows."""

    rows: tuple[Tier, ...]
    checks: tuple[Check, ...]


def summary(view: Tiers) -> TiersSummary:
    """Return what the topic says."""
    return TiersSummary(view.rows, view.checks)
