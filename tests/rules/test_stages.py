"""The stages of the tests: each is passed, failed, not checked in full, or not run, and named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from repository import ROOT

STAGES = ROOT / "scripts" / "stages.sh"
MAKE = """#!/bin/sh
case $2 in
quiet) echo "no database" > "$STAGE_UNCHECKED" ;;
broken) exit 1 ;;
esac
"""


def stages(folder: Path, *names: str, **variables: str) -> tuple[int, list[str]]:
    """Run stages by a program that stands for make; return the exit code and the printed lines."""
    make = folder / "make"
    make.write_text(MAKE)
    make.chmod(0o755)
    scripts = folder / "tree" / "scripts"
    scripts.mkdir(parents=True)
    (scripts / "stages.sh").write_text(STAGES.read_text())
    done = subprocess.run(
        ["bash", scripts / "stages.sh", *names],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "STAGES_UNTIL": "",
            "MAKE": str(make),
            **variables,
        },
    )
    return done.returncode, done.stdout.splitlines()


def test_a_stage_that_checked_nothing_is_not_counted_as_passed(tmp_path: Path) -> None:
    code, lines = stages(tmp_path, "loud", "quiet")
    assert code == 0
    assert any(line.startswith("passed  loud:") for line in lines)
    assert not any(line.startswith("passed  quiet:") for line in lines)
    assert any(line.startswith("NOT CHECKED  quiet:") and "no database" in line for line in lines)
    assert lines[-1] == "stages: 1 passed, 0 failed, 0 not run"


def test_a_failed_stage_hides_no_other_one(tmp_path: Path) -> None:
    code, lines = stages(tmp_path, "broken", "loud")
    assert code == 1
    assert any(line.startswith("FAILED  broken:") for line in lines)
    assert lines[-1] == "stages: 1 passed, 1 failed, 0 not run"


def test_a_stage_without_time_is_named_and_not_counted_as_passed(tmp_path: Path) -> None:
    code, lines = stages(tmp_path, "loud", "late", STAGES_UNTIL="1")
    assert code == 0
    assert "NOT RUN  late: no time was left; hint: make late" in lines
    assert lines[-1] == "stages: 0 passed, 0 failed, 2 not run"


def test_a_test_without_time_is_named_and_its_stage_is_not_counted_as_passed(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_two.py").write_text("def test_one(): pass\n\n\ndef test_two(): pass\n")
    unchecked = tmp_path / "unchecked"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "deadline", "-p", "no:cacheprovider"]
    for until, words in (("1", "no time was left for 2 tests: test_two.py (2)"), ("", "")):
        done = subprocess.run(
            [*command, tmp_path / "test_two.py"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "common" / "testing"),
                "STAGE_UNCHECKED": str(unchecked),
                "TESTS_UNTIL": until,
            },
        )
        assert done.returncode == 0, done.stdout
        assert f"{'2 skipped' if words else '2 passed'}" in done.stdout
        assert (unchecked.read_text() if unchecked.exists() else "") == (
            f"{words}\n" if words else ""
        )
        unchecked.unlink(missing_ok=True)
