"""Runs that drive a store."""

from __future__ import annotations

DRIVE = {
    "kind": "drive", "agents": 1, "ops": ("read",), "rate_hz": 400, "duration_s": 30,
    "stalls_hz": 0,
}  # fmt: skip
RATES = (200, 400, 800, 1600)


def rising_load(slow_from=None, factor=14.0, repeats=3, **changes):
    """Return cells of rising load; from `slow_from` on latencies are `factor` times longer."""
    cells = {f"rate={rate}/s": rate for rate in RATES}
    slow = {name: factor for name, rate in cells.items() if slow_from and rate >= slow_from}
    return {
        **DRIVE, "duration_s": 6, "repeats": repeats, "cells": tuple(cells), "cell_rate_hz": cells,
        "cell_scale": slow,
        "manifest": {
            "cells": [
                {"name": name, "factors": {"drive.rate": f"{rate}/s"}}
                for name, rate in cells.items()
            ]
        },
        **changes,
    }  # fmt: skip
