"""Rules about streams: failed and unstable streams, their limits, and the share left under load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.base.words import named
from unruly.quantity import bandwidth, percent
from unruly.topics.streams.model import HELD, streams_of
from unruly.topics.streams.words import between, hypothesis_sentence, messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis
    from unruly.topics.streams.model import Held, Stream

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


def unaccounted(analysis: Analysis) -> Iterator[Finding]:
    """Messages that were written, and neither came nor are known to be lost."""
    legs = held.legs if (held := streams_of(analysis)) else ()
    # an end that died took what it last counted with it
    ended = [leg for leg in legs if leg.settled or not leg.broken]
    wrong = [leg for leg in ended if leg.unaccounted < 0 or (leg.settled and leg.unaccounted)]
    if not wrong:
        return
    worst = max(wrong, key=lambda leg: abs(leg.unaccounted))
    way = "more were received than written" if worst.unaccounted < 0 else "the rest is unknown"
    yield Finding(
        "stream-unaccounted",
        "trust",
        "spoils",
        3,
        f"{messages(abs(worst.unaccounted))} of {worst.cell} are not accounted for",
        f"In {len(wrong)} of {len(legs)} trials the messages written are not those received and "
        f"lost. In {worst.cell}, repeat {worst.repeat}, {messages(worst.written)} were "
        f"written, {messages(worst.read)} were received and {messages(worst.lost)} were lost: "
        f"{way}.",
        {
            "legs": [
                {"cell": leg.cell, "repeat": leg.repeat, "unaccounted": leg.unaccounted}
                for leg in wrong
            ]
        },
        "Look in logs/ for a process that ended without a message, and measure again.",
    )


def load_off_target(analysis: Analysis) -> Iterator[Finding]:
    """A competing load that did not use the share of the cores that it was to use."""
    found = streams_of(analysis)
    rows = [row for row in (found.rows if found else ()) if row.in_doubt]
    if not rows:
        return
    off = {row.cell: max(row.held, key=lambda it: abs(it.off)) for row in rows if row.held}
    told = [
        f"{row.label}: {row.absent['held']}"
        if "held" in row.absent
        else f"{row.label} on {off[row.cell].host} {percent(off[row.cell].farthest)} in place of "
        f"{percent(off[row.cell].target)}"
        for row in rows[:ROWS_TOLD]
    ]
    yield Finding(
        "load-off-target",
        "trust",
        "warns",
        11,
        f"the competing load did not hold its target: {_names(rows)}",
        f"It was more than 2 points off, or died: {'; '.join(told)}. What these cells say of their "
        "protocols is in doubt: another load was beside them than the plan's.",
        {
            "cells": {
                row.cell: _evidence(off.get(row.cell)) | {"unknown": row.absent.get("held")}
                for row in rows
            }
        },
        "Give the load more processes (compete.processes), or ask for less (compete.occupancy); of "
        "one that died its log in logs/ says why.",
    )


def _evidence(held: Held | None) -> dict[str, Any]:
    if held is None:
        return {"host": None, "target": None, "farthest": None}
    return {"host": held.host, "target": held.target, "farthest": held.farthest}


def realtime_refused(analysis: Analysis) -> Iterator[Finding]:
    """The plan wanted the real-time class, and the host did not give it."""
    legs = held.legs if (held := streams_of(analysis)) else ()
    refused = [leg for leg in legs if leg.refused]
    if not refused:
        return
    cells = list(dict.fromkeys(leg.cell for leg in refused))
    yield Finding(
        "realtime-refused",
        "trust",
        "warns",
        12,
        f"the real-time class was refused: {named(cells)}",
        f"The plan asks for it, and the host said: {refused[0].refused[0].split(': ', 1)[-1]}. "
        "What these cells measured is the ordinary class.",
        {"cells": cells, "said": list(refused[0].refused)},
        "Run it where the class is allowed, or leave `scheduling` out of the plan.",
    )


def failed(analysis: Analysis) -> Iterator[Finding]:
    """Streams that could not begin."""
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
    """Streams that do not last."""
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
    """Stable, but far below the link or the best."""
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
    """Streams whose writer or reader has no more of a core to use."""
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
    """Streams that fill the link."""
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
    """Which stream keeps least of its bandwidth beside a load."""
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
    """What became of the study's hypotheses."""
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
    Rule("stream-unaccounted", unaccounted),
    Rule("load-off-target", load_off_target),
    Rule("realtime-refused", realtime_refused),
    Rule("stream-failed", failed),
    Rule("stream-unstable", unstable),
    Rule("stream-slow", slow),
    Rule("stream-one-core", one_core),
    Rule("stream-saturated", saturated),
    Rule("stream-loses", left_beside),
    Rule("stream-hypothesis", hypothesis),
)
