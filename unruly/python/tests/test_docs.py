"""What the documents say is what the code does."""

from __future__ import annotations

import doctest
import importlib.util
import json
import math
import re
import sys
from pathlib import Path

import duckdb
import pytest

import unruly
from synthetic import write_run
from unruly import stats
from unruly.output.summary import write_summary

REPOSITORY = Path(__file__).resolve().parents[3]
METHODS = REPOSITORY / "unruly" / "docs" / "methods"


@pytest.mark.parametrize("which", ["clean_run", "slow_run"])
def test_the_query_in_the_documents_recomputes_summary_json(which, request, monkeypatch):
    path = request.getfixturevalue(which)
    write_summary(unruly.analyse(unruly.open_run(path)))
    cells = json.loads((path / "summary.json").read_text(encoding="utf-8"))["cells"]
    text = (METHODS / "recompute.md").read_text(encoding="utf-8")
    query = re.search(r"```sql\n(.*?)```", text, re.DOTALL).group(1)
    monkeypatch.chdir(path)
    cursor = duckdb.connect().execute(query)
    names = [column[0] for column in cursor.description]
    found = {row[:3]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}
    assert len(found) == len(cells) == 8
    for cell in cells:
        row = found[cell["cell"], cell["op"], cell["latency"]]
        for name in ("n", "failed", "min", "max_ok"):
            assert cell[name] == row[name]
        for name in ("mean_ok", "sd_ok"):
            assert cell[name] == pytest.approx(row[name], rel=1e-12)
        for name in ("p50", "p90", "p99", "p99_9"):
            value = row[name] if math.isfinite(row[name]) else None
            assert cell[name] == value


def test_every_public_statistic_has_a_page():
    pages = "\n".join(page.read_text(encoding="utf-8") for page in METHODS.glob("*.md"))
    functions = [name for name in stats.__all__ if name[0].islower()]
    undocumented = {"quantile_ranks_iid", "promise_iid", "slow_columns", "slow_levels"}
    assert undocumented <= set(functions)
    for name in functions:
        assert name in pages or name in undocumented, f"{name} has no page"


@pytest.mark.parametrize("page", sorted(METHODS.glob("*.md")), ids=lambda page: page.stem)
def test_every_method_page_has_its_parts(page):
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# ")
    if page.stem in ("README", "recompute"):
        return
    for heading in ("What is computed", "What it assumes", "When not to use it", "Read aloud"):
        assert f"## {heading}" in text


FENCE = "```"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


@pytest.fixture
def two_runs(tmp_path, monkeypatch):
    """The runs that unruly/docs/python.md reads."""
    shape = {
        "name": "shop", "kind": "drive", "agents": 2, "ops": ("read", "write"), "rate_hz": 50,
        "warmup_s": 5, "duration_s": 60,
    }  # fmt: skip
    write_run(tmp_path / "runs" / "before", **shape, cell_scale={"base": 20.0})
    write_run(tmp_path / "runs" / "after", **shape, cell_scale={"base": 40.0}, seed=2)
    monkeypatch.chdir(tmp_path)


def test_the_python_guide_does_what_it_shows(two_runs):
    page = REPOSITORY / "unruly" / "docs" / "python.md"
    lines, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        fence = line.startswith(FENCE)
        lines.append(line if inside and not fence else "")
        inside = line == f"{FENCE}pycon" if fence else inside
    examples = doctest.DocTestParser().get_doctest("\n".join(lines), {}, page.name, str(page), 0)
    assert len(examples.examples) >= 30
    told: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(examples, out=told.append)
    assert not failed, "".join(told)


@pytest.mark.parametrize("name", unruly.__all__)
def test_every_public_name_of_a_notebook_is_in_the_guide_or_is_a_type(name):
    guide = (REPOSITORY / "unruly" / "docs" / "python.md").read_text(encoding="utf-8")
    a_type = name[0].isupper()
    assert a_type or f"unruly.{name}(" in guide


def _program(name):
    """The program that writes the tables of a page."""
    path = REPOSITORY / "unruly" / "docs" / f"{name}.py"
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(f"{name}_page", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


@pytest.fixture(scope="module")
def stores_page():
    return _program("stores")


@pytest.mark.parametrize("name", ["stores", "runtimes", "streams"])
def test_the_tables_of_a_page_are_those_of_what_is_kept(name):
    program = _program(name)
    page = program.PAGE.read_text(encoding="utf-8")
    assert program.written(page) == page


@pytest.mark.parametrize("name", ["stores", "store-levels", "store-faults"])
def test_above_each_table_of_the_stores_stands_what_its_run_doubts(stores_page, name):
    page = stores_page.PAGE.read_text(encoding="utf-8")
    part = page.partition(f"<!-- {name} -->")[2].partition("<!-- end -->")[0]
    above, _, below = part.partition("\n| ms |")
    kept = stores_page.read(name)
    assert f"trustworthy: {json.dumps(kept['trustworthy'])}" in above
    doubted = [it for it in kept["findings"] if it["section"] == "trust"]
    for finding in doubted:
        told = f"`{finding['code']}`, {finding['severity']}: {finding['title']}" in above
        assert told == (finding["severity"] != "informs")
    assert "service p99" in below or name == "store-faults"
