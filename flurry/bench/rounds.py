"""Rounds of several sides that interleave, and what a bar says of them."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from flurry.bench.pace import PAIRS

from bench.pairs import ratio
from bench.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flurry.bench.driver import Round

Rounds = dict[str, list["Round"]]

WHERE = "driver on core 0, all servers of both on core 1"


def interleaved(sides: Mapping[str, Callable[[], Round]], pairs: int = PAIRS) -> Rounds:
    """Measure every side once a pair, each in turn the first; a round before them all warms up."""
    names = list(sides)
    found: Rounds = {name: [] for name in names}
    for name in names:
        sides[name]()
    for pair in range(pairs):
        print(".", end="", flush=True)
        first = pair % len(names)
        for name in names[first:] + names[:first]:
            found[name].append(sides[name]())
    print(flush=True)
    return found


def compared(
    name: str,
    what: str,
    *,
    ours: Sequence[Round],
    theirs: Sequence[Round],
    share: float,
    bar: float,
    trip: Sequence[Round] = (),
    tried: str = "",
) -> Result:
    """Hold the ratio of a quantile, pair by pair, to a bar that it must not exceed.

    ``trip`` holds rounds of a bare round trip. The explanation then names its share of the peer's
    time, because no store behind a socket is faster. ``tried`` is a sentence for the explanation.
    """
    mine = [it.quantile_us(share) for it in ours]
    other = [it.quantile_us(share) for it in theirs]
    found = ratio(mine, other)
    why = cost(ours, theirs)
    if trip:
        least = ratio([it.quantile_us(share) for it in trip], other)
        why += f". One datagram there and one back alone are {least} of the other side's time"
    why += f". {tried}" if tried else ""
    return Result(
        name=name,
        what=f"{what}; {WHERE}",
        bar=f"<= {bar:.3g}",
        measured=f"{found} of {found.n} pairs ({median(mine):.4g} us to {median(other):.4g} us)",
        met=found.high <= bar,
        raw=kept(ours=ours, theirs=theirs, trip=trip),
        why=why,
    )


def kept(**sides: Sequence[Round]) -> dict[str, Any]:
    """Every round of every side, in short."""
    return {name: [it.summary() for it in rounds] for name, rounds in sides.items() if rounds}


def cost(ours: Sequence[Round], theirs: Sequence[Round]) -> str:
    """Processor time of an operation on each side, in words: what a latency is made of."""

    def of(rounds: Sequence[Round], key: str) -> str:
        return f"{median(it.summary()[key] for it in rounds):.3g} us"

    return (
        f"An operation takes {of(ours, 'client_cpu_us')} of the driver's processor time and"
        f" {of(ours, 'server_cpu_us')} of all servers'; at the other side"
        f" {of(theirs, 'client_cpu_us')} and {of(theirs, 'server_cpu_us')}"
    )
