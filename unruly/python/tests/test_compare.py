"""B against A: differences are found, equal runs raise none, and undecidable cases are reported."""

from __future__ import annotations

import json
from itertools import product

import jsonschema
import numpy as np
import pytest

import unruly
from conftest import REPOSITORY
from synthetic import NS, write_run
from unruly.__main__ import main
from unruly.base.comparison import Side, compare, compare_levels
from unruly.errors import ComparisonError, ParameterError
from unruly.stats import grouped_shift, paired_shift, pairs_needed


def side(tmp_path, name, *, seeds=(1,), start=0, **shape):
    runs = []
    for place, seed in enumerate(seeds):
        root = write_run(
            tmp_path / f"{name}-{place}", seed=seed, ops=("null",), agents=2, stalls_hz=0.0, **shape
        )
        runs.append(unruly.open_run(root))
    return Side(name, tuple(runs))


@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
def test_a_side_that_fails_is_different_however_much_of_it_fails(tmp_path, share):
    sound = side(tmp_path, "sound", rate_hz=40, duration_s=20)
    broken = side(tmp_path, "broken", rate_hz=40, duration_s=20, failed_share=share)
    (found,) = compare([sound, broken]).results
    assert found.outcome == "different"
    assert f"broken fails {round(100 * share)}" in found.sentence.replace("\u2009", "")
    assert found.failed_b.estimate == pytest.approx(share, abs=0.05)


def test_one_run_is_not_compared_with_the_first_of_several(tmp_path):
    one = side(tmp_path, "one", rate_hz=40, duration_s=20)
    many = side(tmp_path, "many", seeds=(2, 3, 4), rate_hz=40, duration_s=20)
    (found,) = compare([one, many]).results
    assert found.outcome == "undecided"
    assert "one run cannot be compared with several" in found.sentence


def test_an_allowance_beside_a_factor_is_refused(tmp_path):
    with pytest.raises(ComparisonError, match="have no allowance"):
        unruly.compare(tmp_path, factor="drive.clients", allowance=0.5)


def test_every_sign_vector_is_counted_for_the_exact_p_value():
    rng = np.random.default_rng(2)
    a, d = rng.normal(size=(7, 3)), rng.normal(0.3, 1, (7, 3))
    scale = np.sqrt((d**2).sum(axis=0))
    seen = (np.abs(d.sum(axis=0)) / scale).max()
    reached = [
        (np.abs(np.array(signs) @ d) / scale).max() >= seen - 1e-12
        for signs in product((-1, 1), repeat=7)
    ]
    assert paired_shift(a, a + d).p_value == pytest.approx(np.mean(reached))


def test_five_pairs_can_show_nothing_and_have_no_interval():
    a = np.zeros((5, 1))
    found = paired_shift(a, a + 1.0)
    assert found.p_value == 2 / 32
    assert (found.ratios[0].low, found.ratios[0].high) == (None, None)
    assert paired_shift(np.zeros((10, 1)), np.ones((10, 1))).ratios[0].low_rank == 9


def test_random_order_in_pairs_holds_its_error_under_drift_where_a_fixed_order_does_not():
    rng = np.random.default_rng(7)
    alarms = {"coin": 0, "fixed": 0}
    for _ in range(300):
        level = np.linspace(0, 1, 20).reshape(10, 2) + rng.normal(0, 0.01, (10, 2))
        coin = rng.integers(0, 2, 10)
        for name, order in (("coin", coin), ("fixed", np.zeros(10, int))):
            a = level[np.arange(10), order]
            b = level[np.arange(10), 1 - order]
            alarms[name] += paired_shift(a[:, None], b[:, None]).p_value <= 0.05
    assert alarms["coin"] <= 0.05 * 300 + 3 * np.sqrt(300 * 0.05 * 0.95)
    assert alarms["fixed"] > 0.9 * 300


def test_groups_of_four_can_show_a_difference_and_of_three_cannot():
    a = np.random.default_rng(1).normal(0, 0.01, (4, 2))
    assert grouped_shift(a, a + 1).p_value == pytest.approx(2 / 70)
    assert grouped_shift(a[:3], a + 1).p_value == 1.0


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ParameterError):
        paired_shift(np.zeros((3, 2)), np.zeros((4, 2)))
    with pytest.raises(ParameterError):
        paired_shift([[np.nan]], [[1.0]])
    with pytest.raises(ParameterError):
        grouped_shift(np.zeros((1, 2)), np.zeros((4, 2)))
    assert pairs_needed(0.1, 1.05) == pytest.approx(33, rel=0.01)


def test_one_run_each_finds_a_doubled_median_and_is_silent_on_the_same_system(tmp_path):
    one = side(tmp_path, "one", seeds=(1,))
    same = side(tmp_path, "same", seeds=(2,))
    slow = side(tmp_path, "slow", seeds=(3,), slow_agent=0, slow_factor=8.0)
    (quiet,) = compare([one, same]).results
    assert quiet.outcome == "not shown"
    assert quiet.design == "one run each"
    assert "would have been found" in quiet.sentence
    (loud,) = compare([one, slow]).results
    assert loud.outcome == "different"
    assert any(it.quantile == "p50" and it.outcome == "slower" for it in loud.moved)
    assert "one run each cannot separate" in loud.next_step


