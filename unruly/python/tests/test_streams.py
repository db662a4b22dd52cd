"""Streams: bandwidth, cost, the share left under a load and the verdicts are those planted."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import unruly
from explained import assert_like_its_example
from quick import numbers
from streaming import BROKEN, CALM, COLLECTOR, CPU_LOAD, LACKS, Cell, write_streams
from synthetic import NS, STARTED_NS
from unruly.drawing.view import views_of
from unruly.errors import ParameterError
from unruly.html import write_report
from unruly.stats import growth, kept_share
from unruly.tables import fetch, inline
from unruly.topics.streams import clocks as stream_clocks
from unruly.topics.streams import tables as stream_tables
from unruly.topics.streams.hypotheses import hypotheses
from unruly.topics.streams.legs import Flow, longest_silence
from unruly.topics.streams.lines import stream_lines
from unruly.topics.streams.model import HELD, NOT_HELD, OPEN
from unruly.topics.streams.section import streams as stream_section
from unruly.topics.streams.words import hypothesis_line, protocol_sentences

M = 1e6
RAISED_BY_STREAMS = {
    "stream-failed": "loads", "stream-unstable": "loads", "stream-slow": "loads",
    "stream-one-core": "loads", "stream-saturated": "loads", "stream-loses": "loads",
    "stream-hypothesis": "loads", "load-off-target": "loads", "realtime-refused": "broken",
    "stream-unaccounted": "broken",
}  # fmt: skip


def _analysed(path, **options):
    return numbers(path, **options)


@pytest.fixture(scope="module")
def loads(tmp_path_factory):
    path = tmp_path_factory.mktemp("streams") / "loads"
    return _analysed(write_streams(path, CPU_LOAD + COLLECTOR, repeats=3, duration_s=8))


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    path = tmp_path_factory.mktemp("streams") / "broken"
    return _analysed(write_streams(path, BROKEN), pictures=False)


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    path = tmp_path_factory.mktemp("streams") / "calm"
    return _analysed(write_streams(path, CALM, link="", repeats=2), pictures=False)


def _row(analysis, protocol, load="none"):
    (row,) = [it for it in analysis.streams.rows if (it.protocol, it.load) == (protocol, load)]
    return row


# several readers


def test_a_group_gives_what_the_reader_gets_to_whom_least_comes(tmp_path):
    cells = (Cell("jgroups-tcp", mbps=400.0, reader_cores=0.2, second=0.5),)
    path = write_streams(tmp_path / "run", cells, quotas='"reader-1" = 0.12\n')
    analysis = _analysed(path, pictures=False)
    row = _row(analysis, "jgroups-tcp")
    assert row.bandwidth_bps.estimate == pytest.approx(200 * M, rel=0.06)
    # a tenth of a core is nearer to a quota of 0.12 than a fifth is to a core
    assert (row.reader.process, row.reader.name) == ("reader-1", "reader-1")
    assert row.reader.room_cores == pytest.approx(0.12)
    assert row.reader.cpu_cores.estimate == pytest.approx(0.1, rel=0.02)
    (leg,) = analysis.streams.legs
    assert leg.read == pytest.approx(leg.written / 2, rel=0.02)
    # half of the written messages are unaccounted for
    assert leg.unaccounted == leg.written - leg.read
    assert "stream-unaccounted" in {it.code for it in analysis.findings}


def test_a_reader_on_the_core_of_another_has_what_that_leaves(tmp_path):
    cells = (Cell("jgroups-tcp", reader_cores=0.6, second=1.0),)
    path = write_streams(tmp_path / "run", cells)
    plan = path / "plan.toml"
    plan.write_text(plan.read_text() + '"reader-1" = [1]\n', encoding="utf-8")
    reader = _row(_analysed(path, pictures=False), "jgroups-tcp").reader
    assert reader.process == "reader-0"
    assert reader.room_cores == pytest.approx(0.7, rel=0.02)


def test_a_reader_without_a_quota_is_held_to_its_core(tmp_path):
    cells = (Cell("jgroups-tcp", reader_cores=0.2, second=1.0),)
    analysis = _analysed(write_streams(tmp_path / "run", cells), pictures=False)
    row = _row(analysis, "jgroups-tcp")
    assert (row.reader.process, row.reader.name) == ("reader-0", "reader")
    # the second is kept on no core, and takes none of it
    assert row.reader.room_cores == 1.0
    assert row.bandwidth_bps.estimate == pytest.approx(400 * M, rel=0.06)
    assert all(leg.unaccounted == 0 for leg in analysis.streams.legs)


def test_a_reader_without_a_row_of_the_measured_time_may_be_the_one_that_bounds_its_group(tmp_path):
    cells = (Cell("jgroups-tcp", second=0.5, second_since_s=10.5),)
    path = write_streams(tmp_path / "run", cells, quotas='"reader-1" = 0.12\n')
    reader = _row(_analysed(path, pictures=False), "jgroups-tcp").reader
    assert reader.process == "reader-1"
    assert reader.room_cores == pytest.approx(0.12)
    assert reader.cpu_cores is None
    assert not reader.bound
    assert reader.absent["cpu_cores"] == "no row of this end was measured"


# what flowed


def _intervals(rows):
    names = ("side", "started_ns", "ended_ns", "bytes", "cpu_ns")
    frame = pd.DataFrame([dict(zip(names, row, strict=True)) for row in rows])
    frame[["started_ns", "ended_ns"]] += STARTED_NS
    same = {"cell": "c", "repeat": 0, "host": "h", "process": frame["side"], "messages": 1,
            "rss_bytes": 5, "in_flight": 0}  # fmt: skip
    return inline(frame.assign(**same))


def test_what_a_row_counted_is_spread_over_the_seconds_that_it_covers():
    """Known answer: a row of 4 s from half a second before the measured time, and short ones."""
    legs = [{"cell": "c", "repeat": 0, "first_ns": STARTED_NS, "last_ns": STARTED_NS + 5 * NS}]
    rows = [
        ("reader", -NS // 2, 7 * NS // 2, 4_000, 400),
        ("reader", 7 * NS // 2, 4 * NS, 70, 10),
        ("reader", 4 * NS, 4 * NS, 9, 0),
        ("reader", 19 * NS // 4, 21 * NS // 4, 30, 10),
        ("reader", 6 * NS, 7 * NS, 1_000, 10),
    ]
    found = fetch(stream_tables.each_second(_intervals(rows), inline(legs)))
    assert found["second"].tolist() == [0, 1, 2, 3, 4]
    assert found["bytes"].tolist() == pytest.approx([1_000, 1_000, 1_000, 570, 24])
    assert found["cpu_ns"].tolist() == pytest.approx([100, 100, 100, 60, 5])
    assert (found["covered_ns"] / NS).tolist() == pytest.approx([1, 1, 1, 1, 0.25])


def test_the_bandwidth_of_each_cell_is_that_planted(loads):
    for cell in CPU_LOAD + COLLECTOR:
        if cell.failed:
            continue
        row = _row(loads, cell.protocol, cell.load)
        whole = cell.mbps * M * (1 - cell.lost_share)
        assert row.bandwidth_bps.estimate == pytest.approx(whole, rel=0.05 + cell.jitter / 3)
        assert row.bandwidth_bps.n == 3
        assert row.bandwidth_bps.low < row.bandwidth_bps.estimate < row.bandwidth_bps.high
        assert row.quantiles_bps[0.5] == pytest.approx(whole, rel=0.05 + cell.jitter / 2)
    assert _row(loads, "jgroups-udp", "gc").variation.estimate == pytest.approx(0.5, rel=0.4)
    assert _row(loads, "tcp").variation.estimate == pytest.approx(0.03, rel=0.6)


def test_the_mean_of_repeats_is_that_of_their_legs(loads):
    """Oracle: the raw rows, cut to the measured time by hand."""
    row = _row(loads, "enet")
    frame = fetch(loads.run.intervals.filter(loads.run.intervals.cell == row.cell))
    means = []
    for repeat, leg in frame[frame["side"] == "reader"].groupby("repeat"):
        first = leg["started_ns"].min() + NS // 2
        start = (leg["started_ns"] - first).clip(0, 8 * NS)
        share = ((leg["ended_ns"] - first).clip(0, 8 * NS) - start) / (
            leg["ended_ns"] - leg["started_ns"]
        )
        means.append(8 * float((leg["bytes"] * share).sum()) / 8)
        assert repeat == len(means) - 1
    assert row.bandwidth_bps.estimate == pytest.approx(np.mean(means), rel=1e-12)
    low, high = scipy.stats.t.interval(0.95, 2, np.mean(means), scipy.stats.sem(means))
    assert (row.bandwidth_bps.low, row.bandwidth_bps.high) == pytest.approx((low, high))


def test_what_is_written_while_winding_down_is_never_measured(loads):
    assert loads.cell("message").n == 3 * 8 * 20
    assert all(row.p99_ns < 10e6 for row in loads.streams.rows if row.p99_ns)
    seconds = loads.streams.seconds
    assert seconds.groupby(["cell", "repeat"])["second"].max().eq(7).all()


def test_a_second_in_which_nothing_came_is_zero(broken):
    row = _row(broken, "enet")
    seconds = broken.streams.seconds
    own = seconds[seconds["cell"] == row.cell].sort_values("second")["bps"].to_numpy()
    assert (own == 0).nonzero()[0].tolist() == [2, 3, 4, 5]
    assert row.stalled_share == 0.4
    assert longest_silence(own) == 4


def test_costs_are_those_planted(loads):
    row = _row(loads, "udp", "cpu")
    assert row.writer.cpu_cores.estimate == pytest.approx(0.3, rel=0.01)
    assert row.reader.cpu_cores.estimate == pytest.approx(0.2, rel=0.01)
    written_hz = 560 * M / 8 / 2_000
    assert row.writer.cpu_per_message_ns.estimate == pytest.approx(0.3 * NS / written_hz, rel=0.1)
    assert row.loss_share == pytest.approx(0.1, abs=1e-3)
    assert _row(loads, "tcp").loss_share == 0


def test_of_few_seconds_there_is_a_mean_and_no_spread(tmp_path):
    run = write_streams(tmp_path / "run", CALM[:1], duration_s=3)
    row = _row(_analysed(run, pictures=False), "tcp")
    assert row.bandwidth_bps.estimate == pytest.approx(500 * M, rel=0.1)
    assert row.bandwidth_bps.low is None
    assert row.variation is None
    assert row.absent["variation"] == "3 whole seconds; 6 are needed"


def test_a_run_that_was_stopped_is_measured_as_long_as_it_ran(tmp_path):
    run = write_streams(tmp_path / "run", CALM[:1], duration_s=8, status="stopped")
    plan = run / "plan.toml"
    plan.write_text(plan.read_text().replace('"8s"', '"60s"'))
    analysis = _analysed(run, pictures=False)
    row = _row(analysis, "tcp")
    assert row.bandwidth_bps.estimate == pytest.approx(500 * M, rel=0.1)
    assert row.verdict == "stable"
    whole = json.loads((run / "manifest.json").read_text()) | {"status": "complete"}
    (run / "manifest.json").write_text(json.dumps(whole))
    assert _row(_analysed(run, pictures=False), "tcp").verdict == "unstable"


def test_without_a_plan_all_that_flowed_is_counted_and_that_is_said(tmp_path):
    run = write_streams(tmp_path / "run", CALM[:1], plan=False, duration_s=8)
    streams = _analysed(run, pictures=False).streams
    assert streams.note.startswith("the plan says no duration")
    (leg,) = streams.legs
    assert leg.last_ns - leg.first_ns == 9 * NS


def test_a_stream_begins_where_its_writer_wrote_however_long_its_machine_was_there(loads):
    row = _row(loads, "jvm-tcp", "gc")
    for leg in loads.streams.of(row.cell):
        first = loads.run.intervals.filter(loads.run.intervals.cell == leg.cell)
        first = first.filter((first.repeat == leg.repeat) & (first.side == "writer"))
        (told,) = fetch(first.agg(at=first.started_ns.min()))["at"]
        # the load was 3 s at work, and then comes the warm-up
        assert leg.first_ns - told == 3 * NS + NS // 2
    seconds = loads.streams.seconds
    own = seconds.loc[seconds["cell"] == row.cell, "bps"]
    assert own.min() > 0.8 * 640 * M


def test_what_a_load_uses_inside_the_process_of_an_end_is_not_the_streams(loads):
    row = _row(loads, "jvm-tcp", "gc")
    assert row.writer.cpu_cores.estimate == pytest.approx(0.3, abs=0.002)
    assert row.reader.cpu_cores.estimate == pytest.approx(0.2, abs=0.002)
    assert row.writer.room_cores == pytest.approx(0.4, abs=1e-6)
    assert [(it.host, it.target) for it in row.held] == [("host-0", 0.6), ("host-1", 0.6)]
    assert row.held[0].occupancy == pytest.approx(0.6, abs=1e-6)
    assert not row.in_doubt


# the share left under a load


def test_the_share_that_is_left_is_that_of_pairs_of_repeats(loads):
    """Oracle: t on the logarithms of the pairs, by scipy."""
    row, base = _row(loads, "enet", "cpu"), _row(loads, "enet")
    assert row.unloaded_cell == base.cell
    means = loads.streams.seconds.groupby(["cell", "repeat"])["bps"].mean()
    logs = np.log(means[row.cell].to_numpy() / means[base.cell].to_numpy())
    low, high = np.exp(scipy.stats.t.interval(0.95, 2, logs.mean(), scipy.stats.sem(logs)))
    assert row.of_unloaded.estimate == pytest.approx(np.exp(logs.mean()), rel=1e-9)
    assert (row.of_unloaded.low, row.of_unloaded.high) == pytest.approx((low, high), rel=1e-6)
    assert row.of_unloaded.estimate == pytest.approx(0.3, rel=0.1)
    assert _row(loads, "jgroups-udp", "gc").of_unloaded.estimate == pytest.approx(0.06, rel=0.25)
    assert base.absent["of_unloaded"] == "it is unloaded"
    assert _row(loads, "sctp", "cpu").absent["of_unloaded"].startswith("no repeat has a bandwidth")


def test_with_one_repeat_the_seconds_of_the_two_legs_are_held_against_each_other(tmp_path):
    cells = (Cell("tcp", mbps=800), Cell("tcp", "cpu", mbps=400), Cell("kcp", "cpu", mbps=90))
    rows = _analysed(write_streams(tmp_path / "run", cells, spread=0.0), pictures=False)
    kept = _row(rows, "tcp", "cpu").of_unloaded
    assert kept.method == "ratio of means over blocks of seconds, on the logarithm"
    assert kept.low < 0.5 < kept.high
    alone = _row(rows, "kcp", "cpu")
    assert alone.absent["of_unloaded"] == "no cell with the same factors is without a load"


def test_only_cells_whose_other_factors_are_the_same_are_held_against_each_other(tmp_path):
    small, large = {"stream.message": "200B"}, {"stream.message": "9KB"}
    cells = (
        Cell(mbps=800, factors=large), Cell(mbps=200, factors=small),
        Cell(load="cpu", mbps=150, factors=small), Cell(load="cpu", mbps=400, factors=large),
    )  # fmt: skip
    rows = _analysed(write_streams(tmp_path / "run", cells), pictures=False).streams.rows
    kept = {row.series: row.of_unloaded.estimate for row in rows if row.load == "cpu"}
    assert kept == {"message=200B": pytest.approx(0.75, rel=0.1),
                    "message=9KB": pytest.approx(0.5, rel=0.1)}  # fmt: skip


def test_a_claim_names_what_else_tells_its_rows_apart(tmp_path):
    cells = [
        Cell(protocol=protocol, load=load, mbps=mbps, factors={"stream.message": size})
        for size in ("200B", "9KB")
        for protocol, load, mbps in (("tcp", "none", 800), ("tcp", "cpu", 700),
                                     ("kcp", "none", 800), ("kcp", "cpu", 300))
    ]  # fmt: skip
    analysis = _analysed(write_streams(tmp_path / "run", cells), pictures=False)
    (finding,) = [it for it in analysis.findings if it.code == "stream-hypothesis"]
    assert set(finding.evidence["protocols"]) == {"kcp message=200B", "kcp message=9KB"}
    for name in finding.evidence["protocols"]:
        assert f"{name} keeps" in finding.text
    (found,) = [it for it in analysis.streams.hypotheses if it.rows]
    assert all(f"{it.name} 0.4" in hypothesis_line(found) for it in found.rows)


def test_a_share_of_repeats_in_which_nothing_came_has_no_bound_below_zero():
    found = kept_share([0.0, 5.0, 4.0], [10.0, 10.0, 10.0])
    assert found.low == 0
    assert found.estimate == pytest.approx(0.3)
    assert kept_share([5.0], [10.0]).low is None
    with pytest.raises(ParameterError, match="above 0 without the load"):
        kept_share([1.0], [0.0])


# the verdicts


def test_each_cell_has_the_verdict_that_was_planted(loads, broken, calm):
    wanted = {
        ("tcp", "none"): "link saturated", ("tcp", "cpu"): "link saturated",
        ("enet", "none"): "bound by one core", ("enet", "cpu"): "bound by one core",
        ("kcp", "none"): "slow", ("kcp", "cpu"): "slow", ("udp", "none"): "stable",
        ("udp", "cpu"): "stable", ("quic", "none"): "stable", ("quic", "cpu"): "unstable",
        ("sctp", "none"): "failed", ("sctp", "cpu"): "failed", ("jvm-tcp", "none"): "stable",
        ("jvm-tcp", "gc"): "stable", ("jgroups-udp", "none"): "stable",
        ("jgroups-udp", "gc"): "slow",
    }  # fmt: skip
    assert {(it.protocol, it.load): it.verdict for it in loads.streams.rows} == wanted
    assert {it.protocol: it.verdict for it in broken.streams.rows} == {
        "tcp": "unstable", "enet": "unstable", "kcp": "stable", "quic": "stable",
    }  # fmt: skip
    assert {it.verdict for it in calm.streams.rows} == {"stable"}


def test_a_stream_is_slow_only_beside_streams_of_the_same_other_factors(tmp_path):
    """A writer of small messages is not held to what large ones reach."""
    small, large = ({"stream.size": size} for size in ("100B", "100KB"))
    cells = (
        Cell("tcp", mbps=40.0, factors=small), Cell("kcp", mbps=36.0, factors=small),
        Cell("tcp", mbps=400.0, factors=large), Cell("kcp", mbps=40.0, factors=large),
    )  # fmt: skip
    analysis = _analysed(write_streams(tmp_path / "run", cells, link=""), pictures=False)
    found = {(it.protocol, it.series): it for it in analysis.streams.rows}
    assert {key: it.verdict for key, it in found.items()} == {
        ("tcp", "size=100B"): "stable", ("kcp", "size=100B"): "stable",
        ("tcp", "size=100KB"): "stable", ("kcp", "size=100KB"): "slow",
    }  # fmt: skip
    (share, *_) = found["kcp", "size=100KB"].reasons
    assert re.fullmatch(r"(9|10)\.\d+ % of what tcp gives", share)


def test_a_verdict_says_what_it_rests_on(loads, broken):
    assert _row(loads, "sctp").reasons == (f"stream failed: {LACKS}",)
    (memory,) = _row(loads, "quic", "cpu").reasons
    assert memory.startswith("the memory of the writer only grows: by ")
    assert _row(loads, "quic", "cpu").writer.grown_bytes_hz.estimate == pytest.approx(8e6, rel=0.1)
    assert _row(loads, "enet", "cpu").reasons == (
        "the writer uses 0.39 of the 0.4 cores left to it",
    )
    assert "neither a core nor loss bounds it" in _row(loads, "kcp").reasons[-1]
    assert _row(broken, "tcp").reasons == ("peer lost: the writer went", "nothing came for 3 s")
    assert _row(broken, "enet").reasons == ("nothing came for 4 s",)


def test_a_load_that_did_not_hold_its_target_leaves_its_cell_in_doubt(loads):
    off = _row(loads, "kcp", "cpu")
    assert off.in_doubt
    assert [it.host for it in off.held] == ["host-0", "host-1"]
    assert off.held[0].target == 0.6
    assert off.held[0].occupancy == pytest.approx(0.55, abs=1e-6)
    assert not _row(loads, "enet", "cpu").in_doubt
    finding = next(it for it in loads.findings if it.code == "load-off-target")
    assert finding.evidence["cells"].keys() == {off.cell}


def test_a_writer_may_use_what_the_load_on_its_core_leaves(loads, tmp_path):
    assert _row(loads, "enet", "cpu").writer.room_cores == pytest.approx(0.4, abs=1e-6)
    assert _row(loads, "enet").writer.room_cores == 1
    cells = (Cell("enet", "cpu", mbps=180, writer_cores=0.39),)
    free = _row(_analysed(write_streams(tmp_path / "run", cells, pin=False)), "enet", "cpu")
    # two loads of 0.6 cores somewhere on two cores
    assert free.writer.room_cores == pytest.approx(0.8, abs=1e-6)
    assert not free.writer.bound


def test_messages_under_way_when_a_stream_broke_are_no_loss_and_others_are(broken):
    legs = {leg.cell.split("=")[-1]: leg for leg in broken.streams.legs}
    assert legs["tcp"].unaccounted == 40
    assert not legs["tcp"].settled
    assert legs["kcp"].unaccounted == 7
    assert legs["enet"].unaccounted == legs["quic"].unaccounted == 0
    (finding,) = [it for it in broken.findings if it.code == "stream-unaccounted"]
    assert [it["cell"] for it in finding.evidence["legs"]] == [legs["kcp"].cell]
    assert not broken.trustworthy


def test_growth_is_told_from_a_level_and_from_what_has_reached_one():
    rng = np.random.default_rng(3)
    seconds = np.arange(60.0)
    leak = growth(1e8 + 2e6 * seconds + rng.normal(0, 5e5, 60))
    assert leak.rate.low < 2e6 < leak.rate.high
    assert leak.goes_on
    assert leak.late_share == pytest.approx(0.5, abs=0.1)
    filled = growth(1e8 + 6e7 * (1 - np.exp(-seconds / 4)))
    assert not filled.goes_on
    sawtooth = growth(1e8 + 3e7 * (seconds % 7))
    assert not sawtooth.goes_on
    wrong = sum(growth(rng.normal(1e8, 1e6, 60)).goes_on for _ in range(200))
    assert wrong <= 5
    with pytest.raises(ParameterError, match="6 seconds or more"):
        growth([1.0] * 5)


# findings


@pytest.mark.parametrize("code", RAISED_BY_STREAMS)
def test_a_finding_about_streams_is_raised_once_and_silent_once(code, request):
    (finding, *_) = [
        it for it in request.getfixturevalue(RAISED_BY_STREAMS[code]).findings if it.code == code
    ]
    assert finding.evidence
    assert finding.text.endswith(".")
    assert finding.suggestion.endswith(".")
    assert_like_its_example(finding)
    assert not {"nan", "None"} & set(f"{finding.text} {finding.title}".split())
    calm = request.getfixturevalue("calm")
    assert code not in {it.code for it in calm.findings}


def test_what_says_nothing_of_a_stream_is_not_said(loads, calm):
    for analysis in (loads, calm):
        codes = {it.code for it in analysis.findings}
        assert not codes & {"kernel-stamps-missing", "arrivals-bursty", "nothing-measured"}


def test_a_run_of_which_no_stream_began_says_why(tmp_path, schema):
    run = write_streams(tmp_path / "run", (Cell("sctp", failed=LACKS),))
    analysis = _analysed(run)
    codes = [it.code for it in analysis.findings]
    assert "stream-failed" in codes
    assert "nothing-measured" not in codes
    assert LACKS.split(";", maxsplit=1)[0] in " ".join(unruly.verdict(analysis).split())
    finding = next(it for it in analysis.findings if it.code == "stream-failed")
    assert LACKS in finding.text
    schema.validate(json.loads(json.dumps(unruly.summary(analysis))))


# the hypotheses


def test_the_hypotheses_come_out_as_planted_but_for_a_load_in_doubt(loads):
    collector, processor = loads.streams.hypotheses
    assert (collector.key, collector.outcome) == ("collector", HELD)
    # the load beside kcp missed its target, so that kcp decides nothing
    assert (processor.key, processor.outcome) == ("processor", OPEN)
    doubted = {it.protocol: it.state for it in processor.rows if it.in_doubt}
    assert doubted == {"kcp": OPEN}
    assert {it.state for it in processor.rows if not it.in_doubt} == {HELD}
    by_protocol = {it.protocol: it for it in processor.rows}
    assert by_protocol.keys() == {"enet", "kcp", "quic"}
    assert by_protocol["enet"].reference == "tcp"
    assert by_protocol["enet"].relative.estimate == pytest.approx(0.3 / (900 / 950), rel=0.1)
    # three are judged at once, each by what it keeps and by that over what TCP keeps
    assert by_protocol["enet"].relative.level == pytest.approx(1 - 0.05 / 6)
    assert "6 %" in collector.paper
    assert "udp" in processor.text
    jgroups = next(it for it in collector.rows if it.protocol == "jgroups-udp")
    assert jgroups.reference == "jvm-tcp"


def _asked(loads, shares, load="cpu"):
    """The outcome where protocols keep these shares in each repeat."""
    row = _row(loads, "enet", "cpu")
    rows, means = [], {}
    for protocol, kept in shares.items():
        loaded, base = f"{protocol} loaded", f"{protocol} none"
        rows.append(replace(row, cell=loaded, protocol=protocol, load=load, unloaded_cell=base))
        for repeat, share in enumerate(kept):
            means[loaded, repeat], means[base, repeat] = share * 1e9, 1e9
    bps = {key: np.full(4, mean) for key, mean in means.items()}
    flow = Flow((), bps, means, *[pd.DataFrame()] * 2, "", pd.DataFrame())
    (found,) = hypotheses(rows, flow)
    return found


def test_a_reference_that_broke_in_one_repeat_bounds_nothing_from_above(loads):
    found = _asked(loads, {"tcp": (0.9, 0.0, 0.9), "enet": (0.4, 0.41, 0.4)})
    (enet,) = found.rows
    assert enet.relative.high is None
    assert found.outcome == OPEN


def test_a_claim_that_rests_on_a_load_that_was_off_is_marked(loads):
    collector, processor = sorted(loads.streams.hypotheses, key=lambda it: it.key)
    doubted = {row.protocol: row.in_doubt for row in loads.streams.rows if row.load == "cpu"}
    for it in processor.rows:
        assert it.in_doubt == (doubted[it.protocol] or doubted[it.reference])
        assert it.said == it.state + "?" * it.in_doubt
    assert any(it.in_doubt for it in (*processor.rows, *collector.rows))


@pytest.mark.parametrize(
    ("shares", "outcome"),
    [
        ({"tcp": (0.9, 0.91, 0.9), "enet": (0.4, 0.41, 0.4)}, HELD),
        ({"tcp": (0.9, 0.91, 0.9), "enet": (0.97, 0.98, 0.97)}, NOT_HELD),
        ({"tcp": (0.9, 0.91, 0.9), "enet": (0.4, 0.41, 0.4), "kcp": (1.0, 1.01, 1.0)}, NOT_HELD),
        ({"tcp": (0.9, 0.91, 0.9), "enet": (0.5, 0.95, 0.7)}, OPEN),
        ({"enet": (0.4, 0.41, 0.4)}, OPEN),
        ({"tcp": (0.9,), "enet": (0.4,)}, OPEN),
    ],
)
def test_a_claim_about_all_is_held_by_each_and_refuted_by_one(loads, shares, outcome):
    assert _asked(loads, shares).outcome == outcome


def test_the_claim_about_the_collector_needs_windows_of_user_mode_and_less_than_all(loads):
    kernel = {"jvm-tcp": (0.8, 0.81, 0.8)}
    assert _asked(loads, kernel, "gc").outcome == OPEN
    assert _asked(loads, {**kernel, "aeron": (0.3, 0.31, 0.3)}, "gc").outcome == HELD
    assert _asked(loads, {**kernel, "aeron": (0.9, 0.91, 0.9)}, "gc").outcome == NOT_HELD
    grows = {"jvm-tcp": (1.04, 1.05, 1.04), "aeron": (0.3, 0.31, 0.3)}
    assert _asked(loads, grows, "gc").outcome == NOT_HELD
    # a native protocol is in no JVM
    assert _asked(loads, {**kernel, "enet": (0.9, 0.91, 0.9)}, "gc").outcome == OPEN


def test_a_load_that_nobody_heard_of_leaves_its_cell_in_doubt(tmp_path):
    cells = (Cell("tcp"), Cell("tcp", "cpu", dead=1), Cell("udp", "cpu"))
    found = _analysed(write_streams(tmp_path / "run", cells, duration_s=8), pictures=False)
    dead = _row(found, "tcp", "cpu")
    assert dead.in_doubt
    assert dead.absent["held"] == "no row says what the competing load used on host-1"
    assert not _row(found, "udp", "cpu").in_doubt
    finding = next(it for it in found.findings if it.code == "load-off-target")
    assert finding.evidence["cells"].keys() == {dead.cell}


def test_a_repeat_that_broke_before_it_was_measured_gave_nothing(tmp_path):
    cells = (Cell("tcp"), Cell("enet", breaks_in=1))
    run = write_streams(tmp_path / "run", cells, duration_s=8, repeats=3, warmup_s=2.0)
    row = _row(_analysed(run, pictures=False), "enet")
    assert row.bandwidth_bps.n == 3
    assert row.bandwidth_bps.estimate == pytest.approx(400 * M * 2 / 3, rel=0.05)
    assert row.verdict == "unstable"


def test_what_a_writer_that_was_killed_counted_last_is_nobody_s_fault(tmp_path):
    lost = (("reader-0", "peer lost", "the writer went without an end", 7.9),)
    cells = (Cell("tcp", unaccounted=-40, events=lost), Cell("quic", unaccounted=-40))
    found = _analysed(write_streams(tmp_path / "run", cells, duration_s=8), pictures=False)
    finding = next(it for it in found.findings if it.code == "stream-unaccounted")
    assert [leg["cell"] for leg in finding.evidence["legs"]] == ["kind=none protocol=quic"]


# the verdict, the summary and the page


def test_the_verdict_is_one_screen_with_a_row_for_each_cell(loads):
    text = unruly.verdict(loads)
    assert len(text.splitlines()) <= 40
    for row in loads.streams.rows:
        label = row.label.replace(" beside ", " + ")
        (line,) = [it for it in text.splitlines() if it.startswith(f"{label}  ")]
        words = {"link saturated": "link full", "bound by one core": "one core"}
        assert line.rstrip("?").endswith(words.get(row.verdict, row.verdict))
        assert len(line) <= 100
    assert "hypothesis: with processes competing for the CPU" in text
    assert "windows of user mode lose more than kernel TCP: undecided" in " ".join(text.split())
    assert "failed: sctp (sctp: libusrsctp.so.2 is not here)" in text
    assert text.count("promise:") == 1


def test_of_a_large_matrix_each_protocol_has_a_line_with_all_its_loads(loads):
    rows = loads.streams.rows
    more = tuple(replace(row, protocol=f"{row.protocol}-{it}") for row in rows for it in (1, 2))
    text = "\n".join(stream_lines(replace(loads.streams, rows=more), 100))
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert len(lines["enet-2"]) <= 100
    assert re.search(r"enet-1 +\d+ one core +\d+ +30% one core", lines["enet-1"])
    assert re.search(r"kcp-2 +\d+ slow +\d+ +7\d% slow\?", lines["kcp-2"])
    assert len(text.splitlines()) <= 32


def test_there_is_a_sentence_for_each_protocol(loads):
    sentences = protocol_sentences(loads.streams.rows)
    assert [it.split(":")[0] for it in sentences] == [
        "tcp", "enet", "kcp", "udp", "quic", "sctp", "jvm-tcp", "jgroups-udp",
    ]  # fmt: skip
    enet = sentences[1]
    assert "enet: unloaded 59" in enet or "enet: unloaded 60" in enet
    assert "of the unloaded" in enet
    assert "10 % lost" in sentences[3]
    assert "None" not in " ".join(sentences)


def test_the_summary_of_streams_is_as_the_schema_says(loads, broken, schema):
    for analysis in (loads, broken):
        document = json.loads(json.dumps(unruly.summary(analysis)))
        schema.validate(document)
        assert len(document["streams"]["rows"]) == len(analysis.streams.rows)
        for row in document["streams"]["rows"]:
            for name in ("bandwidth_bps", "variation", "of_unloaded", "p99_ns", "loss_share"):
                assert (row[name] is None) == (name in row["absent"]), (row["cell"], name)


def test_a_run_without_streams_has_none(analysed):
    analysis = analysed(agents=2, ops=("null",), duration_s=5)
    assert analysis.streams is None
    assert unruly.summary(analysis)["streams"] is None


def test_the_report_draws_each_figure_of_the_study(loads, broken):
    (view,) = views_of([loads])
    part = stream_section(view)
    keys = ["bandwidth", "kept", "processors", "seconds", "stream-time", "load"]
    assert [it.key for it in part.figures] == [f"{key}-0" for key in keys]
    told = {it.key.removesuffix("-0"): it for it in part.figures}
    assert "enet beside cpu 179 Mbit/s" in _alt(told["bandwidth"])
    assert told["kept"].title.startswith("jgroups-udp beside gc keeps 5.88")
    assert [it.title for it in told["seconds"].panels] == ["No load", "Beside cpu", "Beside gc"]
    assert "gc pause" in _alt(told["stream-time"])
    assert (
        told["load"].title.replace("\xa0", " ")
        == "The gc load held its share: 60 % of the cores, 60 % wanted"
    )
    # a load inside the process of an end has CPU time, and no memory of its own
    cpu, memory = (panel.alt for panel in told["load"].panels)
    assert "competing load" in cpu
    assert "competing load" not in memory
    assert len(part.lead) == 2
    assert len(part.tables[0].rows) == len(loads.streams.rows)
    (view,) = views_of([broken])
    told = {it.key.removesuffix("-0"): it for it in stream_section(view).figures}
    assert "kept" not in told
    assert told["stream-time"].title == "enet is silent for 4 s at most"
    assert "peer lost" in _alt(told["stream-time"])


def _alt(figure):
    return " ".join(panel.alt for panel in figure.panels)


def test_a_bar_stands_for_its_cell_and_a_line_for_its_interval(loads):
    (view,) = views_of([loads])
    figure = next(it for it in stream_section(view).figures if it.key == "kept-0")
    data = [row for rows in figure.panels[0].spec["datasets"].values() for row in rows]
    (bar,) = [it for it in data if it.get("label") == "enet beside cpu"]
    kept = _row(loads, "enet", "cpu").of_unloaded
    assert bar["value"] == pytest.approx(100 * kept.estimate, rel=1e-3)
    assert (bar["low"], bar["high"]) == pytest.approx((100 * kept.low, 100 * kept.high), rel=1e-3)


def test_a_page_of_streams_alone_is_written(broken, tmp_path):
    page = write_report([broken], tmp_path / "report.html").read_text()
    assert "What does each protocol give" in page
    assert "Every message accounted for" in page


def _run_on(*hosts, processes=()):
    """A run that reached these hosts: each a name and, or not, the bounds of its clock."""
    known = [
        {"name": name, "clock": dict(zip(("low_ns", "high_ns", "steps"), clock, strict=True))}
        if clock
        else {"name": name}
        for name, clock in hosts
    ]
    return SimpleNamespace(run=SimpleNamespace(manifest={"hosts": known}), processes=processes)


def test_rows_of_other_hosts_are_put_on_the_clock_of_the_runner():
    run = _run_on(("local", None), ("a", (4_999_000_000, 5_001_000_000, 0)), ("b", (-40, -20, 0)))
    ahead = stream_clocks.ahead_ns(run)
    assert ahead == {"a": 5_000_000_000, "b": -30}
    rows = inline(
        [
            {"host": host, "started_ns": STARTED_NS, "ended_ns": STARTED_NS + 7}
            for host in ("local", "a", "b")
        ]
    )
    found = fetch(stream_clocks.on_one_clock(rows, ahead)).set_index("host")
    moved = {host: int(at) - STARTED_NS for host, at in found["started_ns"].items()}
    assert moved == {"local": 0, "a": -5_000_000_000, "b": 30}
    assert set(found["ended_ns"] - found["started_ns"]) == {7}


@pytest.mark.parametrize(
    ("clock", "told"),
    [
        ((10, 20, 0), ""),
        ((10, 20, 1), "the clock of a, or that of the runner, was set during the run"),
        ((0, 10_000_000_000, 0), "the clock of a is known to within 10 s only"),
    ],
)
def test_a_clock_that_was_set_leaves_no_time_line(clock, told):
    assert stream_clocks.unsure(_run_on(("local", None), ("a", clock))) == told


def test_only_ends_on_several_hosts_have_clocks_of_their_own():
    apart = [{"kind": "writer", "host": "a"}, {"kind": "reader", "host": "b"}]
    kinds = frozenset({"writer", "reader"})
    clock = (0, 1, 0)
    assert stream_clocks.have_own_clocks(
        _run_on(("a", clock), ("b", clock), processes=apart), kinds
    )
    # namespaces share the clock of the runner
    assert not stream_clocks.have_own_clocks(
        _run_on(("a", None), ("b", None), processes=apart), kinds
    )
    assert not stream_clocks.have_own_clocks(
        _run_on(("a", clock), ("b", clock), processes=[apart[0]]), kinds
    )


def _between_hosts(path, cells, steps=0):
    """Write a run whose ends are on hosts with clocks of their own, so no message has a latency."""
    write_streams(path, cells, repeats=1, duration_s=8)
    shutil.rmtree(path / "requests")
    file = path / "manifest.json"
    manifest = json.loads(file.read_text())
    for host in manifest["hosts"]:
        host["clock"] = {"low_ns": -500, "high_ns": 700, "widest_ns": 1_200, "steps": steps}
    for counted in [manifest, *manifest["processes"]]:
        if counted.get("counts"):
            none = {it: dict.fromkeys(own, 0) for it, own in counted["counts"].items()}
            counted["counts"] = none
    file.write_text(json.dumps(manifest))
    return path


def test_a_run_without_latencies_worked_and_its_page_says_so(tmp_path, loads):
    between = _analysed(_between_hosts(tmp_path / "run", CPU_LOAD[:2]))
    found = between.topics["streams"]
    assert {row.absent["p99_ns"] for row in found.rows} == {
        "writer and reader are on hosts with clocks of their own"
    }
    assert all(row.bandwidth_bps is not None for row in found.rows)
    assert between.measured_ns == sum(leg.last_ns - leg.first_ns for leg in found.legs) > 0
    assert between.worked.ok
    assert between.worked.sentence.startswith("Yes: ")
    alone = write_report([between], tmp_path / "alone.html").read_text()
    assert "No measured reply" not in alone
    assert "messages came" in alone
    # beside a run with all four answers it has two
    both = write_report([between, loads], tmp_path / "both.html").read_text()
    assert both.count("Can I trust it?") == 2


def test_no_bandwidth_is_told_where_a_clock_was_set(tmp_path):
    between = _analysed(_between_hosts(tmp_path / "run", CPU_LOAD[:2], steps=1))
    found = between.topics["streams"]
    for row in found.rows:
        assert row.bandwidth_bps is None
        assert row.of_unloaded is None
        assert row.absent["bandwidth_bps"].endswith("was set during the run")
        assert not row.in_doubt
    assert {leg.silent_seconds for leg in found.legs} == {0}
    raised = {it.code for it in between.findings}
    assert "clocks-compared" in raised
    assert not raised & {"load-off-target", "stream-loses", "stream-unstable"}
    assert write_report([between], tmp_path / "report.html").is_file()
