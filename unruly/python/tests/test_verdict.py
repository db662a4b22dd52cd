"""The verdict screen: conclusions first, nothing wraps, one answer to each question."""

from __future__ import annotations

from dataclasses import replace

import pytest

import unruly
from changed import with_topics
from synthetic import write_run
from unruly.output.columns import columns
from unruly.topics.causes.because import because, rises_with
from unruly.topics.rules import find

WIDTHS = (60, 80, 100)
STORE = {"kind": "drive", "agents": 1, "ops": ("read", "write"), "rate_hz": 100, "duration_s": 12,
         "stalls_hz": 2}  # fmt: skip
MEASURED = {
    "target": "redis://127.0.0.1:6379: 16 clients, 200/s, evenly; write then read, values of 1KB",
    "command": ["unruly", "drive", "redis://127.0.0.1:6379", "-c", "16", "-d", "12s"],
}
KILLED = {**STORE, "faults": (("base", "kill", "store-0", 5.6, 99.0),), "manifest": MEASURED}
KILLED_AT_60 = """\
From 5.6 s (14:13:25 UTC) to the end every request was
   refused.
unruly verdict: synthetic [synthetic], complete, 12 s
                measured, 2,400 rows, 1 processes
measured: redis://127.0.0.1:6379: 16 clients, 200/s, evenly;
          write then read, values of 1KB
repeat: unruly drive redis://127.0.0.1:6379 -c 16 -d 12s

worked: no: 1,280 of 2,400 requests failed (53.3 %): 1,280
        refused.
trust: yes, nothing spoils this run; every request is
       accounted for
"""
NEXT_AT_60 = """\
next: Is the server running? Look in its log, start it
      again, and repeat the run.

                     n  failed  p50  p99  p99.9      max
read   response  1,200     640    –    –      –  5.31 ms
       service                    –    –      –   5.3 ms
write  response  1,200     640    –    –      –  1.72 ms
       service                    –    –      –  1.72 ms
"""


def analysed_once(factory, **shape):
    run = unruly.open_run(write_run(factory.mktemp("verdict") / "run", **shape))
    return unruly.analyse(run, pictures=False)


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    return analysed_once(tmp_path_factory, **KILLED)


@pytest.fixture(scope="module")
def late(tmp_path_factory):
    return analysed_once(tmp_path_factory, **STORE, failed_share=0.94, generator_stalls_hz=1.0)


@pytest.fixture(scope="module")
def dead(tmp_path_factory):
    return analysed_once(tmp_path_factory, **STORE, failed_share=1.0)


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    return analysed_once(tmp_path_factory, agents=5, slow_agent=3, duration_s=30)


