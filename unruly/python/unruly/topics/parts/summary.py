"""What this topic says in ``summary.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unruly.topics.parts.model import Parts


def summary(view: Parts) -> Parts:
    """Return what the topic says."""
    return view
