"""The rule about warming up: measurement began before the level had settled."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.quantity import as_option, duration, significant
from unruly.topics.over_time import warmup
from unruly.topics.over_time.statistics import over_time_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis
    from unruly.topics.over_time.warmup import WarmUp

MARGIN: Final = 1.2
"""No two starts are the same: so much longer than this one should have been warmed up."""
STEPS: Final = (1, 2, 3, 5)


def warmup_short(analysis: Analysis) -> Iterator[Finding]:
    """Measurement began before latency had settled.

    Example: null settled 3 s after measurement began

    Raised: The median or the p99 of an operation reached the level of the run's second half only
    after measurement had begun. The measured blocks before that are more than {warmup.FLOOR:number}
    times as slow as the later ones, by the lower end of the 95 % interval. The method
    [settling](../methods/settling.md) compares up to {warmup.BLOCKS_MOST:count} blocks of warm-up
    and measured time together, at least {warmup.BLOCKS_LEAST:count}, with
    {warmup.BLOCK_REQUESTS:count} requests each on average. The finding is raised once for all
    repeats of an operation in a cell, about the repeat that settled last.

    The rule leaves out blocks that faults and pauses explain: those of which they took more than
    {warmup.DISTURBED_SHARE:percent} of the requests' time, and the block after each. The pauses are
    `gc`, `safepoint`, `process stopped` and `disk wait`. Overlapping pauses count once. A pause of
    one process counts by the share of the requests that pass through it.

    The rule does not judge an operation when a fault began before its level settled, when the level
    still changes by the middle of the run, or when the run is too short. It judges nothing in a run
    with more than {warmup.PLACES_MOST:count} combinations of cell, repeat and operation. The
    summary gives the reason (`over_time.warm_ups[].absent`).

    Means: Caches were cold, code was not compiled yet, or connections were being made. The numbers
    of the run mix that time with the later level. The tail suffers most: if a tenth of a run is
    three times as slow, it is the whole p99.

    Next: Run it again with the proposed warm-up. It is the next round time (1, 2, 3, 5, 10 ...)
    that is at least {MARGIN:number} times what this run needed. If you want to know the beginning,
    measure it on its own.

    Numbers: `over_time.warm_ups[]` in `summary.json`.
    """
    found = held.warm_ups if (held := over_time_of(analysis)) else ()
    several = len({it.cell for it in found}) > 1
    sent = not analysis.run.foreign
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


RULES: Final = (Rule("warmup-short", "where", ("warns",), warmup_short, (warmup,)),)
