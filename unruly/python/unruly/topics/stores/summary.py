"""What this topic says in ``summary.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unruly.base.plain import deep, flat

if TYPE_CHECKING:
    from unruly.topics.stores.statistics import Stores


def summary(view: Stores) -> dict[str, Any]:
    """Return what the topic says, as JSON values."""
    return {
        "target": flat(view.target),
        "tails": [deep(row) for row in view.tails],
        "faults": [flat(row) for row in view.faults],
        "loads": [flat(row) for row in view.loads],
        "ramps": [
            {"series": it.series, "cells": [load.cell for load in it.loads], **deep(it.knee)}
            for it in view.ramps
        ],
        "scalings": [
            {
                "factor": it.factor,
                "series": it.series,
                "cells": [load.cell for load in it.loads],
                "levels": it.levels,
            }
            for it in view.scalings
        ],
    }
