"""The shape of the package: allowed imports, public names, and banned constructs."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import unruly

REPOSITORY = Path(__file__).resolve().parents[3]
PACKAGE = REPOSITORY / "unruly" / "python" / "unruly"
ALLOWED = {
    "errors": set(),
    "checksum": set(),
    "contract": set(),
    "stats": {"contract", "errors", "quantity"},
    "tables": {"contract", "errors", "terminal"},
    "program": set(),
    "ingest": {"checksum", "errors", "program", "shown", "tables", "terminal"},
    "progress": set(),
    "quantity": set(),
    "plan": {"quantity"},
    "shown": set(),
    "run": {"checksum", "errors", "plan", "program", "shown", "tables", "terminal"},
    "base": {
        "contract",
        "errors",
        "plan",
        "quantity",
        "run",
        "shown",
        "stats",
        "tables",
        "terminal",
    },
    "drawing": {"base", "quantity", "run", "stats"},
    "topics": {
        "base",
        "contract",
        "drawing",
        "errors",
        "plan",
        "progress",
        "quantity",
        "run",
        "shown",
        "stats",
        "tables",
    },
    "live": {"base", "errors", "quantity", "stats"},
    "installation": set(),
    "until": {"live", "stats"},
    "auditing": {"errors", "ingest", "progress", "run", "stats", "tables"},
    "folders": {"errors"},
    "listing": {"base", "errors", "folders"},
    "history": {"base", "errors", "listing", "stats"},
    "output": {
        "auditing",
        "base",
        "contract",
        "errors",
        "history",
        "ingest",
        "listing",
        "quantity",
        "run",
        "stats",
        "tables",
        "terminal",
        "topics",
    },
    "papers": {"base", "errors", "plan", "quantity", "stats", "tables", "topics"},
    "html": {
        "auditing",
        "base",
        "drawing",
        "errors",
        "history",
        "output",
        "quantity",
        "run",
        "stats",
        "topics",
    },
    "api": {
        "auditing",
        "base",
        "errors",
        "html",
        "ingest",
        "output",
        "progress",
        "run",
        "shown",
        "topics",
    },
    "__init__": {"api", "base", "errors", "output", "run", "stats", "topics"},
    "__main__": {"door", "verbs"},
    "door": {"errors", "terminal"},
    "terminal": set(),
    "verbs": {
        "api",
        "base",
        "errors",
        "history",
        "__init__",
        "html",
        "ingest",
        "listing",
        "output",
        "papers",
        "progress",
        "run",
        "stats",
    },
}
DOORS = {("base/analysis.py", "unruly.html.plots")}
"""What leads back by intent: ``analysis.plot`` draws figures, and imports them when it is used."""
SHIPPED = {"dips"}
"""Modules of the statistics that read a table of the package itself."""
SOURCES = sorted(PACKAGE.rglob("*.py"))


def _room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            # `from unruly import quantity` imports a module, not a public name
            modules = [
                it
                for it in names
                if (PACKAGE / it.removeprefix("unruly.")).with_suffix(".py").is_file()
            ]
            yield from modules if node.module == "unruly" and modules else [node.module or ""]
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_rooms_below_it(path):
    room = _room(path)
    for name in _imports(path):
        parts = name.split(".")
        if parts[0] == "unruly":
            wanted = parts[1] if len(parts) > 1 else "__init__"
            if (path.relative_to(PACKAGE).as_posix(), name) in DOORS:
                continue
            assert wanted == room or wanted in ALLOWED[room], f"{room} imports {name}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "ingest").glob("*.py")), ids=lambda p: p.stem)
def test_importers_know_of_the_tables_only_their_columns(path):
    tables = {name for name in _imports(path) if name.startswith("unruly.tables")}
    assert tables <= {"unruly.tables.columns"}


@pytest.mark.parametrize("path", sorted((PACKAGE / "stats").glob("*.py")), ids=lambda p: p.stem)
def test_stats_know_no_frame_and_no_file(path):
    banned = {"pandas", "ibis", "duckdb", "pyarrow", "pathlib", "os", "io"}
    assert not banned & {name.split(".")[0] for name in _imports(path)}
    if path.stem in SHIPPED:
        return
    text = path.read_text(encoding="utf-8")
    assert "open(" not in text
    used = {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
    assert not used & {"load", "loadtxt", "genfromtxt", "fromfile", "memmap", "save", "tofile"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_pitfalls_of_the_libraries_are_not_used(path):
    text = path.read_text(encoding="utf-8")
    calls = {
        node.func.attr
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    if _room(path) in ("tables", "base", "topics"):
        assert not calls & {"approx_quantile", "approx_median", "asof_join", "create_table"}
    if _room(path) == "tables":
        assert not calls & {"first", "last", "to_pandas", "execute"} or path.stem.endswith("engine")


def test_every_public_name_is_there_and_documented():
    assert unruly.__all__ == sorted(unruly.__all__)
    for name in unruly.__all__:
        assert getattr(unruly, name).__doc__, name


def test_no_public_name_is_that_of_a_submodule():
    submodules = {path.stem for path in PACKAGE.iterdir() if path.suffix in ("", ".py")}
    assert not submodules & set(unruly.__all__)


def test_type_checkers_and_the_interpreter_find_each_public_name_in_the_same_module():
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (typed,) = [node for node in tree.body if isinstance(node, ast.If) and not node.orelse][:1]
    declared = {it.module: {alias.name for alias in it.names} for it in typed.body}
    assert declared == {module: set(names) for module, names in unruly._HOMES.items()}
    assert set().union(*declared.values()) == set(unruly.__all__)


@pytest.mark.parametrize("program", ["import unruly", "import unruly.__main__"])
def test_importing_the_package_or_its_verbs_imports_no_large_library(program):
    large = ("altair", "duckdb", "ibis", "jinja2", "numpy", "pandas", "pyarrow", "scipy")
    printed = f"import sys; {program}; print([it for it in {large} if it in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", printed], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_error_has_one_root_and_the_form_of_a_message():
    for name in ("RunError", "TraceError", "RecoveryError", "ParameterError"):
        assert issubclass(getattr(unruly, name), unruly.UnrulyError)
    error = unruly.RunError("here", "is wrong", "was wanted", "do this")
    assert str(error) == "here: is wrong; was wanted; hint: do this"


def test_requirements_are_those_of_the_package():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = set(project["project"]["dependencies"])
    listed = set((REPOSITORY / "requirements.in").read_text(encoding="utf-8").splitlines())
    assert wanted <= listed


def test_the_lock_has_hashes_and_no_registry_address():
    lock = (REPOSITORY / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    pins = [line for line in lock.splitlines() if "==" in line and not line.startswith(" ")]
    assert len(pins) > 20
    assert lock.count("--hash=sha256:") >= len(pins)