@pytest.mark.slow
def test_runs_in_turns_are_pairs_and_show_a_shift(tmp_path, monkeypatch):
    rng = np.random.default_rng(11)
    sides: dict[str, list] = {"a": [], "b": []}
    for pair in range(7):
        for place, name in enumerate(rng.permutation(["a", "b"])):
            # each run begins an hour after the one before it
            monkeypatch.setattr(
                "synthetic.STARTED_NS", (1_790_000_000 + 3600 * (2 * pair + place)) * NS
            )
            root = write_run(
                tmp_path / f"{name}-{pair}", seed=100 + 2 * pair + place, ops=("null",), agents=2,
                stalls_hz=0.0, drift=np.log(1.5) if name == "b" else 0.0, kind="drive",
            )  # fmt: skip
            sides[name].append(unruly.open_run(root))
    found = compare([Side(name, tuple(runs)) for name, runs in sides.items()]).results[0]
    assert found.design == "7 pairs"
    assert found.outcome == "different"
    assert found.p_value == 2 / 2**7
    assert all(it.outcome == "slower" for it in found.moved if it.quantile in ("p90", "p95"))


def test_levels_of_a_factor_are_paired_by_repeat(tmp_path):
    cells = ("x=1", "x=2")
    manifest = {"cells": [{"name": name, "factors": {"x": name[-1]}} for name in cells]}
    root = write_run(
        tmp_path / "run", cells=cells, repeats=6, ops=("null",), agents=2, duration_s=10.0,
        stalls_hz=0.0, manifest=manifest,
    )  # fmt: skip
    run = unruly.open_run(root)
    (found,) = compare_levels(run, "x").results
    assert found.design == "6 pairs"
    assert found.outcome == "not shown"
    assert found.moved[0].detectable < 1.5
    with pytest.raises(ComparisonError, match="no factor 'y'"):
        compare_levels(run, "y")


def test_what_only_one_side_has_is_left_out_and_named(tmp_path):
    one = Side("one", (unruly.open_run(write_run(tmp_path / "one", ops=("null", "disk"))),))
    two = Side("two", (unruly.open_run(write_run(tmp_path / "two", ops=("null",), seed=2)),))
    found = compare([one, two])
    assert [it.op for it in found.results] == ["null"]
    assert found.left_out == ("only one has disk, which two lacks",)
    with pytest.raises(ComparisonError, match="no operation in common"):
        compare([one, two], op="disk")


def test_failures_are_a_difference_of_their_own(tmp_path):
    one = side(tmp_path, "one", seeds=(1,), failed_share=0.0)
    bad = side(tmp_path, "bad", seeds=(1,), failed_share=0.03)
    (found,) = compare([one, bad]).results
    assert found.outcome == "different"
    assert "fails 3" in found.sentence


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{run}"], "one side"),
        (["{run}", "{run}2", "--latency", "wall"], "is 'wall'"),
        (["{run}", "--factor", "x", "--latency", "wall"], "is 'wall'"),
        (["{run}", "{run}2", "--allowance", "-1"], "is -1.0"),
        (["{run}", "{run}2", "--factor", "x"], "several runs"),
        (["{run}", "nowhere"], "no such directory"),
    ],
)
def test_what_cannot_be_compared_is_said(arguments, words, tmp_path, capsys):
    for name in ("run", "run2"):
        write_run(tmp_path / name, ops=("null",), duration_s=5.0)
    given = [text.replace("{run}", str(tmp_path / "run")) for text in arguments]
    assert main(["compare", *given]) == 2
    assert words in capsys.readouterr().err


def test_the_verb_prints_json_text_and_a_page(tmp_path, capsys):
    for name, seed in (("one", 1), ("two", 2)):
        write_run(tmp_path / name, ops=("null",), seed=seed, stalls_hz=0.0)
    paths = [f"old={tmp_path / 'one'}", f"new={tmp_path / 'two'}"]
    assert main(["compare", *paths, "--json"]) == 0
    schema = json.loads((REPOSITORY / "unruly" / "schema" / "comparison.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    told = json.loads(capsys.readouterr().out)
    jsonschema.validate(told, schema)
    assert main(["compare", *paths, "-o", str(tmp_path / "page.html")]) == 0
    text = capsys.readouterr().out
    assert "new against old" in text
    assert "not shown" in text
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Is it different?" in page
    assert "shift-0" in page


def test_a_directory_of_runs_is_a_side_of_several(tmp_path, capsys):
    for name, seeds in (("old", (1, 2, 3, 4)), ("new", (5, 6, 7, 8))):
        for seed in seeds:
            write_run(tmp_path / name / str(seed), ops=("null",), seed=seed, duration_s=20.0)
    assert main(["compare", str(tmp_path / "old"), str(tmp_path / "new"), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["results"]
    assert found["design"] == "4 runs against 4, not in turns"
    assert found["p_value"] > 0.05


def test_runs_whose_paths_end_alike_are_two_sides(tmp_path, capsys):
    shape = {"kind": "drive", "agents": 1, "ops": ("read",), "rate_hz": 50, "duration_s": 20}
    paths = [str(write_run(tmp_path / side / "1", **shape, seed=2)) for side in ("old", "new")]
    assert main(["compare", *paths, "--json"]) == 0
    (found,) = {(it["a"], it["b"]) for it in json.loads(capsys.readouterr().out)["results"]}
    assert found == tuple(paths)
    # the same path twice is one side
    assert main(["compare", paths[0], paths[0]]) == 2
