"""How much is measured: all of it, or as little as shows that everything works."""

from __future__ import annotations

import os

ROUGH = bool(os.environ.get("BENCH_ROUGH"))
"""A round is a quarter as long, and there are as few pairs as have an interval."""

PAIRS = 6 if ROUGH else 16


def lasting(milliseconds: int) -> int:
    """The length of a round that is asked for as this long."""
    return milliseconds // 4 if ROUGH else milliseconds
