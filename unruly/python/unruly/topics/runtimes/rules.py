"""The rules by runtime: what a JVM makes of the tail, and whether slow copies met a collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.quantity import count, duration, percent
from unruly.topics.runtimes import tails
from unruly.topics.runtimes.model import ANYBODY, runtimes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis
    from unruly.stats import Interval
    from unruly.topics.runtimes.model import CollectorMeetings, Meeting, RuntimeRatio, Runtimes


def tail(analysis: Analysis) -> Iterator[Finding]:
    """Requests to JVMs have another p99 than requests to native agents.

    Example: the p99 of requests to JVMs is 3.2 x [2.8, 3.7] that of requests to native agents

    Raised: Some agents of a cell are JVMs and others are native, and the interval of a ratio
    excludes 1: the p99 of requests to JVMs over the p99 of requests to native agents, from any
    sender. With {tails.REPEATS_LEAST:count} repeats or more each repeat gives a ratio, and the
    interval is over the repeats (Student's t on logarithms). With fewer repeats it comes from both
    p99s by blocks of time.

    Means: The slowest percent of requests to JVMs takes that many times as long. With several
    cells, the finding reports the one that is farthest from 1. A JVM that sends a request waits
    longer as well: the report has the tail of every pair of runtimes, which separates both ends.

    Next: Compare senders and receivers in the report. Cross `mesh.runtime` with `jvm.collector` to
    see which garbage collector causes it.

    Numbers: `runtimes.ratios[]` and `runtimes.tails[]` in `summary.json`.
    """
    found = runtimes_of(analysis)
    apart = [it for it in found.ratios if is_apart(it.ratio)] if found else []
    if found is None or not apart:
        return
    most = max(apart, key=lambda it: abs_ratio(it.ratio))
    yield Finding(
        "runtime-tail",
        "why",
        "informs",
        40,
        f"the p99 of requests to JVMs is {times(most.ratio)} that of requests to native agents",
        f"{capital(tail_sentence(most, found))}. The difference is beyond chance in {len(apart)} "
        f"of {len(found.ratios)} cells with both runtimes, each tested alone (95 %).",
        {
            "cell": most.cell,
            "jvm_p99_ns": most.jvm_p99,
            "native_p99_ns": most.native_p99,
            "ratio": most.ratio.estimate,
            "low": most.ratio.low,
            "high": most.ratio.high,
            "cells": len(apart),
            "of": len(found.ratios),
        },
        "Compare senders and receivers in the report, and vary the garbage collector.",
    )


def capital(words: str) -> str:
    """Begin a sentence."""
    return words[:1].upper() + words[1:]


def is_apart(ratio: Interval) -> bool:
    """The interval of a ratio is known, and excludes 1."""
    return (ratio.low or 0.0) > 1 or (ratio.high is not None and ratio.high < 1)


def abs_ratio(ratio: Interval) -> float:
    """How far a ratio is from 1, either way."""
    estimate = ratio.estimate or 1.0
    return max(estimate, 1 / estimate)


def tail_sentence(row: RuntimeRatio, found: Runtimes) -> str:
    """Where the slowest percent begins, by who answers."""
    several = len({it.cell for it in found.tails}) > 1
    where = f" ({row.cell})" if several else ""
    return (
        f"the p99 of requests to JVMs is {duration(row.jvm_p99)}, and of requests to native agents "
        f"of the same cell{where} {duration(row.native_p99)}: {times(row.ratio)}"
    )


def times(ratio: Interval) -> str:
    """A ratio with its interval; ``at least`` where there is no more than that."""
    if ratio.estimate is None:
        return f"at least {ratio.low:.3g} x" if ratio.low is not None else "-"
    low, high = ("-" if it is None else f"{it:.3g}" for it in (ratio.low, ratio.high))
    return f"{ratio.estimate:.3g} x [{low}, {high}]"


def collector(analysis: Analysis) -> Iterator[Finding]:
    """Slow copies met a GC pause more often than others, beyond chance.

    Example: 62 % of the slow copies met a collection, 8 % of the others

    Raised: Slow copies met a GC pause more often than other copies: the interval of the ratio of
    the two shares (the lift) is above 1. The share of the slow copies is also above the share that
    chance alone explains, by the lower end of its interval.

    A slow copy took longer than the p99 of its cell and operation; where the p99 falls among the
    failures, the failed copies are the slow ones. A copy meets a GC pause when the two overlap, at
    the sender or at the receiver. A copy without a reply lasted until its timeout. Only copies with
    a JVM at that end count, because other copies have no pause to meet.

    Means: GC pauses and slow requests come together. A slow copy is also a long one, so it meets
    more of any event. "Chance alone" is the share that would have met a pause if each copy had been
    scheduled at a random moment of its trial. What exceeds that share is not due to length.

    Next: Use a garbage collector with shorter pauses, or allocate less. Vary `jvm.collector` in a
    matrix and compare. [slow-because] reports how much of the slowest requests the pauses explain,
    and [correlate] has the time in garbage collection (`gc_ns`) among its metrics.

    Numbers: `runtimes.meetings[]` and `runtimes.collecting[]` in `summary.json`.
    """
    found = runtimes_of(analysis)
    whole = wholes(found) if found else []
    raised = [it for it in whole if it.at("either").raised is not None]
    if found is None or not raised:
        return
    most = max(raised, key=lambda it: it.at("either").raised or 0.0)
    met = most.at("either")
    assert met.slow_share is not None
    by_end = "; ".join(
        f"at the {name} {_shares(most.at(end))}"
        for end, name in (("asking", "sender"), ("answering", "receiver"))
        if most.at(end).slow_share is not None
    )
    yield Finding(
        "runtime-collector",
        "why",
        "informs",
        41,
        f"{percent(met.slow_share.estimate)} of the slow copies met a collection, "
        f"{_others(met)} of the others",
        f"{collector_sentence(most, found)}. {capital(by_end)}. So it is beyond "
        f"chance in {len(raised)} of {len(whole)} cells with JVMs, each by itself (95 %), given "
        "when collections were. Counted are copies with a JVM at that end.",
        {
            "cell": most.cell,
            "op": most.op,
            "slow": met.slow,
            "slow_met": met.slow_met,
            "others": met.others,
            "others_met": met.others_met,
            "lift": met.lift.estimate if met.lift else None,
            "low": met.raised,
            "by_chance": met.by_chance,
            "cells": len(raised),
            "of": len(whole),
        },
        "Use a garbage collector with shorter pauses, or allocate less: vary `jvm.collector`.",
    )


def wholes(found: Runtimes) -> list[CollectorMeetings]:
    """Those over all ops of a cell, and of a cell of one op that."""
    several = {it.cell for it in found.meetings if it.op == ANYBODY}
    return [it for it in found.meetings if it.op == ANYBODY or it.cell not in several]


def collector_sentence(row: CollectorMeetings, found: Runtimes) -> str:
    """How many slow copies met a collection, and how many others."""
    met = row.at("either")
    several = len({it.cell for it in found.tails}) > 1
    where = f" of {row.cell}" if several else ""
    lift = f": {times(met.lift)}" if met.lift else ""
    chance = ""
    if met.by_chance is not None:
        chance = f"; as long as they took, chance would have it of {percent(met.by_chance)}"
    share = met.slow_share.estimate if met.slow_share else None
    return (
        f"{percent(share)} of the slow copies{where} ({count(met.slow_met)} of {count(met.slow)}) "
        f"met a collection, of the others {_others(met)}{lift}{chance}"
    )


def _others(met: Meeting) -> str:
    return percent(met.others_share.estimate if met.others_share else None)


def _shares(met: Meeting) -> str:
    slow = percent(met.slow_share.estimate if met.slow_share else None)
    return f"{slow}, of the others {_others(met)}"


RULES: Final = (
    Rule("runtime-tail", "why", ("informs",), tail, (tails,)),
    Rule("runtime-collector", "why", ("informs",), collector),
)
