"""Steadiness, recovery, change points and bursts of arrivals: known answers and planted truth."""

from __future__ import annotations

import csv
import gzip
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal

from unruly import stats
from unruly.errors import ParameterError
from unruly.stats import changes

NEVER = float("inf")


def _ar(rng, n, memory, sigma=1.0):
    noise = rng.normal(0, sigma * np.sqrt(1 - memory**2), n + 100)
    return signal.lfilter([1.0], [1.0, -memory], noise)[100:]


# --- means and throughput


@pytest.mark.parametrize("memory", [0.0, 0.3, 0.6])
def test_the_interval_of_a_mean_covers_what_neighbours_share(memory):
    rng = np.random.default_rng(21)
    covered = 0
    for _ in range(400):
        found = stats.mean_interval(5 + _ar(rng, 30, memory))
        covered += found.low <= 5 <= found.high
    assert covered >= 0.92 * 400


def test_one_block_has_no_bounds_and_none_is_an_error():
    assert stats.mean_interval([3.0]).low is None
    with pytest.raises(ParameterError, match="one finite value a block"):
        stats.mean_interval([])


def test_throughput_of_seconds_known_by_hand():
    found = stats.stability([0, 10, 10, 10, 10, 20, 0, 10, 10, 20])
    assert found.mean.estimate == 10.0
    assert found.stalled_share == 0.2
    assert found.variation.estimate == pytest.approx(np.std([0, 0, *[10] * 6, 20, 20], ddof=1) / 10)
    assert (found.quantiles[0.0], found.quantiles[0.5], found.quantiles[1.0]) == (0.0, 10.0, 20.0)
    assert found.of_baseline is None


def test_a_flow_without_any_change_varies_by_nothing():
    found = stats.stability([7.0] * 60, [14.0] * 60)
    assert (found.variation.low, found.variation.high) == (0.0, 0.0)
    assert found.of_baseline.estimate == found.of_baseline.high == 0.5


def test_a_variation_of_one_block_alone_has_no_interval():
    """A constant flow with one second of a stall, as of a process that was held back once."""
    flow = np.full(600, 125.0) + np.resize([0.0, 0.1], 600)
    flow[300:302] = [40, 210]
    found = stats.stability(flow).variation
    assert found.estimate == pytest.approx(np.std(flow, ddof=1) / flow.mean())
    assert (found.low, found.high) == (None, None)


def test_the_intervals_of_variation_and_fraction_cover_the_truth():
    """Gamma seconds of variation 0.5 at 6 % of the baseline's mean, 300 runs."""
    rng = np.random.default_rng(22)
    varied = fraction = 0
    for _ in range(300):
        found = stats.stability(rng.gamma(4, 15, 300), rng.gamma(100, 10, 300))
        varied += found.variation.low <= 0.5 <= found.variation.high
        fraction += found.of_baseline.low <= 0.06 <= found.of_baseline.high
    assert varied >= 0.92 * 300
    assert fraction >= 0.92 * 300


def test_a_fraction_of_nothing_is_an_error():
    with pytest.raises(ParameterError, match="has nothing in it"):
        stats.stability([1.0] * 10, [0.0] * 10)


# --- short windows


def test_in_flight_is_what_counting_at_every_instant_gives():
    """Oracle: count at each nanosecond."""
    rng = np.random.default_rng(23)
    due = np.sort(rng.integers(0, 1000, 200))
    left = np.where(rng.uniform(size=200) < 0.05, NEVER, due + rng.integers(1, 150, 200))
    found = stats.short_windows(due, left, start_ns=0, end_ns=1000, width_ns=100)
    instants = np.arange(1000) + 0.5
    inside = ((due[:, None] < instants) & (left[:, None] > instants)).sum(axis=0)
    assert found.in_flight == pytest.approx(inside.reshape(10, 100).mean(axis=1))


def test_little_s_law_holds_over_a_run_that_begins_and_ends_empty():
    rng = np.random.default_rng(24)
    due = np.sort(rng.integers(0, 50 * 10**9, 5000))
    took = rng.exponential(30e6, 5000)
    start = 1_790_000_000 * 10**9
    found = stats.short_windows(due + start, due + took, start_ns=start, end_ns=start + 60 * 10**9)
    assert len(found.due) == 600
    assert found.due.sum() == 5000
    assert found.in_flight.mean() == pytest.approx(5000 / 60 * took.mean() / 1e9, rel=1e-9)
    assert found.completed_hz.mean() == pytest.approx(5000 / 60)


