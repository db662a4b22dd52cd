"""How numbers are shown, and how curves are thinned."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from unruly.drawing import format
from unruly.drawing.chart import ticks
from unruly.drawing.frames import exceedance, quantile, thinned_points, with_gaps
from unruly.drawing.view import natural
from unruly.html.page import embedded


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 s"),
        (41, "41 ns"),
        (999.6, "1 µs"),
        (1_234_567, "1.23 ms"),
        (999_960_000, "1 s"),
        (12_345_678_901, "12.3 s"),
        (None, "\u2013"),
        (float("nan"), "\u2013"),
        (float("inf"), "\u2013"),
    ],
)
def test_a_latency_has_three_digits_and_its_unit(value, shown):
    assert format.duration(value).replace("\u00a0", " ") == shown


def test_a_small_share_never_reads_as_nothing():
    assert format.share(1e-9).startswith("<")
    assert format.share(0.99999) == "99.999\u00a0%"
    assert format.share(0.0) == "0\u00a0%"


def test_absent_numbers_are_dashes_in_every_unit():
    for shown in (
        format.count,
        format.share,
        format.times,
        format.size,
        format.span,
        format.moment,
        format.coefficient,
        format.significant,
    ):
        assert shown(None) == shown(float("nan")) == "\u2013"


def test_failed_rows_exceed_every_latency():
    buckets = pd.DataFrame(
        {"low_ns": [1e6, 2e6, np.inf], "high_ns": [2e6, 4e6, np.inf], "count": [90, 5, 5]}
    )
    curve = exceedance(buckets)
    assert curve["share"].min() == pytest.approx(0.05)
    assert quantile(curve, 0.1) == pytest.approx(2e6)
    assert np.isnan(quantile(curve, 0.01))


def test_thinning_keeps_the_slowest():
    frame = pd.DataFrame({"latency": np.arange(10_000.0)})
    kept = thinned_points(frame, 100, "latency")
    assert len(kept) == 100
    assert kept["latency"].max() == 9_999


def test_a_line_is_broken_where_nothing_was_measured():
    frame = pd.DataFrame({"time": [0.0, 1.0, 9.0], "p50": [1.0, 1.0, 1.0]})
    assert with_gaps(frame, "time", 2.0)["p50"].isna().sum() == 1


def test_names_with_numbers_are_in_numeric_order():
    assert sorted(["n10", "n9", "n1", "a²"], key=natural) == ["a²", "n1", "n9", "n10"]


def test_an_axis_never_has_more_ticks_than_asked():
    for high in (1e4, 1e6, 1e9, 1e11):
        assert 1 <= len(ticks(1e3, high, 6)) <= 6


def test_json_inside_a_script_cannot_end_it_and_reads_back():
    value = {"</script>": "<!-- & \u2028"}
    text = str(embedded(value))
    assert "<" not in text
    assert "&" not in text
    assert json.loads(text) == value
