"""Rules about streams: failed and unstable streams, their limits, and the share left under load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.base.words import named
from unruly.quantity import bandwidth, percent
from unruly.topics.streams import rules_trust, statistics, verdicts
from unruly.topics.streams.model import HELD, streams_of
from unruly.topics.streams.words import between, hypothesis_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis
    from unruly.topics.streams.model import Stream

ROWS_TOLD: Final = 6


def _of(analysis: Analysis, verdict: str) -> list[Stream]:
    rows = held.rows if (held := streams_of(analysis)) else ()
    return [row for row in rows if row.verdict == verdict]


def _told(rows: list[Stream]) -> str:
    """Each with what its verdict rests on."""
    told = [f"{row.label}: {'; '.join(row.reasons)}" for row in rows[:ROWS_TOLD]]
    rest = f". And {len(rows) - ROWS_TOLD} more" if len(rows) > ROWS_TOLD else ""
    return ". ".join(told) + rest


def _cells(rows: list[Stream]) -> dict[str, Any]:
    return {"cells": {row.cell: list(row.reasons) for row in rows}}


def _names(rows: list[Stream]) -> str:
    return named([row.label for row in rows])


def failed(analysis: Analysis) -> Iterator[Finding]:
    """A stream could not begin.

    Example: could not begin: sctp, sctp beside cpu

    Raised: No repeat of a cell could begin. A library is missing, a port is taken, or no peer
    answers.

    Means: The run has no result for these protocols. All others were measured.

    Next: Install what the finding names, or leave the protocol out of the plan.

    Numbers: `streams.legs[].failed` and `streams.rows[]` (`verdict`, `reasons`) in `summary.json`.
    """
    rows = _of(analysis, "failed")
    if not rows:
        return
    yield Finding(
        "stream-failed",
        "where",
        "warns",
        5,
        f"could not begin: {_names(rows)}",
        f"{_told(rows)}.",
        _cells(rows),
        "Install the missing software, or leave these protocols out; the others were measured.",
    )


def unstable(analysis: Analysis) -> Iterator[Finding]:
    """A stream does not last beside this load.

    Example: unstable: quic beside cpu

    Raised: A stream broke, lost its peer, never finished or ran out of memory. Or in some repeats
    it could not begin. Or no message came for {verdicts.SILENT_SECONDS:count} whole seconds. Or the
    memory of an end only grows, by at least {statistics.GROWN_LEAST_BYTES:size} and
    {statistics.GROWN_LEAST_SHARE:percent} of its level.

    Means: The stream does not last beside this load, whatever its mean bandwidth. In the study both
    versions of ENet, Appia and Spread were unstable.

    Next: Do not rely on it beside such a load, or limit the rate of the writer. See the methods
    [streams](../methods/streams.md) and [growth](../methods/growth.md).

    Numbers: `streams.rows[]` (`verdict`, `reasons`) in `summary.json`.
    """
    rows = _of(analysis, "unstable")
    if not rows:
        return
    yield Finding(
        "stream-unstable",
        "where",
        "warns",
        6,
        f"unstable: {_names(rows)}",
        f"{_told(rows)}.",
        _cells(rows),
        "Do not rely on it beside such a load, or limit the rate of the writer.",
    )


def slow(analysis: Analysis) -> Iterator[Finding]:
    """A stream is stable, but far slower than the link or the best protocol.

    Example: stable but slow: kcp, kcp beside cpu, jgroups-udp beside gc

    Raised: A stream is stable, no core bounds it, and it reaches less than
    {verdicts.SLOW_MOST:percent} of the link or of the best protocol beside the same load.

    Means: The stream waits for its own mechanisms: a window, a timer, a retransmission. The finding
    reports the loss where the stream loses at least {verdicts.LOSSY_LEAST:percent} of its messages.

    Next: Look at the sizes of its windows and at its timers. See the method
    [streams](../methods/streams.md).

    Numbers: `streams.rows[]` (`verdict`, `reasons`, `loss_share`) in `summary.json`.
    """
    rows = _of(analysis, "slow")
    if not rows:
        return
    yield Finding(
        "stream-slow",
        "where",
        "informs",
        260,
        f"stable but slow: {_names(rows)}",
        f"{_told(rows)}.",
        _cells(rows),
        "Look at its windows and timers: it waits for neither a core nor the link.",
    )


def one_core(analysis: Analysis) -> Iterator[Finding]:
    """One CPU core bounds a stream.

    Example: bound by one core: enet, enet beside cpu

    Raised: The writer or the reader uses at least {statistics.BOUND_LEAST:percent} of a core, and
    at most {statistics.BOUND_MOST:percent}: with more, a second thread works. The rule also holds
    for {statistics.BOUND_LEAST:percent} of the CPU that the competing load leaves on the cores of
    that end.

    Means: One thread bounds the protocol, so more cores would not help it.

    Next: Use several streams, or a protocol of several threads. See the method
    [streams](../methods/streams.md).

    Numbers: `streams.rows[].writer` (`cpu_cores`, `room_cores`, `bound`) and
    `streams.rows[].reader` in `summary.json`.
    """
    rows = _of(analysis, "bound by one core")
    if not rows:
        return
    yield Finding(
        "stream-one-core",
        "where",
        "informs",
        261,
        f"bound by one core: {_names(rows)}",
        f"{_told(rows)}.",
        _cells(rows),
        "Several streams, or a protocol of several threads, would use the other cores.",
    )


def saturated(analysis: Analysis) -> Iterator[Finding]:
    """A stream fills the link.

    Example: the link is full: tcp, tcp beside cpu

    Raised: The payload of a stream reaches at least {verdicts.SATURATED_LEAST:percent} of the link.

    Means: The link bounds the stream. The run does not show what the protocol could reach beyond
    it.

    Next: Set `stream.link = "none"` to see where the protocol itself ends.

    Numbers: `streams.rows[]` (`bandwidth_bps`, `link_bps`) in `summary.json`.
    """
    rows = _of(analysis, "link saturated")
    if not rows:
        return
    yield Finding(
        "stream-saturated",
        "where",
        "informs",
        262,
        f"the link is full: {_names(rows)}",
        f"{_told(rows)}. This run cannot say how fast these protocols are without the link.",
        _cells(rows),
        'Take the link away (stream.link = "none") to see where the protocol itself ends.',
    )


def left_beside(analysis: Analysis) -> Iterator[Finding]:
    """A stream loses bandwidth beside the competing load.

    Example: jgroups-udp beside gc keeps 5.88 % of its bandwidth: 35.3 Mbit/s

    Raised: The upper bound of the share that a protocol keeps of its unloaded bandwidth is below 1.

    Means: The load takes bandwidth from the stream, beyond chance. The finding lists the stream
    that keeps least first.

    Next: Plan with the bandwidth beside the load, not with that of an idle machine. See the method
    [kept](../methods/kept.md).

    Numbers: `streams.rows[].of_unloaded` in `summary.json`.
    """
    found = streams_of(analysis)
    rows = [
        row
        for row in (found.rows if found else ())
        if row.of_unloaded is not None
        and row.of_unloaded.high is not None
        and row.of_unloaded.high < 1
    ]
    if not rows:
        return
    rows.sort(key=lambda row: (row.of_unloaded.estimate if row.of_unloaded else None) or 0.0)
    worst = rows[0]
    told = [
        f"{row.label} {percent(row.of_unloaded.estimate if row.of_unloaded else None)}"
        f"{between(row.of_unloaded, percent)}"
        for row in rows[:ROWS_TOLD]
    ]
    mean = worst.bandwidth_bps.estimate if worst.bandwidth_bps else None
    share = worst.of_unloaded.estimate if worst.of_unloaded else None
    yield Finding(
        "stream-loses",
        "where",
        "informs",
        255,
        f"{worst.label} keeps {percent(share)} of its bandwidth: {bandwidth(mean)}",
        f"Of their unloaded bandwidth these keep less than all, beyond their intervals: "
        f"{'; '.join(told)}.",
        {"cells": {row.cell: row.of_unloaded.estimate for row in rows if row.of_unloaded}},
        "Plan with the bandwidth beside the load, not with that of an idle machine.",
    )


def hypothesis(analysis: Analysis) -> Iterator[Finding]:
    """The run confirms, refutes or cannot decide a hypothesis of the throughput study.

    Example: beside a garbage collector in its own JVM every protocol keeps less of its bandwidth,
    those with windows of user mode less than kernel TCP: held

    Raised: The plan has a competing load `gc` or `cpu`. The finding is raised once for each
    hypothesis of the study about that load.

    Means: The hypothesis holds, does not hold, or cannot be decided by this run. The finding gives
    the share of each protocol with its interval, beside what the paper found.

    Next: Repeat the plan (`run.repeat`) where the run cannot decide. See the method
    [streams](../methods/streams.md).

    Numbers: `streams.hypotheses[]` in `summary.json`.
    """
    for place, found in enumerate(held.hypotheses if (held := streams_of(analysis)) else ()):
        sentence = hypothesis_sentence(found)
        yield Finding(
            "stream-hypothesis",
            "why",
            "informs",
            20 + place,
            f"{found.claim}: {found.outcome}",
            f"{sentence[:1].upper()}{sentence[1:]}. {found.paper[:1].upper()}{found.paper[1:]}.",
            {
                "key": found.key,
                "outcome": found.outcome,
                "protocols": {it.name: it.said for it in found.rows},
            },
            "Keep bulk data on the kernel's TCP beside such a load."
            if found.outcome == HELD
            else "Repeat the plan (run.repeat) where this run cannot say.",
        )


RULES: Final = (
    *rules_trust.RULES,
    Rule("stream-failed", "where", ("warns",), failed),
    Rule("stream-unstable", "where", ("warns",), unstable, (statistics, verdicts)),
    Rule("stream-slow", "where", ("informs",), slow, (verdicts,)),
    Rule("stream-one-core", "where", ("informs",), one_core, (statistics,)),
    Rule("stream-saturated", "where", ("informs",), saturated, (verdicts,)),
    Rule("stream-loses", "where", ("informs",), left_beside),
    Rule("stream-hypothesis", "why", ("informs",), hypothesis),
)
