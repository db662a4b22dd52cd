"""Tests against published values are loud where the values are missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from repository import ROOT

ONE = "unruly/python/tests/test_stats.py"
NAME = "published_table"


def run(tmp_path: Path, ci: str) -> subprocess.CompletedProcess[str]:
    """Run one such test where the values are not."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", ONE, "-k", NAME]
    changes = {
        "CI": ci,
        "UNRULY_SHARED_DATA": str(tmp_path / "nothing"),
        "STAGE_UNCHECKED": str(tmp_path / "unchecked"),
    }
    return subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | changes
    )


def test_a_run_without_the_published_values_ends_with_what_was_not_checked(tmp_path: Path) -> None:
    done = run(tmp_path, ci="")
    assert done.returncode == 0, done.stdout
    assert "NOT CHECKED 1 tests against published values: " in done.stdout
    assert "set UNRULY_SHARED_DATA" in (tmp_path / "unchecked").read_text()


def test_ci_fails_without_the_published_values(tmp_path: Path) -> None:
    done = run(tmp_path, ci="true")
    assert done.returncode == 1, done.stdout
    assert "known answers are not at" in done.stdout
