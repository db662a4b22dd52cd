"""What the examples in the documentation find: a run in ``runs/demo``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "tests"))

from synthetic import write_run


@pytest.fixture(scope="session")
def example_folder(tmp_path_factory):
    """A directory with one run, written when the first example asks for it."""
    folder = tmp_path_factory.mktemp("examples")
    write_run(folder / "runs" / "demo", name="demo", stalls_hz=0.5)
    return folder


@pytest.fixture(autouse=True)
def _examples_find_their_run(request, monkeypatch):
    if isinstance(request.node, pytest.DoctestItem) and "runs/demo" in request.node.dtest.docstring:
        monkeypatch.chdir(request.getfixturevalue("example_folder"))
