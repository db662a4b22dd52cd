"""Results by runtime are those planted copy by copy and collection by collection."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest

import unruly
from alike import differences, leaves
from explained import assert_like_its_example
from meshes import MS, Mesh, write_mesh
from synthetic import write_run
from unruly.base.context import Context
from unruly.drawing import format
from unruly.drawing.view import views_of
from unruly.html.sections import sections
from unruly.output.summary import summary
from unruly.output.verdict import verdict
from unruly.tables import inline
from unruly.topics.runtimes import tables as runtime_tables
from unruly.topics.runtimes.meetings import mean_chance
from unruly.topics.runtimes.spans import Odds, merged
from unruly.topics.runtimes.statistics import runtimes

RAISED_BY_RUNTIMES = {"runtime-tail", "runtime-collector"}


def analyse(path, **rest):
    return unruly.analyse(unruly.open_run(path, **rest), causes=False, pictures=False)


def codes(analysis):
    return {finding.code for finding in analysis.findings} & RAISED_BY_RUNTIMES


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Two of four agents are JVMs; each collection has three events that overlap."""
    root = tmp_path_factory.mktemp("runtimes") / "run"
    return write_mesh(root, Mesh(failed_share=0.001), overlapping=True)


@pytest.fixture(scope="module")
def analysis(written):
    return analyse(written.path)


def counted(written, end, *, slow):
    """Copies with a JVM at that end, and those of them that met a collection there."""
    there = {"asking": "client", "answering": "server"}
    jvm = {name: written.jvm(side) for name, side in there.items()}
    met = {name: written.met(side) for name, side in there.items()}
    jvm["either"], met["either"] = (it["asking"] | it["answering"] for it in (jvm, met))
    own = jvm[end] & slow
    return int(own.sum()), int((met[end] & own).sum())


def slow_ones(written):
    """Which copies are beyond the p99 of their cell and op."""
    copies = pd.DataFrame(written.copies)
    limits = copies.groupby(["cell", "op"])["took"].transform(
        lambda it: np.quantile(np.nan_to_num(it, posinf=1e12), 0.99)
    )
    return (copies["took"] > limits).to_numpy()


@pytest.mark.parametrize("end", ["either", "asking", "answering"])
def test_who_met_a_collection_is_counted_to_the_copy(written, analysis, end):
    slow = slow_ones(written)
    (row,) = analysis.runtimes.meetings
    found = row.at(end)
    assert (found.slow, found.slow_met) == counted(written, end, slow=slow)
    assert (found.others, found.others_met) == counted(written, end, slow=~slow)
    assert found.slow_met > 100
    assert found.slow_share.estimate == found.slow_met / found.slow
    lift = (found.slow_met / found.slow) / (found.others_met / found.others)
    assert found.lift.estimate == pytest.approx(lift)
    assert 1 < found.lift.low < lift < found.lift.high


def test_a_copy_that_never_came_met_what_was_on_until_its_timeout(tmp_path):
    """All that is slow has failed: the p99 falls among the failed."""
    written = write_mesh(tmp_path / "run", Mesh(failed_share=0.02, collections_hz=0.5))
    (row,) = analyse(written.path).runtimes.meetings
    failed = ~np.isfinite(written.copies["took"])
    found = row.at("either")
    assert row.limit_ns is None
    assert (found.slow, found.slow_met) == counted(written, "either", slow=failed)
    assert 0.3 < found.slow_share.estimate < 0.99
    # each took a second: no more of them met one than chance would have it
    assert found.by_chance == pytest.approx(found.slow_share.estimate, abs=0.1)


@pytest.mark.slow
def test_the_timeout_is_that_of_the_plan(tmp_path):
    written = write_mesh(tmp_path / "run", Mesh(failed_share=0.02, collections_hz=0.5))
    (written.path / "plan.toml").write_text('[mesh]\ntimeout = "100ms"\n', encoding="utf-8")
    shorter = analyse(written.path).runtimes.meetings[0].at("either")
    (written.path / "plan.toml").unlink()
    longer = analyse(written.path).runtimes.meetings[0].at("either")
    assert shorter.slow == longer.slow
    assert shorter.slow_met < longer.slow_met / 2


