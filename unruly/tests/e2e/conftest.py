"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "common" / "testing"))
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


@pytest.fixture(params=["native", "jvm"])
def runtime(request: pytest.FixtureRequest) -> str:
    """What the agents run on."""
    return str(request.param)


@pytest.fixture
def either(measure: Callable[..., Measured], runtime: str) -> Callable[..., Measured]:
    """Measure a small mesh of native agents, and one of those on Java."""

    def run(**changes: Any) -> Measured:
        mesh = changes.pop("mesh", "")
        return measure(mesh=f'runtime = "{runtime}"\n{mesh}', **changes)

    return run
