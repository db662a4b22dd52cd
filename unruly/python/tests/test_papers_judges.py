"""Each judge of a claim gives planted runs the planted verdict, and a broken judge does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from claims_planted import (
    LITTLE,
    NOTHING,
    PLANTED,
    Effect,
    Matrix,
    Rank,
    cell,
    explained,
    matrix,
    overlaps,
    p99,
    run,
    spans,
    tail,
)
from claims_planted import drives as stores
from unruly.papers import (
    judgement,
    judges_chains,
    judges_groups,
    judges_matrix,
    judges_stores,
    judges_streams,
    judges_tiers,
)
from unruly.papers.judgement import HOLDS, NOT, UNDECIDED, VERDICTS, Judgement, rank_interval
from unruly.papers.judges import JUDGES, trusted

MODULES = (
    judgement, judges_matrix, judges_groups, judges_stores, judges_streams, judges_chains,
    judges_tiers,
)  # fmt: skip
LEVELS = {"LEVEL", "CONFIDENCE_OF_STUDY"}
"""Levels of confidence: one and a half times as much is none."""
UNITS = {"MS", "JUDGES", "TYPE_CHECKING", "VERDICTS"}


def disagreements(judges=JUDGES):
    """Return each planted run of which a judge says something else than was planted."""
    return [
        f"{name}, run {place}: {found.verdict} and not {wanted}: {found.sentence}"
        for name, planted in PLANTED.items()
        for place, (wanted, evidence) in enumerate(planted)
        for found in (judges[name](evidence),)
        if found.verdict != wanted
    ]


def bounds():
    """Every bound of every judge, with a value that is too strict and one that is too loose."""
    for module in MODULES:
        for name, value in vars(module).items():
            if not name.isupper() or name in UNITS or isinstance(value, str | dict):
                continue
            if name in LEVELS:
                yield module, name, 0.5
            elif isinstance(value, float | int):
                yield from ((module, name, value * by) for by in (1.5, 1 / 1.5))
            elif all(isinstance(it, float) for it in value):
                low, high = value
                for ends in ((low * 1.5, high), (low / 1.5, high), (low, high * 1.5)):
                    yield module, name, ends
                yield module, name, (low, high / 1.5)


NO_VERDICT = {("judges_matrix", "ALSO")}
"""Bounds that are reported and decide nothing."""
BOUNDS = [it for it in bounds() if (it[0].__name__.split(".")[-1], it[1]) not in NO_VERDICT]


def test_every_judge_says_what_was_planted() -> None:
    assert set(PLANTED) == set(JUDGES)
    assert disagreements() == []


@pytest.mark.parametrize("name", JUDGES)
def test_every_judge_has_a_run_for_each_verdict(name) -> None:
    assert {verdict for verdict, _ in PLANTED[name]} == set(VERDICTS)


@pytest.mark.parametrize("constant", VERDICTS)
@pytest.mark.parametrize("name", JUDGES)
def test_a_judge_that_always_says_the_same_is_noticed(name, constant) -> None:
    broken = {**JUDGES, name: lambda _: Judgement(constant, None, None, None, "always")}
    assert any(it.startswith(f"{name}, ") for it in disagreements(broken))


@pytest.mark.parametrize("name", JUDGES)
def test_a_judge_the_wrong_way_round_is_noticed(name) -> None:
    turned = {HOLDS: NOT, NOT: HOLDS, UNDECIDED: UNDECIDED}

    def broken(evidence):
        found = JUDGES[name](evidence)
        return replace(found, verdict=turned[found.verdict])

    assert any(it.startswith(f"{name}, ") for it in disagreements({**JUDGES, name: broken}))


@pytest.mark.parametrize(
    ("module", "name", "value"),
    BOUNDS,
    ids=[f"{module.__name__.split('.')[-1]}.{name}={value}" for module, name, value in BOUNDS],
)
def test_another_bound_is_noticed(monkeypatch, module, name, value) -> None:
    monkeypatch.setattr(module, name, value)
    assert disagreements() != []


@pytest.mark.parametrize("name", JUDGES)
def test_a_run_without_what_a_judge_needs_is_undecided_and_says_why(name) -> None:
    found = JUDGES[name](NOTHING)
    assert (found.verdict, found.estimate) == (UNDECIDED, None)
    assert found.sentence


@pytest.mark.parametrize(
    ("trustworthy", "words"),
    [(False, "; the run is not trustworthy"), (None, "; nobody knows whether the run is trust")],
)
@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_run_that_nobody_can_trust_decides_nothing(verdict, trustworthy, words) -> None:
    given = Judgement(verdict, 0.9, 0.8, 0.95, "9 of 10")
    found = trusted(given, replace(NOTHING.facts, trustworthy=trustworthy))
    assert (found.verdict, found.estimate, found.low) == (UNDECIDED, 0.9, 0.8)
    assert (words in found.sentence) == (verdict != UNDECIDED)
    assert trusted(given, NOTHING.facts) == given


def test_windows_that_resemble_their_neighbours_count_for_less() -> None:
    rng = np.random.default_rng(5)
    noise = rng.normal(size=2_000)
    assert judges_groups.effective_number(noise) == pytest.approx(2_000, rel=0.1)
    series = [0.0]
    for step in noise:
        series.append(0.8 * series[-1] + step)
    # an autoregression with 0.8 is worth (1 - 0.8) / (1 + 0.8) of its length
    assert judges_groups.effective_number(np.array(series)) == pytest.approx(222, rel=0.25)
    assert judges_groups.effective_number(np.full(7, 0.5)) == 7


def test_observers_who_all_agree_have_an_interval_all_the_same() -> None:
    found = JUDGES["slow_seen_alike"](overlaps(*[1.0] * 8))
    assert found.verdict == HOLDS
    assert found.low < found.estimate == found.high == 1.0


def test_an_order_of_magnitude_is_ten_and_the_study_s_other_bounds_are_reported_beside_it() -> None:
    run = matrix((1, p99(8, 9)), (1, p99(11, 14)), (1, p99(18, 20)), (1, p99(27, 29)))
    sentence = JUDGES["p99_within_order"](run).sentence
    assert "within 10 x the mean in 1 of 4 configurations and surely beyond it in 3" in sentence
    assert "by their estimates 2 within 15 x and 3 within 25 x" in sentence


def test_a_judgement_names_the_stores_that_it_was_made_on_by_the_factor_of_a_plan() -> None:
    far = {"far": spans(11, 20)}
    found = JUDGES["far_tail_beyond_mean"](
        stores(tail("redis", **far), tail("etcd", **far), tail("garage"))
    )
    # of the third it says nothing
    assert found.systems == ("redis", "etcd")
    # a plan without a matrix has no factor, and says itself what it drives
    alone = stores(tail("redis", **far))
    alone = replace(
        alone,
        stores=replace(alone.stores, loads=()),
        facts=replace(alone.facts, store="memcached"),
    )
    assert JUDGES["far_tail_beyond_mean"](alone).systems == ("memcached",)


def test_the_measured_system_is_neither_workload_nor_configuration():
    """Over several systems, the system explains much of every measure."""
    (row,) = explained(maximum=LITTLE)
    of_system = replace(row, effects=(*row.effects, Effect("drive.system", spans(0.7, 0.8))))
    found = JUDGES["maximum_unexplained"](matrix((9, {}), explained=(of_system,)))
    # factors of one system may hide those of another
    assert found.verdict == UNDECIDED
    assert "over several systems at once (drive.system)" in found.sentence


def test_configurations_of_a_few_systems_are_worth_as_many_independent_ones():
    rank = Rank("size of outliers", "number of outliers", -0.5, 60)
    many = tuple(cell(n, system=f"s{n}") for n in range(60))
    few = tuple(cell(n, system=f"s{n % 6}") for n in range(60))
    alone = tuple(cell(n) for n in range(60))
    judged = [
        JUDGES["counts_against_sizes"](run(matrix=Matrix(cells, count_against_size=rank)))
        for cells in (many, few, alone)
    ]
    assert [it.verdict for it in judged] == [HOLDS, UNDECIDED, HOLDS]
    assert "of 6 systems, which are worth 6 independent ones" in judged[1].sentence


def test_a_perfect_order_of_few_cells_decides_nothing_among_many():
    alone = rank_interval(-1.0, 6)
    assert alone.high < -0.9, "one in 360 orders is as strong"
    among = rank_interval(-1.0, 6, together=37)
    assert (among.low, among.high) == (-1.0, 1.0), "in 37 rows such an order comes by chance"
    assert rank_interval(-1.0, 9, together=37).high < -0.9
