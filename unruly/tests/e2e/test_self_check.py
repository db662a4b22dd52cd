"""``unruly self check`` tries each part of an installation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from house import call

pytestmark = pytest.mark.smoke
PARTS = ["program", "shipped", "kernel", "privileges", "measuring", "analysis"]


def parts(**changes: str) -> tuple[int, dict[str, dict[str, object]]]:
    """Return the exit code and the parts by their names."""
    done = call("self", "check", "--json", env={"PATH": "/usr/bin:/bin", **changes})
    answer = json.loads(done.stdout)
    found = {part["name"]: part for part in answer["parts"]}
    assert list(found) == PARTS
    assert answer["works"] == all(part["works"] for part in found.values())
    return done.returncode, found


def test_every_part_of_a_checkout_works(tmp_path: Path) -> None:
    code, found = parts(TMPDIR=str(tmp_path))
    # a sandbox may keep the time stamps of the kernel from us
    lacking = {name for name, part in found.items() if not part["works"]}
    assert lacking <= {"kernel"}, found
    assert code == len(lacking)
    assert "of a checkout" in str(found["analysis"]["found"])
    assert list(tmp_path.iterdir()) == []


def test_a_missing_analysis_is_named_with_the_way_to_get_it() -> None:
    code, found = parts(UNRULY_PYTHON="/usr/bin/false")
    assert code == 1
    assert not found["analysis"]["works"]
    assert found["analysis"]["hint"] == (
        "pip install unruly-0.1.0-*.whl of the same release, or name a Python that has it in "
        "UNRULY_PYTHON"
    )
    assert found["measuring"]["works"]


def test_a_program_that_cannot_measure_says_why(tmp_path: Path) -> None:
    code, found = parts(TMPDIR=str(tmp_path / "none"))
    assert code == 1
    assert not found["measuring"]["works"]
    assert found["measuring"]["hint"] == "set TMPDIR to a writable folder"
