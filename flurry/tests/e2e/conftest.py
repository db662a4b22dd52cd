"""Lets these tests, and the programs that they start, import the shared helpers of all tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SHARED = str(Path(__file__).parents[3] / "common" / "testing")
sys.path[:0] = [str(Path(__file__).parent), SHARED]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SHARED, os.environ.get("PYTHONPATH")]))
