"""Rules about a store: its target, its far tail, what faults did to it, the load that it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.base.words import named
from unruly.quantity import rate
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
    """Whether such a share of requests is within such a time, where somebody asked."""
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
    """The p99.999 is beyond ten times the mean, by its lower bound."""
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
    """Which fault hurts which cell most."""
    effects = held.faults if (held := stores_of(analysis)) else ()
    worst = worst_fault(effects)
    if worst is None:
        return
    several = len({it.cell for it in effects}) > 1
    sentence = fault_sentence(worst, several=several)
    by_cell = {it.cell: it for it in sorted(filter(is_hurt, effects), key=lambda it: it.hurt)}
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
            "back_ns": None if worst.back_ns is None else list(worst.back_ns),
        },
        "Compare the longest time without a good reply with your timeouts.",
    )


def knee(analysis: Analysis) -> Iterator[Finding]:
    """The highest load at which the p99 has not broken."""
    for place, ramp in enumerate(held.ramps if (held := stores_of(analysis)) else ()):
        found, repeats = ramp.knee, ramp.loads[0].repeats
        often = "once" if repeats == 1 else f"{repeats} times"
        yield Finding(
            "knee",
            "promise",
            "informs",
            600 + place,
            knee_sentence(ramp),
            f"Of {len(ramp.loads)} loads, each {often}. It breaks where it "
            "is more than 3 x that at the lowest load, or less than 95 % of the load is answered.",
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
    """Loads at which the generator itself was late."""
    loads = held.loads if (held := stores_of(analysis)) else ()
    late = [load for load in loads if load.own]
    if not late:
        return
    labels = named([load.cell for load in late])
    yield Finding(
        "generator-limit",
        "trust",
        "warns",
        10,
        f"the load generator sent late: {labels}",
        f"In {len(late)} of {len(loads)} cells it sent less than 95 % of the load in time, or its "
        "send delay is more than half of the response time of a tenth of the slow requests. These "
        "cells show what the load generator can send, not what the store can do.",
        {"cells": [load.cell for load in late], "rates": [rate(load.asked_hz) for load in late]},
        "Give the load generator a CPU or a host of its own, or leave these loads out.",
    )


RULES: Final = (
    Rule("target", target),
    Rule("extreme-tail", extreme_tail),
    Rule("fault-hurts", fault_hurts),
    Rule("knee", knee),
    Rule("generator-limit", generator_limit),
)