def test_a_failed_request_is_counted_where_it_was_due_and_never_averaged_away():
    found = stats.short_windows([10, 20, 110], [30.0, NEVER, 120.0], start_ns=0, end_ns=200,
                                width_ns=100)  # fmt: skip
    assert found.failed.tolist() == [1, 0]
    assert found.response_ns.tolist() == [NEVER, 10.0]
    assert found.response_ok_ns.tolist() == [20.0, 10.0]
    assert found.in_flight[1] == pytest.approx(1.1)


def test_a_run_shorter_than_a_window_is_an_error():
    with pytest.raises(ParameterError, match="one window at least"):
        stats.short_windows([0], [1.0], start_ns=0, end_ns=99, width_ns=100)


# --- recovery


def test_recovery_is_the_sum_of_its_parts_for_each_of_many_faults():
    due = np.arange(0, 100_000, 10)
    faults = np.arange(5_000, 95_000, 10_000)
    took = np.full(due.size, 3.0)
    for fault in faults:
        took[(due >= fault) & (due < fault + 200)] = NEVER
    found = stats.recovery(due, took, faults, detected_ns=faults + 50, failed_over_ns=faults + 195)
    for one in found.faults:
        assert (one.detection_ns, one.failover_ns, one.total_ns) == (50.0, 145.0, 203.0)
        assert one.detection_ns + one.failover_ns + one.request_ns == one.total_ns
        assert one.failed == 20
    assert (found.median_ns.estimate, found.never, found.fault_free_failed) == (203.0, 0, 0)
    assert (found.fault_free_max_ns, found.longer) == (3.0, 0)


def test_fault_free_requests_that_outlast_the_recovery_are_counted():
    due = np.arange(0, 10_000, 10)
    took = np.full(due.size, 3.0)
    took[(due >= 5_000) & (due < 5_100)] = NEVER
    took[[100, 200, 300]] = [500.0, 400.0, 50.0]
    took[400] = NEVER
    found = stats.recovery(due, took, [5_000])
    assert found.median_ns.estimate == 103.0
    assert found.longer == 3
    assert found.fault_free_failed == 1
    assert found.fault_free_max_ns is None


def test_a_fault_that_nothing_followed_is_never_recovered_from():
    due = np.arange(0, 1000, 10)
    took = np.where(due >= 500, NEVER, 3.0)
    found = stats.recovery(due, took, [500])
    assert (found.never, found.faults[0].total_ns, found.faults[0].failed) == (1, None, 50)
    assert found.median_ns.estimate is None
    assert found.fault_free == 50


def test_a_request_under_way_when_the_fault_came_is_no_fault_free_one():
    due = np.array([0, 10, 20, 30, 40])
    took = np.array([5.0, 25.0, 50.0, 2.0, 2.0])
    found = stats.recovery(due, took, [29])
    assert found.faults[0].total_ns == 3.0
    assert found.fault_free == 2
    assert found.fault_free_max_ns == 5.0


# --- change points


@pytest.mark.slow
@pytest.mark.parametrize(
    ("blocks", "memory"), [(30, 0.0), (30, 0.3), (60, 0.6), (200, 0.0), (200, 0.6)]
)
def test_what_does_not_change_alarms_in_at_most_5_percent(blocks, memory):
    """Heavy tailed levels with memory, 300 runs at a fixed seed; 4 more are allowed for chance."""
    rng = np.random.default_rng(31)
    alarms = 0
    for seed in range(300):
        noise = signal.lfilter([1.0], [1.0, -memory], rng.standard_t(3, blocks + 100))[100:]
        alarms += len(stats.change_points(np.exp(0.2 * noise + 13), seed=seed).points) > 0
    assert alarms <= 0.05 * 300 + 4


def test_a_step_is_found_where_it_is_with_its_size():
    rng = np.random.default_rng(32)
    found_at = within = sized = 0
    for seed in range(40):
        levels = 13 + 0.2 * rng.normal(size=90)
        levels[50:] += np.log(1.5)
        points = stats.change_points(np.exp(levels), seed=seed).points
        if len(points) != 1:
            continue
        found_at += 1
        within += points[0].place.low <= 50 <= points[0].place.high
        sized += points[0].ratio.low <= 1.5 <= points[0].ratio.high
    assert found_at >= 36
    assert within >= 0.9 * found_at
    assert sized >= 0.85 * found_at


def test_two_steps_are_two_and_a_passing_outlier_is_none():
    rng = np.random.default_rng(33)
    levels = 13 + 0.1 * rng.normal(size=120)
    levels[40:80] += 1.0
    points = stats.change_points(np.exp(levels)).points
    assert [round(it.block / 2) * 2 for it in points] == [40, 80]
    assert points[0].ratio.low > 2
    assert points[1].ratio.high < 0.5
    calm = np.exp(13 + 0.1 * rng.normal(size=60))
    calm[30] *= 1000
    assert stats.change_points(calm).points == ()


