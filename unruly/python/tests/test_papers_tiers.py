"""Runs of three-tier applications: what they say of the claims, and the numbers that are kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

import unruly
from claims_applications import (
    LITTLE,
    MUCH,
    NAMES,
    application,
    crashed,
    effects,
    infrastructure,
    outliers,
    own,
    recoveries,
    run,
    several,
    slow,
    spans,
    traced,
)
from spans_world import write_traced
from synthetic import write_run
from unruly.papers import judges, page, papers
from unruly.papers.evidence import (
    Cell,
    Effect,
    Explained,
    Line,
    Matrix,
    evidence_of,
    read,
    written,
)
from unruly.papers.judgement import HOLDS, NOT, UNDECIDED
from unruly.papers.record import Record, added
from unruly.papers.three_tier import APPLICATION

JUDGES = judges.JUDGES
NEW = {
    "three-tier": "three_tier_outliers three_tier_infrastructure",
    "three-tier-recovery": "three_tier_recovery",
    "three-tier-layers": "three_tier_layers",
}
(STUDY,) = (it for it in papers() if it.number == 1)


def of_plan(plan, evidence, **facts):
    return replace(evidence, facts=replace(evidence.facts, plan=plan, **facts))


def analysed(path):
    return evidence_of(unruly.analyse(unruly.open_run(path), causes=False, pictures=False))


# What the verdicts say -----------------------------------------------------------------


def test_the_outliers_of_each_application_are_named_by_their_median():
    cells = [application("ejbay", it, at) for at, it in enumerate((0.001, 0.002, 0.05))]
    cells += [application("board", 0.01), Cell("tcp", "tcp", 10_000, 100.0, over_3_sigma=9_000)]
    found = JUDGES["three_tier_outliers"](run(matrix=Matrix(tuple(cells))))
    assert found.sentence == (
        "4 of 4 configurations have under 6 % of outliers; the median of each application: "
        "ejbay 0.2 %, board 1 %"
    )
    assert found.systems == ("ejbay", "board")


def test_the_share_that_the_application_explains_stands_beside_the_others():
    found = JUDGES["three_tier_infrastructure"](infrastructure((LITTLE, MUCH), (LITTLE, LITTLE)))
    assert found.verdict == NOT
    assert found.sentence == (
        "of the maximum service.platform 11 %, service.replication 40 % and service.application "
        "70 % explain what the others leave; of the share of outliers service.platform 11 %, "
        "service.replication 11 % and service.application 70 % explain what the others leave"
    )
    assert (found.low, found.high) == (0.3, 0.5)


def test_cells_with_fault_free_requests_slower_than_a_recovery_are_counted():
    rows = [crashed(name, 1.0, 1.0, longer=at % 2) for at, name in enumerate(NAMES)]
    failing = crashed("board", 1.0, place="4", longest=None)
    found = JUDGES["three_tier_recovery"](several(*rows, failing))
    assert (found.verdict, found.estimate, found.systems) == (HOLDS, 1.0, NAMES)
    assert found.sentence == (
        "in 8 of 8 applications the median recovery is surely within 10 x of the longest "
        "fault-free latency, either way, and in 0 surely not; 4 of 9 cells have fault-free "
        "requests slower than their median recovery; 1 cell left out, where a fault-free request "
        "failed or nothing is known"
    )


def test_the_main_layers_of_slow_requests_are_named():
    layers = [own("price", 0.5, 0.7), ("app", "SELECT", "call", 0.2, 0.3),
              ("", "", "outside", 0.1, 0.2)]  # fmt: skip
    found = JUDGES["three_tier_layers"](traced(slow(*layers)))
    assert (found.verdict, found.estimate) == (HOLDS, 0.25)
    assert found.sentence == (
        "of 100 slow “bid” requests the main layer is 60 % [50 %, 70 %] in app: price, 25 % "
        "[20 %, 30 %] in what app called, 15 % [10 %, 20 %] in no span; in 1 operation 3 kinds of "
        "layers surely had more than 5 % of the slow requests"
    )


DECIDING = {
    "three_tier_outliers": outliers((96, 0.01)),
    "three_tier_infrastructure": infrastructure((LITTLE, LITTLE), (LITTLE, LITTLE)),
    "three_tier_recovery": recoveries(*[1.0] * 8),
    "three_tier_layers": traced(slow(own("price", 0.5, 0.7), own("sort", 0.2, 0.3))),
}


@pytest.mark.parametrize(("plan", "names"), NEW.items())
def test_each_claim_is_judged_by_its_plan_and_not_by_a_run_that_nobody_can_trust(plan, names):
    for name in names.split():
        ids = [f"1.{it.id}" for it in STUDY.claims if it.judge == name]
        assert ids
        judged = judges.judge_run(of_plan(plan, DECIDING[name]))
        assert {judged[it].verdict for it in ids} == {HOLDS}
        doubted = judges.judge_run(of_plan(plan, DECIDING[name], trustworthy=False))
        assert {doubted[it].verdict for it in ids} == {UNDECIDED}
        assert "the run is not trustworthy" in doubted[ids[0]].sentence
        assert not set(ids) & set(judges.judge_run(of_plan("middleware", DECIDING[name])))


# The other judges ----------------------------------------------------------------------


def pooled(**parts):
    cells = tuple(
        application(
            name,
            0.004,
            at,
            p99=210.0,
            largest=2_200.0,
            p99_after=200.0,
            mean_after=90.0,
            largest_after=400.0,
        )
        for name in NAMES
        for at in range(12)
    )
    return of_plan("three-tier", run(matrix=Matrix(cells, **parts)))


def test_all_applications_together_are_one_of_the_systems_of_the_study():
    record = added(Record(), pooled())
    row = next(it for it in page(record).splitlines() if it.startswith("| figure 2 |"))
    assert "**holds** 1.00 [0.96, 1.00]: 96 of 96 configurations" in row
    assert "Judged on: three-tier applications; not judged on: tcp, udp" in row
    row = next(it for it in page(record).splitlines() if it.startswith("| figure 9 |"))
    assert "Judged on: board, su-duel-ku, " in row
    assert "not judged on" not in row


def test_each_application_has_a_line_of_its_own():
    lines = {name: Line(spans(0.9, 1.2), 0.95, 12) for name in NAMES} | {"*": Line(None, 0.1, 96)}
    for name in ("p99_follows_mean", "p99_slope"):
        found = JUDGES[name](pooled(lines=lines))
        assert (found.verdict, found.systems) == (HOLDS, ("three-tier applications",))
        assert "for board" in found.sentence or "of board" in found.sentence


@pytest.mark.parametrize("claim", ["fig6", "fig16", "finding-4"])
def test_application_platform_and_replication_are_neither_workload_nor_configuration(claim):
    of_measure = {it: effects(MUCH, MUCH, measure=it) for it in ("mean", "p99", "maximum")}
    found = judges.judge_run(pooled(explained=tuple(of_measure.values())))[f"1.{claim}"]
    assert (found.verdict, found.systems) == (UNDECIDED, ())
    assert "over workload or configuration" in found.sentence
    with_clients = [
        Explained(
            name, (*it.effects, Effect("drive.clients", LITTLE if name == "maximum" else MUCH))
        )
        for name, it in of_measure.items()
    ]
    found = judges.judge_run(pooled(explained=tuple(with_clients)))[f"1.{claim}"]
    # over several applications at once, factors of one hide those of another
    assert (found.verdict, found.systems) == (UNDECIDED, ())
    assert "over several systems at once" in found.sentence


def test_the_resources_of_the_study_s_own_middleware_are_not_those_of_the_applications():
    judged = judges.judge_run(pooled())
    assert not {"1.fig14", "1.fig15"} & set(judged)
    assert {"1.fig2", "1.fig9", "1.fig13", "1.finding-6", "1.finding-magic"} <= set(judged)


# From a run to its evidence ------------------------------------------------------------

KILLED = (("app=board", "kill", "agent-0", 10.0, 0.2), ("app=board", "kill", "agent-0", 25.0, 0.3))


def test_the_recoveries_of_a_run_are_kept_with_the_application_of_their_cell(tmp_path):
    factors = {APPLICATION: "board"}
    root = write_run(
        tmp_path / "run", kind="drive", agents=1, ops=("bid",), cells=("app=board", "app=ftex"),
        duration_s=40, rate_hz=50, stalls_hz=0, faults=KILLED,
        manifest={"cells": [{"name": "app=board", "factors": factors},
                            {"name": "app=ftex", "factors": {APPLICATION: "ftex"}}]},
    )  # fmt: skip
    found = analysed(root)
    (row,) = found.recoveries
    assert (row.cell, row.process, row.factors) == ("app=board", "agent-0", factors)
    assert row.totals_ns == pytest.approx((0.2e9, 0.3e9), abs=0.03e9)
    assert 0 < row.fault_free_max_ns < 0.1e9
    assert row.longer == 0
    assert {it.factors[APPLICATION]: it.system for it in found.matrix.cells} == {
        "board": "board", "ftex": "ftex",
    }  # fmt: skip
    assert read(written(found), found.facts) == found


@pytest.mark.parametrize(
    ("trouble", "level", "verdict"),
    # 60 of 60 slow requests are 94 % at least: too few for nearly all
    [("pool", 0, UNDECIDED), ("half pool", 0, HOLDS), ("half pool", 1, HOLDS)],
)
def test_the_layers_of_a_run_are_judged_and_kept(tmp_path, trouble, level, verdict):
    found = analysed(write_traced(tmp_path / "run", trouble, 5, level=level))
    (row,) = found.slow_requests
    assert (row.op, row.covered) == ("view", 1.0)
    judged = JUDGES["three_tier_layers"](found)
    assert judged.verdict == verdict, judged.sentence
    assert "front: pool.get" in judged.sentence
    assert read(written(found), found.facts) == found


def test_a_run_without_crashes_or_spans_has_neither(tmp_path):
    root = write_run(tmp_path / "run", kind="drive", agents=1, ops=("bid",), duration_s=20)
    found = analysed(root)
    assert (found.recoveries, found.slow_requests) == ((), ())
