"""Targets that a run was given are judged by their intervals, and decide its exit code."""

from __future__ import annotations

import pytest

import synthetic
import unruly
from unruly.__main__ import main
from unruly.base.slo import slos
from unruly.output.slo import slo_text

SHAPE = {
    "kind": "drive", "agents": 1, "ops": ("read", "write"), "rate_hz": 100, "duration_s": 40,
    "stalls_hz": 0,
}  # fmt: skip


@pytest.fixture
def given(tmp_path):
    """A run with these targets in its plan."""

    def of(*targets):
        place = synthetic.write_run(tmp_path / "run", **SHAPE)
        told = ", ".join(f'"{it}"' for it in targets)
        (place / "plan.toml").write_text(f'name = "t"\n[run]\nslo = [{told}]\n')
        return place

    return of


def outcomes(place):
    found = unruly.analyse(unruly.open_run(place)).slos
    return [(it.op, it.limit.name, it.outcome) for it in found]


def test_a_target_is_held_or_broken_for_each_operation(given):
    place = given("p50 < 1ns", "mean < 1h", "read p99 < 1ns", "failed < 1%")
    assert outcomes(place) == [
        ("read", "p50 < 1ns", "broken"),
        ("write", "p50 < 1ns", "broken"),
        ("read", "mean < 1h", "held"),
        ("write", "mean < 1h", "held"),
        ("read", "read p99 < 1ns", "broken"),
        ("read", "failed < 1%", "held"),
        ("write", "failed < 1%", "held"),
    ]


def test_a_target_about_an_operation_that_was_not_measured_is_undecided(given):
    place = given("scan p99 < 1s")
    assert outcomes(place) == [("scan", "scan p99 < 1s", "undecided")]


def test_a_target_is_judged_however_its_number_is_written(given):
    place = given("failed < .1%", "failed < 1e-1%", "mean  <  1  h")
    assert [(name, outcome) for op, name, outcome in outcomes(place) if op == "read"] == [
        ("failed < .1%", "held"),
        ("failed < 1e-1%", "held"),
        ("mean  <  1  h", "held"),
    ]


def test_a_run_without_targets_has_none(given, tmp_path):
    place = given()
    assert outcomes(place) == []
    (place / "plan.toml").unlink()
    assert slos(unruly.open_run(place)) == []


@pytest.mark.parametrize(("target", "code"), [("p50 < 1ns", 1), ("p50 < 1h", 0)])
def test_a_broken_target_makes_the_exit_code_1(given, capsys, target, code):
    place = given(target)
    assert main(["report", "--verdict", str(place)]) == code
    told = "broken" if code else "held"
    assert f"slo: {told}: read {target}: " in capsys.readouterr().out


def test_the_text_of_a_target_names_its_operation_once(given):
    analysis = unruly.analyse(unruly.open_run(given("read p50 < 1ns")))
    assert slo_text(analysis.slos).startswith("slo: broken: read p50 < 1ns: measured ")
