"""The statistics of the unruly 1 %: known answers, a second way to compute, and planted truth."""

from __future__ import annotations

import csv
import itertools
import re

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from unruly.errors import ParameterError
from unruly.stats import (
    analysis_of_variance,
    dip_test,
    haircut,
    line_fit,
    quantile_ranks_iid,
    smallest_haircut,
    streak_length,
)
from unruly.stats.dip import REDUCED, dip_of, draw
from unruly.stats.dips import kept
from unruly.topics.factors.statistics import THINNED


def nist(path):
    """Observations of a NIST file, and its certified F."""
    text = path.read_text(encoding="utf-8")
    certified = float(re.search(r"Between \w+\s+\d+\s+\S+\s+\S+\s+(\S+)", text).group(1))
    rows = re.findall(r"^\s+(\d+)\s+([0-9.]+)\s*$", text.split("Data:  ")[-1], flags=re.M)
    return [level for level, _ in rows], np.array([v for _, v in rows], np.longdouble), certified


@pytest.mark.parametrize("name", ["SiRstv", "SmLs01"])
def test_certified_values_of_nist_hold(name, shared_data):
    levels, values, certified = nist(shared_data / "anova" / f"{name}.dat")
    assert len(levels) in (25, 189)
    found = analysis_of_variance(values, {"group": levels})[0]
    assert found.f == pytest.approx(certified, rel=1e-9)


@pytest.mark.parametrize(("offset", "digits"), [(0, 9), (1_000_000, 9), (10**12, 4)])
def test_an_offset_of_ten_to_the_twelve_costs_no_answer(offset, digits):
    # NIST's SmLs series: nine groups, two values in turn, the same F of 21 at every offset
    levels, values = [], []
    for group in range(9):
        base = (group % 2) * 0.0 + [1.4, 1.3, 1.5, 1.3, 1.5, 1.4, 1.6, 1.5, 1.4][group]
        for place in range(21):
            levels.append(group)
            step = 0.0 if place == 0 else (0.1 if place % 2 else -0.1)
            values.append(np.longdouble(offset) + np.longdouble(base) + np.longdouble(step))
    plain = np.array([float(v - offset) for v in np.array(values)])
    wanted = analysis_of_variance(plain, {"g": levels})[0].f
    assert analysis_of_variance(values, {"g": levels})[0].f == pytest.approx(
        wanted, rel=10**-digits
    )


