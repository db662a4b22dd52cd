"""Python names only keys that a plan can have, and one module reads the plan of a run."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest
from repository import ROOT, tracked

PACKAGE = ROOT / "unruly" / "python" / "unruly"
SOURCES = tracked("unruly/python/unruly/*.py")
MANUAL = ROOT / "unruly" / "docs" / "plan-format.md"
READER = "plan.py"
FILE = "plan.toml"

OTHER_TOML = {
    "base/limits.py": "reads a person's file of limits",
    "base/sla.py": "reads a person's service level agreement",
    "papers/claims.py": "reads the claims of the studies, which the package contains",
    "verbs/options.py": "reads the table of command-line options, which the package contains",
}
"""The other modules that parse TOML, and the file that each of them reads."""

NO_KEYS = {
    "run.measured": "an attribute of a Run, in examples of the documentation",
    "quota.reader": "the CPU limit of a process, reader-1",
}
"""Names that look like a key of a plan, and the reason why they are none."""


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@functools.cache
def rust_keys() -> frozenset[str]:
    """Return each `table.key` of the manual, which a test of the plan crate compares with it."""
    text = MANUAL.read_text(encoding="utf-8")
    return frozenset(re.findall(r"^\| `([a-z]+\.[a-z_]+)` \|", text, re.MULTILINE))


def plan_tables() -> set[str]:
    return {key.split(".")[0] for key in rust_keys()}


def strings(path: Path) -> list[tuple[int, str]]:
    """Return every string of a module with its line, documentation and parts of f-strings too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def named_keys(text: str) -> list[str]:
    """Return the words of a text that are written like a key of a plan."""
    tables = "|".join(sorted(plan_tables()))
    return re.findall(rf"(?<![\w./-])(?:{tables})\.[a-z_]+", text)


def test_the_keys_of_the_plan_crate_are_found() -> None:
    keys = rust_keys()
    assert {"run.duration", "mesh.regroup", "drive.store", "drive.level", "jvm.heap"} <= keys
    assert plan_tables() == {
        "run", "mesh", "drive", "stream", "compete", "jvm", "probe", "tap", "host", "fault",
        "quota",
    }  # fmt: skip
    assert len(keys) > 70


def test_a_key_is_found_in_a_literal_and_in_a_sentence() -> None:
    assert named_keys("drive.target") == ["drive.target"]
    assert named_keys('Set `stream.link` = "none" (run.repeat).') == ["stream.link", "run.repeat"]
    assert named_keys("the run. mesh.") == []
    assert named_keys("unruly.run.open_run plots/drive.html") == []


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_every_key_of_a_plan_that_python_names_exists(path: Path) -> None:
    known = rust_keys() | set(NO_KEYS)
    unknown = [
        f"line {line}: {key}"
        for line, text in strings(path)
        for key in named_keys(text)
        if key not in known
    ]
    assert unknown == []


def test_the_package_names_keys_and_each_exception_is_still_needed() -> None:
    found = {key for path in SOURCES for _, text in strings(path) for key in named_keys(text)}
    assert {"drive.store", "mesh.regroup", "drive.arrivals", "stream.protocol"} <= found
    assert set(NO_KEYS) <= found
    assert not set(NO_KEYS) & rust_keys()


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_only_one_module_reads_the_plan_of_a_run(path: Path) -> None:
    if name_of(path) == READER:
        return
    assert [line for line, text in strings(path) if FILE in text] == []
    parses_toml = "tomllib" in path.read_text(encoding="utf-8")
    assert parses_toml == (name_of(path) in OTHER_TOML)


def test_the_reader_of_the_plan_is_where_it_is_said_to_be() -> None:
    assert READER in {name_of(path) for path in SOURCES}
    assert any(FILE in text for _, text in strings(PACKAGE / READER))
