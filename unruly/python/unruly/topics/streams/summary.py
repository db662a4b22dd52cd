"""What this topic says in ``summary.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unruly.topics.streams.model import Hypothesis, Leg, Stream, Streams


@dataclass(frozen=True)
class StreamsSummary:
    """What each protocol gave beside each load, of a run of streams; null for others."""

    note: str
    rows: tuple[Stream, ...]
    legs: tuple[Leg, ...]
    hypotheses: tuple[Hypothesis, ...]


def summary(view: Streams) -> StreamsSummary:
    """Return what the topic says."""
    return StreamsSummary(view.note, view.rows, view.legs, view.hypotheses)
