"""Failure detectors, slow members, XFT, profit and hedges: known answers and planted truth."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from unruly import stats
from unruly.errors import ParameterError
from unruly.stats import Interval
from unruly.stats.members import SUBSETS_MAX
from unruly.stats.replies import EXACT, WHAT_IF
from unruly.stats.xft import _greedy, _left_out

MS = 1e6


# --- failure detection


def test_a_reply_that_came_exactly_at_the_timeout_is_in_time():
    at, below = stats.failure_detection(
        [2.0 * MS] * 4, [2 * MS, 1.999 * MS], period_ns=1e9, blocks=[0, 0, 1, 1]
    )
    assert (at.suspicions, below.suspicions) == (0, 4)


def test_a_late_reply_in_each_of_a_thousand_pings_a_second_is_so_many_suspicions_an_hour():
    took = np.where(np.arange(10_000) % 1000 == 7, 90.0, 1.0) * MS
    [found] = stats.failure_detection(
        took, [50 * MS], period_ns=1e9, blocks=np.arange(10_000) // 500
    )
    assert found.suspicions == 10
    assert found.false_per_hour.estimate == pytest.approx(3.6)
    assert found.detection_max_ns == 1e9 + 50 * MS
    assert found.detection_mean_ns == 0.5e9 + 50 * MS


def test_a_reply_that_never_came_is_a_suspicion_at_every_timeout():
    found = stats.failure_detection([1.0, float("inf")], [1e3, 1e15], period_ns=1e9, blocks=[0, 1])
    assert [it.suspicions for it in found] == [1, 1]


def test_pings_of_one_long_stall_are_one_suspicion_and_of_two_pairs_two():
    sent = np.arange(0, 1000, 10) * 10**6
    stall = (sent >= 300e6) & (sent < 400e6)
    took = np.where(stall, 400e6 - sent, 1e6)
    one, many = (
        stats.failure_detection(took, [5e6], period_ns=1e7, blocks=np.arange(100) // 10, **more)
        for more in ({"sent_ns": sent, "pairs": np.zeros(100)}, {})
    )
    assert one[0].suspicions == 1
    assert many[0].suspicions == 10
    [both] = stats.failure_detection(
        np.tile(took, 2), [5e6], period_ns=1e7, blocks=np.tile(np.arange(100) // 10, 2),
        sent_ns=np.tile(sent, 2), pairs=np.repeat([0, 1], 100),
    )  # fmt: skip
    assert both.suspicions == 2


@given(st.integers(0, 10_000), st.sampled_from([2.0, 5.0, 20.0, 60.0]))
@settings(max_examples=60)
def test_suspicions_are_those_of_a_detector_that_is_run_step_by_step(seed, timeout):
    """Oracle: play every event of one pair in order of time."""
    rng = np.random.default_rng(seed)
    sent = np.arange(40) * 10
    # in order: a reply never overtakes the one before it
    arrived = np.maximum.accumulate(sent + np.ceil(rng.exponential(8, 40)) + 0.5)
    events = sorted(
        [(at, 0, place) for place, at in enumerate(arrived)]
        + [(at + timeout, 1, place) for place, at in enumerate(sent)]
    )
    count, overdue, answered = 0, set(), set()
    for _, kind, place in events:
        if kind == 0:
            answered.add(place)
            overdue.discard(place)
        elif place not in answered:
            count += not overdue
            overdue.add(place)
    [found] = stats.failure_detection(
        arrived - sent, [timeout], period_ns=10, blocks=np.arange(40) // 4, sent_ns=sent,
        pairs=np.zeros(40),
    )  # fmt: skip
    assert found.suspicions == count


def test_bursts_of_suspicions_widen_the_interval_of_their_rate():
    blocks = np.arange(6000) // 200
    rare, burst = np.full(6000, MS), np.full(6000, MS)
    rare[::200], burst[1000:1030] = 90 * MS, 90 * MS
    even, bunched = (
        stats.failure_detection(took, [50 * MS], period_ns=1e9, blocks=blocks)[0]
        for took in (rare, burst)
    )
    assert even.suspicions == bunched.suspicions == 30
    assert bunched.false_per_hour.high > 3 * even.false_per_hour.high


@pytest.mark.parametrize("timeout", [0.0, -1.0])
def test_a_timeout_of_nothing_is_an_error(timeout):
    with pytest.raises(ParameterError, match="timeouts_ns: are"):
        stats.failure_detection([1.0, 1.0], [timeout], period_ns=1e9, blocks=[0, 1])


def test_the_accuracy_set_is_what_every_observer_sees_in_time_and_grows_with_the_timeout():
    worst = np.full((5, 5), 1.0)
    worst[2, 4], worst[:, 3] = 50.0, 7.0
    np.fill_diagonal(worst, np.nan)
    assert stats.accuracy_set(worst, [0.5, 1.0, 7.0, 50.0]).tolist() == [0, 3, 4, 5]
    windows = stats.accuracy_set(np.stack([worst, np.ones((5, 5))]), [1.0])
    assert windows.tolist() == [[3, 5]]


# --- slow members


def _square(members, slow=(), slow_ns=80 * MS, observer=None):
    square = np.full((members, members), MS)
    rows = slice(None) if observer is None else observer
    for member in slow:
        square[rows, member] = slow_ns
    return square


def test_s_is_what_the_worst_observer_sees_and_falls_to_none_above_the_slowest():
    seen_by_one = _square(5, slow=(1, 2), observer=4)
    low, high = stats.slow_members([seen_by_one] * 500, [10 * MS, 80 * MS], 5)
    assert (low.s.estimate, low.s.high, low.mean.estimate) == (2.0, 2.0, 2.0)
    assert (high.s.estimate, high.s.high) == (0.0, 0.0)


def test_a_process_is_not_slow_to_itself():
    square = _square(4)
    np.fill_diagonal(square, 1e12)
    [found] = stats.slow_members([square] * 500, [10 * MS], 4)
    assert found.s.high == 0.0


def test_for_one_observer_members_of_a_larger_group_are_hypergeometric():
    """Oracle: scipy. All see the same three slow of nine; a subset's own slow are its s or one
    less."""
    groups = np.stack([_square(9, slow=(0, 1, 2), observer=8)] * 2)
    [found] = stats.slow_members(groups, [10 * MS], 4, confidence=0.5)
    # observer 8 is in a subset with chance 4/9, and then has 3 of the other 8 as peers
    peers = scipy_stats.hypergeom(8, 3, 3)
    for k in range(4):
        expected = 5 / 9 + 4 / 9 * peers.cdf(k)
        assert found.shares[k].estimate == pytest.approx(expected, abs=1e-12)


def test_more_subsets_than_can_be_counted_are_drawn_and_the_draw_replays():
    rng = np.random.default_rng(5)
    groups = rng.lognormal(np.log(MS), 2, (40, 14, 14))
    one, again, other = (
        stats.slow_members(groups, [5 * MS], 7, seed=seed)[0] for seed in (1, 1, 2)
    )
    assert SUBSETS_MAX < 3432
    assert one == again
    for k in range(7):
        assert one.shares[k].estimate == pytest.approx(other.shares[k].estimate, abs=0.05)


def test_members_that_were_not_measured_are_not_members():
    square = np.full((6, 6), np.nan)
    square[:3, :3] = _square(3)
    [found] = stats.slow_members([square] * 500, [10 * MS], 3)
    assert found.s.high == 0.0
    with pytest.raises(ParameterError, match="size: is 4, the largest measured group has 3"):
        stats.slow_members([square] * 4, [10 * MS], 4)


def test_what_few_windows_cannot_prove_is_not_claimed():
    few, many = (stats.slow_members([_square(5)] * n, [10 * MS], 5)[0] for n in (50, 500))
    assert few.s.estimate == many.s.estimate == 0.0
    assert few.s.high == 4.0
    assert many.s.high == 0.0


def test_slow_windows_that_come_together_prove_less_than_scattered_ones():
    calm, slow = _square(5), _square(5, slow=(1,))
    together = [calm] * 570 + [slow] * 30
    scattered = ([calm] * 19 + [slow]) * 30
    one, other = (
        stats.slow_members(groups, [10 * MS], 5, confidence=0.9)[0]
        for groups in (together, scattered)
    )
    assert one.shares[0].estimate == other.shares[0].estimate == pytest.approx(0.95)
    assert one.shares[0].low < other.shares[0].low
    assert (one.s.high, other.s.high) == (1.0, 0.0)


def test_a_bound_on_slow_windows_holds_when_their_spells_came_a_few_times():
    """1.2 % of 3,000 windows are slow, in spells of four on average: s = 0 in 99 % is false."""
    rng = np.random.default_rng(61)
    believed = 0
    for _ in range(200):
        slow = np.zeros(3000, dtype=bool)
        for begin in np.flatnonzero(rng.uniform(size=3000) < 0.003):
            slow[begin : begin + rng.geometric(0.25)] = True
        held = np.stack([~slow, np.ones(3000, dtype=bool)], axis=1)
        believed += stats.smallest_count(held, confidence=0.99)[1].high < 1
    assert believed <= 0.05 * 200


def test_groups_of_one_window_count_as_one_window():
    groups = [_square(5)] * 100
    [found] = stats.slow_members(groups, [10 * MS], 5, windows=np.arange(100) // 10)
    assert found.windows == 10


def test_replicas_lie_between_those_of_synchrony_and_of_no_assumption():
    slow = stats.slow_members(
        [_square(7, slow=(1,))] * 500 , [10 * MS, 100 * MS], 7
    )  # fmt: skip
    tight, loose = stats.replicas_needed(slow, 2)
    assert (tight.n.high, loose.n.high) == (4.0, 3.0)
    assert (tight.saves, loose.saves) == (1, 2)
    everybody = stats.slow_members([_square(7, slow=range(7))] * 500, [10 * MS], 7)
    [capped] = stats.replicas_needed(everybody, 2)
    assert capped.n.high == capped.asynchronous == 5
    assert stats.crossing([tight, loose], 3) == (100 * MS, 100 * MS)
    assert stats.crossing([tight, loose], 4) == (10 * MS, 10 * MS)
    assert stats.crossing([tight, loose], 2) == (None, None)


def test_a_timeout_after_which_it_gets_worse_again_is_no_crossing():
    good, bad = (
        stats.replicas_needed(stats.slow_members([square] * 500, [t * MS], 3), 1)[0]
        for t, square in ((5, _square(3)), (10, _square(3, slow=(1, 2))))
    )
    assert stats.crossing([good, bad], 2) == (None, None)


# --- XFT


def _enumerate(t, partitioned, crashed, byzantine):
    """The definitions, replica by replica: no binomial coefficient."""
    correct = 1 - crashed - byzantine
    chances = {
        "byzantine": byzantine,
        "crashed": crashed,
        "slow": correct * partitioned,
        "good": correct * (1 - partitioned),
    }
    fine = dict.fromkeys(("cft_c", "xft_c", "cft_a", "xft_a", "bft_c", "bft_a"), 0.0)
    for n, names in ((2 * t + 1, "cx"), (3 * t + 1, "b")):
        for states in product(chances, repeat=n):
            chance = np.prod([chances[state] for state in states])
            lying, bad = states.count("byzantine"), n - states.count("good")
            if names == "b":
                fine["bft_c"] += chance * (lying <= t)
                fine["bft_a"] += chance * (bad <= t)
            else:
                fine["cft_c"] += chance * (lying == 0)
                fine["xft_c"] += chance * (lying == 0 or bad <= t)
                fine["cft_a"] += chance * (lying == 0 and bad <= t)
                fine["xft_a"] += chance * (bad <= t)
    return fine


@pytest.mark.parametrize(
    ("t", "slow", "crashed", "byzantine"),
    [(1, 0.1, 0.05, 0.02), (1, 0.5, 0.0, 0.2), (2, 0.05, 0.1, 0.05)],
)
def test_nines_are_those_of_counting_every_state_of_every_replica(t, slow, crashed, byzantine):
    found = stats.xft(t, slow, crashed=crashed, byzantine=byzantine)
    fine = _enumerate(t, slow, crashed, byzantine)
    for name, value in (
        ("cft_c", found.cft_consistency), ("xft_c", found.xft_consistency),
        ("bft_c", found.bft_consistency), ("cft_a", found.cft_availability),
        ("xft_a", found.xft_availability), ("bft_a", found.bft_availability),
    ):  # fmt: skip
        assert value == pytest.approx(-np.log10(1 - fine[name]), rel=1e-9)


def test_nines_agree_with_the_sums_of_the_xft_paper():
    """The closed forms of section 6, in p_benign, p_correct, p_synchrony and p_available."""
    from math import comb

    crashed, byzantine, slow, t = 0.02, 0.01, 0.03, 1
    n, benign = 2 * t + 1, 1 - byzantine
    correct = benign - crashed
    available = correct * (1 - slow)
    cft_c = benign**n
    xft_c = benign**n + sum(
        comb(n, i) * byzantine**i
        * comb(n - i, j) * crashed**j
        * comb(n - i - j, k) * correct ** (n - i - j) * (1 - slow) ** (n - i - j - k) * slow**k
        for i in range(1, t + 1)
        for j in range(t - i + 1)
        for k in range(t - i - j + 1)
    )  # fmt: skip
    xft_a = sum(comb(n, i) * available**i * (1 - available) ** (n - i) for i in range(n - t, n + 1))
    cft_a = sum(
        comb(n, i) * available**i * (benign - available) ** (n - i) for i in range(n - t, n + 1)
    )
    found = stats.xft(t, slow, crashed=crashed, byzantine=byzantine)
    pairs = (
        (found.cft_consistency, cft_c), (found.xft_consistency, xft_c),
        (found.xft_availability, xft_a), (found.cft_availability, cft_a),
    )  # fmt: skip
    for nines, p in pairs:
        assert nines == pytest.approx(-np.log10(1 - p), rel=1e-9)


def test_xft_is_never_worse_than_cft_and_worse_the_more_is_partitioned():
    found = [stats.xft(1, slow) for slow in (0.0, 1e-4, 1e-2, 0.3)]
    assert all(it.xft_consistency >= it.cft_consistency for it in found)
    assert all(it.xft_availability >= it.cft_availability for it in found)
    falling = [it.xft_consistency for it in found]
    assert falling == sorted(falling, reverse=True)
    assert falling[0] > falling[-1] + 2


def test_a_perfect_machine_has_infinitely_many_nines():
    assert stats.xft(1, 0.0, crashed=0.0, byzantine=0.0).cft_consistency == float("inf")


@pytest.mark.parametrize("wrong", [{"partitioned": 1.5}, {"partitioned": 0.1, "crashed": 1.0}])
def test_chances_that_are_none_are_errors(wrong):
    with pytest.raises(ParameterError, match="probabilities"):
        stats.xft(1, wrong.pop("partitioned"), **wrong)


@given(st.integers(0, 10_000), st.integers(2, 8))
@settings(max_examples=60)
def test_partitioned_members_are_those_outside_the_largest_timely_set(seed, members):
    """Oracle: try every subset."""
    rng = np.random.default_rng(seed)
    late = rng.uniform(size=(members, members)) < 0.3
    late = late | late.T
    np.fill_diagonal(late, val=False)
    largest = max(
        bin(mask).count("1")
        for mask in range(1 << members)
        if not late[np.ix_(*[[i for i in range(members) if mask >> i & 1]] * 2)].any()
    )
    assert _left_out(late) == members - largest
    assert _greedy(late) >= members - largest


def test_one_late_direction_partitions_and_a_pair_is_counted_once():
    square = _square(5)
    square[1, 3] = 80 * MS
    [found] = stats.partitioned_share([square] * 10, [10 * MS])
    assert found.estimate == pytest.approx(1 / 5)


# --- profit


def test_profit_by_hand_at_every_edge_of_the_default_table():
    edges = [0, 200e6, 200e6 + 1, 500e6, 500e6 + 1, 1e9, 1e9 + 1, 2e9, 2e9 + 1, float("inf")]
    found = stats.profit(edges, np.arange(10), duration_ns=3600e9)
    paid = 2 * (0.0020 + 0.0015 + 0.0013 + 0.0005 - 0.0047)
    assert found.counts == (2, 2, 2, 2, 2)
    assert found.per_hour.estimate == pytest.approx(paid)
    assert found.per_request == pytest.approx(paid / 10)
    assert found.lost_share == pytest.approx(1 - paid / 0.02)


def test_a_minute_earns_a_sixtieth_of_an_hour_and_failures_cost():
    good = stats.profit([1e6] * 60, np.arange(60) // 2, duration_ns=60e9)
    assert good.per_hour.estimate == pytest.approx(60 * 60 * 0.0020)
    bad = stats.profit([1e6] * 59 + [np.inf], np.arange(60) // 2, duration_ns=60e9)
    assert good.per_hour.estimate - bad.per_hour.estimate == pytest.approx(60 * 0.0067)


def test_a_table_of_one_s_own_is_used():
    table = stats.SlaTable((1e6,), (1.0, -2.0))
    found = stats.profit([0.5e6, 1e6, 2e6], [0, 1, 2], table, duration_ns=3600e9)
    assert found.per_hour.estimate == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("bounds", "pays", "words"),
    [
        ((2e8, 1e8), (3.0, 2.0, 1.0), "bounds that rise"),
        ((1e8, 1e8), (3.0, 2.0, 1.0), "bounds that rise"),
        ((1e8, 2e8), (1.0, 2.0, 0.0), "never rise with latency"),
        ((1e8, 2e8), (1.0, 0.0), "one payment more"),
        ((), (1.0,), "a bound or more"),
        ((1e8, float("inf")), (1.0, 0.5, 0.0), "finite"),
    ],
)
def test_an_sla_table_out_of_order_is_an_error(bounds, pays, words):
    with pytest.raises(ParameterError, match=words):
        stats.SlaTable(bounds, pays)


def test_the_interval_of_profit_covers_under_stalls():
    """500 runs of 60 blocks whose stalls (a fifth of a block, one in three) cost: planted mean."""
    rng = np.random.default_rng(17)
    covered = 0
    for _ in range(500):
        slow = rng.poisson(1 / 3, 60) * 20
        found = stats.profit_of_counts(
            [100 - np.minimum(slow, 100), np.zeros(60), np.zeros(60), np.zeros(60),
             np.minimum(slow, 100)], duration_ns=3600e9,
        )  # fmt: skip
        expected = 60 * (100 * 0.002 - 20 / 3 * 0.0067)
        covered += found.per_hour.low <= expected <= found.per_hour.high
    assert covered >= 465


@pytest.mark.parametrize(
    ("loads", "profits", "peak"),
    [
        ((4600, 5200, 5400, 5600, 5800), (78.4, 86.7, 86.6, 83.9, 68.0), 5200),
        ((4600, 5200, 5400, 5600, 5800), (78.5, 86.5, 89.9, 93.5, 85.9), 5600),
        ((5000, 5200, 5400, 5500, 5600), (84.2, 85.6, 83.2, 81.1, 78.4), 5200),
        ((5000, 5200, 5400, 5500, 5600), (84.2, 87.3, 90.8, 91.6, 89.1), 5500),
    ],
)
def test_profit_falls_from_the_loads_that_were_published(loads, profits, peak):
    """Reference: the n-tier study's tables of connection pools."""
    cells = [Interval(x, x - 0.5, x + 0.5, 0.95, 30, 30.0, "") for x in profits]
    found = stats.profit_peak(loads, cells)
    assert found.load == peak
    assert found.falls is True


