"""Recoveries from faults: their parts from events and from requests, and the break-even rate."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

import unruly
from fault_world import MS, at, bad, fail_over, fault, good, write_faults
from quick import numbers
from unruly import stats
from unruly.__main__ import main
from unruly.base.context import Context
from unruly.errors import ParameterError
from unruly.topics.over_time.recoveries import fault_recoveries
from unruly.topics.over_time.section import recoveries

NEVER = float("inf")


def _usual(until_ms=2_000, step_ms=10, took_ms=1.0, **more):
    return [good(due, took_ms, **more) for due in range(0, until_ms, step_ms)]


def _parts(one):
    return tuple(
        None if it is None else it / MS
        for it in (one.detection_ns, one.failover_ns, one.request_ns, one.total_ns)
    )


def _all(run):
    """The recoveries alone: the rest of an analysis would take most of the time of these tests."""
    return fault_recoveries(Context.of(unruly.open_run(run), lambda _: None))


def _only(run):
    (found,) = _all(run)
    return found


# --- by the requests


def test_the_requests_of_a_killed_server_split_its_recovery(tmp_path):
    rows = [row for row in _usual() if not at(1_000) <= row["intended_ns"] < at(1_100)]
    # the first failure is known at 1,003 ms; the next good reply is to a request sent 5 ms late
    rows += [bad(1_001, "error:store", 1_003), bad(1_010, "refused"), bad(1_050, "refused")]
    rows += [good(1_060, 9.0, sent_ms=1_065)]
    found = _only(write_faults(tmp_path / "run", rows, [fault("agent-0", 1_000)]))
    (one,) = found.recoveries.faults
    assert _parts(one) == (3.0, 62.0, 4.0, 69.0)
    assert (one.failed, found.split_from, found.all_clients) == (3, "requests", False)
    assert found.recoveries.detection_ns.estimate == 3 * MS
    assert (found.recoveries.detection_ns.low, found.recoveries.detection_ns.n) == (None, 1)


def test_without_a_failed_request_only_the_total_stands(tmp_path):
    rows = [row for row in _usual() if not at(1_000) <= row["intended_ns"] < at(1_100)]
    rows += [good(1_010, 90.0), bad(1_900, "refused"), bad(500, "refused")]
    found = _only(write_faults(tmp_path / "run", rows, [fault("agent-0", 1_000, "fault stop")]))
    (one,) = found.recoveries.faults
    assert (one.detection_ns, one.failover_ns, one.total_ns) == (None, None, 100 * MS)
    assert found.split_from is None
    assert found.recoveries.detection_ns is None


def test_a_failure_without_a_time_detects_nothing(tmp_path):
    rows = [row for row in _usual() if not at(1_000) <= row["intended_ns"] < at(1_100)]
    for place, status in enumerate(("timeout", "shed", "unfinished")):
        rows.append(bad(1_000 + place, status))
    rows.append(bad(1_005, "error:reset", sent=True))
    found = _only(write_faults(tmp_path / "run", rows, [fault("agent-0", 1_000)]))
    assert found.split_from is None
    assert found.recoveries.faults[0].failed == 4


def test_a_fault_that_the_next_one_follows_first_has_a_detection_and_no_recovery(tmp_path):
    rows = [row for row in _usual() if not at(1_000) <= row["intended_ns"] < at(1_100)]
    rows += [bad(1_000 + ms, "refused") for ms in range(5, 100, 10)]
    faults = [fault("agent-0", 1_000), fault("agent-0", 1_050)]
    found = _only(write_faults(tmp_path / "run", rows, faults))
    first, second = found.recoveries.faults
    assert _parts(first) == (5.0, None, None, None)
    assert _parts(second) == (5.0, 45.0, 1.0, 51.0)
    assert (found.recoveries.never, found.recoveries.failover_ns.n) == (1, 1)


@pytest.mark.parametrize("seed", range(3))
def test_the_split_is_that_of_the_raw_requests(tmp_path, seed):
    """Oracle: `stats.recovery` over the same requests as arrays."""
    rng = np.random.default_rng(seed)
    faults = np.sort(rng.choice(np.arange(100, 2_900), 12, replace=False))
    rows = []
    for due in np.sort(rng.uniform(0, 3_000, 1_500)):
        since = due - faults[faults <= due].max(initial=-1_000)
        lag, took = rng.exponential(0.5), rng.exponential(2.0)
        kind = rng.choice(4) if since < 30 else 4 if rng.uniform() < 0.99 else 0
        rows.append(
            [bad(due, "refused"), bad(due, "error:store", due + took), bad(due, "timeout"),
             bad(due, "error:reset", sent=True), good(due, lag + took, due + lag)][kind]
        )  # fmt: skip
    found = _only(
        write_faults(tmp_path / "run", rows, [fault("agent-0", float(it)) for it in faults])
    )
    failed_at = [
        row["received_ns"] or row["intended_ns"]
        if row["status"] in ("refused", "error:store") else -1 for row in rows
    ]  # fmt: skip
    took = [row["received_ns"] - row["intended_ns"] if row["status"] == "ok" else NEVER
            for row in rows]  # fmt: skip
    wanted = stats.recovery(
        [row["intended_ns"] for row in rows], took, found.fault_ns,
        sent_ns=[row["sent_ns"] or -1 for row in rows], failed_at_ns=failed_at,
    )  # fmt: skip
    assert found.recoveries == wanted
    assert wanted.request_ns.n > 5
    assert wanted.request_ns.high is not None
    for one in wanted.faults:
        if one.failover_ns is not None:
            assert one.detection_ns + one.failover_ns + one.request_ns == one.total_ns


def test_times_of_sending_without_times_of_failing_are_an_error():
    with pytest.raises(ParameterError, match="sent_ns, failed_at_ns"):
        stats.recovery([0], [1.0], [0], sent_ns=[0])


# --- by the events of the clients


def test_the_client_that_was_answered_last_splits_the_recovery(tmp_path):
    events = [
        fault("replica-0", 1_000), fault("replica-1", 1_500),
        *fail_over(1, 17, 1_000.25, 1_001, 1_003), *fail_over(2, 9, 1_000.5, 1_001.5, 1_006),
        # the second fail-over of a client after the same fault counts for nothing
        *fail_over(1, 18, 1_100, 1_101, 1_190), *fail_over(1, 60, 1_502, 1_503, 1_507),
    ]  # fmt: skip
    analysis = numbers(write_faults(tmp_path / "run", _usual(), events))
    one, two = analysis.over_time.recoveries
    assert (one.process, two.process) == ("replica-0", "replica-1")
    assert _parts(one.recoveries.faults[0]) == (0.5, 1.0, 4.5, 6.0)
    assert _parts(two.recoveries.faults[0]) == (2.0, 1.0, 4.0, 7.0)
    assert (one.split_from, one.all_clients) == ("fail-over events", True)
    (finding, _) = [it for it in analysis.findings if it.code == "recovery"]
    assert "Detection took 500 µs, the fail-over 1 ms and the request 4.5 ms." in finding.text
    assert "over all clients of the cell because no request names the process" in finding.text
    assert finding.evidence["failover_ns"] == MS


def test_a_request_number_that_comes_again_is_answered_by_the_next_answer(tmp_path):
    events = [fault("replica-0", 1_000), *fail_over(1, 17, 300, 301, 302),
              *fail_over(1, 17, 1_001, 1_002, 1_004)]  # fmt: skip
    found = _only(write_faults(tmp_path / "run", _usual(), events))
    assert _parts(found.recoveries.faults[0]) == (1.0, 1.0, 2.0, 4.0)


def test_a_client_that_was_never_answered_leaves_the_others(tmp_path):
    events = [fault("replica-0", 1_000), *fail_over(1, 17, 1_001, 1_002, None),
              *fail_over(2, 5, 1_001, 1_003, 1_004)]  # fmt: skip
    found = _only(write_faults(tmp_path / "run", _usual(), events))
    assert _parts(found.recoveries.faults[0]) == (1.0, 2.0, 1.0, 4.0)
    alone = _only(write_faults(tmp_path / "alone", _usual(), events[:2]))
    assert alone.split_from is None
    assert alone.recoveries.faults[0].total_ns == MS


def test_an_answer_after_the_next_fault_is_no_recovery(tmp_path):
    events = [fault("replica-0", 1_000), fault("replica-0", 1_010),
              *fail_over(1, 17, 1_001, 1_002, 1_012)]  # fmt: skip
    found = _only(write_faults(tmp_path / "run", _usual(), events))
    assert _parts(found.recoveries.faults[0]) == (1.0, None, None, None)
    assert found.recoveries.never == 1


def test_events_split_some_faults_and_requests_the_others(tmp_path):
    rows = [*_usual(), bad(1_500.5, "refused")]
    rows = [row for row in rows if row["intended_ns"] != at(1_500)]
    events = [fault("replica-0", 1_000), fault("replica-0", 1_500),
              *fail_over(1, 17, 1_001, 1_002, 1_005)]  # fmt: skip
    found = _only(write_faults(tmp_path / "run", rows, events))
    assert [_parts(one) for one in found.recoveries.faults] == [
        (1.0, 1.0, 3.0, 5.0), (0.5, 9.5, 1.0, 11.0),
    ]  # fmt: skip
    assert found.split_from == "both"


# --- a process that no request names


def test_the_faults_of_a_hidden_process_leave_out_those_of_the_others(tmp_path):
    """The slow requests after a fault of the other replica are not fault-free."""
    rows = [row for row in _usual() if row["intended_ns"] != at(1_500)]
    rows += [good(1_500, 80.0), *[good(1_500 + ms, 90.0) for ms in range(1, 5)]]
    rows = [row for row in rows if not at(1_505) <= row["intended_ns"] < at(1_580)]
    events = [fault("replica-0", 1_000), fault("replica-1", 1_499)]
    one, two = _all(write_faults(tmp_path / "run", rows, events))
    assert one.recoveries.fault_free_max_ns == MS
    assert one.recoveries.fault_free == two.recoveries.fault_free
    assert two.recoveries.faults[0].total_ns == 81 * MS


def test_a_bystander_has_no_part_in_any_request(tmp_path):
    found = _only(write_faults(tmp_path / "run", _usual(), [fault("probe", 1_000)]))
    assert found.recoveries is None
    assert found.absent["recoveries"] == "it has no part in any request"


# --- the break-even rate


def test_outliers_and_faults_cost_the_same_at_the_break_even_rate():
    excess = [9e6, 11e6, 10e6, 8e6, 12e6, 10e6]
    totals = [201e6, 203e6, 199e6, 202e6, 200e6, 201e6]
    found = stats.break_even_faults(excess, 10.0, totals, 1e6)
    # 10 ms in 10 s, against 200 ms less the median of 1 ms
    assert found.outliers_ns.estimate == pytest.approx(1e6)
    assert found.fault_ns.estimate == pytest.approx(200e6)
    assert (found.fault_ns.low, found.fault_ns.high) == (198e6, 202e6)
    assert 1 / found.faults_hz.estimate == pytest.approx(200.0)
    assert found.faults_hz.low < 1 / 200 < found.faults_hz.high
    shared = stats.break_even_faults(excess, 10.0, totals, 1e6, clients=4)
    assert shared.faults_hz.estimate == pytest.approx(found.faults_hz.estimate / 4)


def test_a_loss_of_one_block_alone_has_no_interval():
    found = stats.break_even_faults([0.0] * 29 + [5e6], 1.0, [2e8] * 6, 1e6)
    assert found.faults_hz.estimate > 0
    assert (found.faults_hz.low, found.faults_hz.high) == (None, None)


@pytest.mark.parametrize(
    ("excess", "totals", "complaint"),
    [
        ([1.0] * 5, [2e8] * 6, "excess_ns: has shape"),
        ([0.0] * 6, [2e8] * 6, "not all 0"),
        ([1.0] * 6, [2e8] * 5, "6 recoveries or more"),
        ([1.0] * 6, [1e6] * 6, "have a median of"),
    ],
)
def test_a_break_even_rate_of_too_little_is_an_error(excess, totals, complaint):
    with pytest.raises(ParameterError, match=complaint):
        stats.break_even_faults(excess, 1.0, totals, 1e6)


@pytest.mark.parametrize(("faults", "clusters"), [(8, False), (20, True)])
def test_the_interval_of_the_break_even_rate_covers_the_truth(faults, clusters):
    """Poisson outliers (in bursts of 5, also), exponential sizes, lognormal recoveries."""
    rng = np.random.default_rng(31)
    truth = 200 * 20e6 / 60 / (300e6 - 1e6)
    covered = 0
    for _ in range(300):
        size = 5 if clusters else 1
        outliers = size * rng.poisson(200 / size, 30)
        excess = [rng.exponential(20e6, n).sum() for n in outliers]
        totals = 300e6 * np.exp(rng.normal(0, 0.4, faults))
        rate = stats.break_even_faults(excess, 60.0, totals, 1e6).faults_hz
        covered += rate.low <= truth <= rate.high
    assert covered >= 0.92 * 300


def _with_outliers(tmp_path, faults=8, clients=1, slow=50.0):
    """Eight faults in 8 s; one request in 50 takes 50 ms; a reply of 1 ms each 5 ms otherwise."""
    rows, events = [], []
    for place, due in enumerate(range(0, 8_000, 5)):
        second, since = divmod(due, 1_000)
        if 500 <= since < 700 and second < faults:
            rows.append(bad(due, "refused", client=place % clients))
        else:
            took = slow if place % 50 == 25 else 1.0
            rows.append(good(due, took, client=place % clients))
    events = [fault("agent-0", second * 1_000 + 499) for second in range(faults)]
    return write_faults(tmp_path / "run", rows, events)


@pytest.mark.slow
@pytest.mark.parametrize("clients", [1, 2])
def test_the_break_even_rate_of_a_run_is_that_of_its_outliers(tmp_path, clients):
    analysis = numbers(_with_outliers(tmp_path, clients=clients))
    (found,) = analysis.over_time.recoveries
    even = found.break_even
    # the outliers at 625 ms into a second were refused, and each fault takes 201 ms + 1 ms
    slow = sum(place % 50 == 25 and not 500 <= place * 5 % 1_000 < 700 for place in range(1_600))
    free_s = (7_995 - 8 * 202) / 1_000
    assert even.outliers_ns.estimate == pytest.approx(slow * 49e6 / free_s / clients, rel=0.01)
    assert even.fault_ns.estimate == pytest.approx(201e6, rel=0.01)
    rate = even.outliers_ns.estimate / even.fault_ns.estimate
    assert even.faults_hz.estimate == pytest.approx(rate)
    assert even.faults_hz.low < rate < even.faults_hz.high
    (finding,) = [it for it in analysis.findings if it.code == "recovery"]
    assert "cost a client more time than faults do, if there is less than one fault in" in (
        finding.text
    )
    assert finding.evidence["break_even_hz"] == even.faults_hz.estimate


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"faults": 5}, "5 recoveries; 6 are needed"),
        ({"slow": 1.0}, "no fault-free request exceeds mean + 3 sd"),
    ],
)
def test_a_missing_break_even_rate_has_a_reason(tmp_path, changes, reason):
    found = _only(_with_outliers(tmp_path, **changes))
    assert found.break_even is None
    assert found.absent == {"break_even": reason}


def test_too_few_fault_free_requests_have_no_break_even_rate(tmp_path):
    events = [fault("agent-0", 100 + 200 * place) for place in range(7)]
    found = _only(write_faults(tmp_path / "run", _usual(), events))
    assert found.absent["break_even"].endswith(" fault-free requests; 600 are needed")


def test_the_summary_and_the_report_show_the_parts_and_the_rate(tmp_path, capsys, schema):
    run = _with_outliers(tmp_path)
    assert main(["verdict", str(run), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    schema.validate(document)
    (found,) = document["over_time"]["recoveries"]
    assert found["recoveries"]["detection_ns"]["n"] == 8
    assert found["recoveries"]["detection_ns"]["estimate"] == MS
    assert found["break_even"]["faults_hz"]["low"] > 0


def test_the_table_shows_the_parts_with_the_number_of_faults(tmp_path):
    analysis = numbers(_with_outliers(tmp_path))
    shown = recoveries(SimpleNamespace(analysis=analysis))
    (row,) = shown.rows
    cells = dict(zip(shown.columns, row, strict=True))
    part = cells["detection"]
    told = f"{part.text}, {part.aside}".replace("\N{NO-BREAK SPACE}", " ")
    assert told == "1 ms, 1 ms to 1 ms, 8 faults"
    assert cells["outliers cost more than faults below"].text.startswith("one fault in ")