def test_memory_that_leaves_too_few_blocks_abstains_and_says_so():
    rng = np.random.default_rng(34)
    found = stats.change_points(np.exp(np.cumsum(rng.normal(size=40))))
    assert found.points == ()
    assert "drifting or changing" in found.abstained


def test_blocks_that_failed_rank_last_and_empty_ones_are_passed_over():
    rng = np.random.default_rng(35)
    levels = rng.lognormal(13, 0.2, 60)
    levels[40:] = NEVER
    levels[[5, 45]] = np.nan
    [point] = stats.change_points(levels).points
    assert point.block == 40
    assert point.after_ns is None
    assert point.ratio.estimate is None


def test_the_same_levels_give_the_same_change_points():
    rng = np.random.default_rng(36)
    levels = np.concatenate([rng.lognormal(13, 0.3, 40), rng.lognormal(13.6, 0.3, 40)])
    assert stats.change_points(levels, seed=5) == stats.change_points(levels, seed=5)
    with pytest.raises(ParameterError, match="10 or more"):
        stats.change_points(levels[:9])


@pytest.mark.parametrize("memory", [0.0, 0.4, 0.97])
def test_noise_with_memory_is_what_a_recursive_filter_makes_of_it(memory):
    noise = np.random.default_rng(37).normal(size=(5, 80))
    filtered = signal.lfilter([1.0], [1.0, -memory], noise, axis=1)
    assert np.array_equal(changes._remembering(noise, memory), filtered)


# --- arrivals


def _bursts(rng, process, bins, bin_s):
    """Exact counts of a two-state process: sojourns, then Poisson of the rate's integral."""
    length = bins * bin_s
    cycle = 1 / process.leave_burst_hz + 1 / process.leave_calm_hz
    number = int(1.3 * length / cycle + 300)
    stays = np.empty(2 * number)
    stays[0::2] = rng.exponential(1 / process.leave_calm_hz, number)
    stays[1::2] = rng.exponential(1 / process.leave_burst_hz, number)
    rates = np.tile([process.calm_hz, process.burst_hz], number)
    times = np.concatenate([[0.0], np.cumsum(stays)])
    assert times[-1] > length
    area = np.concatenate([[0.0], np.cumsum(stays * rates)])
    return rng.poisson(np.diff(np.interp(np.arange(bins + 1) * bin_s, times, area)))


def test_the_published_counts_have_the_published_index(shared_data):
    """Reference: mmpp/counts100ms_I100.txt.gz: I = 100, s = 10.1010, 500 a second."""
    path = shared_data / "mmpp" / "counts100ms_I100.txt.gz"
    counts = np.array(gzip.decompress(path.read_bytes()).split(), dtype=int)
    found = stats.index_of_dispersion(counts, 1e8)
    assert found.index.estimate == pytest.approx(100, rel=0.15)
    assert found.index.low < 100 < found.index.high
    assert found.switching_hz == pytest.approx(10.101, rel=0.1)
    assert found.doubt is None
    given_window = stats.index_of_dispersion(counts, 1e8, window_ns=2e9)
    assert given_window.windows == 18_000
    assert given_window.raw == pytest.approx(95, rel=0.05)
    # what 20 / s does not see is put back: 5 %
    assert given_window.index.estimate == pytest.approx(1 + (given_window.raw - 1) / 0.95, rel=5e-3)
    error = given_window.index.estimate * np.sqrt(2 / 17_999)
    assert given_window.standard_error == pytest.approx(error)


@pytest.mark.parametrize(("bin_s", "bins"), [(0.1, 36_000), (1.0, 36_000), (0.01, 200_000)])
@pytest.mark.parametrize("shape", [(500, 0.2, 3), (5000, 0.3, 2)])
@pytest.mark.parametrize("index", [1, 2, 10, 100, 400, 1000])
def test_the_index_of_any_bursts_is_found_whatever_the_bins(index, shape, bin_s, bins):
    rng = np.random.default_rng([index, bins, shape[0]])
    mean, share, factor = shape
    if index == 1:
        counts = rng.poisson(mean * bin_s, bins)
    else:
        process = stats.mmpp2(mean, index, share, factor)
        bins = min(bins, int(1e7 / (process.switching_hz * bin_s)))
        counts = _bursts(rng, process, bins, bin_s)
    found = stats.index_of_dispersion(counts, bin_s * 1e9)
    assert found.index.estimate == pytest.approx(index, rel=0.25)
    assert abs(found.index.estimate - index) < 4 * found.standard_error
    assert found.doubt is None or found.windows < 51


