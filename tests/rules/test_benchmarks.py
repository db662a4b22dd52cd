"""Each row of a benchmark page names its bar, its measurement and its commit."""

from __future__ import annotations

import doctest
import json
import subprocess
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from bench import compact, page, pairs, result, scale
from bench.result import Result
from flurry.bench import gateway
from repository import ROOT, tracked

KEPT = tracked("unruly/bench/runs/*.json", "flurry/bench/runs/*.json")


def git(root: Path, *words: str) -> None:
    name = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", *name, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a program, a benchmark and a kept result."""
    for name in ("unruly/crates/a.rs", "unruly/bench/a.py", "unruly/bench/runs/day/a.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "a")
    return tmp_path


@pytest.mark.parametrize(
    "name",
    ["unruly/bench/runs/day/a.json", "flurry/bench/runs/new/b.json", "unruly/bench/README.md"],
)
def test_a_kept_result_is_no_change_of_the_measured_commit(checkout: Path, name: str) -> None:
    (checkout / name).parent.mkdir(parents=True, exist_ok=True)
    (checkout / name).write_text("2\n")
    assert not result.commit_of(checkout).endswith("+")


@pytest.mark.parametrize(
    "name", ["unruly/crates/a.rs", "unruly/crates/new.rs", "unruly/bench/a.py", "Cargo.lock"]
)
def test_a_changed_program_or_benchmark_marks_the_commit(checkout: Path, name: str) -> None:
    (checkout / name).write_text("2\n")
    assert result.commit_of(checkout).endswith("+")


def test_the_page_says_of_a_row_without_a_bar_that_it_has_none(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text(
        '{"host": {"cpu_model": "A", "cores": 2, "virtualised": true, "kernel": "6",'
        ' "noise_floor_ns": 50000}}'
    )
    rows = [
        Result("a", "one", "<= 2", "1", True, {}),
        Result("b", "two", "<= 2", "3", False, {}),
        Result("c", "three", "", "4", None, {}),
    ]
    lines = page.section(tmp_path, rows).splitlines()
    assert "| one | <= 2 | 1 | yes | `` |" in lines
    assert "| two | <= 2 | 3 | **no** | `` |" in lines
    assert "| three | - | 4 | no bar | `` |" in lines
    assert len([line for line in lines if line.startswith("- ")]) == 1


def test_a_row_that_judges_without_a_bar_is_refused() -> None:
    for bar, met in (("", True), ("", False), ("<= 1", None)):
        with pytest.raises(ValueError, match="a: bar"):
            Result("a", "one", bar, "1", met, {})


def test_the_gateway_is_held_to_the_bar_of_its_row() -> None:
    asked = [gateway.Asked(100.0 + turn, 1.0, 10.0) for turn in range(6)]
    half = [gateway.Asked(50.0 + turn / 2, 1.0, 10.0) for turn in range(6)]
    assert gateway.cost_of("TLS", "plain", asked, asked).met is None
    assert gateway.cost_of("records on disks", "plain", half, asked).met is False
    sides = {"gateway": half, "redis": asked}
    assert gateway.rated(sides, 16, 16).met is True
    assert gateway.rated(sides, 16, 1).met is False


def test_the_median_of_six_verdicts_is_between_the_third_and_the_fourth() -> None:
    seconds = [50.0, 10.0, 30.0, 60.0, 20.0, 40.0]
    ours = [{"s": it, "processor_s": it, "gigabytes": 1.0} for it in seconds]
    theirs = [{"s": it / 10, "processor_s": it, "gigabytes": 1.0} for it in seconds]
    found, *_ = scale._results(ours, theirs, (1, 1), {"exit": 0, "gigabytes": 1.0})
    assert found.what.endswith("median of 6")
    assert found.measured.startswith("35.0 s (most 60.0), 35.0 s of processor time; ")
    assert " alone 3.5 s" in found.measured


@pytest.mark.parametrize("path", KEPT, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_kept_file_has_a_line_for_each_series_and_each_record(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    hint = f"run `PYTHONPATH=unruly python -m bench.compact {path.relative_to(ROOT)}`"
    assert compact.text(json.loads(text)) == text, hint


def test_a_benchmark_keeps_its_values_in_this_form(tmp_path: Path) -> None:
    raw = {"ours": [{"p50": 1.5, "n": 2}, {"p50": 2.5, "n": 3}], "s": [np.float64(1), 2.0]}
    place = tmp_path / "2026-01-01-intel-2core"
    place.mkdir()
    result.keep(place, Result("a", "one", "<= 2", "1", True, raw, commit="c"))
    lines = (place / "a.json").read_text(encoding="utf-8").splitlines()
    assert '   {"p50": 1.5, "n": 2},' in lines
    assert '  "s": [1.0, 2.0]' in lines
    assert result.load(place) == [Result("a", "one", "<= 2", "1", True, raw, commit="c")]


def test_an_empty_or_nested_value_survives_its_layout() -> None:
    for value in ({}, [], {"a": {}}, {"a": []}, [[1, [2]], []], [{"a": [{"b": {}}]}, 1], None):
        assert json.loads(compact.text(value)) == value


@pytest.mark.parametrize("module", [compact, pairs], ids=lambda module: module.__name__)
def test_the_examples_of_a_benchmark_module_hold(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed


def test_a_new_result_supersedes_the_older_one_of_the_same_kind_of_host(tmp_path: Path) -> None:
    places = [
        tmp_path / day
        for day in ("2026-01-01-intel-2core", "2026-01-02-amd-2core", "2026-01-03-intel-2core")
    ]
    for place in places:
        place.mkdir()
        for name in ("a", "b")[: 1 if place == places[-1] else 2]:
            result.keep(place, Result(name, "one", "", "1", None, {}, commit="c"))
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*.json"))
    assert left == [
        "2026-01-01-intel-2core/b.json",
        "2026-01-02-amd-2core/a.json",
        "2026-01-02-amd-2core/b.json",
        "2026-01-03-intel-2core/a.json",
    ]


@pytest.mark.parametrize("product", ["unruly", "flurry"])
def test_no_superseded_result_is_kept(product: str) -> None:
    assert result.superseded(ROOT / product / "bench" / "runs") == []