def test_a_fall_within_the_noise_is_not_sure_and_no_fall_is_none():
    def cell(value, reach):
        return Interval(value, value - reach, value + reach, 0.95, 30, 30.0, "")

    unsure = stats.profit_peak([1, 2, 3], [cell(5, 1), cell(8, 1), cell(7.5, 1)])
    assert (unsure.load, unsure.falls, unsure.falls_at) == (2.0, None, None)
    rising = stats.profit_peak([1, 2, 3], [cell(5, 1), cell(8, 1), cell(9, 1)])
    assert (rising.load, rising.falls) == (3.0, False)
    with pytest.raises(ParameterError, match="two or more that rise"):
        stats.profit_peak([2, 1], [cell(5, 1), cell(8, 1)])


# --- first, k-th, all, single, hedge


def test_first_kth_and_all_are_exact_and_the_rest_is_labelled():
    rng = np.random.default_rng(2)
    table = rng.lognormal(np.log(MS), 1, (6000, 5))
    ways = stats.replies_of(table, [MS])
    for k, way in enumerate(ways.kth, 1):
        exact = np.sort(table, axis=1)[:, k - 1]
        assert way.quantiles[0.99] == pytest.approx(np.quantile(exact, 0.99))
        assert way.mean_ok == pytest.approx(exact.mean())
        assert (way.basis, way.sent) == (EXACT, 5)
    assert [way.name for way in ways.kth] == ["first", "2 of 5", "majority", "4 of 5", "all"]
    for way in (ways.single, *ways.fixed, *ways.hedges):
        assert way.basis == WHAT_IF
    assert ways.single.mean_ok == pytest.approx(table.mean())
    for place, way in enumerate(ways.fixed):
        assert way.mean_ok == pytest.approx(table[:, place].mean())


