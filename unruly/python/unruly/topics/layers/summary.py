"""What this topic says in ``summary.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unruly.contract import Count
    from unruly.topics.layers.model import Blame, Layers, Received


@dataclass(frozen=True)
class LayersSummary:
    """The layers that made requests slow, and the numbers of the spans that came."""

    rows: tuple[Blame, ...]
    left_out: Count
    received: Received | None


def summary(view: Layers) -> LayersSummary:
    """Return what the topic says."""
    return LayersSummary(view.rows, view.left_out, view.received)
