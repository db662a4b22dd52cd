"""What this topic says in ``summary.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unruly.base.plain import deep

if TYPE_CHECKING:
    from unruly.topics.causes.model import Causes


def summary(view: Causes) -> dict[str, Any]:
    """Return what the topic says, as JSON values."""
    rows = [deep(row) for row in view.rows]
    return {"note": view.note, "left_out": list(view.left_out), "rows": rows}
