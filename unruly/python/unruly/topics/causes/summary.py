"""What this topic says in ``summary.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unruly.topics.causes.model import Causes, Slowness


@dataclass(frozen=True)
class CausesSummary:
    """What made the slow requests of each (cell, op) slow; null when nothing was measured.

    ``note`` says why there are no rows.
    """

    note: str
    left_out: tuple[str, ...]
    """The evidence that was too much to look at; a sentence for each."""
    rows: tuple[Slowness, ...]


def summary(view: Causes) -> CausesSummary:
    """Return what the topic says."""
    return CausesSummary(view.note, view.left_out, view.rows)