def test_tails_are_those_of_the_copies_between_two_runtimes(written, analysis):
    copies, jvm = written.copies, {side: written.jvm(side) for side in ("client", "server")}
    found = {(it.asks, it.answers): it for it in analysis.runtimes.tails}
    assert len(found) == 6
    for (asks, answers), row in found.items():
        own = jvm["server"] == (answers == "jvm")
        own &= (jvm["client"] == (asks == "jvm")) | (asks == "*")
        took = copies["took"][own]
        assert row.n == own.sum()
        assert row.failed == int((~np.isfinite(took)).sum())
        quantiles = np.quantile(np.nan_to_num(took, posinf=1e12), [0.5, 0.99])
        assert [row.p50, row.p99] == pytest.approx(quantiles.tolist())
        assert row.p99_interval.low <= row.p99 <= row.p99_interval.high


def test_the_ratio_is_of_what_jvms_answered_to_what_native_agents_did(tmp_path):
    mesh = Mesh(jvm_factor=3.0, collections_hz=1.0, collection_ms=0.001)
    analysis = analyse(write_mesh(tmp_path / "run", mesh).path)
    (row,) = analysis.runtimes.ratios
    assert row.ratio.low < 3.0 < row.ratio.high
    assert row.ratio.high / row.ratio.low < 1.2
    (finding,) = [it for it in analysis.findings if it.code == "runtime-tail"]
    assert finding.text.startswith("The p99 of requests to JVMs is ")
    assert "of requests to native agents of the same cell 1.2" in finding.text


def test_over_several_repeats_the_ratio_is_that_of_each(tmp_path):
    mesh = Mesh(jvm_factor=2.0, repeats=3, seconds=8.0, collection_ms=0.001, cells=("a", "native"))
    analysis = analyse(write_mesh(tmp_path / "run", mesh).path)
    (row,) = analysis.runtimes.ratios
    assert row.cell == "a"
    assert row.ratio.n == 3
    assert row.ratio.low < 2.0 < row.ratio.high
    assert all(it.over_repeats.n == 3 for it in analysis.runtimes.tails)
    assert {it.cell for it in analysis.runtimes.tails} == {"a", "native"}
    # of a cell without a JVM there is nothing to meet
    assert {it.cell for it in analysis.runtimes.meetings} == {"a"}
    assert {it.cell for it in analysis.runtimes.collecting} == {"a"}


def test_both_findings_are_raised(analysis):
    assert codes(analysis) == RAISED_BY_RUNTIMES
    for finding in (it for it in analysis.findings if it.code in RAISED_BY_RUNTIMES):
        assert_like_its_example(finding)
    (finding,) = [it for it in analysis.findings if it.code == "runtime-collector"]
    met = analysis.runtimes.meetings[0].at("either")
    assert finding.evidence["slow_met"] == met.slow_met
    assert f"({met.slow_met} of {met.slow}) met a collection" in finding.text


def test_what_chance_explains_is_not_raised_however_great_the_lift(analysis):
    met = analysis.runtimes.meetings[0].at("either")
    assert met.raised == met.lift.low > 1
    below, above = (met.slow_share.low * times for times in (0.99, 1.01))
    assert replace(met, by_chance=below).raised == met.lift.low
    assert replace(met, by_chance=above).raised is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_collections_that_delay_nobody_are_no_correlate(tmp_path, seed):
    """Slow copies take 5 ms more, at any time: they meet as many as chance has it."""
    mesh = Mesh(waits=False, slow_share=0.02, collection_ms=15.0, seed=seed)
    analysis = analyse(write_mesh(tmp_path / "run", mesh).path)
    met = analysis.runtimes.meetings[0].at("either")
    assert met.slow_share.low < met.by_chance < met.slow_share.high
    assert met.lift.low < met.by_chance / met.others_share.estimate < met.lift.high
    assert met.raised is None
    assert codes(analysis) == set()


def test_slow_copies_that_meet_more_because_they_last_longer_are_no_finding(tmp_path):
    """The lift alone is far above 1, because a long copy meets more collections by chance."""
    mesh = Mesh(waits=False, slow_share=0.02, collections_hz=20.0, collection_ms=0.1)
    analysis = analyse(write_mesh(tmp_path / "run", mesh).path)
    met = analysis.runtimes.meetings[0].at("either")
    assert met.lift.low > 2
    assert met.slow_share.low < met.by_chance < met.slow_share.high
    assert codes(analysis) == set()


