"""The stages of the tests: each is passed, failed, not checked in full, or not run, and named."""

from __future__ import annotations

import os
import subprocess
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
            "STAGES_TOO_LONG": "",
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


def test_a_stage_that_would_take_too_long_is_left_out_and_the_others_are_not(
    tmp_path: Path,
) -> None:
    code, lines = stages(tmp_path, "long", "loud", STAGES_TOO_LONG="long")
    assert code == 0
    assert "NOT RUN  long: no time was left; hint: make long" in lines
    assert any(line.startswith("passed  loud:") for line in lines)
    assert lines[-1] == "stages: 1 passed, 0 failed, 1 not run"
