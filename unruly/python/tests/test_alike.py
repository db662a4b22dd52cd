"""The A/A benchmark: pairs of real runs of one plan, the order of each by a coin."""

from __future__ import annotations

import sys

import pytest

from conftest import REPOSITORY
from synthetic import write_run

sys.path.insert(0, str(REPOSITORY))

from bench import compare


@pytest.fixture
def taken(monkeypatch):
    """The runs in the order in which they were taken; a taken run is a synthetic one."""
    found = []

    def take(_verb, _plan, _flag, place, *_rest, **_options):
        found.append(place.name)
        write_run(place, seed=len(found), agents=2, ops=("read",), duration_s=40.0, rate_hz=50.0)

    monkeypatch.setattr(compare, "call", take)
    return found


def test_a_coin_decides_which_run_of_a_pair_is_taken_first(taken, tmp_path, monkeypatch):
    monkeypatch.setattr(compare, "call", lambda *words, **_: taken.append(words[3].name))
    pairs = compare.real_pairs(60, 5, tmp_path)
    assert 20 <= sum(it.first == "a" for it in pairs) <= 40
    assert [f"pair-{number:03}-{it.first}" for number, it in enumerate(pairs, 1)] == taken[0::2]
    assert sorted(taken) == sorted(path.name for it in pairs for path in (it.a, it.b))


def test_a_run_that_is_there_is_not_taken_again_and_one_of_another_length_is_no_substitute(
    taken, tmp_path
):
    before = compare.real_pairs(1, 5, tmp_path)
    assert compare.real_pairs(1, 5, tmp_path) == before
    assert len(taken) == 2
    compare.real_pairs(1, 6, tmp_path)
    assert len(taken) == 4


def test_the_rows_count_alarms_and_judged_pairs_and_say_why_others_were_not(
    taken, tmp_path, monkeypatch
):
    monkeypatch.setattr(compare, "MADE_PAIRS", 1)
    pairs = compare.real_pairs(1, 5, tmp_path)
    alarms, judged = compare.alarms(pairs)
    assert len(taken) == 2
    (pair,) = alarms.raw["pairs"]
    assert pair["outcome"] == "not shown"
    assert "p50" in pair["judged"]
    assert judged.met
    drifting = {"agents": 2, "ops": ("read",), "duration_s": 40.0, "rate_hz": 50.0, "drift": 2.0}
    drift = write_run(tmp_path / "drift", seed=9, **drifting)
    alarms, judged = compare.alarms([compare.Pair(drift, drift, "a")])
    assert not judged.met
    assert sum(judged.raw["undecided"].values()) == 1
    assert "drifted" in judged.why
    assert "could not be judged" in judged.why
