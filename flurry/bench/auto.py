"""The level ``auto`` beside those that it chooses among, from hardly any load to nearly all."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from flurry.bench import stores
from flurry.bench.driver import Driver
from flurry.bench.pace import PAIRS, lasting
from flurry.bench.processes import processes
from flurry.bench.rounds import WHERE, interleaved, kept

from bench.pairs import ratio
from bench.result import Result

if TYPE_CHECKING:
    from flurry.bench.driver import Round

SINGLE = "hedge:1s"
FIXED = ("first", "hedge:1ms", SINGLE)
"""All at once, one and the others when it is late, one alone."""

SHARES = (0.1, 0.4, 0.8)
"""Of the throughput that one copy of each operation allows."""

THREADS = 8
ROUND_MS = 600
BAR = 1.1


def run() -> list[Result]:
    """Compare the p99 of ``auto`` with that of the best fixed level, load by load."""
    with processes() as started:
        driver = Driver(started)
        store = stores.Flurry(started)
        for level in (*FIXED, "auto"):
            driver.open(level, store.servers, "flurry", store.address, level)
        most = [driver.round(SINGLE, "set", lasting(ROUND_MS), threads=THREADS) for _ in range(5)]
        top = median(it.rate for it in most)

        def side(level: str, rate: float) -> Round:
            return driver.round(level, "set", lasting(ROUND_MS), threads=THREADS, rate=rate)

        found = {
            share: interleaved(
                {
                    level: lambda level=level, rate=share * top: side(level, rate)  # type: ignore[misc]
                    for level in (*FIXED, "auto")
                },
                PAIRS,
            )
            for share in SHARES
        }
    return [_result(share, share * top, rounds) for share, rounds in found.items()]


def _result(share: float, rate: float, rounds: dict[str, list[Round]]) -> Result:
    tails = {level: [it.quantile_us(0.99) for it in its] for level, its in rounds.items()}
    best = min(FIXED, key=lambda level: median(tails[level]))
    held = ratio(tails["auto"], tails[best])
    others = ", ".join(f"{level} {median(tails[level]):.4g}" for level in FIXED)
    return Result(
        name=f"auto-{100 * share:.0f}",
        what="Flurry SET auto, to the best of first, a hedge after 1 ms and one replica alone, p99,"
        f" {THREADS} threads at {100 * share:.0f} % of what one copy of each allows; {WHERE}",
        bar=f"<= {BAR}",
        measured=f"{held} of {held.n} pairs ({median(tails['auto']):.4g} us to {best}; all in us:"
        f" {others}; {rate:,.0f}/s)",
        met=held.high <= BAR,
        raw=kept(**{level.replace(":", "-"): its for level, its in rounds.items()}),
        why="The best is chosen from the same rounds, so an interval around 1 that is wide is"
        " the machine's doing",
    )