def test_several_ops_are_held_each_to_its_own_limit(tmp_path):
    written = write_mesh(tmp_path / "run", Mesh(ops=("null", "disk"), seconds=10.0))
    rows = {it.op: it for it in analyse(written.path).runtimes.meetings}
    assert rows.keys() == {"null", "disk", "*"}
    slow = slow_ones(written)
    whole = rows["*"].at("either")
    assert (whole.slow, whole.slow_met) == counted(written, "either", slow=slow)
    assert whole.slow == sum(rows[op].at("either").slow for op in ("null", "disk"))


def test_what_was_collected_is_told_by_cell(tmp_path):
    written = write_mesh(tmp_path / "run", Mesh(collections_hz=2.0, collection_ms=15.0))
    (row,) = analyse(written.path).runtimes.collecting
    assert (row.agents, row.collections) == (2, 80)
    assert row.hz == pytest.approx(2.0, rel=0.01)
    assert row.share == pytest.approx(0.03, rel=0.01)
    assert row.share_most == pytest.approx(0.03, rel=0.01)
    assert row.longest_ns == 15 * MS


@pytest.mark.slow
@pytest.mark.parametrize(("late", "told"), [("jvm", False), ("native", True)])
def test_a_machine_that_sends_late_is_measured_and_no_generator(tmp_path, late, told):
    written = write_mesh(tmp_path / "run", Mesh(late=late, usual_ms=20.0, seconds=5.0))
    found = analyse(written.path)
    stalled = [it for it in found.findings if it.code == "generator-stalled"]
    assert bool(stalled) == told
    lag = found.self_distrust.send_lag_ns
    assert (lag["p99_9"], lag["max"]) == ((12 * MS,) * 2 if told else (1_000,) * 2)
    # a fifth of all requests were sent late for most of their response time
    assert [it.severity for it in stalled] == ["spoils"] * told
    assert all("beyond the p99" not in it.text for it in stalled)


@pytest.mark.slow
@pytest.mark.parametrize(("throttled", "told"), [((), True), ((2,), False), ((0, 1, 2, 3), True)])
def test_an_agent_that_its_own_cpu_limit_delays_is_measured_and_no_late_generator(
    tmp_path, throttled, told
):
    """A limit on all of them is that of the container, which the load generator is in as well."""
    mesh = Mesh(runtimes=("native",) * 4, late_agents=(2,), throttled=throttled, seconds=5.0)
    found = analyse(write_mesh(tmp_path / "run", mesh).path)
    assert ("generator-stalled" in {it.code for it in found.findings}) == told


def test_the_time_that_a_cpu_limit_took_is_told_for_each_process_that_it_held_back(tmp_path):
    mesh = Mesh(runtimes=("native",) * 4, throttled=(1, 3), seconds=5.0)
    found = analyse(write_mesh(tmp_path / "run", mesh).path)
    rows = found.self_distrust.throttled.to_dict("records")
    cell = mesh.cells[0]
    assert rows == [
        {"cell": cell, "process": f"agent-{number}", "throttled_ns": 500 * MS, "share": 0.5}
        for number in (1, 3)
    ]


def test_a_run_of_jvms_alone_has_no_generator_that_could_be_late(tmp_path):
    mesh = Mesh(runtimes=("jvm", "jvm"), late="jvm", usual_ms=20.0, seconds=5.0)
    found = analyse(write_mesh(tmp_path / "run", mesh).path)
    assert found.self_distrust.send_lag_ns == {}
    assert "generator-stalled" not in {it.code for it in found.findings}


def test_a_run_of_native_agents_has_nothing_of_it(tmp_path, monkeypatch):
    path = write_run(tmp_path / "run", agents=3, ops=("null",), duration_s=20.0)
    asked = []
    for name in ("placed", "collections", "met", "slow_copies"):
        monkeypatch.setattr(runtime_tables, name, lambda *_, name=name: asked.append(name))
    analysis = analyse(path)
    assert analysis.runtimes is None
    assert summary(analysis)["runtimes"] is None
    assert "by runtime" not in verdict(analysis)
    assert "collector" not in verdict(analysis)
    assert codes(analysis) == set()
    assert asked == []


