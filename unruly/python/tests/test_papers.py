"""What the papers found: every claim has a place, and every run that was judged stays known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import unruly
from arrival_logs import Operation, three, write_log
from claims_planted import NOTHING, drives, groups, spans, tail
from synthetic import write_run
from test_findings import MATRIX, ODD
from unruly.errors import PaperError
from unruly.papers import check, claims, judges, kept, page, papers, record, remember
from unruly.papers import evidence as evidence_module
from unruly.papers.evidence import Evidence, evidence_of, read, written
from unruly.papers.judgement import Judgement
from unruly.papers.record import Record, added

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "unruly" / "docs" / "papers.md"
CLAIMS = {
    f"{paper.number}.{claim.id}": (paper, claim) for paper in papers() for claim in paper.claims
}
ARRIVAL_LOG = "flurry"
"""The name of a run of ``flurry bench``, which has no plan."""


def matrix(place, **changes):
    root = write_run(place, **{**MATRIX, "repeats": 3, **changes})
    return evidence_of(unruly.analyse(unruly.open_run(root), causes=False, pictures=False))


def test_the_page_in_the_repository_is_what_the_claims_and_verdicts_say():
    assert PAGE.read_text(encoding="utf-8") == page(kept())


def test_every_judge_that_a_claim_wants_exists_and_none_is_idle():
    wanted = {claim.judge for paper in papers() for claim in paper.claims if claim.judge}
    assert wanted == set(judges.JUDGES)


def test_every_verdict_that_is_kept_is_of_a_claim_that_is_judged_and_of_a_run():
    held = kept()
    for name, by_run in held.verdicts.items():
        assert CLAIMS[name][1].judge, name
        assert set(by_run) <= set(held.runs), name
        assert all(it.sentence for it in by_run.values()), name
    assert {run for by_run in held.verdicts.values() for run in by_run} == set(held.runs)


def test_no_verdict_that_is_kept_decides_anything_by_a_run_that_nobody_can_trust():
    held = kept()
    doubtful = {run for run, facts in held.runs.items() if not facts.trustworthy}
    assert doubtful
    for name, by_run in held.verdicts.items():
        assert {by_run[it].verdict for it in doubtful & set(by_run)} <= {"undecided"}, name


@pytest.mark.parametrize("name", claims.FILES)
def test_every_document_that_a_claim_is_shown_in_exists(name):
    (paper,) = (it for it in papers() if it.name == name)
    for claim in paper.claims:
        assert not claim.shown or (ROOT / claim.shown.partition("#")[0]).exists()


def test_every_plan_that_a_claim_is_judged_by_is_in_the_repository_or_its_absence_is_told():
    plans = {path.stem for path in (ROOT / "unruly" / "plans").glob("*.toml")} | {ARRIVAL_LOG}
    for name, (paper, claim) in CLAIMS.items():
        if claim.judge and not set(paper.plans_of(claim)) <= plans:
            assert claim.why.startswith("no plan of the repository"), name


def test_no_claim_about_what_is_shipped_is_called_not_built():
    shipped = {path.stem for path in (ROOT / "unruly" / "services").glob("*.toml")}
    shipped |= {"arrival log", "collector", "stream protocol", "the jvm agent"}
    called = {
        name: f"{claim.living} {claim.why}".lower()
        for name, (_, claim) in CLAIMS.items()
        if claim.state == "not built yet"
    }
    assert "memcached" in shipped
    assert not {name: text for name, text in called.items() if any(it in text for it in shipped)}
    # missing are applications of several tiers, and spans of a request
    assert all("tier" in text or "spans" in text for text in called.values())


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"id": "fig1", "what": "x"}, "neither judged, shown"),
        ({"id": "fig1", "what": "x", "state": "not built yet"}, "nor excused with a reason"),
        ({"id": "fig1", "what": "x", "judge": "haircut", "shown": "y"}, "neither judged, shown"),
        ({"id": "fig1", "what": "x", "verdict": "holds"}, "unknown key"),
    ],
)
def test_a_claim_without_a_place_is_refused(row, wanted):
    with pytest.raises(PaperError, match=wanted):
        claims._claim("made-up", row)


def test_a_run_of_another_plan_is_refused_with_the_plans_that_are_judged():
    other = replace(NOTHING, facts=replace(NOTHING.facts, plan="echo"))
    with pytest.raises(PaperError, match="which no claim is judged by; a run of demo or flurry"):
        added(Record(), other)


# From a run to its evidence ------------------------------------------------------------


@pytest.mark.slow
def test_the_evidence_of_a_matrix_is_that_of_its_analysis(tmp_path):
    calm = matrix(tmp_path / "calm")
    assert judges.JUDGES["p99_bound"](calm).systems == ("all",)
    # all of four, which are too few for every one
    found = judges.JUDGES["haircut_everywhere"](calm)
    assert (found.verdict, found.estimate) == ("undecided", 1.0)
    # 15 of 1,000 requests 5,000 times slower: the p99 is dozens of means away
    wild = matrix(tmp_path / "run", duration_s=60, rate_hz=100, cell_tails={ODD: (0.015, 5000.0)})
    assert judges.JUDGES["p99_bound"](wild).verdict == "does not hold"
    assert max(it.largest / it.mean for it in wild.matrix.cells) > 25
    assert {it.measure for it in wild.matrix.explained} >= {"mean", "p99", "maximum"}


WORKLOADS = ("null", "crypto", "network", "disk")


def of_workloads(place, **scales):
    root = write_run(place, ops=WORKLOADS, op_scale=scales, stalls_hz=0.2)
    return evidence_of(unruly.analyse(unruly.open_run(root), causes=False, pictures=False))


@pytest.mark.slow
def test_the_slower_of_disk_and_network_is_the_one_that_was_planted(tmp_path):
    # Medians of 120 us, 150 us, 330 us and 1.4 ms.
    evidence = of_workloads(tmp_path / "run")
    found = judges.JUDGES["disk_costs_most"](evidence)
    assert found.verdict == "holds"
    assert found.estimate == pytest.approx(4.3, rel=0.1)
    assert 1 < found.low < found.estimate < found.high
    below = judges.JUDGES["network_at_most_disk"](evidence)
    assert below.verdict == "holds"
    assert below.estimate == pytest.approx(1 / found.estimate, rel=0.01)
    assert judges.JUDGES["crypto_costs_little"](evidence).verdict == "holds"


@pytest.mark.slow
def test_the_claims_about_workloads_fail_where_network_and_crypto_are_slower(tmp_path):
    evidence = of_workloads(tmp_path / "run", network=40.0, crypto=3.0)
    for name in ("disk_costs_most", "network_at_most_disk", "crypto_costs_little"):
        assert judges.JUDGES[name](evidence).verdict == "does not hold", name
    found = judges.JUDGES["disk_costs_most"](evidence)
    assert found.estimate == pytest.approx(4.3 / 40, rel=0.1)
    assert found.high < 1


SHORT = {"ops": ("null",), "duration_s": 20, "rate_hz": 20, "slow_agent": 1}


@pytest.mark.slow
def test_only_windows_in_which_the_plan_slowed_a_node_have_a_slow_node(tmp_path):
    root = write_run(tmp_path / "run", **SHORT, faults=(("base", "quota", "agent-1", 10.3, 4.4),))
    evidence = evidence_of(
        unruly.analyse(unruly.open_run(root), window=10**9, causes=False, pictures=False)
    )
    struck = [it.window for it in evidence.overlaps if it.struck]
    assert struck == [10, 11, 12, 13, 14]
    assert {it.struck for it in evidence.overlaps} == {(), ("agent-1",)}
    assert len(evidence.overlaps) > 15
    calm = write_run(tmp_path / "calm", **SHORT)
    evidence = evidence_of(
        unruly.analyse(unruly.open_run(calm), window=10**9, causes=False, pictures=False)
    )
    assert len(evidence.overlaps) > 15
    found = judges.JUDGES["slow_seen_alike"](evidence)
    assert (found.verdict, found.estimate) == ("undecided", None)
    assert "made no node slow" in found.sentence
    (calm / "plan.toml").write_text('name = "calm"\n[quota]\nagent-1 = 0.05\nperiod = "20ms"\n')
    evidence = evidence_of(
        unruly.analyse(unruly.open_run(calm), window=10**9, causes=False, pictures=False)
    )
    # a limit that held nobody back made nobody slow
    assert {it.struck for it in evidence.overlaps} == {()}
    _throttle(calm, "agent-1", 60_000_000)
    evidence = evidence_of(
        unruly.analyse(unruly.open_run(calm), window=10**9, causes=False, pictures=False)
    )
    assert {it.struck for it in evidence.overlaps} == {("agent-1",)}


def _throttle(run, process, waited_ns):
    """Have each sample of a process say how long a CPU limit held it back."""
    (path,) = (run / "resources").glob("*.parquet")
    table = pq.read_table(path)
    own = pc.fill_null(pc.equal(table["watched"], process), False)
    place = table.column_names.index("cgroup_throttled_ns")
    held = pc.if_else(own, waited_ns, 0).cast(table.schema.field(place).type)
    pq.write_table(table.set_column(place, table.column_names[place], held), path)


def test_a_fault_that_nobody_ended_lasts_to_the_end_of_its_cell():
    faults = pd.DataFrame(
        [("agent-1", 10, 20), ("agent-2", 15, None)], columns=["process", "started_ns", "ended_ns"]
    )
    windows = [(0, 10), (10, 15), (15, 20), (20, 30), (90, 99)]
    assert [evidence_module._struck(faults, *it) for it in windows] == [
        (), ("agent-1",), ("agent-1", "agent-2"), ("agent-2",), ("agent-2",),
    ]  # fmt: skip


def test_the_evidence_of_an_arrival_log_is_that_of_its_operations(tmp_path):
    # of each ten operations one waits for its second copy
    rows = [Operation("write", three(1, 40 if n % 10 == 0 else 2, 50)) for n in range(200)]
    root = write_log(tmp_path / "run", rows)
    evidence = evidence_of(unruly.analyse(unruly.open_run(root), causes=False, pictures=False))
    (found,) = evidence.arrivals
    assert [it.measure for it in found.waits] == ["first", "quorum", "all"]
    assert found.wait("quorum").max_ok == pytest.approx(40e6)
    assert found.wait("first").mean_ok.estimate == pytest.approx(1e6)
    assert (len(found.slowest), found.slowest[0].quorum_ns) == (10, pytest.approx(40e6))
    judged = judges.JUDGES["slowest_stay_slow"](evidence)
    assert (judged.verdict, judged.estimate) == ("does not hold", 0.0)


def test_evidence_that_was_written_is_read_as_it_was(tmp_path):
    evidence = matrix(tmp_path / "run")
    assert read(written(evidence), NOTHING.facts) == evidence
    assert evidence.facts.trustworthy in {True, False}
    assert evidence.facts.run == "synthetic-1"
    assert evidence.latencies


# The record ----------------------------------------------------------------------------


def named(run, evidence, *, date="2026-11-01", plan="group-rpc", **facts):
    own = replace(evidence.facts, run=run, plan=plan, date=date, **facts)
    return replace(evidence, facts=own)


HOLDING, FAILING = groups((17, 1.2), (3, 0.9)), groups((3, 1.2), (17, 0.9))


def test_a_second_run_is_added_and_one_that_contradicts_is_shown_beside_it():
    first = added(Record(), named("first", HOLDING))
    assert first.verdict("2.fig2") == "holds"
    both = added(first, named("second", FAILING, date="2026-11-02", host="AMD", trial_s=7.5))
    assert [facts.run for facts, _ in both.of("2.fig2")] == ["second", "first"]
    assert both.of("2.fig2")[1] == first.of("2.fig2")[0]
    assert both.verdict("2.fig2") == "undecided"
    assert both.contradicted("2.fig2")
    (row,) = (it for it in page(both).splitlines() if it.startswith("| figure 2 | Latency by"))
    assert "**undecided**: the runs contradict each other. **does not hold** 0.15 [" in row
    assert row.index("(run 2)") < row.index("**holds** 0.85 [") < row.index("(run 1)")


def test_a_run_that_decides_nothing_contradicts_nobody():
    record = added(Record(), named("first", HOLDING))
    record = added(record, named("second", FAILING, trustworthy=False))
    assert record.verdict("2.fig2") == "holds"
    assert not record.contradicted("2.fig2")


def test_the_page_tells_the_machine_the_length_and_the_trust_of_each_run():
    record = added(
        Record(),
        named(
            "short", HOLDING, host="AMD EPYC", trial_s=7.5, planned_s=300.0, trustworthy=False,
            doubts=("the generator sent late",), kept="unruly/bench/runs/short.json",
        ),
    )  # fmt: skip
    assert (
        "| 1: `short` | `group-rpc` | 2026-11-01 | AMD EPYC | 7.5 s, shortened: the plan has 300 s "
        "| no: the generator sent late | [yes](../bench/runs/short.json) |"
    ) in page(record)
    text = page(added(Record(), named("long", HOLDING, trial_s=300.0, planned_s=300.0)))
    assert "| unknown | 300 s | yes | no: its verdicts cannot be recomputed |" in text
    text = page(added(Record(), named("lost", HOLDING, trustworthy=None)))
    assert "| unknown | unknown | nobody knows: its own verdict is not kept |" in text


def test_a_claim_about_all_systems_names_those_that_it_was_judged_on_and_those_not():
    far = {"far": spans(11, 20)}
    evidence = named(
        "run", drives(tail("redis", **far), tail("etcd", **far), tail("garage")), plan="stores"
    )
    (row,) = (it for it in page(added(Record(), evidence)).splitlines() if "p99.999 of every" in it)
    assert "Judged on: redis, etcd; not judged on: cassandra, memcached, redis-replicated" in row


def test_the_verdicts_that_are_kept_are_those_of_the_kept_numbers():
    found = check()
    assert found.different == ()
    assert found.same > 20
    assert set(found.lost) == {run for run, facts in kept().runs.items() if facts.kept is None}


def test_a_verdict_that_was_changed_by_hand_is_found():
    held = kept()
    (run, facts), *_ = ((it, of) for it, of in held.runs.items() if of.kept and of.trustworthy)
    name = next(it for it, by_run in held.verdicts.items() if run in by_run)
    changed = replace(held.verdicts[name][run], verdict="does hold")
    forged = replace(held, verdicts={**held.verdicts, name: {run: changed}})
    (sentence,) = (it for it in check(forged).different if it.startswith(f"{name} of {run}: "))
    assert "kept does hold (" in sentence
    gone = replace(facts, kept="unruly/bench/runs/gone.json")
    found = check(replace(held, runs={**held.runs, run: gone}))
    assert found.lost[run] == sum(run in by_run for by_run in held.verdicts.values())
    assert f"cannot be recomputed: {found.lost[run]} verdicts of {run}" in found.text


def test_what_is_remembered_is_kept_with_the_numbers_that_it_was_judged_from(tmp_path, monkeypatch):
    place = tmp_path / "a" / "b" / "c" / "papers"
    place.mkdir(parents=True)
    monkeypatch.setattr(record, "files", lambda _: place)
    monkeypatch.setattr(record, "PAPERS", "a/b/c/papers")
    root = write_run(tmp_path / "run", name="demo", ops=("null",), duration_s=10)
    remember([unruly.analyse(unruly.open_run(root), causes=False, pictures=False)])
    held = kept()
    assert held.of("2.finding-6")[0][1].estimate == pytest.approx(1.0, abs=0.05)
    numbers = json.loads((place / "runs" / "demo-1.json").read_text(encoding="utf-8"))
    assert numbers["facts"]["plan"] == "demo"
    assert isinstance(read(json.dumps(numbers), NOTHING.facts), Evidence)
    assert (check().different, check().lost) == ((), {})
    assert all(isinstance(it, Judgement) for _, it in held.of("2.fig1"))
