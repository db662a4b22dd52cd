"""What this topic says in ``summary.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unruly.topics.runtimes.model import Runtimes


def summary(view: Runtimes) -> Runtimes:
    """Return what the topic says."""
    return view