def test_the_verdict_has_a_short_table(analysis):
    lines = verdict(analysis).splitlines()
    place = next(at for at, line in enumerate(lines) if line.startswith("by runtime"))
    assert [line[:17].strip() for line in lines[place + 1 : place + 5]] == [
        "jvm -> jvm", "jvm -> native", "native -> jvm", "native -> native",
    ]  # fmt: skip
    assert lines[place + 5].startswith("runtime: the p99 of requests to JVMs is ")
    assert lines[place + 6].startswith("garbage collection: ")


def test_the_summary_has_it_and_is_valid(analysis, schema):
    document = json.loads(json.dumps(summary(analysis)))
    assert [error.message for error in schema.iter_errors(document)] == []
    told = document["runtimes"]
    assert [len(told[it]) for it in ("tails", "ratios", "meetings", "collecting")] == [6, 1, 1, 1]
    assert {it["end"] for it in told["meetings"][0]["ends"]} == {"either", "asking", "answering"}


@pytest.mark.slow
def test_duckdb_and_spark_say_the_same(tmp_path):
    mesh = Mesh(ops=("null", "disk"), repeats=2, seconds=6.0, failed_share=0.01,
                cells=("a", "native"))  # fmt: skip
    path = write_mesh(tmp_path / "run", mesh, overlapping=True).path
    told = []
    for engine in ("duckdb", "local[2]"):
        context = Context.of(unruly.open_run(path, engine=engine), lambda _: None)
        told.append(json.loads(json.dumps(asdict(runtimes(context, ())))))
    assert len(list(leaves(told[0]))) > 300
    assert differences(*told) == []


def test_a_copy_is_joined_with_one_span_and_never_with_all_of_its_agent(tmp_path):
    """Bins are hashed; by two inequalities alone every copy would meet every span."""
    run = unruly.open_run(write_mesh(tmp_path / "run", Mesh(seconds=5.0)).path)
    spans = merged(pd.DataFrame({
        "place": 0, "node": np.repeat([1, 3], 5_000), "started_ns": np.tile(np.arange(5_000), 2)
        * MS, "ended_ns": np.tile(np.arange(5_000), 2) * MS + 1_000,
    }))  # fmt: skip
    near = run.engine.materialise("near", runtime_tables.in_bins(inline(spans)))
    assert near.count().execute() < 20 * len(spans)
    rows = run.engine.materialise("rows", inline(pd.DataFrame({
        "number": 0, "block": 0, "slow": False, "asks": 1, "answers": 1, "place": 0,
        "client": np.repeat([1, 3], 2_000), "server": 1, "intended_ns": np.arange(4_000) * MS,
        "until_ns": np.arange(4_000) * MS + 500,
    })))  # fmt: skip
    found = runtime_tables.met(rows, near)
    sql = run.engine.connection.compile(found)
    plan = run.engine.connection.raw_sql(f"EXPLAIN {sql}").fetchall()[0][1].upper()
    assert plan.count("HASH JOIN") == 2
    assert not any(word in plan for word in ("CROSS", "NESTED", "BLOCKWISE"))
    assert found.execute()["n"].sum() == 4_000
    assert found.execute()["either"].sum() == 4_000


def test_spans_longer_than_any_bin_are_met_by_copies_of_every_length(tmp_path):
    engine = unruly.open_run(write_mesh(tmp_path / "run", Mesh(seconds=2.0)).path).engine
    rng = np.random.default_rng(5)
    starts = np.sort(rng.integers(0, 10**13, 400))
    lasted = (10.0 ** rng.uniform(3, 12, 400)).astype(np.int64)
    told = pd.DataFrame({"place": 0, "node": 1, "started_ns": starts, "ended_ns": starts + lasted})
    spans = merged(told)
    begin = rng.integers(0, 10**13, 3_000)
    until = begin + (10.0 ** rng.uniform(0, 12, 3_000)).astype(np.int64)
    rows = pd.DataFrame({
        "number": np.arange(3_000), "block": 0, "slow": False, "asks": 1, "answers": 0, "place": 0,
        "client": 1, "server": 0, "intended_ns": begin, "until_ns": until,
    })  # fmt: skip
    near = engine.materialise("near", runtime_tables.in_bins(inline(spans)))
    found = runtime_tables.met(inline(rows), near).execute().sort_values("number")
    # every copy against every span
    ends = starts + lasted
    truth = [bool(((starts <= b) & (ends >= a)).any()) for a, b in zip(begin, until, strict=True)]
    assert found["asking"].tolist() == [int(it) for it in truth]
    assert 0.1 < np.mean(truth) < 0.9
    assert not found["answering"].any()


