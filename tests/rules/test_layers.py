"""The arrows of ARCHITECTURE.md point one way."""

from __future__ import annotations

import ast

import pytest
from repository import ROOT, cargo_metadata, tracked

CRATES = {
    "unruly-plan": set(),
    "unruly-trace": set(),
    "unruly-load": {"unruly-plan", "unruly-trace"},
    "unruly-agent": {"unruly-plan", "unruly-trace", "unruly-load"},
    "unruly": {"unruly-plan", "unruly-trace", "unruly-load", "unruly-agent"},
}

LAYERS = {
    "errors": 0,
    "stats": 1,
    "tables": 1,
    "run": 2,
    "findings": 3,
    "summary": 4,
    "verdict": 4,
    "report": 5,
    "__main__": 6,
    "__init__": 6,
}
"""A module imports from its own layer only its own package, and else from lower ones."""

NOT_IN_STATS = {"ibis", "duckdb", "pandas", "pyarrow", "altair", "pathlib", "os", "io", "open"}


@pytest.mark.parametrize("name", sorted(CRATES))
def test_a_crate_depends_only_on_those_below_it(name: str) -> None:
    package = next(it for it in cargo_metadata()["packages"] if it["name"] == name)
    own = {
        it["name"]
        for it in package["dependencies"]
        if it["name"].startswith("unruly") and it["kind"] is None
    }
    assert own <= CRATES[name]


def test_every_crate_of_the_workspace_has_its_place() -> None:
    members = set(cargo_metadata()["workspace_members"])
    names = {it["name"] for it in cargo_metadata()["packages"] if it["id"] in members}
    assert names == set(CRATES)


def imported(path: str) -> set[str]:
    """Modules that a file imports, also those only for its types."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            if node.module == "unruly":
                found |= {f"unruly.{alias.name}" for alias in node.names}
    return found


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS else "__init__"


MODULES = [
    str(path.relative_to(ROOT)) for path in tracked("python/unruly/*.py", "python/unruly/**/*.py")
]


@pytest.mark.parametrize("path", MODULES)
def test_python_imports_never_go_back_up(path: str) -> None:
    own = room(path.removesuffix(".py").removeprefix("python/").replace("/", "."))
    for module in imported(path):
        if module.split(".")[0] != "unruly" or module == "unruly":
            continue
        other = room(module)
        assert other == own or LAYERS[other] < LAYERS[own], f"{own} imports {module}"


@pytest.mark.parametrize("path", [path for path in MODULES if "/stats/" in path])
def test_statistics_know_no_frame_and_no_file(path: str) -> None:
    roots = {module.split(".")[0] for module in imported(path)}
    assert not roots & NOT_IN_STATS
    calls = ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    assert not [
        call for call in calls if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name) and call.func.id == "open"
    ]  # fmt: skip
