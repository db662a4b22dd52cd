"""A plugin of pytest that starts no test after $TESTS_UNTIL, in seconds since 1970.

A slow machine then ends its stage in time. The tests that were left out are counted by file. The
runner of the stages names them, and does not count the stage as passed.
"""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

NO_TIME = "no time was left"


def pytest_runtest_setup() -> None:
    """Leave the test out if the time is over."""
    until = os.environ.get("TESTS_UNTIL")
    if until and datetime.now(UTC).timestamp() >= float(until):
        pytest.skip(NO_TIME)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the files whose tests had no time."""
    skipped = terminalreporter.stats.get("skipped", [])
    late = [it for it in skipped if isinstance(it.longrepr, tuple) and NO_TIME in it.longrepr[-1]]
    files = Counter(Path(it.nodeid.split("::")[0]).name for it in late)
    if not files:
        return
    names = ", ".join(f"{name} ({count})" for name, count in sorted(files.items()))
    line = f"{NO_TIME} for {len(late)} tests: {names}"
    terminalreporter.write_line(f"NOT CHECKED {line}", red=True, bold=True)
    if place := os.environ.get("STAGE_UNCHECKED"):
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
