"""What this topic says in ``summary.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unruly.base.plain import flat

if TYPE_CHECKING:
    from unruly.topics.factors.statistics import Magical


def summary(view: Magical) -> dict[str, Any]:
    """Return what the topic says, as JSON values."""
    return {
        "cells": [flat(cell) for cell in view.cells],
        "systems": view.systems,
        "factors": view.factors,
        "explained": [
            {
                "measure": it.measure,
                "observations": it.observations,
                "reason": it.reason,
                "effects": [flat(effect) for effect in it.effects],
            }
            for it in view.explained
        ],
        "p99_on_mean": {system: flat(line) for system, line in view.lines.items()},
        "count_against_size": flat(view.count_against_size) if view.count_against_size else None,
        "resources": [flat(row) for row in view.resources],
        "notes": view.notes,
    }
