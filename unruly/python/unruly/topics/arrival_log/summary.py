"""What this topic says in ``summary.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unruly.base.plain import deep

if TYPE_CHECKING:
    from unruly.topics.arrival_log.model import ArrivalLog


def summary(view: ArrivalLog) -> dict[str, Any]:
    """Return what the topic says, as JSON values."""
    return {"note": view.note, "rows": [deep(row) for row in view.rows]}
