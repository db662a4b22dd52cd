"""What became of each stream, in a word, and what that word rests on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from unruly.base.words import named
from unruly.quantity import bandwidth, percent, size
from unruly.topics.streams.words import cores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.topics.streams.model import End, Leg, Stream, Verdict

SATURATED_LEAST: Final = 0.90
"""Of the link, as payload: headers of 2,000-byte messages take 4 to 6 % of it."""
SLOW_MOST: Final = 0.50
"""Of the link, or of the best protocol beside the same load."""
SILENT_SECONDS: Final = 3
LOSSY_LEAST: Final = 0.01


def judged(rows: Sequence[Stream], legs: Sequence[Leg]) -> list[Stream]:
    """Return the rows with their verdicts."""
    found = []
    for row in rows:
        own = [leg for leg in legs if leg.cell == row.cell]
        verdict, reasons = _judge(row, own, _best(row, rows))
        found.append(replace(row, verdict=verdict, reasons=tuple(reasons)))
    return found


def _judge(row: Stream, legs: Sequence[Leg], best: Stream | None) -> tuple[Verdict, list[str]]:
    failed = [leg for leg in legs if leg.failed]
    if len(failed) == len(legs):
        return "failed", list(dict.fromkeys(why for leg in failed for why in leg.failed))
    reasons = _unstable(row, legs)
    if reasons:
        return "unstable", reasons
    mean = (row.bandwidth_bps.estimate if row.bandwidth_bps else None) or 0.0
    if row.link_bps and mean >= SATURATED_LEAST * row.link_bps:
        return "link saturated", [f"{bandwidth(mean)} of the link's {bandwidth(row.link_bps)}"]
    bound = [_bound(end) for end in (row.writer, row.reader) if end.bound]
    if bound:
        return "bound by one core", bound
    slow = _slow(row, mean, best)
    return ("slow", slow) if slow else ("stable", [])


def _unstable(row: Stream, legs: Sequence[Leg]) -> list[str]:
    """All that says that it does not last."""
    found = list(dict.fromkeys(why for leg in legs for why in leg.broken))
    struck = [kind for leg in legs if leg.broken for kind in leg.faults]
    if struck:
        found.append(f"in a leg with a {named(list(dict.fromkeys(struck)))}")
    began = [leg for leg in legs if leg.failed]
    if began:
        found.append(f"{len(began)} of {len(legs)} repeats could not begin: {began[0].failed[0]}")
    silent = max((leg.silent_seconds for leg in legs if not leg.failed), default=0)
    if silent >= SILENT_SECONDS:
        found.append(f"nothing came for {silent} s")
    for end in (row.writer, row.reader):
        if end.grows and end.grown_bytes is not None and end.grown_bytes_hz is not None:
            rate = end.grown_bytes_hz
            found.append(
                f"the memory of the {end.name} only grows: by {size(end.grown_bytes)}, "
                f"{size(rate.estimate)}/s "
                f"[{size(rate.low)}, {size(rate.high)}]"
            )
    return found


def _bound(end: End) -> str:
    used = end.cpu_cores.estimate if end.cpu_cores else None
    if end.room_cores < 1:
        left = cores(end.room_cores)
        return f"the {end.name} uses {cores(used)} of the {left} cores left to it"
    return f"the {end.name} uses {cores(used)} cores"


def _best(row: Stream, rows: Sequence[Stream]) -> Stream | None:
    """The fastest beside the same load, of the same other factors."""
    known = [
        it for it in rows
        if (it.load, it.series) == (row.load, row.series) and it.bandwidth_bps is not None
    ]  # fmt: skip
    return max(
        known, key=lambda it: (it.bandwidth_bps.estimate if it.bandwidth_bps else None) or 0.0,
        default=None,
    )  # fmt: skip


def _slow(row: Stream, mean: float, best: Stream | None) -> list[str]:
    found = []
    if row.link_bps and mean < SLOW_MOST * row.link_bps:
        found.append(f"{percent(mean / row.link_bps)} of the link")
    most = (best.bandwidth_bps.estimate if best and best.bandwidth_bps else None) or 0.0
    if best is not None and best.cell != row.cell and mean < SLOW_MOST * most:
        found.append(f"{percent(mean / most)} of what {best.protocol} gives")
    if not found:
        return []
    used = [
        f"the {end.name} uses {cores(end.cpu_cores.estimate)} of {cores(end.room_cores)} cores"
        for end in (row.writer, row.reader)
        if end.cpu_cores is not None
    ]
    if (row.loss_share or 0.0) >= LOSSY_LEAST:
        return [*found, f"it loses {percent(row.loss_share)}"]
    return [*found, f"neither a core nor loss bounds it ({', '.join(used)})"]
