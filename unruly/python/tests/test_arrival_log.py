"""First, quorum and all on the same operations: the results are those planted copy by copy."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import duckdb
import pandas as pd
import pytest

import unruly
from alike import differences, leaves
from arrival_logs import MS, Copy, Operation, three, write_log
from quick import numbers
from synthetic import write_run
from unruly.base.context import Context
from unruly.drawing.view import views_of
from unruly.html.sections import sections
from unruly.output.summary import summary
from unruly.topics.arrival_log import statistics as findings

REPOSITORY = Path(__file__).resolve().parents[3]
HEADING = "First, quorum and all on the same operations"


def told(tmp_path, operations):
    """The one (cell, op) of a run of these operations."""
    log = numbers(write_log(tmp_path / "run", operations)).arrival_log
    assert log is not None
    (row,) = log.rows
    return row


def write(*copies, **rest):
    return Operation("write", copies, **rest)


def ms(value_ns):
    return None if value_ns is None else round(value_ns / MS, 6)


def section(analysis):
    """The page's section on the arrival log, as its tables by caption; None without one."""
    (view,) = views_of([analysis])
    (found,) = [it for it in sections(view) if it.key == "arrivals"] or [None]
    if found is None:
        return None
    assert found.heading == HEADING
    (part,) = found.parts
    return {it.caption: it for it in (*part.tables, *part.closed_tables)}, part


def said(table, line):
    return dict(zip(table.columns, (it.text for it in table.rows[line]), strict=True))


def test_first_quorum_and_all_are_order_statistics_of_the_same_copies(tmp_path):
    operations = [
        Operation("write", three(5, 1, 9)),
        Operation("write", three(2, 7, 3, answered=2)),
    ]
    row = told(tmp_path, operations)
    assert (row.n, row.replicas) == (2, 3)
    assert [ms(it.mean.estimate) for it in row.waits] == [1.5, 4.0, 8.0]
    assert [ms(it.max) for it in row.waits] == [2.0, 5.0, 9.0]
    assert [it.k for it in row.waits] == [1, 2, 3]


def test_a_quorum_of_five_is_the_third_copy(tmp_path):
    copies = [Copy(server, at, answered=at == 3) for server, at in enumerate((4, 2, 5, 1, 3))]
    row = told(tmp_path, [write(*copies)])
    assert row.replicas == 5
    assert [ms(it.max) for it in row.waits] == [1.0, 3.0, 5.0]


def test_a_lost_copy_censors_all_and_leaves_quorum_and_first(tmp_path):
    row = told(
        tmp_path, [Operation("write", three(1, 2, 3)), Operation("write", three(3, 4, None))]
    )
    assert [it.censored for it in row.waits] == [0, 0, 1]
    assert [ms(it.max) for it in row.waits] == [3.0, 4.0, None]
    every = row.wait("all")
    assert every.mean is None
    assert (ms(every.mean_ok.estimate), ms(every.max_ok)) == (3.0, 3.0)
    assert every.absent["mean"] == "1 of 2 operations never had 3 correct copies"


@pytest.mark.parametrize("status", ["behind", "stale", "refused", "wrong"])
def test_a_copy_that_is_not_correct_never_counts(tmp_path, status):
    row = told(tmp_path, [write(Copy(0, 1, status), Copy(1, 4), Copy(2, 6, answered=True))])
    assert [ms(it.max) for it in row.waits] == [4.0, 6.0, None]
    assert row.wait("all").censored == 1


def test_of_several_attempts_to_a_replica_the_earliest_correct_one_counts_once(tmp_path):
    copies = (Copy(0, 1, "behind"), Copy(0, 8, attempt=1), Copy(0, 9, attempt=2),
              Copy(1, 5), Copy(2, 6, answered=True))  # fmt: skip
    row = told(tmp_path, [write(*copies)])
    assert row.replicas == 3
    assert [ms(it.max) for it in row.waits] == [5.0, 6.0, 8.0]
    assert [(it.name, it.n, it.repeated, it.by_status) for it in row.copies] == [
        ("replica-0", 3, 2, {"behind": 1, "ok": 2}),
        ("replica-1", 1, 0, {"ok": 1}),
        ("replica-2", 1, 0, {"ok": 1}),
    ]


def test_the_exposure_of_a_write_runs_from_its_answer_to_the_second_copy_and_to_all(tmp_path):
    first = Operation("write", three(1, 4, 11, answered=0), level="first")
    row = told(tmp_path, [first, replace(first, copies=three(2, 3, None, answered=0))])
    second, every = row.exposures
    assert (ms(second.mean.estimate), ms(second.max), second.censored) == (2.0, 3.0, 0)
    assert (ms(every.max_ok), every.max, every.censored) == (10.0, None, 1)


