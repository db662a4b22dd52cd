"""Lets the tests import their helper, the scripts and the benchmarks that they judge."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACES = (Path(__file__).parent, *(ROOT / it for it in ("scripts", "unruly", "unruly/docs", ".")))

sys.path[:0] = [str(place) for place in PLACES]
