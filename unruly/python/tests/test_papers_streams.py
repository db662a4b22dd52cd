"""The verdicts of a run of streams about the study's claims follow from its planted numbers."""

from __future__ import annotations

import pytest

import unruly
from streaming import Cell, write_streams
from unruly.papers import judges
from unruly.papers.evidence import evidence_of
from unruly.papers.judges_streams import _at_once

# Mbit/s of each protocol: alone, beside busy processors, beside a collector.
AS_THE_PAPER = {
    "tcp": (950, 500, 480), "udp": (950, 700, 480), "sctp": (500, 100, 250),
    "jvm-tcp": (950, 600, 500), "jvm-nio": (940, 300, 480), "jvm-udp": (945, 700, 480),
    "jgroups-udp": (300, 60, 18), "aeron": (900, 300, 90), "aeron-daemon": (880, 300, 500),
}  # fmt: skip
OTHERWISE = {
    "tcp": (950, 949, 940), "udp": (700, 350, 480), "sctp": (500, 480, 250),
    "jvm-tcp": (950, 945, 940), "jvm-nio": (940, 939, 480), "jvm-udp": (945, 700, 480),
    "jgroups-udp": (300, 60, 180), "aeron": (900, 300, 600), "aeron-daemon": (880, 300, 300),
}  # fmt: skip
CLAIMS = sorted(name for name in judges.JUDGES if name.startswith("streams_"))


def judged(place, bandwidths, java_cores=0.5):
    cells = [
        Cell(
            protocol, load, mbps, jitter=0.01,
            writer_cores=java_cores if protocol.startswith("jvm") else 0.3,
            inside=load == "gc" and protocol.startswith(("jvm", "jgroups", "aeron")),
        )
        for protocol, by_load in bandwidths.items()
        for load, mbps in zip(("none", "cpu", "gc"), by_load, strict=True)
    ]  # fmt: skip
    path = write_streams(place, tuple(cells), repeats=4, duration_s=7, spread=0.003)
    analysis = unruly.analyse(unruly.open_run(path), causes=False, pictures=False)
    evidence = evidence_of(analysis)
    return {name: judges.JUDGES[name](evidence) for name in CLAIMS}


@pytest.mark.slow
def test_what_is_as_in_the_paper_holds(tmp_path):
    found = judged(tmp_path / "run", AS_THE_PAPER)
    assert {name: it.verdict for name, it in found.items()} == dict.fromkeys(CLAIMS, "holds")
    jgroups = found["streams_jgroups_keeps_little"]
    assert jgroups.estimate == pytest.approx(0.06, rel=0.03)
    assert jgroups.low < 0.06 < jgroups.high
    assert found["streams_saturated"].sentence.startswith("the slowest of 5 is jvm-")


@pytest.mark.slow
def test_what_is_otherwise_does_not_hold_with_its_numbers(tmp_path):
    found = judged(tmp_path / "run", OTHERWISE, java_cores=0.1)
    assert {name: it.verdict for name, it in found.items()} == dict.fromkeys(
        CLAIMS, "does not hold"
    )
    assert found["streams_udp_least_sctp_most"].estimate == pytest.approx(0.5, rel=0.03)
    assert found["streams_library_suffers_most"].estimate == pytest.approx(
        (600 / 900) / (300 / 880), rel=0.03
    )


def test_a_run_of_few_protocols_leaves_the_others_claims_open(tmp_path):
    found = judged(tmp_path / "run", {"sctp": (500, 100, 250)})
    open_claims = {name for name, it in found.items() if it.verdict == "undecided"}
    # that all lose can be said of one
    assert open_claims == set(CLAIMS) - {"streams_all_lose_beside_processors"}


@pytest.mark.slow
def test_one_that_may_have_lost_nothing_leaves_the_claim_about_all_open(tmp_path):
    bandwidths = {"tcp": (950, 700, 480), "sctp": (500, 300, 250), "enet": (500, 490, 200)}
    found = judged(tmp_path / "run", bandwidths)["streams_all_lose_beside_processors"]
    assert (found.verdict, found.estimate) == ("does not hold", pytest.approx(0.98, rel=0.02))
    judged_at = _at_once(unruly.stats.Interval(0.7, 0.4, 0.95, 0.95, 4, 4.0, "t"), 14)
    assert judged_at.low < 0.4
    assert judged_at.high > 1
