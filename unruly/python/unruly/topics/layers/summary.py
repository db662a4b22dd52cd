"""What this topic says in ``summary.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unruly.topics.layers.model import Blame, Layers, Received


@dataclass(frozen=True)
class LayersSummary:
    """Which layers made requests slow, and what became of the spans that came."""

    rows: tuple[Blame, ...]
    received: Received | None


def summary(view: Layers) -> LayersSummary:
    """Return what the topic says."""
    return LayersSummary(view.rows, view.received)
