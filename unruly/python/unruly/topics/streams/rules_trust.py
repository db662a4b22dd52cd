"""Rules about the trust in streams: lost counts, a load off its target, a refused class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.base.words import named
from unruly.quantity import percent
from unruly.topics.streams import load
from unruly.topics.streams.model import streams_of
from unruly.topics.streams.words import messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis
    from unruly.topics.streams.model import Held

ROWS_TOLD: Final = 6


def unaccounted(analysis: Analysis) -> Iterator[Finding]:
    """The messages of a stream do not add up.

    Example: 7 messages of kind=none protocol=kcp are not accounted for

    Raised: A stream ended normally, and the written messages are not the sum of the received and
    the lost ones. The finding is also raised when more messages were received than written.

    Means: One end counts wrongly, so bandwidth and loss of this run are in doubt. Messages in
    flight when a stream broke are not counted here.

    Next: Look in `logs/` for an end that ended without a message. Then measure again. See the
    method [streams](../methods/streams.md).

    Numbers: `streams.legs[]` (`written`, `read`, `lost`, `unaccounted`) in `summary.json`.
    """
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
    """The competing load did not hold its target.

    Example: the competing load did not hold its target: kcp beside cpu

    Raised: On some host in some repeat, a competing load used a share of its cores that is more
    than {load.OFF_MOST:percent} of them from its target. The finding is also raised when the used
    share is unknown, because the load could not start or died.

    Means: These cells ran beside another load than the plan's. Often the stream itself, or another
    program on the machine, left too little CPU to the load.

    Next: Give the load more processes (`compete.processes`), more cores, or a smaller share
    (`compete.occupancy`). The log of a load that died is in `logs/`. See the method
    [streams](../methods/streams.md).

    Numbers: `streams.rows[]` (`held`, `in_doubt`) in `summary.json`.
    """
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
        f"the competing load did not hold its target: {named([row.label for row in rows])}",
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
    """The host refused the real-time class.

    Example: the real-time class was refused: kind=none protocol=quic

    Raised: `stream.scheduling` asks for the real-time class, and the host refused it.

    Means: These cells were measured in the ordinary class.

    Next: Run as root on a host that has a quota for the class, or leave `scheduling` out of the
    plan.

    Numbers: `streams.legs[].refused` in `summary.json`.
    """
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


RULES: Final = (
    Rule("stream-unaccounted", "trust", ("spoils",), unaccounted),
    Rule("load-off-target", "trust", ("warns",), load_off_target, (load,)),
    Rule("realtime-refused", "trust", ("warns",), realtime_refused),
)
