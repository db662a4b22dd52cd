"""Published intervals beside ours: each does on a known series what its source says."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import stats

from conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY))

from bench import audits, rival_study, tried
from bench.false_promises import study
from bench.families import FAMILIES
from bench.fquest import batches, fquest, running_quantiles
from bench.rivals import (
    Bounds,
    independent,
    latte,
    latte_effective_size,
    mlperf,
)

from unruly.stats.claims import early_stopping_over

KNOWN = {family.name: family for family in FAMILIES}


def drawn(name, seconds, seed=1):
    return KNOWN[name].draw(np.random.default_rng(seed), seconds)


def level_of(memory, n, seed=1):
    """An AR(1) with this memory, in its stationary state."""
    rng = np.random.default_rng(seed)
    found = np.empty(n)
    found[0] = rng.standard_normal()
    for place, shock in enumerate(rng.standard_normal(n - 1) * np.sqrt(1 - memory**2), 1):
        found[place] = memory * found[place - 1] + shock
    return found


@pytest.mark.parametrize(("p", "least"), [(0.9, 64), (0.99, 662), (0.999, 6636)])
def test_mlperf_needs_as_many_queries_as_its_rules_print(p, least):
    assert early_stopping_over(least - 1, p) == 0
    assert early_stopping_over(least, p) == 1


def test_mlperf_bounds_independent_values_from_above_in_99_of_100_runs():
    rng = np.random.default_rng(1)
    runs = [mlperf(np.sort(rng.uniform(size=2000)), 0.99) for _ in range(1000)]
    below = sum(not it.holds(0.99) for it in runs)
    assert 1 <= below <= 20
    assert all(it.low is None and it.width is None for it in runs)


def test_latte_counts_independent_values_whole_and_correlated_ones_by_their_memory():
    assert latte_effective_size(level_of(0.0, 20_000)) > 15_000
    # the variance of the mean of an AR(1) is (1 + a) / (1 - a) times that of independent values
    assert latte_effective_size(level_of(0.9, 20_000)) == pytest.approx(20_000 / 19, rel=0.5)


def test_latte_spreads_like_a_quantile_of_resamples_of_its_effective_size():
    values = level_of(0.9, 20_000)
    ordered, size = np.sort(values), latte_effective_size(values)
    rng = np.random.default_rng(2)
    resampled = [
        np.sort(rng.choice(values, size))[int(np.ceil(0.9 * size)) - 1] for _ in range(500)
    ]
    widths = [latte(values, ordered, 0.9, np.random.default_rng(seed)).width for seed in range(20)]
    assert np.mean(widths) == pytest.approx(2 * 1.96 * np.std(resampled), rel=0.15)


def test_the_running_quantile_of_a_prefix_is_its_order_statistic():
    table = np.vstack([level_of(0.99, 3000, seed) for seed in range(4)])
    # a row that rises: the quantile of its first values is far below the row's own tail
    table[0].sort()
    prefixes = np.array([1, 7, 100, 101, 1500, 3000])
    found = running_quantiles(table, prefixes, 0.99)
    for column, k in enumerate(prefixes):
        wanted = np.sort(table[:, :k], axis=1)[:, int(np.ceil(k * 0.99)) - 1]
        assert found[:, column] == pytest.approx(wanted)


def test_areas_and_batch_quantiles_of_independent_values_estimate_the_same_variance():
    rng = np.random.default_rng(3)
    found = [batches(stats.norm.rvs(size=32_000, random_state=rng), 16, 0.9) for _ in range(60)]
    exact = 0.9 * 0.1 / stats.norm.pdf(stats.norm.ppf(0.9)) ** 2
    assert np.mean([it.area_variance for it in found]) == pytest.approx(exact, rel=0.15)
    assert np.mean([it.batch_variance for it in found]) == pytest.approx(exact, rel=0.15)


def test_forty_places_of_the_running_quantile_do_for_every_one():
    values = drawn("F3a", 6)
    coarse, fine = fquest(values, 0.95), fquest(values, 0.95, places=None)
    assert coarse.warned == fine.warned
    assert coarse.low == pytest.approx(fine.low, rel=0.02)
    assert coarse.high == pytest.approx(fine.high, rel=0.02)


def test_fquest_covers_independent_values_and_warns_of_stalls():
    truth = KNOWN["F1"].truth(0.99)
    calm = [fquest(drawn("F1", 10, seed), 0.99) for seed in range(60)]
    stalled = [fquest(drawn("F2", 10, seed), 0.99) for seed in range(30)]
    assert sum(it.holds(truth) for it in calm) >= 52
    assert sum(it.warned for it in calm) <= 40
    assert sum(it.warned for it in stalled) >= 28


def test_the_interval_for_independent_values_is_given_even_for_a_sample_of_stalls():
    assert independent(np.sort(drawn("F2", 30)), 0.99).given


def test_an_answer_is_wrong_only_if_a_bound_that_it_has_excludes_the_truth():
    assert not Bounds(None, None).given
    assert Bounds(None, 2.0).holds(1.0)
    assert not Bounds(None, 2.0).holds(3.0)
    assert not Bounds(1.5, 2.0).holds(1.0)
    assert Bounds(1.0, 2.5).width == 1.5


def test_a_cell_counts_wrong_answers_of_the_answered_runs_alone():
    refused, right, wrong = Bounds(None, None), Bounds(0.0, 2.0), Bounds(2.0, 6.0)
    rows = [dict.fromkeys(rival_study.METHODS, it) for it in (refused, right, wrong, wrong)]
    found = rival_study.counted(KNOWN["F1"], 30, 1.0, 2.0, rows)["methods"]["ours"]
    assert found == {"runs": 4, "answered": 3, "wrong": 2, "width_over_oracle": 2.0}


def test_a_method_that_judges_fewer_runs_is_counted_over_these():
    right = Bounds(0.0, 2.0)
    rows = [dict.fromkeys(rival_study.METHODS, right) for _ in range(3)]
    del rows[-1]["fquest"]
    found = rival_study.counted(KNOWN["F1"], 30, 1.0, 2.0, rows)["methods"]
    assert (found["fquest"]["runs"], found["fquest"]["answered"]) == (2, 2)
    assert found["ours"]["runs"] == 3


@pytest.mark.parametrize(("wrong", "answered", "bad"), [(0, 0, False), (3, 9, False), (4, 9, True)])
def test_answers_are_too_often_wrong_only_if_the_interval_excludes_a_tenth(wrong, answered, bad):
    assert rival_study.too_often(wrong, answered) is bad


def test_the_way_that_the_method_takes_is_the_method():
    found = tried.study("N5", 30, runs=12, seed=5)["ways"]
    ours = study(KNOWN["N5"], 30, 12, seed=5).rivals["methods"]["ours"]
    corrected = found["30 blocks, corrected (the method)"]
    assert (corrected["answered"], corrected["wrong"]) != (0, 0)
    plain = found["30 blocks, without a correction"]
    assert plain["answered"] >= corrected["answered"] == ours["answered"]
    assert plain["wrong"] >= corrected["wrong"] == ours["wrong"]


def test_parts_of_a_long_file_hold_as_often_as_their_requests_are_independent():
    rng = np.random.default_rng(4)
    calm = audits.studied(rng.lognormal(14, 0.5, 180_000), parts=20)
    # 95 % of 20 parts, and three standard errors
    assert calm["usual_held"] >= 16
    assert calm["figures"]["interval_held"]["n"] == calm["supported"] == 20
    assert calm["figures"]["interval_held"]["share"] == pytest.approx(0.93, abs=0.05)
    # episodes of 50 requests; one request in 50 is slow
    slow = np.repeat(rng.random(12_000) < 0.02, 50)
    stalls = audits.studied(np.where(slow, 1e8, 1e6) * rng.lognormal(0, 0.5, slow.size), parts=20)
    assert stalls["usual_held"] < 12
    assert stalls["supported_held"] >= 0.8 * stalls["supported"]
    figure = stalls["figures"]["interval_held"]
    assert 1 <= figure["n"] < stalls["parts"]
    # three standard errors of 20 parts
    assert figure["share"] == pytest.approx(stalls["usual_held"] / 20, abs=0.27)


def test_the_latencies_of_a_long_file_are_in_the_order_of_their_times(tmp_path):
    path = tmp_path / "took.csv"
    path.write_text("time_ms,latency_ms\n" + "".join(f"{900 - at},{at}\n" for at in range(900)))
    options = {"value": "latency_ms", "time": "time_ms", "time_unit": "ms"}
    values, length_ns = audits.latencies(path, **options)
    assert values.tolist() == [1e6 * at for at in reversed(range(900))]
    assert length_ns == 899e6
