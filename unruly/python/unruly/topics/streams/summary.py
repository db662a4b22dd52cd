"""What this topic says in ``summary.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unruly.base.plain import deep, flat

if TYPE_CHECKING:
    from unruly.topics.streams.model import Streams


def summary(view: Streams) -> dict[str, Any]:
    """Return what the topic says, as JSON values."""
    return {
        "note": view.note,
        "rows": [
            {
                **deep(row),
                "quantiles_bps": {str(p): value for p, value in row.quantiles_bps.items()},
            }
            for row in view.rows
        ],
        "legs": [flat(leg) for leg in view.legs],
        "hypotheses": [deep(it) for it in view.hypotheses],
    }
