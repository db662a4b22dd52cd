"""The rule about warming up: measurement began before the level had settled."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.quantity import as_option, duration, significant
from unruly.topics.over_time.statistics import over_time_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis
    from unruly.topics.over_time.warmup import WarmUp

MARGIN: Final = 1.2
"""No two starts are the same: so much longer than this one should have been warmed up."""
STEPS: Final = (1, 2, 3, 5)


def warmup_short(analysis: Analysis) -> Iterator[Finding]:
    """A (cell, op) settled only after measurement had begun."""
    found = held.warm_ups if (held := over_time_of(analysis)) else ()
    several = len({it.cell for it in found}) > 1
    sent = analysis.run.status != "imported"
    ordered = sorted(found, key=lambda it: (it.cell, it.op, it.repeat))
    for place, (_, repeats) in enumerate(groupby(ordered, key=lambda it: (it.cell, it.op))):
        own = list(repeats)
        short = [it for it in own if it.short]
        if short:
            yield _finding(short, len(own), place, several=several, sent=sent)


def _finding(
    short: list[WarmUp], repeats: int, place: int, *, several: bool, sent: bool
) -> Finding:
    """Return one finding for all repeats: the repeat that settled last gives the length needed."""
    worst = max(short, key=_late_ns)
    label = f"{worst.op} ({worst.cell})" if several else worst.op
    often = f", in {len(short)} of {repeats} repeats" if repeats > 1 else ""
    late = duration(_late_ns(worst))
    wanted_ns = enough_ns(max(_settled_ns(it) - it.began_ns for it in short))
    times = worst.slower
    assert times is not None, "a warm-up is short by how much slower its beginning was"
    warmed_ns = worst.measured_ns - worst.began_ns
    was = (
        f"a warm-up of {duration(warmed_ns)} was too short" if warmed_ns else "there was no warm-up"
    )
    return Finding(
        "warmup-short",
        "where",
        "warns",
        50 + place,
        f"{label} settled {late} after measurement began{often}",
        f"Requests measured before its {worst.level} settled are {significant(times.estimate, 2)} "
        f"times [{significant(times.low, 2)}, {significant(times.high, 2)}] as slow as the rest: "
        f"{was}. Every number of this run includes them.",
        {
            "cell": worst.cell,
            "op": worst.op,
            "repeats": [it.repeat for it in short],
            "settled_ns": [it.settled_ns for it in short],
            "late_ns": [_late_ns(it) for it in short],
            "slower": [it.slower.estimate if it.slower else None for it in short],
            "level": worst.level,
            "wanted_ns": wanted_ns,
        },
        f'Run it again with warmup = "{as_option(wanted_ns)}".'
        if sent
        else f"Leave out its first {as_option(wanted_ns)}.",
    )


def enough_ns(settled_ns: float) -> int:
    """Return the next round time that is longer by a margin.

    Examples
    --------
    >>> enough_ns(14e9), enough_ns(0.21e9), enough_ns(55e9)
    (20000000000, 300000000, 100000000000)
    """
    size = 1_000_000
    while True:
        for step in STEPS:
            if step * size >= MARGIN * settled_ns:
                return step * size
        size *= 10


def _settled_ns(it: WarmUp) -> int:
    assert it.settled_ns is not None, "a short warm-up has settled"
    return it.settled_ns


def _late_ns(it: WarmUp) -> int:
    return _settled_ns(it) - it.measured_ns


RULES: Final = (Rule("warmup-short", warmup_short),)
