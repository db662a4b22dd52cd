"""Python's modules never lead back to themselves, and a topic is one folder and one line."""

from __future__ import annotations

import ast
import graphlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

PYTHON = ROOT / "unruly" / "python"
PACKAGE = PYTHON / "unruly"
TOPICS = PACKAGE / "topics"
DOORS = {("unruly.base.analysis", "unruly.html.plots")}
"""What leads back by intent: ``analysis.plot`` draws figures, and imports them when it is used."""
TOY = """
from dataclasses import dataclass

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.drawing.document import Part
from unruly.drawing.pieces import OwnSection, TopicPage
from unruly.topics.topic import Topic


@dataclass(frozen=True)
class ToySummary:
    'How many toys there are.'

    toys: int


def _summary(model) -> ToySummary:
    return ToySummary(model)


def _toys(analysis):
    words = ("a toy was found", "It lay there.")
    yield Finding("toy-found", "where", "warns", 0, *words, {"n": 1}, "Play.")


def _section(view):
    return Part(lead=(f"There are {view.analysis.toy} toys.",))


TOPIC = Topic(
    "toy",
    applies=lambda context, asked: True,
    judge=lambda look: sum(
        row.n for row in look.rows if (row.op, row.latency) == ("null", "response")
    ),
    rules=(Rule("toy-found", "where", ("warns",), _toys),),
    summary=_summary,
    page=lambda: TopicPage(section=OwnSection("toys", "Where are the toys?", "where", _section)),
)
"""
PROGRAM = """
import sys
from pathlib import Path
import schemas
from synthetic import write_run
import unruly

here = Path(sys.argv[1])
run = write_run(here / "run", agents=2, ops=("null",), rate_hz=20, duration_s=10)
analysis = unruly.analyse(unruly.open_run(run), causes=False)
assert Path(unruly.__file__).is_relative_to(here), unruly.__file__
print([it.code for it in analysis.findings], unruly.summary(analysis)["toy"])
unruly.report(analysis, here / "page.html")
print(schemas.summary()["$defs"]["toy_summary"]["required"])
"""


def modules() -> dict[str, Path]:
    """Every module of the package by its name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PYTHON).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(name: str) -> set[str]:
    """The modules of the package that a module imports, also where only types are checked."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unruly"):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {it if it in MODULES else str(node.module) for it in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in MODULES}
    if name == "unruly.topics.registry":  # it imports by name
        found |= {f"unruly.topics.{path.parent.name}" for path in TOPICS.glob("*/__init__.py")}
    return {it for it in found if it != name and (name, it) not in DOORS}


def test_no_module_leads_back_to_itself() -> None:
    order = graphlib.TopologicalSorter({name: imports(name) for name in MODULES})
    try:
        order.prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(reversed(error.args[1]))}")


@pytest.mark.parametrize("topic", sorted(path.parent.name for path in TOPICS.glob("*/__init__.py")))
def test_no_topic_imports_another(topic: str) -> None:
    own = f"unruly.topics.{topic}"
    for name in MODULES:
        if name == own or name.startswith(f"{own}."):
            others = {
                it
                for it in imports(name)
                if len(it.split(".")) >= 3
                and it.startswith("unruly.topics.")
                and it.split(".")[2] not in (topic, "topic")
            }
            assert not others, f"{name} imports {', '.join(sorted(others))}"


def test_a_topic_is_a_folder_and_a_line_of_the_registry(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "unruly", ignore=shutil.ignore_patterns("__pycache__"))
    toy = tmp_path / "unruly" / "topics" / "toy"
    toy.mkdir()
    (toy / "__init__.py").write_text(f'"""Toys."""\n{TOY}', encoding="utf-8")
    registry = toy.parent / "registry.py"
    text = registry.read_text(encoding="utf-8")
    registry.write_text(
        text.replace("NAMES: Final = (\n", 'NAMES: Final = (\n    "toy",\n'), "utf-8"
    )
    places = (tmp_path, PYTHON / "tests", ROOT / "scripts", ROOT / "unruly")
    paths = os.pathsep.join(map(str, places))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    assert "toy-found" in done.stdout
    assert "{'toys': 800}" in done.stdout
    assert "['toys']" in done.stdout
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Where are the toys?" in page
    assert "There are 800 toys." in page
    assert "A toy was found" in page