def test_two_way_analysis_of_tooth_growth_with_its_interaction(shared_data):
    with (shared_data / "anova" / "ToothGrowth.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    factors = {name: [row[name] for row in rows] for name in ("supp", "dose")}
    found = analysis_of_variance([float(row["len"]) for row in rows], factors, interactions=True)
    by_name = {it.factor: it for it in found}
    assert by_name["supp"].f == pytest.approx(15.572, abs=5e-4)
    assert by_name["dose"].f == pytest.approx(92.000, abs=5e-4)
    assert by_name["supp:dose"].f == pytest.approx(4.107, abs=5e-4)
    assert by_name["supp"].p_value == pytest.approx(0.000231, abs=1e-6)
    assert by_name["supp:dose"].p_value == pytest.approx(0.02186, abs=1e-5)
    assert sum(it.share for it in found) == pytest.approx(1.0)


def test_a_planted_effect_is_found_with_its_share_and_a_null_one_is_not():
    rng = np.random.default_rng(2)
    big, small = rng.integers(0, 3, 300), rng.integers(0, 4, 300)
    values = 2.0 * big + rng.normal(0, 1, 300)
    first, second, left = analysis_of_variance(values, {"big": big, "small": small})
    truth = 4 * (2 / 3) / (4 * (2 / 3) + 1)
    assert first.partial.low < truth < first.partial.high
    assert first.p_value < 1e-6
    assert second.p_value > 0.01
    assert second.partial.low == 0.0
    assert left.freedom == 300 - 1 - 2 - 3


def test_intervals_of_a_share_cover_it():
    rng = np.random.default_rng(8)
    level = rng.integers(0, 3, 60)
    centred = level - level.mean()
    truth = (0.6 * centred).var() / ((0.6 * centred).var() + 1)
    covered = 0
    for _ in range(200):
        found = analysis_of_variance(0.6 * level + rng.normal(size=60), {"x": level})[0].partial
        covered += found.low <= truth <= found.high
    assert covered >= 0.9 * 200


def test_what_cannot_be_computed_is_said_and_the_rest_is():
    values = [1.0, 2.0, 4.0, 3.0]
    one, varied, _ = sorted(
        analysis_of_variance(values, {"one": "aaaa", "two": "aabb"}), key=lambda it: it.factor
    )[:3]
    rows = {it.factor: it for it in analysis_of_variance(values, {"one": "aaaa", "two": "aabb"})}
    assert rows["one"].reason == "it has one level"
    assert rows["two"].f is not None
    alone = analysis_of_variance(values, {"a": "aabb", "b": "abab"}, interactions=True)
    assert "no residual degrees" in alone[0].reason
    assert alone[0].share is not None
    same = analysis_of_variance([5.0] * 4, {"a": "aabb"})
    assert same[0].reason == "all values are equal"
    twice = {it.factor: it for it in analysis_of_variance(values, {"a": "aabb", "b": "aabb"})}
    assert twice["a"].reason == "the other factors determine it"
    incomplete = analysis_of_variance([1.0, 2.0, 4.0, 4.5, 3.0], {"a": "aabba", "b": "ababa"})
    assert incomplete[0].f is not None
    for bad in ([1.0, np.nan], [1.0]):
        with pytest.raises(ParameterError):
            analysis_of_variance(bad, {"a": "ab"})
    with pytest.raises(ParameterError, match="3 levels"):
        analysis_of_variance([1.0, 2.0], {"a": "abc"})
    assert one is not varied


def test_anscombes_four_sets_have_one_correlation_and_one_line(shared_data):
    with (shared_data / "anova" / "anscombe.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for number in "1234":
        x = [float(row[f"x{number}"]) for row in rows]
        y = [float(row[f"y{number}"]) for row in rows]
        found = line_fit(x, y)
        assert found.r == pytest.approx(0.816, abs=1e-3)
        assert found.slope.estimate == pytest.approx(0.5, abs=1e-3)
        assert found.slope.low < 0.5 < found.slope.high
    assert line_fit([1, 2], [1, 2]).reason == "2 points; 3 are needed"
    assert line_fit([1, 1, 1], [1, 2, 3]).reason == "all x are equal"


def test_the_published_intervals_of_the_median_are_order_statistics(shared_data):
    path = shared_data / "anova" / "median_ci_table_published.csv"
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        n, level = int(row["n"]), float(row["exact_binomial_percent"]) / 100
        # the table gives the level of an interval; just below it that interval is the narrowest
        ranks = quantile_ranks_iid(n, 0.5, level - 1e-9)
        assert ranks == (int(row["lower_rank"]), int(row["upper_rank"]))


def test_the_haircut_takes_the_slowest_share_and_no_more():
    values = np.arange(1.0, 1001.0)
    found = haircut(values, 0.01)
    assert (found.largest, found.largest_after) == (1000, 990)
    assert found.mean_after == pytest.approx(values[:990].mean())
    assert found.p99_after == pytest.approx(np.quantile(values[:990], 0.99))
    with pytest.raises(ParameterError):
        haircut([1.0], 1.0)


@given(st.lists(st.floats(1, 1e9), min_size=1, max_size=200))
def test_after_the_smallest_haircut_the_rest_is_predictable_and_less_is_not_enough(values):
    share = smallest_haircut(values)
    ordered = np.sort(values)
    cut = round(share * ordered.size)
    left = ordered[: ordered.size - cut]
    assert left[-1] <= 10 * left.mean() * (1 + 1e-9)
    for fewer in range(cut):
        rest = ordered[: ordered.size - fewer]
        assert rest[-1] > 10 * rest.mean() * (1 - 1e-9)


def test_outliers_in_bursts_have_longer_streaks_than_chance():
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(200):
        lengths = rng.geometric(0.2, 60)
        found = streak_length(int(lengths.sum()), 60, 100_000)
        covered += found.low <= 5.0 <= found.high
    assert covered >= 0.9 * 200
    assert streak_length(0, 0, 10).estimate is None
    with pytest.raises(ParameterError):
        streak_length(3, 4, 10)


def dip_by_linear_program(x):
    """The least distance to any unimodal law, over every mode, with and without a jump there."""
    n, best = len(x), 1.0
    for mode in range(n):
        for jump in (False, True):
            rows, bounds = [], []

            def at_most(bound, rows=rows, bounds=bounds, **weights):
                row = np.zeros(n + 2)
                for name, weight in weights.items():
                    row[int(name[1:])] += weight
                rows.append(row)
                bounds.append(bound)

            for k in range(n):
                low, high = (k / n, (k + 1) / n)
                upper = n if jump and k == mode else k
                at_most(low, **{f"v{k}": 1, f"v{n + 1}": -1})
                at_most(-high, **{f"v{upper}": -1, f"v{n + 1}": -1})
                if jump and k == mode:
                    at_most(-low, **{f"v{k}": -1, f"v{n + 1}": -1})
                    at_most(high, **{f"v{upper}": 1, f"v{n + 1}": -1})
                    at_most(0, **{f"v{k}": 1, f"v{upper}": -1})
            left = list(range(mode + 1))
            right = [n if jump else mode, *range(mode + 1, n)]
            for side, sign in ((left, 1), (right, -1)):
                xs = [x[min(it, n - 1)] if it < n else x[mode] for it in side]
                for a, b in itertools.pairwise(side):
                    at_most(0, **{f"v{a}": 1, f"v{b}": -1})
                for place in range(len(side) - 2):
                    a, b, c = side[place : place + 3]
                    one, two = xs[place + 1] - xs[place], xs[place + 2] - xs[place + 1]
                    at_most(0, **{f"v{b}": sign * (1 / one + 1 / two), f"v{a}": -sign / one,
                                  f"v{c}": -sign / two})  # fmt: skip
            goal = np.zeros(n + 2)
            goal[-1] = 1
            found = linprog(goal, A_ub=np.array(rows), b_ub=bounds, bounds=[(0, 1)] * (n + 2))
            if found.success:
                best = min(best, found.fun)
    return best


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(4, 8), st.booleans())
def test_the_dip_is_the_distance_to_the_nearest_unimodal_law(seed, n, two):
    rng = np.random.default_rng(seed)
    values = np.sort(rng.uniform(size=n) if not two else rng.normal(rng.integers(0, 2, n), 0.1))
    assert dip_of(values) == pytest.approx(dip_by_linear_program(values), abs=1e-6)


def test_one_mode_is_seldom_called_two_and_two_are():
    rng = np.random.default_rng(5)
    called = sum(dip_test(rng.lognormal(0, 0.5, 200)).p_value < 0.05 for _ in range(100))
    assert called <= 5
    two = np.concatenate([rng.lognormal(0, 0.2, 700), rng.lognormal(1.5, 0.2, 300)])
    assert dip_test(two).p_value < 0.01
    assert dip_test(np.tile(two, 20)).n_used == 1000
    assert dip_test([1.0, 1.0, 1.0, 1.0]).reason == "all values are equal"
    assert dip_test([1.0, 2.0]).reason == "2 values; 4 are needed"
    with pytest.raises(ParameterError):
        dip_test([1.0, 2.0, 3.0, np.inf])


@pytest.mark.parametrize("n", kept())
def test_the_dips_that_are_kept_are_those_that_are_drawn(n):
    assert np.array_equal(kept()[n], draw(n)), "run scripts/dips.py"


def test_a_matrix_thins_its_cells_to_a_size_whose_dips_are_kept():
    assert {THINNED, REDUCED} <= set(kept())


@pytest.mark.parametrize("n", [200, 1_000, 5_000])
@pytest.mark.parametrize("levels", [2, 5])
def test_a_factor_that_explains_nearly_all_of_many_values_has_a_share_with_an_interval(n, levels):
    """The series of the noncentral F ends in NaN there."""
    rng = np.random.default_rng(n)
    factor = np.arange(n) % levels
    for effect in (5.0, 1e4):
        values = rng.normal(0, 1, n) + effect * factor
        share = analysis_of_variance(values, {"a": list(factor)})[0].partial
        assert share.low < share.estimate < share.high < 1
        # the variance of the means over itself and that of the noise, which is 1
        between = effect**2 * (levels**2 - 1) / 12
        assert share.low <= between / (between + 1) <= share.high


def test_a_noncentral_f_is_as_its_approximation_where_both_are_known():
    for freedom, left, far in ((1, 1_000, 800.0), (4, 50, 1_500.0), (29, 1_000, 1_500.0)):
        mean = (freedom + far) / freedom
        for f in (0.8 * mean, mean, 1.2 * mean):
            exact = scipy.stats.ncf.cdf(f, freedom, left, far)
            like = (freedom + far) ** 2 / (freedom + 2 * far)
            assert scipy.stats.f.cdf(f / mean, like, left) == pytest.approx(exact, abs=0.003)
