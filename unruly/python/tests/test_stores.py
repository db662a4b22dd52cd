"""Stores: target, far tail, faults and loads have the planted results, and no others."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.stats

import unruly
from changed import with_topics
from quick import numbers
from stores_world import DRIVE
from synthetic import NS, STARTED_NS, write_run
from unruly import stats
from unruly.__main__ import main
from unruly.base.context import Context
from unruly.base.target import Target, parse_target
from unruly.drawing.view import views_of
from unruly.errors import UnrulyError
from unruly.html import write_report
from unruly.quantity import duration
from unruly.tables import fetch
from unruly.topics.stores import flow
from unruly.topics.stores.figures_faults import faults
from unruly.topics.stores.figures_flow import flow as flow_figure
from unruly.topics.stores.section import faults as fault_table
from unruly.topics.stores.statistics import timed
from unruly.topics.stores.words import fault_sentence, worst_fault

TWO = {"cells": ("store=a", "store=b")}


def _rewrite_events(run, change):
    """Replace the rows of a run's events by what `change` makes of them."""
    (path,) = (run / "events").glob("*.parquet")
    table = pq.read_table(path)
    pq.write_table(pa.Table.from_pylist(change(table.to_pylist()), schema=table.schema), path)


def _fewer(run, rows):
    """Have the manifest of a run count fewer good rows."""
    manifest = json.loads((run / "manifest.json").read_text())
    copies, requests = (manifest["counts"][what] for what in ("copies", "requests"))
    for counts, names in (
        (copies, ("ok", "scheduled", "recorded")),
        (requests, ("scheduled", "answered")),
    ):
        for name in names:
            counts[name] -= rows
    (run / "manifest.json").write_text(json.dumps(manifest))


def _faults_of(run):
    view = numbers(run).stores
    return view.faults


# the target