def test_a_write_that_was_answered_at_a_quorum_was_never_on_one_replica_alone(tmp_path):
    row = told(tmp_path, [Operation("write", three(1, 4, 11, answered=1))])
    second, every = row.exposures
    assert (ms(second.max), ms(every.max)) == (0.0, 7.0)


def test_reads_have_no_exposure_and_unanswered_writes_none_either(tmp_path):
    unanswered = Operation("write", three(1, None, None, answered=2))
    operations = [Operation("read", three(1, 2, 3)), unanswered]
    read, written = numbers(write_log(tmp_path / "run", operations)).arrival_log.rows
    assert (read.op, read.exposures) == ("read", ())
    assert [it.n for it in written.exposures] == [0, 0]
    assert written.unanswered == 1
    assert written.exposures[0].absent["p50"] == "no write was answered"


@pytest.mark.slow
def test_operations_of_another_number_of_replicas_and_hedges_are_left_out_and_counted(tmp_path):
    whole = Operation("write", three(1, 2, 3))
    two = Operation("write", three(50, 60))
    hedge = Operation("write", three(70, 80, 90), level=None)
    row = told(tmp_path, [whole, whole, two, hedge])
    assert (row.n, row.other_sizes, row.without_level) == (2, 1, 1)
    assert ms(row.wait("all").max) == 3.0
    _, part = section(numbers(tmp_path / "run", pictures=True))
    assert (
        "“write”: 1 operation more asked another number of replicas, and is left out." in part.lead
    )
    assert any("waited for no level, as a hedge does, and is left out" in it for it in part.lead)


def test_outliers_of_the_quorum_that_the_first_copy_spares_are_counted(tmp_path):
    calm = [Operation("write", three(1, 2, 3))] * 97
    spared, not_spared = (
        Operation("write", three(1, 800, 900)),
        Operation("write", three(500, 800, 900)),
    )
    row = told(tmp_path, [*calm, spared, not_spared, spared])
    limit = 10 * (97 * 2 + 3 * 800) / 100
    assert ms(row.outliers.limit_ns) == pytest.approx(limit)
    assert (row.outliers.n, row.outliers.vanished) == (3, 2)
    assert row.outliers.share.estimate == pytest.approx(2 / 3)
    assert row.outliers.share.low < 2 / 3 < row.outliers.share.high
    assert row.outliers.share.n == 3


def test_without_an_outlier_the_share_is_absent_with_its_reason(tmp_path):
    row = told(tmp_path, [Operation("write", three(1, 2, 3))] * 3)
    assert (row.outliers.n, row.outliers.share) == (0, None)
    assert row.outliers.absent["share"] == "no quorum took more than 10 x the mean"


def test_the_slowest_operations_are_those_whose_quorum_came_last(tmp_path):
    operations = [Operation("write", three(1, 2 + n, 100)) for n in range(12)]
    operations[3] = Operation("write", three(1, 90, None))
    row = told(tmp_path, operations)
    assert [it.request for it in row.slowest] == [3, 11, 10, 9, 8, 7, 6, 5, 4, 2]
    slow = row.slowest[0]
    assert (ms(slow.first_ns), ms(slow.quorum_ns), slow.all_ns) == (1.0, 90.0, None)


def test_hops_are_counted_over_the_limit_where_the_stamps_are(tmp_path):
    operations = [Operation("write", three(300, 310, 320, hops=(1, 2)))] * 2
    operations += [Operation("write", three(300, 310, 320, hops=(150, 101)))]
    operations += [Operation("write", three(300, 310, 320))]
    one, two = told(tmp_path, operations).hops
    assert [(it.n, it.copies, it.over) for it in (one, two)] == [(9, 12, 3)] * 2
    assert [(ms(it.min), ms(it.p50), ms(it.max)) for it in (one, two)] == [
        (1.0, 1.0, 150.0), (2.0, 2.0, 101.0),
    ]  # fmt: skip
    assert one.absent["p99"] == "9 copies; 100 are needed so that one lies beyond it"


def test_without_stamps_the_hops_are_absent_with_the_reason(tmp_path):
    one, _ = told(tmp_path, [Operation("write", three(1, 2, 3))]).hops
    assert (one.n, one.over, one.p50) == (0, None, None)
    assert one.absent["over"] == "no copy has both stamps of this hop"


