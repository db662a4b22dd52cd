"""What this topic says in ``summary.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unruly.topics.arrival_log.model import ArrivalLog, Operations


@dataclass(frozen=True)
class ArrivalLogSummary:
    """First, quorum and all replies to the same operations of a replicated store.

    Null when the run is no arrival log. ``note`` says why there are no rows.
    """

    note: str
    rows: tuple[Operations, ...]


def summary(view: ArrivalLog) -> ArrivalLogSummary:
    """Return what the topic says."""
    return ArrivalLogSummary(view.note, view.rows)