def test_the_screen_of_a_killed_server_reads_top_down(killed):
    text = unruly.verdict(killed, width=60)
    assert text.startswith(KILLED_AT_60)
    assert NEXT_AT_60 in text


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("which", ["killed", "late", "dead", "group"])
def test_no_line_is_longer_than_the_terminal_and_no_screen_than_forty(which, width, request):
    lines = unruly.verdict(request.getfixturevalue(which), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= 40


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("which", ["killed", "late", "dead", "group"])
def test_every_conclusion_stands_before_every_detail(which, width, request):
    lines = unruly.verdict(request.getfixturevalue(which), width=width).splitlines()
    starts = [line.split(":")[0] for line in lines]
    order = [starts.index(it) for it in ("worked", "trust", "promise", "next")]
    assert order == sorted(order)
    table = next(place for place, line in enumerate(lines) if line.split()[:2] == ["n", "failed"])
    assert order[-1] < table
    assert not lines[-1].startswith(("next", "trust", "promise", "worked"))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_narrow_terminal_loses_columns_of_the_table(width, group):
    lines = unruly.verdict(group, width=width).splitlines()
    head = next(line.split() for line in lines if line.split()[:2] == ["n", "failed"])
    wanted = ["n", "failed", "p50", "p99", "p99.9", "max", "p99/mean"]
    assert head == [name for name in wanted if name in head]
    assert {"p50", "p99"} <= set(head)
    assert ("p99/mean" in head) == (width > 60)


def test_columns_are_dropped_in_the_order_of_their_importance():
    rows = [("read", "12", "3 ms", "7 ms")]
    found = columns(("op", "n", "p99", "max"), rows, 13, keep=("p99", "n", "max"))
    assert found == ["op     p99", "read  3 ms"]


def test_a_label_longer_than_the_line_is_cut():
    (_, row) = columns(("op", "p99"), [("a" * 30, "3 ms")], 20, keep=("p99",))
    assert row == "a" * 19 + "…"


def test_what_went_wrong_is_red(killed, late, group):
    red = "\x1b[31m"
    assert unruly.verdict(killed, colour=True).startswith(f"{red}From 5.6 s (")
    lines = unruly.verdict(late, colour=True).splitlines()
    assert [line for line in lines if line.startswith(red)][:2] == [
        line for line in lines if "worked: no" in line or "DO NOT TRUST" in line
    ]
    assert red not in unruly.verdict(group, colour=True)


def test_the_header_says_what_was_measured_and_how_to_repeat_it(killed):
    lines = unruly.verdict(killed, width=100).splitlines()
    assert f"measured: {MEASURED['target']}" in lines
    assert "repeat: unruly drive redis://127.0.0.1:6379 -c 16 -d 12s" in lines


def test_an_import_has_no_command_to_repeat(late):
    assert "repeat:" not in unruly.verdict(late)


def test_after_a_clean_run_the_next_step_is_what_a_longer_one_would_promise(tmp_path_factory):
    calm = {**STORE, "stalls_hz": 0, "rate_hz": 400, "duration_s": 20}
    found = analysed_once(tmp_path_factory, **calm)
    next_ = [it for it in unruly.verdict(found, width=200).splitlines() if it.startswith("next: ")]
    assert not [it for it in found.findings if it.severity != "informs"]
    assert next_[0].startswith("next: To promise the p99"), next_


def test_the_next_step_is_about_the_failures_where_requests_failed(killed, late, dead):
    steps = [
        next(it for it in unruly.verdict(found, width=200).splitlines() if it.startswith("next:"))
        for found in (killed, late, dead)
    ]
    assert "start it again" in steps[0]
    assert all("raise the timeout" in it for it in steps[1:])


def test_what_follows_from_an_outage_is_not_found_again(killed):
    codes = {it.code for it in killed.findings}
    assert "outage" in codes
    assert not codes & {"drift", "p99-moved", "throughput-unsteady"}
    assert because(killed) is None


def test_a_change_of_the_p99_needs_the_drift_test(tmp_path):
    run = write_run(tmp_path / "run", agents=3, ops=("null",), rate_hz=50, duration_s=30,
                    shift_factor=1.5)  # fmt: skip
    found = unruly.analyse(unruly.open_run(run), causes=False, pictures=False)
    assert "p99-moved" in {it.code for it in found.findings}
    assert "the p99 moved once" in " ".join(unruly.verdict(found).split())
    level = [replace(row, abstained=None) for row in found.cells]
    steady = replace(found, cells=level)
    assert "p99-moved" not in {it.code for it in find(steady)}
    assert "the p99 moved" not in unruly.verdict(replace(found, cells=level))
    assert "kept its level" not in unruly.verdict(found)


def test_a_correlate_is_a_candidate_only_where_causes_explain_less_than_half(group):
    assert group.causes.rows
    explained = [row for row in group.causes.rows if row.causes]
    assert explained
    assert "correlate" not in {it.code for it in group.findings}
    assert "candidates" not in because(group)
    found = find(with_topics(group, causes=None))
    names = [it.evidence["candidate"] for it in found if it.code == "correlate"]
    assert names[0] == "receiver's CPU wait"
    open_ = replace(with_topics(group, causes=None), findings=found)
    assert because(open_).startswith("unexplained; candidates, by correlation: receiver's CPU wait")


def test_a_negative_correlation_is_no_finding_and_reads_with_its_sign(group):
    row = next(it for it in group.correlations.rows if it.metric == "run_queue_wait_ns")
    assert rises_with(row) == "rises with the receiver's CPU wait"
    rank = replace(row.spearman, estimate=-0.48, low=-0.6, high=-0.3)
    negative = replace(row, spearman=rank, within=-0.4)
    assert rises_with(negative) == "is lower when the receiver's CPU wait is higher"
    rows = replace(group.correlations, rows=(negative,))
    found = find(replace(with_topics(group, causes=None), correlations=rows))
    assert "correlate" not in {it.code for it in found}


def test_one_client_compares_no_nodes_and_judges_no_schedule_of_our_own(killed, late):
    for found in (killed, late):
        text = unruly.verdict(found, width=100)
        assert "slow node" not in text
        assert "dispersion" not in text
        assert "arrivals-bursty" not in {it.code for it in found.findings}


SHORT = {**STORE, "stalls_hz": 0, "duration_s": 30}


def test_a_spoiled_run_promises_nothing(tmp_path_factory):
    analysis = analysed_once(tmp_path_factory, **SHORT, dropped=5)
    assert any(row.ladder.highest for row in analysis.cells)
    assert "promise-made" not in {it.code for it in analysis.findings}
    promises = [line for line in unruly.verdict(analysis).splitlines() if "promise: " in line]
    assert promises == ["promise: none: a measurement that cannot be trusted promises nothing"]


def test_a_tail_that_the_load_generator_made_is_not_called_unexplained(tmp_path_factory):
    analysis = analysed_once(tmp_path_factory, **SHORT, generator_stalls_hz=0.5)
    assert analysis.self_distrust.tail_explained_share > 0.5
    text = " ".join(unruly.verdict(analysis).split())
    assert "slow because: the delay of the load generator made up most" in text
    assert "unexplained" not in text
