"""What this topic says in ``summary.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unruly.topics.goodput.model import Goodput


def summary(view: Goodput) -> Goodput:
    """Return what the topic says."""
    return view
