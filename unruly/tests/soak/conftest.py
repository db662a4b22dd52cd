"""Lets these tests import the shared helpers of all tests, and of the end-to-end ones."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "common" / "testing"))
sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
