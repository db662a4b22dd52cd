"""Settings of all Python tests, and the run that the examples of the documentation read."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent / "tests"))

from synthetic import write_run

KNOWN_ANSWERS = "known answers are not at"
"""How the fixture of published values says that they are missing."""

# No test may depend on how busy the machine is: no deadline, and no check of how fast examples are
# drawn. The same examples every time, so that a failure can be repeated.
settings.register_profile(
    "house", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")


@pytest.fixture(scope="session")
def example_folder(tmp_path_factory):
    """A directory with one run, written when the first example asks for it."""
    folder = tmp_path_factory.mktemp("examples")
    write_run(folder / "runs" / "demo", name="demo", stalls_hz=0.5)
    return folder


@pytest.fixture(autouse=True)
def _examples_find_their_run(request, monkeypatch):
    if not isinstance(request.node, pytest.DoctestItem):
        return
    if any(word in request.node.dtest.docstring for word in ("runs/", "write_text(")):
        monkeypatch.chdir(request.getfixturevalue("example_folder"))


def pytest_terminal_summary(terminalreporter):
    """Name the tests against published values that had no values to read; CI fails without them.

    The runner of the stages does not count it as passed.
    """
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [str(it.longrepr[-1]) for it in skipped if isinstance(it.longrepr, tuple)]
    missing = [it for it in reasons if KNOWN_ANSWERS in it]
    if missing:
        line = f"{len(missing)} tests against published values: {missing[0]}"
        terminalreporter.write_line(f"NOT CHECKED {line}", red=True, bold=True)
        if place := os.environ.get("STAGE_UNCHECKED"):
            with Path(place).open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")


def pytest_collection_modifyitems(items):
    """Mark tests that look at a page in a browser as slow."""
    for item in items:
        if "look" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
