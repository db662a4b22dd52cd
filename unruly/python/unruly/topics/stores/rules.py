"""Rules about a store: its target, its far tail, what faults did to it, the load that it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.base.words import named
from unruly.quantity import percent, rate, significant
from unruly.stats.knee import ACHIEVED_LEAST, FACTOR
from unruly.topics.stores import loads
from unruly.topics.stores.statistics import stores_of
from unruly.topics.stores.words import (
    fault_name,
    fault_sentence,
    is_comparable,
    is_hurt,
    knee_sentence,
    target_sentence,
    target_words,
    worst_fault,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis

TEN: Final = 10.0
"""Times the mean: what the study of data stores found a p99.999 to exceed."""
ROWS_TOLD: Final = 3


def target(analysis: Analysis) -> Iterator[Finding]:
    """The run meets, misses or cannot decide the target.

    Example: 99 % within 20 ms: read meets it, with 99.9 % [99.5 %, 100 %] of 2,000 within

    Raised: A run that drives a store has a target (`--target SHARE:TIME`). The finding reports
    whether that share of requests is within that time. It **warns** when an operation misses the
    target, and **informs** otherwise.

    Means: A target is met or missed when the whole interval of the share is on one side of it.
    Otherwise it cannot be decided yet. For 99.999 %, a run without late requests needs 368,887
    requests of an operation. For a run with late requests the finding gives the number, provided
    that later requests are like these. Failed requests, and requests still open at the end, count
    as late.

    Next: Run longer where the target is undecided. Where it is missed, look in the timeline at what
    the late requests have in common. See the method [share within a limit](../methods/target.md).

    Numbers: `stores.target` and `stores.tails[].target` in `summary.json`.
    """
    stores = stores_of(analysis)
    if stores is None or not stores.tails or not stores.target.asked:
        return
    rows = sorted(stores.tails, key=lambda row: row.target.within.estimate or 0.0)
    outcomes = {row.target.outcome for row in rows}
    told = [f"{analysis.label(row)} {target_words(row)}" for row in rows[:ROWS_TOLD]]
    if "missed" in outcomes:
        step = "Look in the timeline at what the late requests have in common, or lower the rate."
    elif "open" in outcomes:
        step = "Run longer, or at a higher rate that the store can sustain."
    else:
        step = "Promise it for this load only."
    yield Finding(
        "target",
        "promise",
        "warns" if "missed" in outcomes else "informs",
        500,
        target_sentence(stores, analysis.label),
        f"Within {stores.target.words.split(' within ')[1]}, the worst first: {'. '.join(told)}. A "
        "request that failed is not within.",
        {
            "share": stores.target.share,
            "limit_ns": stores.target.limit_ns,
            "outcomes": {analysis.label(row): row.target.outcome for row in rows},
            "needed": {analysis.label(row): row.target.needed for row in rows},
        },
        step,
    )


def extreme_tail(analysis: Analysis) -> Iterator[Finding]:
    """The p99.999 is more than ten times the mean.

    Example: the p99.999 of read is 250 x the mean

    Raised: The run drives a store, and the p99.999 of an operation of a cell is more than
    {TEN:number} times its mean, by the lower bound of that ratio. The ratio needs 100,000 requests
    without a failed one.

    Means: The study of data stores found that the p99.999 can exceed ten times the mean. One
    request in 100,000 is rare for a single user. A page that sends a hundred requests to a store
    meets one every few seconds.

    Next: The lanes above the timeline show what happened when these requests occurred: GC pauses,
    faults, disk stalls. The bounds are those of the [block interval](../methods/block-interval.md)
    for the percentile, and of the [mean](../methods/request-mean.md).

    Numbers: `stores.tails[].p99_999_over_mean` in `summary.json`.
    """
    stores = stores_of(analysis)
    found = [
        (row, row.p99_999_over_mean)
        for row in (stores.tails if stores else ())
        if row.p99_999_over_mean is not None and (row.p99_999_over_mean.low or 0.0) > TEN
    ]
    if not found:
        return
    row, ratio = max(found, key=lambda it: it[1].estimate or 0.0)
    ratios: dict[str, Any] = {analysis.label(it): over.estimate for it, over in found}
    yield Finding(
        "extreme-tail",
        "unruly",
        "informs",
        50,
        f"the p99.999 of {analysis.label(row)} is {ratio.estimate:.0f} x the mean",
        f"It is at least {ratio.low:.0f} x the mean with 97.5 % confidence; so are more than ten "
        f"times their mean: {named(list(ratios))}. A client with a high rate meets one request in "
        "a hundred thousand every few seconds.",
        {"p99_999_over_mean": ratios, "low": ratio.low},
        "Look at when they came: beside collections, faults and stalls in the timeline.",
    )


def fault_hurts(analysis: Analysis) -> Iterator[Finding]:
    """One of the injected faults hurts requests most.

    Example: the fault that hurts most is the stop of store-0

    Raised: The run drives a store, and one of these holds for a fault:

    - Requests scheduled within it failed, or their p99 is at least twice that of the fault-free
      time of the same cell.
    - The longest time without a good reply, in it and after it, is more than twice as long as in
      fault-free time, and longer than the number of replies accounts for.
    - Replies within it and after it lack an acknowledged write.

    Means: The finding names the worst fault, its cell, and the worst fault of each other cell. A
    fault after which writes are missing is worse than one that slows requests. The finding reports
    how much slower requests were, how many failed, the longest time without a good reply, when a
    good reply came again, and how many replies lacked an acknowledged write. All operations of a
    cell count together: a store that answers reads and refuses writes has many failures but no
    silence. Faults without fault-free time in their cell are listed, since there is nothing to
    compare them with. Faults that were going on at the same time are named: they have the effects
    of both.

    Next: Compare the longest time without a good reply with your timeouts. The table "The faults
    compared" has every fault. See the method [faults](../methods/faults.md). The finding [outage]
    is about requests to one process.

    Numbers: `stores.faults[]` in `summary.json`.
    """
    effects = held.faults if (held := stores_of(analysis)) else ()
    worst = worst_fault(effects)
    if worst is None:
        return
    several = len({it.cell for it in effects}) > 1
    sentence = fault_sentence(worst, several=several)
    by_cell = {it.cell: it for it in sorted(filter(is_hurt, effects), key=lambda it: it.rank)}
    rest = [it for it in by_cell.values() if it.cell != worst.cell]
    told = [fault_sentence(it, several=True) for it in reversed(rest)][:ROWS_TOLD]
    others = f" In other cells: {'; '.join(told)}." if told else ""
    unknown = [fault_name(it, several=several) for it in effects if not is_comparable(it)]
    others += f" No fault-free time to compare with: {named(unknown)}." if unknown else ""
    yield Finding(
        "fault-hurts",
        "where",
        "informs",
        250,
        f"the fault that hurts most is the {fault_name(worst, several=several)}",
        f"{sentence[:1].upper()}{sentence[1:]}.{others}",
        {
            "cell": worst.cell,
            "kind": worst.kind,
            "process": worst.process,
            "due": worst.due,
            "failed": worst.failed,
            "p99_ratio": worst.p99_ratio,
            "gap_ns": worst.gap_ns,
            "free_gap_ns": worst.free_gap_ns,
            "lost": worst.lost,
            "back_ns": None if worst.back_ns is None else list(worst.back_ns),
        },
        "Compare the longest time without a good reply with your timeouts.",
    )


def knee(analysis: Analysis) -> Iterator[Finding]:
    """The p99 holds up to this load.

    Example: the p99 holds up to 200/s, the highest load that was tried

    Raised: The plan's matrix varies `drive.rate` over at least {loads.STEPS_LEAST:count} loads, and
    all else is alike. The finding is raised once for each such series of cells.

    Means: This is the highest load at which the p99 has not broken. There the p99 is at most
    {FACTOR:number} times that at the lowest load, and at least {ACHIEVED_LEAST:percent} of the load
    is answered well. Where the estimate is not sure, the finding names the loads between which the
    knee lies with 95 % confidence, or says that the repeats leave it open. A load that the load
    generator could not send is marked, and neither holds nor breaks for certain.

    Next: Promise nothing above this load. Repeat the loads beside it (`run.repeat`) where the two
    are far apart. See the method [knee](../methods/knee.md).

    Numbers: `stores.ramps[]` in `summary.json`.
    """
    for place, ramp in enumerate(held.ramps if (held := stores_of(analysis)) else ()):
        found, repeats = ramp.knee, ramp.loads[0].repeats
        often = "once" if repeats == 1 else f"{repeats} times"
        yield Finding(
            "knee",
            "promise",
            "informs",
            600 + place,
            knee_sentence(ramp),
            f"{len(ramp.loads)} loads, each measured {often}. The p99 breaks where it "
            f"is more than {significant(FACTOR)} x that at the lowest load, or less than "
            f"{percent(ACHIEVED_LEAST)} of the load is answered.",
            {
                "series": ramp.series,
                "holds_hz": found.holds,
                "surely_hz": found.surely,
                "breaks_hz": found.breaks,
            },
            "Promise nothing above it. Where it is not certain, measure the neighbouring loads "
            "again.",
        )


def generator_limit(analysis: Analysis) -> Iterator[Finding]:
    """At some loads the load generator itself was late.

    Example: the load generator sent late: rate=200/s

    Raised: The run drives a store with a matrix of cells, and some of the cells were sent late. A
    cell was sent late in two cases, each by the median over its repeats:

    - When the last request was scheduled, the load generator had sent less than
      {loads.SENT_LEAST:percent} of the requests scheduled before it. The same holds for the
      requests that the plan's rate makes, less {loads.CHANCE:number} standard deviations, since
      some arrivals are random.
    - More than {loads.OWN_TAIL:percent} of the requests beyond the p99 have a send delay above
      {loads.OWN_LAG_NS:duration} that is more than half of their response time.

    Trials of one request are left out.

    Means: These cells show what the load generator can send, not what the store can do. The [knee]
    does not count them against the store. A store that no longer reads from its connections can
    cause the same: the unsent requests then wait in front of the store.

    Next: Give the load generator a CPU or a host of its own, or leave these loads out. The command
    `unruly drive null: -r RATE` reports what it can send by itself. See [generator-stalled].

    Numbers: `stores.loads[].own` in `summary.json`.
    """
    measured = held.loads if (held := stores_of(analysis)) else ()
    late = [load for load in measured if load.own]
    if not late:
        return
    labels = named([load.cell for load in late])
    yield Finding(
        "generator-limit",
        "trust",
        "warns",
        10,
        f"the load generator sent late: {labels}",
        f"In {len(late)} of {len(measured)} cells it sent less than "
        f"{percent(loads.SENT_LEAST)} of the load in time, or its "
        "send delay is more than half of the response time of a tenth of the slow requests. These "
        "cells show what the load generator can send, not what the store can do.",
        {"cells": [load.cell for load in late], "rates": [rate(load.asked_hz) for load in late]},
        "Give the load generator a CPU or a host of its own, or leave these loads out.",
    )


RULES: Final = (
    Rule("target", "promise", ("warns", "informs"), target),
    Rule("extreme-tail", "unruly", ("informs",), extreme_tail),
    Rule("fault-hurts", "where", ("informs",), fault_hurts),
    Rule("knee", "promise", ("informs",), knee, (loads,)),
    Rule("generator-limit", "trust", ("warns",), generator_limit, (loads,)),
)
