"""Fixtures of the tests that use the release files and nothing else of this checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "common" / "testing"))
sys.path.insert(0, str(Path(__file__).parent))

from release_house import release_file


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tarball of this host, unpacked as a user does it."""
    folder = tmp_path_factory.mktemp("tarball")
    file = release_file("unruly-*-{architecture}-linux.tar.gz")
    subprocess.run(["tar", "-xzf", file, "-C", folder], check=True)
    (inside,) = folder.iterdir()
    return inside
