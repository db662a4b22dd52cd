"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from house import Measured, call, write_plan


@pytest.fixture
def measure(tmp_path: Path) -> Callable[..., Measured]:
    """Measure a small mesh; keywords change its plan."""

    def run(**changes: Any) -> Measured:
        folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        said = call("run", write_plan(tmp_path, **changes), "-q", "-o", folder)
        assert said.returncode == 0, said.stderr
        return Measured(folder)

    return run
