"""Warming up: planted beginnings are found where they end, and steady runs have none."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unruly
from changed import analysis_of
from synthetic import NS, STARTED_NS, write_run
from unruly import stats
from unruly.base.context import Context
from unruly.drawing.view import views_of
from unruly.errors import ParameterError
from unruly.stats import Interval
from unruly.stats.settling import Settling
from unruly.topics.over_time import warmup
from unruly.topics.over_time.figures import timeline
from unruly.topics.over_time.rules_warmup import enough_ns
from unruly.topics.over_time.section_warmup import warm_ups as table_of
from unruly.topics.over_time.warmup import WarmUp, warm_ups

DRIVE = {"kind": "drive", "agents": 1, "ops": ("read",), "rate_hz": 200, "duration_s": 60}
COLD = {**DRIVE, "cold": (3.0, 4.0), "stalls_hz": 3.0, "stall_mean_ns": 8e6}
WARM_AFTER_S = 4 * np.log(2 / 0.1)
"""The planted latency of COLD is within a tenth of its level after this time: 12 s."""


def _looked_at(path):
    return warm_ups(Context.of(unruly.open_run(path), lambda _: None))


def _paused(path, kind, spans, process="runner"):
    """Add events of one kind: (begin, length), seconds."""
    (place,) = (path / "events").glob("*.parquet")
    table = pq.read_table(place)
    starts = [STARTED_NS + int(at * NS) for at, _ in spans]
    added = pa.Table.from_pylist(
        [
            {**table.to_pylist()[0], "kind": kind, "process": process, "started_ns": start,
             "ended_ns": start + int(length * NS)}
            for start, (_, length) in zip(starts, spans, strict=True)
        ],
        table.schema,
    )  # fmt: skip
    pq.write_table(pa.concat_tables([table, added]), place)


def _noise(seed, size=60, sigma=0.03):
    return 1e5 * np.random.default_rng(seed).lognormal(0, sigma, size)


def test_a_planted_beginning_is_found_in_nearly_every_run(tmp_path):
    """Twenty seeds: repeats of one run, each with weather of its own."""
    ones = _looked_at(write_run(tmp_path / "run", **COLD, repeats=20))
    found = [one for one in ones if one.short]
    assert len(ones) == 20
    assert len(found) >= 19
    assert all(1.15 < one.slower.low < one.slower.high < 1.8 for one in found)
    took_s = [(one.settled_ns - one.began_ns) / NS for one in found]
    assert np.median(took_s) == pytest.approx(WARM_AFTER_S, abs=1.5)


def test_steady_runs_with_stalls_and_bursts_have_no_short_warm_up(tmp_path):
    weathers = (
        {"stalls_hz": 3.0, "stall_mean_ns": 8e6, "tail_factor": 20.0},
        {"stalls_hz": 0.5, "stall_mean_ns": 100e6, "clusters_hz": 1.0},
    )
    ones = [
        one
        for place, weather in enumerate(weathers)
        for one in _looked_at(
            write_run(tmp_path / str(place), **DRIVE, **weather, warmup_s=3, repeats=15)
        )
    ]
    assert len(ones) == 30
    assert sum(one.short for one in ones) <= 1


def test_a_warm_up_that_was_long_enough_is_told_and_no_finding(tmp_path):
    run = write_run(tmp_path / "run", **{**DRIVE, "cold": (3.0, 1.0)}, warmup_s=5)
    analysis = unruly.analyse(unruly.open_run(run), causes=False)
    (one,) = analysis.over_time.warm_ups
    assert one.measured_ns - one.began_ns == pytest.approx(5e9, abs=5e7)
    assert 1.5e9 < one.settled_ns - one.began_ns < 5e9
    assert one.slower is None
    assert "warmup-short" not in [finding.code for finding in analysis.findings]
    (view,) = views_of([analysis])
    ((_, settled, _),) = table_of(view).rows
    assert settled.text.startswith("after ")
    assert "of 5\xa0s of warm-up" in settled.text.replace("4.99", "5").replace("5.00", "5")


def test_a_short_warm_up_names_the_one_that_would_have_done(tmp_path, schema):
    run = write_run(tmp_path / "run", **COLD, warmup_s=4)
    analysis = unruly.analyse(unruly.open_run(run), causes=False)
    (finding,) = (it for it in analysis.findings if it.code == "warmup-short")
    assert (finding.section, finding.severity) == ("where", "warns")
    (late_ns,) = finding.evidence["late_ns"]
    assert late_ns == pytest.approx((WARM_AFTER_S - 4) * NS, abs=2.5 * NS)
    assert finding.title.startswith("read settled ")
    assert "a warm-up of 4 s was too short" in finding.text.replace("3.99", "4")
    assert finding.suggestion == 'Run it again with warmup = "20s".'
    document = json.loads(json.dumps(unruly.summary(analysis)))
    schema.validate(document)
    (told,) = document["over_time"]["warm_ups"]
    assert told["settled_ns"] == finding.evidence["settled_ns"][0]
    (view,) = views_of([analysis])
    assert "settled" in timeline(view).caption


def test_the_next_repeat_is_judged_on_its_own(tmp_path):
    run = write_run(tmp_path / "run", **COLD, repeats=2)
    first, second = _looked_at(run)
    assert (first.repeat, second.repeat) == (0, 1)
    assert first.short
    assert second.short
    assert second.settled_ns - second.began_ns == pytest.approx(
        first.settled_ns - first.began_ns, abs=4 * NS
    )


def test_a_fault_at_the_beginning_is_no_warm_up(tmp_path):
    shape = {**DRIVE, "kind": "mesh", "agents": 2, "rate_hz": 100}
    run = write_run(tmp_path / "run", **shape, stopped=((1, 1.0, 9.0),))
    assert [one.short for one in _looked_at(run)] == [False]
    (one,) = _looked_at(write_run(tmp_path / "cold", **COLD, stopped=((0, 3.0, 1.0),)))
    assert one.settled_ns is None
    assert "a fault came before its level settled" in one.absent["settled"]


def test_collections_at_the_beginning_are_no_warm_up(tmp_path):
    path = write_run(tmp_path / "run", **{**DRIVE, "cold": (3.0, 2.0)})
    assert [one.short for one in _looked_at(path)] == [True]
    _paused(path, "gc", [(second, 0.6) for second in range(9)])
    (one,) = _looked_at(path)
    assert not one.short
    assert one.left_out == 10
    _paused(path, "gc", [(0, 55)])
    (one,) = _looked_at(path)
    assert one.absent == {"settled": "faults and pauses take up most of its blocks"}


def test_pauses_that_overlap_are_one(tmp_path):
    path = write_run(tmp_path / "run", **COLD)
    for kind in ("gc", "safepoint"):
        _paused(path, kind, [(0.25 * quarter, 0.0018) for quarter in range(240)])
    (one,) = _looked_at(path)
    assert one.left_out == 0
    assert one.short


def test_a_pause_counts_by_the_requests_that_it_can_delay(tmp_path):
    """Ten processes of which each collects a four hundredth of the time: a fortieth in all."""
    shape = {**COLD, "kind": "mesh", "agents": 10, "rate_hz": 5, "stalls_hz": 0.0}
    path = write_run(tmp_path / "run", **shape)
    for agent in range(10):
        pauses = [(0.5 * half + 0.04 * agent, 0.00125) for half in range(120)]
        _paused(path, "gc", pauses, f"agent-{agent}")
    (one,) = _looked_at(path)
    assert one.left_out == 0
    assert one.short


def test_blocks_with_few_requests_are_not_called_disturbed(tmp_path):
    """Requests that come in rare clusters leave most blocks all but empty."""
    path = write_run(tmp_path / "run", **{**DRIVE, "rate_hz": 70, "clusters_hz": 0.3})
    (one,) = _looked_at(path)
    reason = one.absent["settled"]
    assert reason.endswith("of 21 blocks hold 50 requests or more; 20 are needed")


def test_a_run_has_settled_when_both_its_levels_have(tmp_path, monkeypatch):
    """How much slower it was is that of the level that clearly was."""
    clear, unclear = (
        Interval(estimate, low, high, 0.95, 60, 30.0, "")
        for estimate, low, high in ((1.5, 1.4, 1.6), (1.2, 0.9, 1.5))
    )
    found = iter([Settling(10, clear, None), Settling(20, unclear, None)])
    monkeypatch.setattr(warmup, "settling", lambda *_, **__: next(found))
    (one,) = _looked_at(write_run(tmp_path / "run", **DRIVE))
    assert one.settled_ns == one.began_ns + int(20 * one.block_ns)
    assert (one.level, one.slower, one.short) == ("median", clear, True)


def test_the_table_says_what_is_not_known_of_the_beginning():
    unclear = Interval(1.2, 0.9, 1.5, 0.95, 60, 30.0, "")
    begun = WarmUp("base", 0, "read", STARTED_NS, STARTED_NS, 1e9)
    known = replace(begun, settled_ns=STARTED_NS + NS, level="p99")
    ones = (
        replace(begun, absent={"settled": "3,000 requests; 4,000 are needed"}),
        replace(known, slower=unclear),
        known,
    )
    analysis = analysis_of(over_time=SimpleNamespace(warm_ups=ones))
    reasons = [row[-1].reason for row in table_of(SimpleNamespace(analysis=analysis)).rows]
    assert reasons == [
        "3,000 requests; 4,000 are needed",
        "not clearly slower than the later blocks",
        "no whole measured block came before it settled",
    ]


def test_a_run_that_is_too_short_says_what_it_lacks(tmp_path):
    path = write_run(tmp_path / "run", **{**COLD, "duration_s": 15})
    (one,) = _looked_at(path)
    assert one.settled_ns is None
    assert one.absent == {"settled": "3,000 requests; 4,000 are needed"}


# --- levels alone


def test_a_step_is_dated_to_its_block():
    levels = _noise(1) * np.where(np.arange(60) < 10, 3, 1)
    found = stats.settling(levels)
    assert found.block == 10
    assert found.ratio.low < 3 < found.ratio.high


def test_blocks_before_measurement_do_not_count_as_measured():
    levels = _noise(2) * np.where(np.arange(60) < 10, 3, 1)
    assert stats.settling(levels, counted_from=10).ratio is None
    assert stats.settling(levels, counted_from=10).block == 10
    assert stats.settling(levels, counted_from=8).ratio.estimate == pytest.approx(3, rel=0.05)


def test_a_stall_later_does_not_hide_how_slow_the_beginning_was():
    levels = _noise(9) * np.where(np.arange(60) < 10, 1.5, 1)
    levels[[35, 48]] *= 1000
    assert 1.4 < stats.settling(levels).ratio.low < 1.5


def test_a_beginning_shorter_than_any_change_point_is_found():
    levels = _noise(3) * np.where(np.arange(60) < 3, 2, 1)
    assert stats.settling(levels).block == 3


def test_a_slow_episode_later_is_no_warm_up():
    place = np.arange(60)
    levels = _noise(4) * np.where((place >= 12) & (place < 22), 3, 1)
    assert stats.settling(levels).block == 0


def test_less_than_a_tenth_is_no_warm_up():
    levels = _noise(5, sigma=0.01) * np.where(np.arange(60) < 15, 1.07, 1)
    assert stats.settling(levels).block == 0


def test_a_level_that_goes_on_changing_has_not_settled():
    found = stats.settling(_noise(6) * np.where(np.arange(60) < 40, 3, 1))
    assert found.block is None
    assert "until late" in found.abstained


def test_failed_blocks_at_the_beginning_are_a_beginning():
    levels = _noise(7)
    levels[:8] = np.inf
    assert stats.settling(levels).block == 8
    assert stats.settling(levels).ratio is None
    levels[30:50] = np.inf
    assert stats.settling(levels).abstained == "most of the second half failed"


def test_blocks_without_a_level_are_passed_over():
    levels = _noise(8) * np.where(np.arange(60) < 10, 3, 1)
    levels[[2, 3, 40]] = np.nan
    assert stats.settling(levels).block == 10
    levels[:45] = np.nan
    with pytest.raises(ParameterError, match="has 15 blocks"):
        stats.settling(levels)


def test_steady_levels_are_seldom_called_a_beginning():
    blocks = [stats.settling(_noise(seed, sigma=0.6)).block for seed in range(100)]
    assert len(blocks) - blocks.count(0) <= 4


@pytest.mark.parametrize(("took_s", "wanted_s"), [(14, 20), (0.21, 0.3), (25, 30), (55, 100)])
def test_what_is_wanted_is_the_next_round_time_with_a_margin(took_s, wanted_s):
    assert enough_ns(took_s * NS) == wanted_s * NS
