"""Lets the tests import their helper, and the scripts that they judge."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "scripts")]
