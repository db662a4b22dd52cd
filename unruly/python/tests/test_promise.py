"""The promise ladder: the highest percentile a run can promise, and what the next needs."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import unruly
from conftest import REPOSITORY
from synthetic import write_run
from unruly import stats
from unruly.base.ladder import STEPS, ladder_blocks, promise_ladder
from unruly.base.promise import PromiseLadder, PromiseStep, next_words
from unruly.base.promise_words import promise_words

sys.path.insert(0, str(REPOSITORY))

from bench.false_promises import blocked
from bench.families import FAMILIES

KNOWN = {family.name: family for family in FAMILIES}


def ladder_of(latencies_s):
    values = np.sort(latencies_s * 1e9)
    figures = {name: float(np.quantile(values, p)) for name, p in STEPS.items()}
    found = ladder_blocks(*blocked(latencies_s), figures)
    seconds = latencies_s.size / 1_000
    return promise_ladder(found, figures, {}, n=values.size, failed=0, duration_ns=seconds * 1e9)


def drawn(name, seconds, seed=1):
    return KNOWN[name].draw(np.random.default_rng(seed), seconds)


def step(name, p, promise=None, **rest):
    bound = stats.Interval(1e6, None, promise, 0.975, 1000, 20.0, "") if promise else None
    return PromiseStep(name, p, 1e6, bound, bound, None, **rest)


def test_independent_values_promise_as_high_as_their_number_allows():
    found = ladder_of(drawn("F1", 30))
    assert found.highest.name == "p99.9"
    assert found.next.name == "p99.99"
    assert found.next.abstained == "A1"
    assert found.next.reason == "not enough data"
    assert "7 are needed" in found.next.details
    # 30,000 values hold 3 beyond the p99.99 where 7 are needed
    assert found.next.needed_ns > 60e9


def test_a_promise_of_the_ladder_is_one_sided_at_the_level_that_the_choice_costs():
    found = ladder_of(drawn("F1", 30))
    for it in found.steps:
        if it.promise is not None:
            assert it.promise.level == 0.975
            assert it.promise.high == it.interval.high
            assert it.promise.low is None


def test_a_tail_that_stays_is_promised_while_the_median_drifts_and_the_note_says_so():
    found = ladder_of(drawn("N2b", 60))
    assert found.step("p50").drifted
    assert found.step("p50").promise is None
    assert found.step("p99").promise is not None
    assert found.highest.p >= 0.99
    assert found.highest.note == "typical latency drifted during the run, the tail did not follow"


def test_a_tail_that_follows_the_drift_of_the_body_is_not_promised():
    for name in ("F6", "N3"):
        found = ladder_of(drawn(name, 60))
        assert found.highest is None
        assert {it.abstained for it in found.steps} <= {"A1", "A2a", "A2b"}
        assert found.step("p99").drifted


def test_a_step_in_the_whole_law_is_seen_through_its_median_where_the_tail_has_too_few_values():
    """The p99.9 of 60 s has 60 values: its own correlation is noise."""
    refused = [ladder_of(drawn("N4", 60, seed)).step("p99.9").abstained for seed in range(5)]
    assert set(refused) == {"A2a", "A2b"}


def test_an_uneven_number_of_blocks_merges_neighbours_to_between_12_and_20():
    rng = np.random.default_rng(3)
    for blocks in (32, 33, 63):
        level = np.exp(np.linspace(-0.4, 0.4, blocks))[:, None]
        latency = rng.lognormal(12, 0.5, (blocks, 500)) * level
        index = stats.bucket_index(latency)
        buckets = np.unique(index)
        counts = np.array([(index == b).sum(axis=1) for b in buckets])
        assert stats.block_interval(buckets, counts, 0.99).abstained in ("A2a", "A2b")


def test_the_highest_step_is_searched_above_a_refused_one():
    ladder = PromiseLadder(
        (
            step("p50", 0.5, abstained="A2a", reason="the tail drifted during the run"),
            step("p90", 0.9, promise=2e6),
            step("p99", 0.99, abstained="A1", reason="not enough data", needed_ns=180e9),
        )
    )
    assert ladder.highest.name == "p90"
    assert ladder.next.name == "p99"
    assert next_words(ladder) == "p99 needs about 3 min"
    assert PromiseLadder(ladder.steps[:2]).next is None
    assert PromiseLadder(ladder.steps[:1]).highest is None


@pytest.mark.slow
def test_the_promise_and_its_refusal_are_sentences_without_jargon(analysed):
    calm = analysed(agents=2, ops=("read",), duration_s=20, rate_hz=200, stalls_hz=0)
    row = calm.cell("read")
    words = promise_words(row, "read")
    assert " of read within " in words
    assert "(95 % confidence or better); p99" in words
    assert "needs about" in words
    drifting = analysed(agents=2, ops=("read",), duration_s=20, rate_hz=200, drift=2.0)
    words = promise_words(drifting.cell("read"), "read")
    assert words.startswith("none for read: this run cannot say even the median, because ")
    assert "run at least 10 min" in words
    for jargon in ("episodes", "A2", "lag"):
        assert jargon not in words


@pytest.mark.slow
@pytest.mark.parametrize(("share", "refused"), [(0.03, "p99"), (0.53, "p50")])
def test_a_percentile_among_the_failed_is_refused_for_the_failures(tmp_path, share, refused):
    run = write_run(
        tmp_path / "run", agents=2, ops=("read",), duration_s=20, rate_hz=100, failed_share=share
    )
    row = unruly.analyse(unruly.open_run(run)).cell("read")
    found = row.ladder.step(refused)
    assert found.promise is None
    assert found.abstained is None
    assert found.reason == f"{row.failed} of {row.n} requests failed"
    assert found.needed_ns is None
    if refused == "p50":
        assert "requests failed" in promise_words(row, "read")


def test_the_p95_is_exact_in_the_summary(clean_run, clean):
    shown = unruly.summary(clean)
    rows = {(row["op"], row["latency"]): row for row in shown["cells"]}
    for (op, latency), row in rows.items():
        assert row["p95"] == clean.cell(op, latency).p95
        assert row["p90"] < row["p95"] < row["p99"]
        assert [it["name"] for it in row["ladder"]["steps"]] == [
            "p50", "p90", "p95", "p99", "p99.9", "p99.99",
        ]  # fmt: skip