def test_a_clean_run_meets_the_target_once_it_is_long_enough():
    wanted = 0.99999
    # 0.025 = wanted ** n: with fewer requests not even a clean run decides
    enough = int(np.ceil(np.log(0.025) / np.log(wanted)))
    for n, outcome in ((enough - 10, "open"), (enough + 20, "met")):
        totals = np.full(10, n // 10)
        totals[0] += n % 10
        found = stats.target_share(np.zeros(10), totals, wanted)
        assert found.outcome == outcome
        assert found.needed == (pytest.approx(enough, abs=2) if outcome == "open" else None)


def test_late_requests_in_one_burst_leave_open_what_scattered_ones_decide():
    totals = np.full(30, 10_000)
    burst = np.zeros(30)
    burst[7] = 30
    assert stats.target_share(np.ones(30), totals, 0.99999).outcome == "missed"
    assert stats.target_share(burst, totals, 0.99999).outcome == "open"


def test_as_many_requests_as_are_said_would_tell():
    """Oracle: Clopper-Pearson by scipy's beta, with the same share of the needed trials."""
    found = stats.target_share([1, 0, 2, 0, 1] * 6, np.full(30, 3_000), 0.99965)
    assert found.outcome == "open"
    share = 1 - found.within.estimate
    for slack, decides in ((0.99, False), (1.0, True)):
        trials = found.within.n_effective * found.needed * slack / found.within.n
        high = scipy.stats.beta.ppf(0.975, share * trials + 1, (1 - share) * trials)
        assert (high <= 0.00035) == decides


def test_a_target_is_met_for_nothing_as_often_as_no_burst_comes():
    """Oracle: a run at the limit, of ten late requests in bursts of b, has none in exp(-10 / b)."""
    rng, runs, allowed = np.random.default_rng(1), 600, 1e-3
    totals = np.full(30, 10_000 // 30)
    for burst, most in ((1, 0.025), (4, 0.025 + np.exp(-10 / 4))):
        bursts = rng.poisson(totals.sum() * allowed / burst / 30, (runs, 30))
        found = [stats.target_share(burst * it, totals, 1 - allowed).outcome for it in bursts]
        assert found.count("missed") / runs < 0.025
        assert found.count("met") / runs < most
    assert found.count("met") / runs > 0.05


def test_failed_requests_are_over_the_limit(analysed):
    analysis = analysed(**DRIVE, failed_share=0.02, late_share=0.5)
    (tail,) = analysis.stores.tails
    assert tail.failed > 100
    assert tail.target.within.estimate == 1 - tail.failed / tail.n
    assert tail.over_100ms == tail.failed
    assert tail.target.outcome == "missed"


def test_the_share_is_counted_row_by_row(tmp_path):
    """Oracle: the raw rows; a limit inside a bucket of the histogram."""
    run = write_run(tmp_path / "run", **DRIVE)
    table = pq.read_table(run / "requests")
    took = np.sort(table["received_ns"].to_numpy() - table["intended_ns"].to_numpy())
    limit = float(took[-50] + took[-51]) / 2
    found = unruly.analyse(unruly.open_run(run), target=Target(0.99, limit)).stores.tails[0].target
    assert found.within.estimate == 1 - 50 / took.size
    assert found.outcome == "met"


@pytest.mark.slow
def test_a_run_without_a_store_has_no_target_unless_it_is_asked_for(tmp_path):
    run = write_run(tmp_path / "run", agents=2, ops=("null",), duration_s=5)
    assert numbers(run).stores is None
    asked = unruly.analyse(unruly.open_run(run), target=parse_target("99%:1s")).stores
    assert asked.target == Target(0.99, 1e9)


@pytest.mark.parametrize("text", ["99.9%", "100%:2ms", "0%:2ms", "99%:0ms", "p99:2ms"])
def test_a_target_that_cannot_be_read_is_refused(text):
    with pytest.raises(UnrulyError, match=r"--target: is .*; a share below 100 %"):
        parse_target(text)


# the far tail


def test_a_p99_999_is_said_only_of_a_hundred_thousand_requests(analysed):
    (tail,) = analysed(**DRIVE).stores.tails
    assert tail.p99_999 is None
    assert tail.absent["p99_999"].startswith("12000 rows; 100000 are needed")
    assert tail.p99_9 is not None
    assert tail.p99_9.low < tail.estimates["p99_9"] < tail.p99_9.high


def test_a_p99_999_over_the_mean_has_a_lower_bound_even_where_it_has_no_interval(analysed):
    long = {**DRIVE, "rate_hz": 4_000, "cell_tails": {"base": (2e-4, 300.0)}}
    analysis = analysed(**long)
    (tail,) = analysis.stores.tails
    assert tail.n == 120_000
    # one request in a hundred thousand: one or two episodes
    assert tail.p99_999 is None
    assert "p99_999" in tail.absent
    assert tail.p99_999_over_mean.high is None
    assert 10 < tail.p99_999_over_mean.low < tail.p99_999_over_mean.estimate
    response = analysis.run.measured.execute().eval("received_ns - intended_ns")
    assert tail.over_10x_mean == (response > 10 * response.mean()).sum()
    # Each row is 300 times slower with a chance of 2e-4; one run in a thousand lies outside.
    fewest, most = scipy.stats.binom(120_000, 2e-4).interval(0.999)
    assert fewest <= tail.over_10x_mean <= most


# faults


@pytest.fixture(scope="module")
def struck(tmp_path_factory):
    """Two stores: in each a stop, in the first also a kill and a busy neighbour."""
    return write_run(
        tmp_path_factory.mktemp("struck") / "run", **{**DRIVE, "duration_s": 40}, **TWO,
        faults=(
            ("store=a", "stop", "store-0", 5.5, 2.0),
            ("store=a", "kill", "store-1", 15.0, 1.5),
            ("store=a", "busy", "store-0", 28.0, 3.0),
            ("store=b", "stop", "store-0", 5.0, 0.5),
        ),
    )  # fmt: skip


@pytest.fixture(scope="module")
def seen(struck):
    return numbers(struck, pictures=True)


@pytest.fixture(scope="module")
def compared(seen):
    return {(it.cell, it.kind): it for it in seen.stores.faults}


def test_a_stop_is_as_long_a_silence_and_a_recovery(compared):
    for cell, seconds in (("store=a", 2.0), ("store=b", 0.5)):
        it = compared[cell, "fault stop"]
        assert it.lasted_ns == seconds * NS
        assert it.due == pytest.approx(400 * seconds, abs=3)
        assert it.failed == 0
        assert it.gap_ns == pytest.approx(seconds * NS, abs=0.02 * NS)
        assert it.back_ns[0] == pytest.approx(seconds * NS, abs=0.02 * NS)
        # a request at its begin waited to its end; the others wait evenly less
        assert it.p50 == pytest.approx(seconds * NS / 2, rel=0.02)
        assert it.p99 == pytest.approx(0.99 * seconds * NS, rel=0.02)


def test_what_is_due_in_a_kill_fails_and_has_no_percentile(compared):
    it = compared["store=a", "fault kill"]
    assert it.failed == it.due == pytest.approx(600, abs=3)
    assert it.p99 is None
    assert it.absent["p99"] == f"its rank falls among the {it.failed} that failed"
    assert it.gap_ns == pytest.approx(1.5 * NS, abs=0.02 * NS)
    assert it.back_ns[0] == pytest.approx(1.5 * NS, abs=0.02 * NS)


def test_a_slow_time_is_held_against_the_fault_free_time_of_its_cell(compared):
    it = compared["store=a", "fault busy"]
    assert it.p99_ratio == pytest.approx(20, rel=0.15)
    assert it.failed == 0
    assert it.gap_ns < 0.1 * NS
    # what stops and kills did is in nobody's fault-free time
    assert it.free_max_ok < 3e6


def test_instants_of_a_stop_and_its_end_are_one_span(tmp_path):
    """What earlier runs have: `fault stop`, then `fault continue`."""
    run = write_run(
        tmp_path / "run", **{**DRIVE, "rate_hz": 100}, faults=(("base", "stop", "store-0", 5, 2),)
    )

    def instants(rows):
        *others, stop = rows
        again = {**stop, "kind": "fault continue", "started_ns": stop["ended_ns"]}
        return [*others, {**stop, "ended_ns": None}, {**again, "ended_ns": None}]

    _rewrite_events(run, instants)
    view = numbers(run).stores
    (it,) = view.faults
    assert it.lasted_ns == 2 * NS
    assert it.gap_ns == pytest.approx(2 * NS, abs=0.04 * NS)
    assert "fault continue" not in set(view.spans["kind"])


def test_a_kill_that_nobody_ends_lasts_to_the_end(tmp_path):
    shape = {**DRIVE, "rate_hz": 100}
    run = write_run(tmp_path / "run", **shape, faults=(("base", "kill", "store-0", 20.0, 10.0),))
    _rewrite_events(run, lambda rows: [{**row, "ended_ns": None} for row in rows])
    (it,) = _faults_of(run)
    assert it.lasted_ns == pytest.approx(10 * NS, abs=0.02 * NS)
    assert it.back_ns == (None,)
    assert it.gap_ns == pytest.approx(10 * NS, abs=0.02 * NS)
    assert it.failed == it.due


def test_a_kill_ends_where_its_process_started_again_however_much_else_went_on(tmp_path):
    shape = {**DRIVE, "rate_hz": 100, "duration_s": 20}
    run = write_run(tmp_path / "run", **shape, faults=(("base", "kill", "store-0", 5.0, 1.0),))

    def busy(rows):
        *others, kill = rows
        again = {**kill, "kind": "process started", "started_ns": kill["ended_ns"]}
        pauses = [
            {**kill, "kind": "gc", "started_ns": STARTED_NS + place * NS // 50}
            for place in range(700)
        ]
        ends = [{**it, "ended_ns": it["started_ns"] + NS // 100} for it in pauses]
        return [*others, {**kill, "ended_ns": None}, {**again, "ended_ns": None}, *ends]

    _rewrite_events(run, busy)
    (it,) = _faults_of(run)
    assert it.lasted_ns == NS
    assert it.due == it.failed == pytest.approx(100, abs=2)


def test_hundreds_of_faults_are_all_kept_out_of_fault_free_time(tmp_path):
    """Oracle: the raw rows. One stop in each tenth of a second, from the twentieth second on."""
    faults = tuple(("base", "stop", "store-0", 20 + place / 10, 0.05) for place in range(460))
    run = write_run(tmp_path / "run", **{**DRIVE, "duration_s": 66}, faults=faults)
    table = pq.read_table(run / "requests")
    due, done = (table[name].to_numpy() - STARTED_NS for name in ("intended_ns", "received_ns"))
    (it,) = _faults_of(run)
    assert it.times == len(it.back_ns) == 460
    assert it.free == int((done <= 20 * NS).sum())
    assert it.free_max_ok == float((done - due)[done <= 20 * NS].max())
    within = (due >= 20 * NS) & ((due - 20 * NS) % (NS // 10) < NS // 20)
    assert it.due == int(within.sum())
    assert it.p99_ratio > 100


def test_a_fault_of_the_warm_up_is_none_of_what_was_measured(tmp_path):
    shape = {**DRIVE, "rate_hz": 100, "duration_s": 20, "warmup_s": 5}
    run = write_run(
        tmp_path / "run", **shape,
        faults=(
            ("base", "busy", "store-0", -3.0, 1.0),
            ("base", "stop", "store-0", -0.5, 1.0),
        ),
    )  # fmt: skip
    (it,) = _faults_of(run)
    # only the fault that reaches into the measured time counts
    assert it.kind == "fault stop"
    assert it.due == pytest.approx(50, abs=2)
    # 5 s after its end, all is fault-free
    assert it.free == pytest.approx(20 * 100 - 550, abs=5)


def _lasting(seconds, kind=None):
    """Return a change of events: each fault has lasted so long, and is of that kind."""

    def change(rows):
        return [
            {**row, "ended_ns": row["started_ns"] + seconds * NS, "kind": kind or row["kind"]}
            if row["kind"].startswith("fault")
            else row
            for row in rows
        ]

    return change


def test_an_election_within_a_long_fault_shows_by_its_silence_where_the_p99_does_not(tmp_path):
    fates = (("base", "stop", "store-0", 12.0, 0.1),)
    run = write_run(tmp_path / "run", **{**DRIVE, "duration_s": 40}, faults=fates)
    _rewrite_events(run, _lasting(20, "fault cut"))
    analysis = numbers(run)
    (it,) = analysis.stores.faults
    assert it.p99_ratio < 1.5
    assert it.silent
    assert it.gap_ns == pytest.approx(0.1 * NS, abs=0.01 * NS)
    assert it.free_gap_ns < 0.02 * NS
    finding = next(it for it in analysis.findings if it.code == "fault-hurts")
    assert "the longest time without a good reply was 1" in finding.text
    assert "without faults)" in finding.text


def test_a_fault_without_effect_has_no_silence_and_no_interruption(tmp_path):
    fates = (("base", "stop", "store-0", 12.0, 0.0),)
    run = write_run(tmp_path / "run", **{**DRIVE, "duration_s": 40}, faults=fates)
    _rewrite_events(run, _lasting(20, "fault cut"))
    (it,) = _faults_of(run)
    assert it.due == pytest.approx(400 * 20, abs=3)
    assert not it.silent
    assert it.back_ns == (0.0,)
    assert "came again" not in fault_sentence(it, several=False)


def test_the_aftermath_goes_on_until_a_reply_came_and_five_seconds_more(tmp_path):
    fates = (("base", "stop", "store-0", 5.0, 10.0),)
    run = write_run(tmp_path / "run", **{**DRIVE, "rate_hz": 100}, faults=fates)
    _rewrite_events(run, _lasting(2))
    (it,) = _faults_of(run)
    assert it.lasted_ns == 2 * NS
    assert it.gap_ns == pytest.approx(10 * NS, abs=0.02 * NS)
    # requests due before the stop, and from 5 s after the first reply
    assert it.free == pytest.approx(100 * (5 + 10), abs=4)


def test_faults_at_the_same_time_are_told_as_such(tmp_path):
    fates = (("base", "stop", "store-0", 5.0, 2.0), ("base", "busy", "store-1", 6.0, 3.0))
    run = write_run(tmp_path / "run", **{**DRIVE, "rate_hz": 100, "agents": 2}, faults=fates)
    busy, stop = _faults_of(run)
    assert (busy.beside, stop.beside) == (1, 1)
    assert "another fault was going on meanwhile" in fault_sentence(stop, several=False)


def test_a_fault_after_which_writes_are_missing_is_the_worst(compared):
    slow, fast = compared["store=a", "fault kill"], compared["store=a", "fault busy"]
    assert worst_fault([slow, fast]) is slow
    lossy = replace(fast, lost=1)
    assert worst_fault([slow, lossy]) is lossy


def test_each_level_of_a_fault_has_the_interval_of_its_windows(tmp_path):
    stops = tuple(("base", "stop", "store-0", at, long) for at, long in ((5, 2), (14, 2), (23, 1)))
    run = write_run(tmp_path / "run", **{**DRIVE, "duration_s": 40}, faults=stops)
    (it,) = _faults_of(run)
    # a request at the begin of a stop waits to its end; the others wait evenly less
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999)):
        wanted = stats.repeats_interval([share * ns * NS for ns in (2, 2, 1)], log=True)
        found = it.each[name]
        assert found.n == 3
        for end in ("estimate", "low", "high"):
            assert getattr(found, end) == pytest.approx(getattr(wanted, end), rel=0.02)


def test_a_window_in_which_requests_failed_bounds_no_percentile_that_falls_among_them(tmp_path):
    fates = (("base", "kill", "store-0", 5, 1), ("base", "stop", "store-0", 15, 1))
    run = write_run(tmp_path / "run", **{**DRIVE, "duration_s": 30}, faults=fates)
    kill, stop = (it.each["p99"] for it in _faults_of(run))
    assert (kill.estimate, kill.low, kill.high) == (float("inf"), None, None)
    assert stop.estimate == pytest.approx(0.99 * NS, rel=0.02)


def test_replies_without_their_write_count_for_the_fault_before_them(tmp_path):
    fates = (("base", "kill", "store-0", 5.0, 1.0), ("base", "stop", "store-0", 15.0, 1.0))
    run = write_run(tmp_path / "run", **{**DRIVE, "rate_hz": 100}, faults=fates)
    (path,) = (run / "requests").glob("*.parquet")
    table = pq.read_table(path)
    rows = table.to_pylist()
    good = [row for row in rows if row["status"] == "ok"]

    def spoil(second, status):
        due = STARTED_NS + second * NS
        next(row for row in good if row["intended_ns"] >= due)["status"] = status

    for second, status in (
        (2, "wrong:lost"),
        (8, "wrong:lost"), (9, "wrong:stale"), (10, "wrong"),
        (16.5, "wrong:stale"), (22, "wrong:lost"),
    ):  # fmt: skip
        spoil(second, status)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    manifest = json.loads((run / "manifest.json").read_text())
    copies = manifest["counts"]["copies"]
    copies["ok"] -= 6
    copies["wrong"] += 6
    (run / "manifest.json").write_text(json.dumps(manifest))
    kill, stop = _faults_of(run)
    # the one at 2 s is before every fault, that at 22 s after the aftermath of the stop
    assert (kill.lost, stop.lost) == (2, 1)
    assert "; 2 replies lacked an acknowledged write" in fault_sentence(kill, several=False)


def test_faults_of_one_role_count_together_whichever_process_had_it(tmp_path):
    fates = tuple(("base", "stop", f"store-{at}", 5.0 + 12 * at, 1.0) for at in range(2))
    run = write_run(tmp_path / "run", **{**DRIVE, "rate_hz": 100, "agents": 2}, faults=fates)
    details = iter(("as store-leader", "as store-leader: 0.02 cores"))
    _rewrite_events(run, lambda rows: [
        {**row, "detail": next(details) if row["kind"] == "fault stop" else row["detail"]}
        for row in rows
    ])  # fmt: skip
    (it,) = _faults_of(run)
    assert (it.process, it.times) == ("store-leader", 2)


def test_a_kill_has_its_restart_until_the_next_fault(tmp_path):
    run = write_run(
        tmp_path / "run", **{**DRIVE, "rate_hz": 100, "duration_s": 40},
        faults=(("base", "kill", "store-0", 5.0, 1.0), ("base", "stop", "store-0", 25.0, 1.0)),
    )  # fmt: skip
    kill, stop = _faults_of(run)
    # before the kill, and from 5 s after the end of the stop
    assert kill.free == stop.free == pytest.approx(100 * (5 + 9), abs=4)
    assert kill.back_ns[0] == pytest.approx(NS, abs=0.05 * NS)


def test_a_kill_whose_leg_is_all_that_there_is_leaves_nothing_to_compare_with(tmp_path, schema):
    shape = {**DRIVE, "rate_hz": 100, "duration_s": 20}
    run = write_run(tmp_path / "run", **shape, faults=(("base", "kill", "store-0", 0.0, 20.0),))
    analysis = numbers(run)
    (it,) = analysis.stores.faults
    assert it.failed == it.due == 2_000
    assert it.free == 0
    assert it.back_ns is None
    assert it.absent["back_ns"] == "no reply came in fault-free time"
    assert it.absent["free_p99"] == "nothing was due in fault-free time"
    finding = next(it for it in analysis.findings if it.code == "fault-hurts")
    assert "2,000 of 2,000 requests due in it failed" in finding.text
    (view,) = views_of([analysis])
    assert faults(view).title.startswith("The kill of store-0 hurts most")
    assert "no reply came in fault-free time" in str(fault_table(view).rows)
    schema.validate(json.loads(json.dumps(unruly.summary(analysis))))
    assert "nobody was hurt" not in write_report([analysis], tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_stops_without_a_fault_free_time_cannot_be_compared(tmp_path, capsys):
    run = write_run(
        tmp_path / "run", **{**DRIVE, "rate_hz": 100},
        faults=tuple(("base", "stop", "store-0", 6.0 * place, 2.0) for place in range(5)),
    )  # fmt: skip
    analysis = numbers(run)
    (it,) = analysis.stores.faults
    assert it.times == 5
    assert it.p99 == pytest.approx(2 * NS, rel=0.02)
    assert it.p99_ratio is None
    assert it.back_ns is None
    (view,) = views_of([analysis])
    said = "faults cannot be compared: nothing was due in fault-free time; the longest time without"
    assert f"The {said}" in faults(view).title
    assert main(["verdict", str(run)]) == 0
    assert f"the {said}" in " ".join(capsys.readouterr().out.split())


def test_a_picture_of_too_many_faults_says_how_many_it_leaves_out(seen):
    one = next(it for it in seen.stores.faults if it.kind == "fault busy")
    many = [
        replace(one, cell=f"store={cell:02}", process=f"store-{process:02}", p99_ratio=2.0 + cell)
        for cell in range(12)
        for process in range(20)
    ]
    (view,) = views_of([with_topics(seen, stores=replace(seen.stores, faults=tuple(many)))])
    figure = faults(view)
    assert [panel.title for panel in figure.panels] == [f"store={it:02}" for it in range(4, 12)]
    assert figure.panels[0].alt.count("busy of") == 16
    assert "Shown: 8 of 12 cells, 16 of 20 faults" in figure.caption


def test_the_worst_fault_is_told_first_and_of_each_cell(seen):
    finding = next(it for it in seen.findings if it.code == "fault-hurts")
    assert finding.title == "the fault that hurts most is the kill of store-1 (store=a)"
    assert "In other cells: stop of store-0 (store=b)" in finding.text


def test_the_failed_are_told_beside_a_p99(compared):
    it = compared["store=a", "fault busy"]
    assert " failed" not in fault_sentence(it, several=False)
    some = replace(it, failed=3)
    words = f"the fault-free one, and 3 of {it.due:,} failed; the longest time"
    assert words in fault_sentence(some, several=False)
    alone = replace(some, p99_ratio=None)
    words = f"the p99 was {duration(it.p99)}, and 3 of {it.due:,} failed; the longest time"
    assert words in fault_sentence(alone, several=False)


def test_a_kind_of_fault_has_one_row_in_all_cells_unless_it_came_to_several_of_one(seen):
    def rows(effects):
        stores = replace(seen.stores, faults=tuple(effects))
        (view,) = views_of([with_topics(seen, stores=stores)])
        return "; ".join(panel.alt for panel in faults(view).panels)

    one = seen.stores.faults
    assert "stop: p99" in rows(one)
    assert "of store-0" not in rows(one)
    again = replace(next(it for it in one if it.kind == "fault stop"), process="store-1")
    assert "stop of store-1: p99" in rows([*one, again])


def test_no_request_is_compared_with_every_window(struck, monkeypatch):
    """By the engine's own plans: a join of equals, whatever the number of faults."""
    run = unruly.open_run(struck)
    connection, plans = run.engine.connection, []

    def explained(expression):
        frame = fetch(expression)
        told = connection.raw_sql(f"EXPLAIN {connection.compile(expression)}").fetchall()
        plans.append(told[0][1])
        return frame

    for module in ("topics.stores.faults", "base.quantiles"):
        monkeypatch.setattr(f"unruly.{module}.fetch", explained)
    assert len(timed(Context.of(run, lambda _: None), pictures=False).faults) == 4
    joins = [name for plan in plans for name in re.findall(r"\w[\w ]* Join", plan)]
    assert len(joins) >= 5
    assert set(joins) == {"Hash Join"}


# the flow


def test_good_replies_stand_where_they_came_and_failures_where_they_were_due(seen):
    found = seen.stores.flow
    assert found.bin_ns == NS
    replies = found.replies.assign(second=(found.replies["started_ns"] - STARTED_NS) // NS)
    hz = replies.pivot_table(index="second", columns="status", values="hz")
    # the stop from 5.5 s to 7.5 s: nothing comes, then all of it at once
    assert hz.loc[[5, 6, 7], "ok"].tolist() == pytest.approx([200, 0, 1_000], rel=0.02)
    assert hz.loc[[15, 16], "refused"].tolist() == pytest.approx([400, 200], rel=0.02)
    assert hz.loc[20, "ok"] == pytest.approx(400, rel=0.02)
    slow = found.latency.assign(second=(found.latency["started_ns"] - STARTED_NS) // NS)
    assert slow.set_index("second")["p99"].isna().tolist().count(True) == 2


def test_a_run_of_many_legs_is_not_drawn_over_time(seen, monkeypatch):
    context = Context.of(seen.run, lambda _: None)
    monkeypatch.setattr(flow, "LEGS_MOST", 1)
    assert flow.flow(context, seen.stores.legs) is None


def test_a_run_of_legs_shorter_than_half_a_bin_has_no_flow(analysed):
    cells = tuple(f"store={name}" for name in "abcdef")
    shape = {**DRIVE, "cells": cells, "duration_s": 0.4, "warmup_s": 0.6}
    assert analysed(**shape).stores.flow is None


def _flow_title(analysis):
    (view,) = views_of([analysis])
    return flow_figure(view).title


def test_a_run_without_any_good_reply_says_so(analysed):
    analysis = analysed(pictures=True, **DRIVE, failed_share=1.0)
    assert _flow_title(analysis) == "No request was answered well"
    (view,) = views_of([analysis])
    assert "Good replies a second, 0 to 0." in {it.alt for it in flow_figure(view).panels}


def test_a_second_in_which_nothing_was_due_is_no_silence(analysed):
    analysis = analysed(pictures=True, **{**DRIVE, "rate_hz": 0.5})
    assert analysis.stores.flow.latency.shape[0] < 20
    assert re.fullmatch(
        r"Good replies came in every [\d.]+\sm?s with requests, and none failed",
        _flow_title(analysis),
    )


def test_a_client_that_waits_for_its_reply_has_a_silence_though_nothing_is_due_in_it(tmp_path):
    fates = (("base", "stop", "store-0", 5.0, 4.0),)
    run = write_run(tmp_path / "run", **{**DRIVE, "rate_hz": 100}, faults=fates)
    (path,) = (run / "requests").glob("*.parquet")
    table = pq.read_table(path)
    due = (table["intended_ns"].to_numpy() - STARTED_NS) / NS
    kept = table.filter((due < 5.05) | (due > 8.95))
    pq.write_table(kept, path)
    _fewer(run, table.num_rows - kept.num_rows)
    analysis = numbers(run, pictures=True)
    assert _flow_title(analysis) == "No good reply came in 3\N{NO-BREAK SPACE}s of the run"


def test_faults_that_are_not_shaded_are_counted(seen):
    (view,) = views_of([seen])
    assert "Shaded: the faults." in flow_figure(view).caption
    fewer = seen.stores.spans[seen.stores.spans["kind"] != "fault busy"]
    (view,) = views_of([with_topics(seen, stores=replace(seen.stores, spans=fewer))])
    assert "Shaded: 3 of 4 faults." in flow_figure(view).caption


# the summary, the verdict and the report


@pytest.mark.slow
def test_the_summary_and_the_verdict_tell_it(struck, rising, capsys, schema):
    assert main(["verdict", str(struck), "--json", "--target", "99.9%:20ms"]) == 0
    document = json.loads(capsys.readouterr().out)
    schema.validate(document)
    view = document["stores"]
    assert view["target"] == {"share": pytest.approx(0.999), "limit_ns": 20e6, "asked": True}
    outcomes = {row["cell"]: row["target"]["outcome"] for row in view["tails"]}
    assert outcomes == {"store=a": "missed", "store=b": "open"}
    assert len(view["faults"]) == 4
    main(["verdict", str(struck), "--target", "99%:500ms"])
    text = " ".join(capsys.readouterr().out.split())
    assert "target: 99 % within 500 ms: read (store=a) " in text
    assert "faults: kill of store-1 (store=a) (1.5 s): 600 of 600 requests due in it failed" in text
    document = json.loads(json.dumps(unruly.summary(rising)))
    schema.validate(document)
    assert document["stores"]["ramps"][0]["holds"] == 800
    assert len(document["stores"]["loads"]) == 4


@pytest.mark.slow
def test_a_target_that_nobody_asked_for_is_not_shown(seen, struck, tmp_path, capsys):
    assert not seen.stores.target.asked
    assert "target" not in {it.code for it in seen.findings}
    main(["verdict", str(struck)])
    assert "target:" not in capsys.readouterr().out
    page = write_report([seen], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "99.999 % within" not in page


def test_the_report_draws_it(seen, rising, tmp_path):
    pages = [write_report([it], tmp_path / "report.html").read_text() for it in (seen, rising)]
    for page in pages:
        assert "The far tail, side by side" in page
    assert "The kill of store-1 (store=a) hurts most" in pages[0]
    worst = max(seen.worked.outages, key=lambda it: it.failed)
    assert worst.words.rstrip(".") in pages[0]
    assert "The p99 holds up to 800/s" in pages[1]
