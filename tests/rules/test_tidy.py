"""Sizes that a reader can hold in mind, and nothing left lying about."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
from repository import ROOT, cargo_metadata, is_text, tracked

LINES_MAX = 800
FUNCTION_LINES_MAX = 70
SOURCES = tracked("*.rs", "*.py", "*.sh", "*.java")
TEXTS = tuple(path for path in tracked() if is_text(path))

UNFINISHED = re.compile(
    r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b|todo!\(|unimplemented!\("
)
# A tag of XML that ends is none.
MACHINE = re.compile(r"(?<![\w.}*<])/(?:(?:work|home|Users)/\w|root\b)")


def test_no_file_is_too_long_to_read() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {path.name: lines for path, lines in lengths.items() if lines > LINES_MAX} == {}
    assert len(lengths) > 100


def test_no_python_function_is_longer_than_a_page() -> None:
    found = {}
    for path in tracked("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # Its documentation may be as long as it needs.
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
                if lines > FUNCTION_LINES_MAX:
                    found[f"{path.name}:{node.name}"] = lines
    assert found == {}


def test_clippy_holds_rust_functions_to_the_same_length() -> None:
    limits = tomllib.loads((ROOT / "clippy.toml").read_text())
    assert limits["too-many-lines-threshold"] == FUNCTION_LINES_MAX


def test_nothing_is_left_for_later() -> None:
    marked = [path.name for path in TEXTS if UNFINISHED.search(path.read_text(encoding="utf-8"))]
    assert marked == []
    assert len(TEXTS) > len(SOURCES)


def test_no_path_of_a_machine_is_written_down() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in TEXTS
        if MACHINE.search(path.read_text(encoding="utf-8"))
    }
    assert found == set()
    # a stroke alone, so that this file names no such place either
    stroke = "/"
    for place in ("work/main", "home/me", "root", "root/.cargo", "Users/me"):
        for before in ("", "see ", '"', "("):
            assert MACHINE.search(f"{before}{stroke}{place}"), place
    for place in ("docs/work/x", "../home/x", "/proc/self/root", "/workload", "/rooted", "</root>"):
        assert not MACHINE.search(place), place


def test_the_lock_file_names_no_other_registry_than_the_public_one() -> None:
    sources = set(re.findall(r'source = "([^"]+)"', (ROOT / "Cargo.lock").read_text()))
    assert sources == {"registry+https://github.com/rust-lang/crates.io-index"}


def test_every_dependency_of_the_workspace_is_used_by_a_crate() -> None:
    declared = set(tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["dependencies"])
    members = set(cargo_metadata()["workspace_members"])
    used = {
        dependency["name"]
        for package in cargo_metadata()["packages"]
        if package["id"] in members
        for dependency in package["dependencies"]
    }
    assert declared - used == set()


@pytest.mark.parametrize("path", tracked("*.sh", ".ci/run"), ids=lambda path: path.name)
def test_a_script_ends_at_its_first_failure(path: Path) -> None:
    assert "set -euo pipefail" in path.read_text(encoding="utf-8")