def test_the_warm_up_is_left_out(tmp_path):
    cold = Operation("write", three(70, 80, 90), phase="warmup")
    row = told(tmp_path, [cold, Operation("write", three(1, 2, 3))])
    assert (row.n, ms(row.wait("all").max), row.copies[0].n) == (1, 3.0, 1)


def test_a_group_study_at_level_all_has_no_such_section(analysed):
    analysis = analysed(duration_s=5.0, agents=3, failed_share=0.01)
    assert analysis.groups
    assert analysis.arrival_log is None
    assert summary(analysis)["arrival_log"] is None
    assert section(analysis) is None


@pytest.mark.slow
def test_a_run_whose_requests_have_one_copy_is_no_arrival_log(tmp_path):
    run = write_run(tmp_path / "run", kind="drive", agents=2, duration_s=5.0)
    assert numbers(run).arrival_log is None
    alone = write_log(tmp_path / "alone", [write(Copy(0, 1, answered=True))] * 3)
    assert numbers(alone).arrival_log is None
    in_turn = [write(Copy(n, 1, answered=True), level="first") for n in range(3)]
    assert numbers(write_log(tmp_path / "in turn", in_turn)).arrival_log is None


def test_at_level_all_a_copy_that_is_behind_tells_a_store(tmp_path):
    behind = [write(Copy(0, 1, "behind"), Copy(1, 2), Copy(2, 3), level="all")]
    assert numbers(write_log(tmp_path / "run", behind)).arrival_log is not None


def test_each_cell_has_its_own_number_of_replicas(tmp_path):
    five = [Copy(server, 10 + server, answered=server == 2) for server in range(5)]
    operations = [Operation("write", three(1, 2, 3), cell="3")] * 2
    operations += [write(*five, cell="5")] * 2
    three_, five_ = numbers(write_log(tmp_path / "run", operations)).arrival_log.rows
    assert (three_.cell, three_.replicas, ms(three_.wait("quorum").max)) == ("3", 3, 2.0)
    assert (five_.cell, five_.replicas, ms(five_.wait("quorum").max)) == ("5", 5, 12.0)