def test_what_chance_would_meet_is_what_random_times_meet():
    rng = np.random.default_rng(2)
    starts = np.sort(rng.integers(0, 10_000, 50))
    told = pd.DataFrame({"place": 0, "node": 1, "started_ns": starts, "ended_ns": starts + 30})
    odds = Odds.of(merged(told), 0, 10_000)
    at = rng.uniform(0, 10_000, 20_000)
    for took in (0.0, 20.0, 200.0):
        met = [((starts <= it + took) & (starts + 30 >= it)).any() for it in at]
        assert odds.met(np.array([took]))[0] == pytest.approx(np.mean(met), abs=0.015)


def why(analysis):
    """The page's answer to "Why?": its lead, its figures by key, its tables by caption."""
    (view,) = views_of([analysis])
    (found,) = [it for it in sections(view) if it.key == "slow"] or [None]
    if found is None:
        return (), {}, {}
    (part,) = found.parts
    tables = (*part.tables, *part.closed_tables)
    return part.lead, {it.key: it for it in part.figures}, {it.caption: it for it in tables}


def said(datum):
    return datum.text.replace(format.NBSP, " ")


def test_the_page_has_a_picture_and_three_tables(written, analysis):
    lead, figures, tables = why(analysis)
    assert "gc_ns" in lead[0]
    figure = figures["by-runtime-0"]
    assert figure.title.startswith("What JVMs answer has a p99 ")
    (panel,) = figure.panels
    for tail in analysis.runtimes.tails:
        if tail.asks != "*":
            named = f"{tail.asks} \u2192 {tail.answers}: {format.duration(tail.p99)}"
            assert named in panel.alt
    assert len(tables["By runtime of who asks and who answers"].rows) == 6
    table = tables["Slow copies that met a collection of garbage"]
    assert [said(row[2]) for row in table.rows] == ["either", "who asks", "who answers"]
    met = analysis.runtimes.meetings[0].at("either")
    assert said(table.rows[0][4]) == format.count(met.slow_met)
    assert len(tables["What the JVMs collected"].rows) == 1


@pytest.mark.slow
def test_the_picture_of_several_cells_has_a_row_for_each(tmp_path):
    mesh = Mesh(cells=("a", "b", "native"), seconds=6.0)
    analysis = analyse(write_mesh(tmp_path / "run", mesh).path)
    (line,) = [it for it in verdict(analysis, width=200).splitlines() if "by runtime" in it]
    assert line.count(" -> ") == 4
    _, figures, tables = why(analysis)
    assert said(tables["What the JVMs collected"].rows[0][0]) == "a"
    (panel,) = figures["by-runtime-0"].panels
    assert panel.spec["layer"][0]["encoding"]["yOffset"]["field"] == "pair"
    (rows,) = panel.spec["datasets"].values()
    assert {row["cell"] for row in rows} == {"a", "b", "native"}
    assert len(rows) == 9


def test_the_page_of_native_agents_has_nothing_of_it(clean):
    lead, figures, tables = why(clean)
    assert not any("gc_ns" in line for line in lead)
    assert "by-runtime-0" not in figures
    assert not any("runtime" in caption or "collect" in caption for caption in tables)


def test_of_what_was_looked_at_each_stands_for_as_many_as_there_are_of_its_kind():
    slow = pd.DataFrame({"number": [0, 0, 1], "n": [2_000, 3_000, 300]})
    sampled = pd.DataFrame({"number": [0, 0, 1, 1, 1], "asking": [0.0, 0.1, 1.0, 1.0, 1.0]})
    found = mean_chance("asking", slow, sampled)
    assert found == pytest.approx((5_000 * 0.05 + 300 * 1.0) / 5_300)
    assert mean_chance("asking", slow, sampled[:0]) is None
