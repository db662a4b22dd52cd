"""Exact quantiles without holding the rows: any values, any number of them, little memory."""

from __future__ import annotations

import ibis
import numpy as np
import pandas as pd
import pytest

import unruly
from alike import differences
from synthetic import write_run
from unruly.base import context, quantiles
from unruly.tables import selection
from unruly.tables.selection import WIDTH, exact_quantiles, fine_bin

PROBABILITIES = [0.0, 0.5, 0.9, 0.99, 0.999, 1.0]
ROWS = 20_000


def _values(name):
    random = np.random.default_rng(7)
    return {
        "lognormal": np.round(random.lognormal(12, 0.5, ROWS)),
        "constant": np.full(1_000, 5.0),
        "zeros": np.zeros(10),
        "one": np.array([3.0]),
        "negative": random.integers(-50, 50, 1_000).astype(float),
        "an offset of 1e13": 1e13 + random.integers(0, 1_000_000, ROWS),
        "below one": random.uniform(0, 1, ROWS),
        "failed": np.where(random.uniform(size=ROWS) < 0.02, np.inf, random.lognormal(3, 1, ROWS)),
        "all failed": np.full(50, np.inf),
        "ties": random.integers(0, 5, ROWS) * 1e6,
        "heavy": random.pareto(0.3, ROWS),
    }[name]


def _frame(values, groups=3):
    keys = np.random.default_rng(1).integers(0, groups, len(values))
    return pd.DataFrame({"key": keys, "x": values})


def _numpy(values):
    with np.errstate(invalid="ignore"):
        found = np.quantile(values, PROBABILITIES)
    return np.where(np.isfinite(found), found, np.inf)


@pytest.mark.parametrize("rows_most", [0, 100, 1_000_000], ids="counting {} rows".format)
@pytest.mark.parametrize(
    "name",
    [
        "lognormal", "constant", "zeros", "one", "negative", "an offset of 1e13", "below one",
        "failed", "all failed", "ties", "heavy",
    ],
)  # fmt: skip
def test_the_quantiles_are_numpys_whatever_the_values(name, rows_most):
    frame = _frame(_values(name))
    table = ibis.memtable(frame)
    whole = exact_quantiles(table, [], "x", PROBABILITIES, rows_most=rows_most)
    np.testing.assert_allclose(whole["quantiles"].iloc[0], _numpy(frame["x"]), rtol=1e-13)
    found = exact_quantiles(table, ["key"], "x", PROBABILITIES, rows_most=rows_most)
    assert found["n"].tolist() == frame.groupby("key").size().tolist()
    for key, quantile in zip(found["key"], found["quantiles"], strict=True):
        np.testing.assert_allclose(quantile, _numpy(frame["x"][frame["key"] == key]), rtol=1e-13)


def test_nulls_are_left_out_and_nothing_has_no_quantile():
    frame = pd.DataFrame({"x": pd.array([1.0, None, 3.0], dtype="Float64")})
    found = exact_quantiles(ibis.memtable(frame), [], "x", [0.5])
    assert found["n"].tolist() == [2]
    assert found["quantiles"].tolist() == [[2.0]]
    table = ibis.memtable(frame)
    nothing = exact_quantiles(table.filter(table.x > 9), [], "x", [0.5])
    assert nothing["n"].tolist() == [0]
    assert np.isnan(nothing["quantiles"].iloc[0]).all()


def test_the_middle_of_a_bin_is_within_the_stated_error_of_all_that_it_holds():
    values = np.random.default_rng(3).lognormal(10, 4, ROWS).clip(1)
    table = ibis.memtable(pd.DataFrame({"x": values}))
    frame = table.mutate(bin=fine_bin(table.x)).to_pandas()
    middle = (1 + WIDTH) ** (frame["bin"] - 0.5)
    assert (np.abs(middle / frame["x"] - 1) <= 0.0005 * (1 + 1e-6)).all()
    ordered = frame.sort_values("x")["bin"]
    assert ordered.is_monotonic_increasing


def test_what_is_counted_value_by_value_stays_bounded(monkeypatch):
    """A million rows, and never more than the allowed few leave the engine in one go."""
    most = []
    real = selection.fetch

    def watched(expression):
        found = real(expression)
        most.append(len(found))
        return found

    monkeypatch.setattr(selection, "fetch", watched)
    values = np.floor(np.random.default_rng(5).uniform(0, 2**40, 1_000_000))
    rows = ibis.memtable(pd.DataFrame({"x": values}))
    found = exact_quantiles(rows, [], "x", PROBABILITIES, rows_most=2_000)
    wanted = np.quantile(values, PROBABILITIES)
    np.testing.assert_allclose(found["quantiles"].iloc[0], wanted, rtol=1e-13)
    # a doubling has 700 bins: uniform values fill the uppermost twenty doublings
    assert max(most) < 25_000


@pytest.fixture(scope="module")
def matrix_run(tmp_path_factory):
    """Cells, repeats, ops, failures: all that makes groups."""
    return write_run(
        tmp_path_factory.mktemp("selection") / "run",
        agents=3,
        cells=("a=1 b=1", "a=2 b=1", "a=1 b=2", "a=2 b=2"),
        repeats=2,
        ops=("null", "disk"),
        duration_s=15.0,
        rate_hz=10.0,
        warmup_s=1.0,
        failed_share=0.004,
    )


@pytest.fixture(scope="module")
def whole_summary(matrix_run):
    return unruly.summary(unruly.analyse(unruly.open_run(matrix_run), causes=False))


@pytest.mark.slow
def test_parts_of_a_run_give_the_same_summary_as_the_whole(matrix_run, whole_summary, monkeypatch):
    monkeypatch.setattr(context, "PART_ROWS", 1_000)
    found = unruly.summary(unruly.analyse(unruly.open_run(matrix_run), causes=False))
    assert differences(found, whole_summary) == []


@pytest.mark.slow
def test_quantiles_by_bins_give_the_same_summary_as_the_engines_own(
    matrix_run, whole_summary, monkeypatch
):
    monkeypatch.setattr(quantiles, "ROWS_MOST", 100)
    found = unruly.summary(unruly.analyse(unruly.open_run(matrix_run), causes=False))
    assert differences(found, whole_summary) == []


def test_without_pictures_every_number_of_the_summary_is_the_same(matrix_run, whole_summary):
    analysis = unruly.analyse(unruly.open_run(matrix_run), pictures=False, causes=False)
    assert differences(unruly.summary(analysis), whole_summary) == []
    assert analysis.timeline.empty
    assert analysis.outliers.empty
