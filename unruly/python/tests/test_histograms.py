"""Runs whose source kept bins: what they can say, and what they refuse."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unruly
from synthetic import NS, STARTED_NS, Segments, _table
from unruly.base.judging import judge
from unruly.base.limits import Limit
from unruly.errors import ComparisonError, ExportError, ParameterError
from unruly.output.summary import summary
from unruly.stats import bin_count_above, bin_quantile, bucket_edges, spread


def write_bins(root, bins, *, figures=(), op="read", cells="all", merged=None):
    """Write a run of histograms: bins are (second, low_ns, high_ns, count)."""
    root.mkdir()
    second, low, high, count = (np.array(column, dtype=float) for column in zip(*bins, strict=True))
    started = STARTED_NS + (second * NS).astype(np.int64)
    rows = _table(
        "histograms",
        {
            "cell": cells,
            "repeat": np.zeros(len(bins)),
            "host": "source",
            "process": "source",
            "op": op,
            "started_ns": started,
            "ended_ns": started + NS,
            "low_ns": low,
            "high_ns": high,
            "count": count,
        },
        len(bins),
    )
    writer = Segments(root, "binned", "imported")
    writer.add("histograms", rows)
    writer.close()
    manifest = {
        "schema": 1,
        "run": "binned",
        "name": "binned",
        "tag": "imported",
        "status": "imported",
        "cells": [{"name": name, "factors": {}} for name in sorted({*np.atleast_1d(cells)})],
        "imported": list(figures),
    }
    if merged is not None:
        manifest |= {"status": "complete", "merged": merged}
    (root / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return root


def fine_bins(seconds=120, rate=1000, seed=3):
    """Latencies around 1 ms in bins of 0.5 %, and the values themselves."""
    rng = np.random.default_rng(seed)
    bins, values = [], []
    for second in range(seconds):
        sample = rng.lognormal(np.log(1e6), 0.4, rate)
        values.append(sample)
        index, counts = np.unique(np.floor(np.log(sample) / np.log(1.005)), return_counts=True)
        bins += [
            (second, 1.005**i, 1.005 ** (i + 1), c) for i, c in zip(index, counts, strict=True)
        ]
    return bins, np.concatenate(values)


@pytest.fixture(scope="module")
def fine(tmp_path_factory):
    bins, values = fine_bins()
    root = write_bins(tmp_path_factory.mktemp("bins") / "run", bins)
    return unruly.analyse(unruly.open_run(root), causes=False), values


def test_fine_bins_give_every_number_within_their_width(fine):
    analysis, values = fine
    found = analysis.cell("read")
    assert (found.kept, found.n, found.failed) == ("histogram", values.size, 0)
    for name, p in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999)):
        truth = np.quantile(values, p)
        assert getattr(found, name) == pytest.approx(truth, rel=0.005)
        low, high = found.edges[name]
        assert low <= truth * 1.0001
        assert truth <= high * 1.0001
    assert found.mean == pytest.approx(values.mean(), rel=0.003)
    assert found.sd == pytest.approx(values.std(ddof=1), rel=0.01)
    assert found.over_3_sigma == pytest.approx(
        (values > values.mean() + 3 * values.std()).sum(), rel=0.02
    )


def test_fine_bins_in_time_give_a_promise_that_holds_the_truth(fine):
    found = fine[0].cell("read")
    truth = np.exp(np.log(1e6) + 0.4 * 2.3263)
    assert found.promise_p99.high > truth
    assert found.p99_interval.low < truth < found.p99_interval.high
    assert "bins of the source" in found.promise_p99.method


def test_a_histogram_run_has_a_summary_a_verdict_and_a_report(fine, schema, tmp_path):
    from unruly.html import write_report

    analysis, _ = fine
    schema.validate(json.loads(json.dumps(summary(analysis))))
    told = unruly.verdict(analysis)
    assert "read" in told
    assert "no p99_interval_iid" not in told
    page = write_report([analysis], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "read" in page
    assert len(analysis.timeline) == 120


def test_the_gate_judges_bins_as_it_judges_rows(fine):
    analysis, _ = fine
    found = judge(analysis, [Limit("wide", "p99", 1e8), Limit("tight", "p99", 1e6)])
    assert [it.outcome for it in found if not it.limit.built_in] == ["held", "broken"]


def test_too_few_pieces_of_time_give_numbers_but_no_promise(tmp_path):
    bins, _ = fine_bins(seconds=20)
    analysis = unruly.analyse(unruly.open_run(write_bins(tmp_path / "run", bins)), causes=False)
    found = analysis.cell("read")
    assert found.p99 is not None
    assert found.promise_p99 is None
    assert found.absent["p99_interval"] == "the source cut time into 20 pieces; 30 are needed"
    _, outcome = judge(analysis, [Limit("tight", "p99", 1e6)])
    assert outcome.outcome == "undecided"
    assert "20 pieces" in outcome.sentence


def test_coarse_bins_refuse_what_would_be_an_artefact_of_the_bins(tmp_path):
    coarse = [(s, 0, 1e6, 700) for s in range(40)] + [(s, 1e6, 1e9, 300) for s in range(40)]
    figures = [{"cell": "all", "op": "read", "mean_ns": 2e6, "max_ns": 9e8, "min_ns": 5e3}]
    run = unruly.open_run(write_bins(tmp_path / "run", coarse, figures=figures))
    found = unruly.analyse(run).cell("read")
    assert found.p99 is None
    assert "the bin of the maximum" in found.absent["p99"]
    assert found.promise_p99 is None
    assert (found.mean, found.max, found.min) == (2e6, 9e8, 5e3)
    assert found.sd is None
    assert "between 0 and 12000" in found.absent["over_10x_mean"]


def test_failed_values_rank_above_all_others(tmp_path):
    bins, _ = fine_bins(seconds=40)
    bins += [(s, np.inf, np.inf, 50) for s in range(40)]
    found = unruly.analyse(unruly.open_run(write_bins(tmp_path / "run", bins)), causes=False).cell(
        "read"
    )
    assert found.failed == 2000
    assert found.p90 is not None
    assert found.p99 is None
    assert "failed" in found.absent["p99"]
    assert found.mean is None
    assert found.mean_ok is not None


@given(
    st.lists(
        st.tuples(st.integers(1, 10**9), st.integers(0, 10**9), st.integers(1, 1000)),
        min_size=1,
        max_size=40,
    ),
    st.floats(0.01, 0.99),
)
def test_whatever_values_the_bins_held_their_quantile_lies_between_the_edges(bins, p):
    rng = np.random.default_rng(1)
    low = np.array([a for a, _, _ in bins], dtype=float)
    high = low + np.array([b for _, b, _ in bins], dtype=float)
    count = np.array([c for _, _, c in bins])
    held = np.concatenate([rng.uniform(a, b, c) for a, b, c in zip(low, high, count, strict=True)])
    found = bin_quantile(low, high, count, p)
    held.sort()
    after = held[min(int(np.floor(p * held.size * (1 + 1e-12))), held.size - 1)]
    before = held[max(int(np.ceil(p * held.size * (1 - 1e-12))) - 1, 0)]
    assert found.low <= after * (1 + 1e-9)
    assert before <= found.high * (1 + 1e-9)
    if found.value is not None:
        assert found.low * (1 - 1e-3) <= found.value <= found.high * (1 + 1e-3)


@given(
    st.lists(
        st.tuples(st.floats(0, 1e12), st.floats(0, 1e12), st.floats(0, 1e6)),
        min_size=1,
        max_size=30,
    )
)
def test_spreading_bins_loses_and_invents_nothing(bins):
    low = np.array([a for a, _, _ in bins])
    high = low + np.array([b for _, b, _ in bins])
    count = np.array([c for _, _, c in bins])
    names, counts = spread(low, high, count)
    assert counts.sum() == pytest.approx(count.sum(), rel=1e-6, abs=1e-9)
    if names.size:
        left, right = bucket_edges(names)
        assert left.min() >= min(max(1.0, low.min()), 1e12) / 1.0051
        assert right.max() <= max(high.max(), 1.0) * 1.0051


def test_a_p99_in_the_bin_of_the_p75_is_refused_though_the_maximum_is_far():
    found = bin_quantile([0, 100, 10_000], [100, 10_000, 20_000], [700, 299, 1], 0.99)
    assert found.value is None
    assert "p75" in found.reason
    assert (found.low, found.high) == (100, 10_000)


def test_percentiles_of_each_second_bound_those_of_the_whole():
    # a source that said of three seconds: median 10, 11, 12; p95 20; p99 40; maximum 50
    low, high, count = [], [], []
    for median in (10.0, 11.0, 12.0):
        low += [0, median, 20, 40]
        high += [median, 20, 40, 50]
        count += [500, 450, 40, 10]
    found = bin_quantile(low, high, count, 0.5)
    assert (found.low, found.high) == (10.0, 12.0)
    assert 10 <= found.value <= 12
    assert bin_quantile(low, high, count, 0.25).value is None


def test_exact_values_are_their_own_bins():
    values = np.arange(1.0, 1001.0)
    assert bin_quantile(values, values, np.ones(1000), 0.99).value == 990.0
    assert bin_count_above(values, values, np.ones(1000), 990) == (10.0, 10.0)


def test_an_open_bin_counts_as_beyond_every_edge():
    found = bin_quantile([0, 100], [100, np.inf], [98, 2], 0.99)
    assert found.value is None
    assert "2 of 100" in found.reason


def test_bins_upside_down_are_an_error():
    with pytest.raises(ParameterError, match="upside down"):
        bin_quantile([2.0], [1.0], [1], 0.5)
    with pytest.raises(ParameterError, match="one length"):
        bin_quantile([1.0], [1.0, 2.0], [1], 0.5)


def test_overlapping_bins_too_many_to_lay_side_by_side_agree_with_few():
    rng = np.random.default_rng(5)
    low = rng.uniform(1e5, 2e5, 9000)
    high = low * rng.uniform(1.001, 1.03, 9000)
    count = np.ones(9000)
    many = bin_quantile(low, high, count, 0.9)
    few = bin_quantile(low[:3000], high[:3000], count[:3000], 0.9)
    assert many.value == pytest.approx(few.value, rel=0.02)


@pytest.mark.parametrize("name", ["x.csv", "x.hlog", "x.hgrm"])
def test_what_needs_single_requests_is_not_exported_as_an_empty_file(name, tmp_path):
    run = write_bins(tmp_path / "run", fine_bins(seconds=3)[0])
    with pytest.raises(ExportError, match="has histograms and no single requests"):
        unruly.export(run, tmp_path / name)


def test_advice_without_single_requests_says_so(tmp_path):
    run = unruly.open_run(write_bins(tmp_path / "run", fine_bins(seconds=3)[0]))
    found = unruly.advise(run)
    assert found.detection.absent[0].reason == "the run has histograms and no single requests"


SLOW = np.random.default_rng(1).poisson(40, 120)
COARSE = [
    bin_
    for second, slow in enumerate(SLOW)
    for bin_ in ((second, 1e6, 1.004e6, 1_000 - slow), (second, 100e6, 250e6, slow))
]
"""The p99 lies between 100 and 250 ms, and nothing says where."""


def outcome_of(run, limit):
    outcomes = judge(unruly.analyse(unruly.open_run(run)), [limit])
    (found,) = (it for it in outcomes if not it.limit.built_in)
    return found


@pytest.mark.parametrize(
    ("at_most", "outcome"),
    [(90e6, "broken"), (101e6, "undecided"), (249e6, "undecided"), (260e6, "held")],
)
def test_no_limit_is_decided_inside_a_bin_of_the_source(at_most, outcome, tmp_path):
    run = write_bins(tmp_path / "run", COARSE)
    assert outcome_of(run, Limit("l", "p99", at_most, op="read")).outcome == outcome


def test_a_share_of_one_summary_is_what_it_counted_and_has_no_interval(tmp_path):
    bins = [(0, 1e6, 1.004e6, 98_900), (0, 1e6, np.inf, 1_100)]
    found = outcome_of(
        write_bins(tmp_path / "run", bins), Limit("l", "failed_share", 0.01, op="read")
    )
    assert found.outcome == "broken"
    assert found.sentence == ("this run saw 1.1 %, the limit is 1 %; a longer run may see another")


def test_one_summary_of_each_run_shows_no_difference(tmp_path):
    a, b = (
        write_bins(
            tmp_path / name, [(0, low, low * 1.004, 50_000), (0, 3 * low, 3.01 * low, 2_000)]
        )
        for name, low in (("a", 1e6), ("b", 1.4e6))
    )
    found = unruly.compare(a, b).results[0]
    assert found.outcome == "undecided"
    assert "no blocks of time" in found.sentence


def test_runs_that_alternate_are_pairs_also_without_single_requests(tmp_path):
    def run(name, at):
        bins = [(at + second, 1e6, 1.004e6, 1_000) for second in range(60)]
        return write_bins(tmp_path / name, bins)

    a = [run(f"a{number}", 1_000 * number) for number in range(3)]
    b = [run(f"b{number}", 1_000 * number + 500) for number in range(3)]
    assert unruly.compare(a, b).results[0].design == "3 pairs"


def test_no_value_of_a_coarse_bin_is_lost_in_the_curves(tmp_path):
    bins = [(0, 1e6, 1.004e6, 990), (0, 100e6, 250e6, 10)]
    found = unruly.analyse(unruly.open_run(write_bins(tmp_path / "run", bins))).distribution
    response = found[found["latency"] == "response"]
    assert response["count"].sum() == 1_000
    assert response.loc[response["low_ns"] >= 99e6, "count"].sum() == 10


def test_what_the_source_counted_is_not_called_accounted_for(tmp_path):
    analysis = unruly.analyse(unruly.open_run(write_bins(tmp_path / "run", fine_bins()[0])))
    assert not analysis.conservation.checked
    said = " ".join(unruly.verdict(analysis).split())
    assert "its source is trusted for what it counted" in said
    assert "worked: yes: the source counted 120,000 requests and no failure." in said
    assert "all 120,000 requests were answered" not in said


def test_a_merged_run_has_one_latency(tmp_path):
    merged = {
        "at_ns": STARTED_NS, "requests": 120_000, "figures": [],
        "delays": {
            "send_ns": [1, 2, 3, 4], "send_max_ns": 5, "late": 0, "tail": 0, "tail_late": 0,
            "unread": 0, "unread_max_ns": 0,
        },
    }  # fmt: skip
    run = write_bins(tmp_path / "run", fine_bins()[0], merged=merged)
    assert not unruly.analyse(unruly.open_run(run)).scheduled
    found = outcome_of(run, Limit("l", "p99", 1e12, latency="service", op="read"))
    assert found.outcome == "undecided"
    assert "histograms keep response times alone" in found.sentence
    with pytest.raises(ComparisonError, match="no service times"):
        unruly.compare(run, run, names=["a", "b"], latency="service")


def test_an_operation_without_values_is_left_out(tmp_path):
    bins = fine_bins(seconds=60)[0]
    none = [(second, np.inf, np.inf, 0) for second in range(60)]
    ops = np.array(["read"] * len(bins) + ["write"] * len(none))
    analysis = unruly.analyse(unruly.open_run(write_bins(tmp_path / "run", [*bins, *none], op=ops)))
    assert {row.op for row in analysis.cells} == {"read", "*"}


def test_a_source_without_times_has_no_length_and_no_date(clean_run, tmp_path):
    unruly.export(clean_run, tmp_path / "x.hgrm", op="null")
    unruly.import_file(tmp_path / "x.hgrm", tmp_path / "run", unit="ms")
    analysis = unruly.analyse(unruly.open_run(tmp_path / "run"))
    assert (analysis.measured_ns, analysis.started_ns) == (0, None)
    assert analysis.blind_spot == []
    assert " ns measured" not in unruly.verdict(analysis)


def test_the_days_between_two_files_were_not_measured(tmp_path):
    days = [(day * 86_400 + second, 1e6, 1.004e6, 100) for day in (0, 1) for second in range(60)]
    cells = np.array(["monday"] * 60 + ["tuesday"] * 60)
    analysis = unruly.analyse(unruly.open_run(write_bins(tmp_path / "run", days, cells=cells)))
    assert analysis.measured_ns == 120 * NS


def test_the_page_marks_no_percentile_of_one_operation_as_that_of_all(tmp_path):
    bins = fine_bins(seconds=60)[0]
    slow = [(second, 100 * low, 100 * high, count) for second, low, high, count in bins]
    ops = np.array(["read"] * len(bins) + ["write"] * len(slow))
    run = write_bins(tmp_path / "run", [*bins, *slow], op=ops)
    page = unruly.report(run, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "From the fastest reply to the slowest" in page
    assert "From the median to the p99" not in page
    assert "histograms have no single replies" in page
    assert "the source does not say" in page