def test_a_large_matrix_is_not_told_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(findings, "KEYS_MOST", 1)
    operations = [Operation("write", three(1, 2, 3)), Operation("read", three(1, 2, 3))]
    analysis = numbers(write_log(tmp_path / "run", operations))
    assert analysis.arrival_log.rows == ()
    _, part = section(analysis)
    assert "2 cells and operations, where at most 1 are compared" in part.lead[0]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A run with everything: two ops, losses, retries, outliers, stamps, levels."""
    operations = []
    for n in range(600):
        spread = (1 + n % 3 / 10, 2 + n % 7 / 10, 4 + n % 11 / 10)
        op = "write" if n % 2 else "read"
        level = "first" if n % 4 == 1 else "quorum"
        answered = 0 if level == "first" else 1
        operations.append(
            Operation(op, three(*spread, answered=answered, hops=(0.2, 0.1)), level=level)
        )
    operations[41] = Operation("write", three(1, 400, 500))
    operations[42] = Operation("read", three(1, 2, None))
    operations[43] = write(
        Copy(0, 1, "behind"), Copy(0, 7, attempt=1), Copy(1, 3), Copy(2, 5, answered=True)
    )
    return write_log(tmp_path_factory.mktemp("store") / "run", operations, every_ms=20)


def test_means_come_with_intervals_and_percentiles_as_the_sample_allows(store):
    read, _ = numbers(store).arrival_log.rows
    quorum = read.wait("quorum")
    assert quorum.mean.low < quorum.mean.estimate < quorum.mean.high
    assert quorum.mean.n == quorum.n == 300
    assert quorum.p99 == pytest.approx(2.6 * MS)
    assert quorum.p99_9 is None
    assert quorum.absent["p99_9"] == "300 operations; 1000 are needed so that one lies beyond it"
    assert quorum.beyond_max.high == pytest.approx(0.0122, rel=0.01)


def test_the_summary_of_an_arrival_log_holds_to_its_schema(store, schema):
    document = json.loads(json.dumps(summary(numbers(store)), allow_nan=False))
    schema.validate(document)
    read, written = document["arrival_log"]["rows"]
    assert [it["measure"] for it in written["waits"]] == ["first", "quorum", "all"]
    assert [it["measure"] for it in written["exposures"]] == ["second", "every"]
    assert read["waits"][2]["censored"] == 1
    assert written["copies"][0]["by_status"] == {"behind": 1, "ok": 300}


@pytest.mark.slow
def test_pictures_change_no_number(store):
    whole, bare = (
        unruly.analyse(unruly.open_run(store), pictures=drawn).arrival_log
        for drawn in (True, False)
    )
    assert whole.rows == bare.rows
    assert len(whole.distribution) > 0
    assert len(bare.distribution) == 0


def test_the_verdict_says_what_waiting_costs(store):
    lines = unruly.verdict(numbers(store), width=200).splitlines()
    (line,) = [it for it in lines if it.startswith("same operations: write")]
    assert "3 replicas, n = 300, mean: first " in line
    assert line.endswith("; 1 of 1 quorum outliers gone at the first")


@pytest.mark.slow
def test_spark_says_the_same_of_an_arrival_log(store):
    logs = []
    for engine in ("duckdb", "local[2]"):
        context = Context.of(unruly.open_run(store, engine=engine), lambda _: None)
        logs.append(findings.arrival_log(context))
    one, other = (json.loads(json.dumps([asdict(row) for row in log.rows])) for log in logs)
    assert len(list(leaves(one))) > 300
    assert differences(one, other) == []
    frames = [log.distribution for log in logs]
    pd.testing.assert_frame_equal(*frames, check_dtype=False, rtol=1e-9, atol=0)


@pytest.mark.slow
def test_the_page_tells_every_algorithm_its_n_and_its_interval(store):
    by_caption, part = section(numbers(store, pictures=True))
    waits = by_caption["Every algorithm on the same operations"]
    row = said(waits, 2)
    assert (row["waits for"], row["operations"], row["never had it"]) == (
        "all (3 of 3)",
        "300",
        "1",
    )
    assert re.fullmatch(r"4\.\d+.ms \* \(4\.\d+.ms to 4\.\d+.ms\)", row["mean"])
    assert "Only for operations that had enough correct copies" in waits.note
    assert said(waits, 1)["others beyond it"].startswith("at most 1.22")
    slow = by_caption["The slowest operations, under every algorithm"]
    line = next(said(slow, n) for n in range(len(slow.rows)) if slow.rows[n][1].text == "41")
    assert (line["first, ms"], line["quorum, ms"], line["all, ms"]) == ("1", "400", "500")
    spared = said(by_caption["Outliers that the first copy would have spared"], 1)
    assert (spared["outliers of the quorum"], spared["gone at the first copy"]) == ("1", "1")
    copies = said(by_caption["Copies by replica and status"], 3)
    assert (copies["replica"], copies["behind"], copies["of these repeated"]) == (
        "replica-0",
        "1",
        "1",
    )
    (figure,) = part.figures
    assert [it.title for it in figure.panels] == ["Read", "Write"]
    assert [key.label for key in figure.legend] == ["first", "quorum", "all"]


def test_a_curve_stays_at_the_share_of_its_outliers_until_they_come(tmp_path):
    """One in a hundred takes 900 ms: between 3 and 900 ms the curve of all is at 1 %."""
    operations = [Operation("write", three(1, 2, 3 if n % 100 else 900)) for n in range(200)]
    _, part = section(numbers(write_log(tmp_path / "run", operations), pictures=True))
    spec = part.figures[0].panels[0].spec
    lines = spec["layer"][0]
    points = [it for it in spec["datasets"][lines["data"]["name"]] if it["measure"] == "all"]
    assert [(round(it["latency_ns"] / MS), it["share"]) for it in points][1:] == [
        (3, 0.01),
        (910, 0.0025),
    ]  # fmt: skip
    assert lines["mark"]["interpolate"] == "step-after"


def test_the_query_in_the_documents_gives_first_quorum_and_all(store, monkeypatch):
    page = (REPOSITORY / "flurry" / "docs" / "arrival-log.md").read_text(encoding="utf-8")
    query = re.search(r"```sql\n(.*?)```", page, re.DOTALL).group(1)
    monkeypatch.chdir(store)
    cursor = duckdb.connect().execute(query)
    names = [column[0] for column in cursor.description]
    rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    assert [row["op"] for row in rows] == ["read", "write"]
    for row, found in zip(rows, numbers(store).arrival_log.rows, strict=True):
        assert (row["replicas"], row["n"]) == (found.replicas, found.n)
        for wait in found.waits:
            assert row[f"{wait.measure}_never"] == wait.censored
            assert row[f"{wait.measure}_mean_ms"] == pytest.approx(wait.mean_ok.estimate / MS)
            assert row[f"{wait.measure}_max_ms"] == pytest.approx(wait.max_ok / MS)
