"""The check for advisories never passes off an answer that it did not get as a clean one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

CHECK = ROOT / "scripts" / "advisories" / "check.py"
STAGES = ROOT / "scripts" / "stages.sh"
CLEAN_RUST = {
    "database": {"advisory-count": 900, "last-updated": "2026-01-01"},
    "lockfile": {"dependency-count": 330},
    "vulnerabilities": {"list": []},
}
CLEAN_PYTHON = {"dependencies": [{"name": "jinja2", "version": "3.1.6", "vulns": []}]}


def tool(folder: Path, name: str, answer: object, complaint: str = "") -> None:
    """A tool that prints an answer, or a complaint when it has none."""
    said = json.dumps(answer) if answer is not None else ""
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{complaint}' >&2\ncat <<'END'\n{said}\nEND\n")
    path.chmod(0o755)


def check(tmp_path: Path, rust: object, python: object, complaint: str = "") -> tuple[int, str]:
    tool(tmp_path, "cargo-audit", rust, complaint)
    tool(tmp_path, "pip-audit", python, complaint)
    done = subprocess.run(
        [sys.executable, CHECK, "--tools", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "STAGE_UNCHECKED": str(tmp_path / "unchecked")},
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def unchecked(tmp_path: Path) -> str:
    return (tmp_path / "unchecked").read_text()


def test_two_clean_answers_name_how_much_was_looked_up(tmp_path: Path) -> None:
    code, said = check(tmp_path, CLEAN_RUST, CLEAN_PYTHON)
    assert code == 0
    assert "Rust: 330 crates looked up in 900 advisories of 2026-01-01" in said
    assert "Python: 1 packages looked up" in said
    assert "NOT CHECKED Rust" not in said
    assert "NOT CHECKED Python" not in said


def test_an_advisory_makes_the_check_fail(tmp_path: Path) -> None:
    vulnerable = {"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1"}]}]}
    code, said = check(tmp_path, CLEAN_RUST, vulnerable)
    assert code == 1
    assert "VULNERABLE a 1: CVE-1" in said


@pytest.mark.parametrize(
    ("rust", "python", "reason"),
    [
        (None, None, "error: no such server"),
        (CLEAN_RUST, {"dependencies": []}, "the lock file names none"),
        (
            CLEAN_RUST,
            {"dependencies": [{"name": "a", "skip_reason": "a was not found"}]},
            "Python: 1 of 1 packages, such as: a was not found",
        ),
        (
            CLEAN_RUST | {"database": {"advisory-count": 0, "last-updated": None}},
            CLEAN_PYTHON,
            "Rust: the database holds no advisory",
        ),
    ],
    ids=["no-answer", "no-packages", "skipped", "empty-database"],
)
def test_what_could_not_be_looked_up_is_said(
    tmp_path: Path, rust: object, python: object, reason: str
) -> None:
    code, said = check(tmp_path, rust, python, "error: no such server")
    assert code == 0
    assert f"NOT CHECKED {reason}" in said or f": {reason}" in said
    assert reason in unchecked(tmp_path)


def test_tools_that_are_not_there_leave_everything_unchecked(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, CHECK, "--tools", tmp_path / "nothing"],
        capture_output=True,
        text=True,
        check=False,
        # The stage that runs this test has a file of its own, for what it could not check.
        env={**os.environ, "STAGE_UNCHECKED": str(tmp_path / "unchecked")},
    )
    assert done.returncode == 0
    assert {"NOT CHECKED Rust", "NOT CHECKED Python"} <= {
        line.removeprefix("advisories: ").partition(":")[0] for line in done.stdout.splitlines()
    }