def test_a_run_that_is_too_short_says_so():
    rng = np.random.default_rng(41)
    counts = _bursts(rng, stats.mmpp2(500, 1000, 0.2, 3), 1800, 0.1)
    told = stats.index_of_dispersion(counts, 1e8, window_ns=20e9)
    assert told.windows == 9
    assert "9 windows of 20 s in 3 min: the standard error is 50 %" in told.doubt
    assert stats.index_of_dispersion(counts, 1e8).doubt is not None


def test_regular_arrivals_are_below_one_and_nothing_is_nothing():
    assert stats.index_of_dispersion([50, 51] * 500, 1e8).index.estimate < 0.1
    nothing = stats.index_of_dispersion([0] * 100, 1e8)
    assert nothing.index.estimate is None
    assert nothing.doubt == "nothing arrived"


def test_batches_at_regular_instants_are_no_bursts():
    """Seven at once each 25 bins: bursts to short windows, and regular to long ones."""
    counts = np.zeros(6_000)
    counts[::25] = 7
    found = stats.index_of_dispersion(counts, 1e7)
    assert found.index.high < 1
    assert found.switching_hz is None


def test_bursts_of_bursts_have_no_single_index_and_real_arrivals_are_bursty(shared_data):
    """Reference: arrivals/AzureLLMInferenceTrace_conv.csv, 19,366 arrivals of an hour."""
    rows = csv.DictReader(
        (shared_data / "arrivals" / "AzureLLMInferenceTrace_conv.csv").read_text().splitlines()
    )
    stamps = np.array([_seconds(row["TIMESTAMP"]) for row in rows])
    assert len(stamps) == 19_366
    bins = int(stamps.max() - stamps.min()) * 10
    counts = np.bincount(((stamps - stamps.min()) * 10).astype(int))[:bins]
    found = stats.index_of_dispersion(counts, 1e8)
    assert found.index.low > 1.5
    assert found.doubt is not None
    rng = np.random.default_rng(42)
    slow = np.repeat(rng.exponential(1.0, 40), 1000)
    quick = np.repeat(rng.exponential(1.0, 4000), 10)
    told = stats.index_of_dispersion(rng.poisson(50 * slow * quick), 1e8, window_ns=4e9)
    assert "still grows" in told.doubt


def _seconds(stamp):
    whole, part = stamp.split(".")
    return datetime.fromisoformat(whole + "+00:00").timestamp() + float("0." + part)


@pytest.mark.parametrize(("index", "s"), [(100, 10.101010), (400, 2.506266), (1000, 1.001001)])
def test_switching_rates_are_those_of_the_formulas(index, s):
    process = stats.mmpp2(500, index, 0.2, 3)
    assert process.switching_hz == pytest.approx(s, rel=1e-6)
    assert (process.burst_hz, process.calm_hz) == pytest.approx((1500.0, 250.0))


@given(
    mean=st.floats(0.1, 1e6),
    index=st.floats(1.01, 2000),
    share=st.floats(0.01, 0.9),
    part=st.floats(0.05, 1.0),
)
@settings(max_examples=100)
def test_the_index_of_given_rates_is_the_inverse(mean, index, share, part):
    factor = 1 + part * (1 / share - 1)
    process = stats.mmpp2(mean, index, share, min(factor, 1 / share))
    assert process.mean_hz == pytest.approx(mean, rel=1e-9)
    assert process.dispersion() == pytest.approx(index, rel=1e-6)
    assert process.dispersion(20 / process.switching_hz) == pytest.approx(
        1 + 0.95 * (index - 1), rel=1e-6
    )


def test_an_index_of_one_is_poisson_and_below_there_is_none():
    process = stats.mmpp2(500, 1, 0.2, 3)
    assert process.burst_hz == process.calm_hz == 500
    assert process.dispersion() == 1.0
    for wrong in ((500, 0.9, 0.2, 3), (500, 100, 0.5, 3), (500, 100, 0.2, 0.5), (0, 100, 0.2, 3)):
        with pytest.raises(ParameterError):
            stats.mmpp2(*wrong)


def test_an_index_that_falls_in_longer_windows_is_doubted():
    """Batches of random size at regular times, under a level that moves."""
    rng, bins = np.random.default_rng(1), 36_000
    counts = np.zeros(bins)
    at = (np.arange(0, bins, 40) + rng.integers(0, 10, bins // 40)) % bins
    level = np.repeat(rng.gamma(30, 1 / 30, bins // 400), 10)
    np.add.at(counts, at, rng.poisson(12 * level))
    doubt = stats.index_of_dispersion(counts, 1e8).doubt
    assert doubt is not None
    assert doubt.startswith("I(t) falls: ")
    doubts = [stats.index_of_dispersion(rng.poisson(20, 20_000), 1e8).doubt for _ in range(20)]
    assert doubts.count(None) >= 19
