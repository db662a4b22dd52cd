"""Where the program ``unruly`` is: it makes runs whole, and reads captures of packets."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

ENVIRONMENT: Final = "UNRULY_BINARY"
"""The variable that names it."""


def find_binary() -> str | None:
    """Return the path of the program ``unruly``; None if it is not installed."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        return named if Path(named).is_file() else None
    repository = Path(__file__).resolve().parents[3]
    beside = [
        Path(sys.executable).parent / "unruly",
        repository / "target" / "release" / "unruly",
        repository / "target" / "debug" / "unruly",
    ]
    on_path = shutil.which("unruly")
    for candidate in (beside[0], Path(on_path) if on_path else beside[0], *beside[1:]):
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    return None