def test_a_hedge_is_the_sooner_of_the_first_copy_and_the_second_sent_later():
    table = np.tile([[10.0 * MS, 1.0 * MS]], (3000, 1))
    table[::2] = table[::2, ::-1]
    # whichever is asked first: it answers after 10 or 1, the other the other
    [hedge] = stats.replies_of(table, [4 * MS]).hedges
    assert hedge.quantiles[0.99] == 5 * MS
    assert hedge.extra.estimate == pytest.approx(0.5, abs=0.03)
    assert hedge.sent == pytest.approx(1 + hedge.extra.estimate)


def test_a_hedge_at_once_is_two_copies_and_a_very_late_one_is_a_single():
    rng = np.random.default_rng(3)
    table = rng.exponential(MS, (20_000, 2))
    ways = stats.replies_of(table, [0.0, 1e15])
    at_once, never = ways.hedges
    assert at_once.mean_ok == pytest.approx(ways.first.mean_ok)
    assert at_once.extra.estimate == 1.0
    assert never.extra.estimate == 0.0
    assert never.mean_ok == pytest.approx(ways.single.mean_ok, rel=0.02)


def test_a_reply_that_never_came_fails_all_and_a_single_but_not_the_first():
    table = np.full((2000, 3), MS)
    table[:100, 1] = np.inf
    ways = stats.replies_of(table, [2 * MS])
    assert [way.failed for way in (ways.first, ways.all, ways.single)] == [0, 100, 100]
    assert ways.all.quantiles[0.99] is None
    assert ways.hedges[0].failed == 0
    assert ways.hedges[0].quantiles[0.999] in (MS, 3 * MS)


def test_servers_of_a_hedge_are_drawn_evenly_and_replay():
    table = np.tile([1.0, 10.0, 100.0], (30_000, 1)) * MS
    one, again = (stats.replies_of(table, [1e15], seed=4).hedges[0] for _ in range(2))
    assert one == again
    assert one.mean_ok == pytest.approx(37 * MS, rel=0.03)


def test_a_quantile_needs_a_request_beyond_it():
    ways = stats.replies_of(np.full((500, 2), MS), [MS])
    assert ways.first.quantiles[0.99] == MS
    assert ways.first.quantiles[0.999] is None
