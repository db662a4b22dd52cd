"""The first change of CONTRIBUTING.md works as it is written, in a copy of the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
FORMATS = "unruly/python/unruly/ingest/formats.py"
TESTS = "unruly/python/tests/ingest/test_import_formats.py"
TEST = """

def test_toy_reads_the_start_the_duration_and_the_end(bring):
    made = bring("toy 1700000000 3 ok\\ntoy 1700000001 4 failed\\n")
    assert made.rows(ROW) == [
        ("request", "ok", 1_700_000_000_000_000_000, 3_000_000),
        ("request", "error:failed", 1_700_000_001_000_000_000, 4_000_000),
    ]
"""
"""The test that the last step asks for."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page():
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.partition("## A first change in ten minutes")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the Python part, in which the first change may be made."""
    folder = tmp_path_factory.mktemp("first-change")
    left_out = shutil.ignore_patterns("__pycache__", ".*", "report", "spark")
    shutil.copytree(REPOSITORY / "unruly/python/tests", folder / "unruly/python/tests",
                    ignore=left_out)  # fmt: skip
    shutil.copytree(REPOSITORY / "unruly/python/unruly", folder / "unruly/python/unruly",
                    ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip
    for name in ("pyproject.toml", "unruly/python/conftest.py", "unruly/python/pytest.ini"):
        shutil.copy(REPOSITORY / name, folder / name)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def shell(folder, command):
    """Run a command of the page in the copy, whose package it imports."""
    return subprocess.run(
        ["bash", "-euc", command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(folder / "unruly" / "python")},
    )


def step(page, number):
    """The text of one numbered step."""
    return page.partition(f"**{number}. ")[2].partition(f"**{number + 1}. ")[0]


def commands(text):
    """The indented lines of a step, as one script."""
    return textwrap.dedent("\n".join(re.findall(r"^ {4}\S.*$", text, re.MULTILINE)))


def add(path, before, text):
    """Put a text behind the first place where another one stands."""
    content = path.read_text(encoding="utf-8")
    assert before in content
    path.write_text(content.replace(before, before + text, 1), encoding="utf-8")


def test_the_first_change_is_red_and_then_green(page, copy):
    named = re.search(r"`(\w+\.py)` beside them", step(page, 2)).group(1)
    assert named == "toy.py"
    code = re.search(r"```python\n(.*?)```", step(page, 2), re.DOTALL).group(1)
    (copy / "unruly/python/unruly/ingest" / named).write_text(code, encoding="utf-8")
    try_it, test_it = commands(step(page, 4)), commands(step(page, 5))
    assert "-m unruly import toy.log" in try_it
    tests = test_it.splitlines()[0] + " -k toy"
    assert FORMATS in step(page, 3)
    assert TESTS in step(page, 5)

    add(copy / TESTS, "\nSAMPLES = {\n", '    "toy": "toy 1700000000 3 ok\\n",\n')
    (copy / TESTS).write_text((copy / TESTS).read_text() + TEST)
    red = shell(copy, try_it)
    assert red.returncode == 2
    assert "toy.log" in red.stderr
    done = shell(copy, tests)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "test_toy_reads_the_start_the_duration_and_the_end" in done.stdout

    add(copy / FORMATS, "    tool_histograms,\n", "    toy,\n")
    add(copy / FORMATS, "FORMATS: Final[tuple[Format, ...]] = (\n", "    toy.FORMAT,\n")
    green = shell(copy, try_it)
    assert green.returncode == 0, green.stderr
    manifest = json.loads((copy / "toy-run" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["provenance"][0]["format"] == "toy"
    assert re.search(r"^request +response +100 ", green.stdout, re.MULTILINE), green.stdout
    done = shell(copy, tests)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\b[4-9] passed", done.stdout)

    assert test_it.splitlines()[1:] == ["make lint-text"]
    changed = f"unruly/python/unruly/ingest/{named} {FORMATS} {TESTS}"
    lints = f"""
        .venv/bin/ruff format --check {changed}
        .venv/bin/ruff check {changed}
    """
    linted = shell(copy, lints)
    assert linted.returncode == 0, linted.stdout + linted.stderr
