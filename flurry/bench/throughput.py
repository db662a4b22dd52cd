"""How much each store does while 999 of 1,000 operations take at most a millisecond."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from flurry.bench import stores
from flurry.bench.driver import Driver
from flurry.bench.pace import PAIRS, lasting
from flurry.bench.processes import processes
from flurry.bench.rounds import WHERE, cost, interleaved, kept

from bench.pairs import ratio
from bench.result import Result

if TYPE_CHECKING:
    from flurry.bench.driver import Round

TRIED = (
    ". The tail is the median over rounds, and single rounds differ by five times with the"
    " machine's stalls. In earlier single runs two changes made the throughput higher: one datagram"
    " for all messages to one place, and a thread that busy-polls before it sleeps. Two others made"
    " no difference beyond chance: operations in boxes, and timers that move less often"
)
"""The measured causes of the throughput."""

LOG_TRIED = (
    ". In a profile nothing of the log has more than 0.3 % of the time. With it the client's thread"
    " moves every message, so that no arrival waits for a caller, asks the kernel for stamps, and"
    " shares its core with the thread that writes"
)

P999_MAX_US = 1_000
THREADS = (1, 2, 4, 8, 16, 32, 64)
BAR = 2.0
SEARCHES = 3
SEARCH_MS = 500
ROUND_MS = 1_000


def top(measured: dict[int, list[Round]]) -> int:
    """The concurrency with the highest throughput among those that keep to the limit.

    The median over rounds is what must keep to it, since one disturbed round is the machine's
    doing. When none keeps to it, the one that comes nearest.
    """
    tails = {threads: tail_us(rounds) for threads, rounds in measured.items()}
    fit = [threads for threads, tail in tails.items() if tail <= P999_MAX_US]
    if not fit:
        return min(tails, key=lambda threads: tails[threads])
    return max(fit, key=lambda threads: median(it.rate for it in measured[threads]))


def tail_us(rounds: list[Round]) -> float:
    """The median over rounds of the p99.9."""
    return median(it.quantile_us(0.999) for it in rounds)


def run() -> list[Result]:
    """Search the best concurrency of each, then compare the two in pairs."""
    with processes() as started:
        driver = Driver(started)
        ours, peer = stores.Flurry(started), stores.redis(started)
        driver.open("first", ours.servers, "flurry", ours.address, "first")
        driver.open("redis", peer.servers, "redis", peer.address, "1")
        searched: dict[str, dict[int, list[Round]]] = {"first": {}, "redis": {}}
        for threads in THREADS:
            for _ in range(SEARCHES):
                print(".", end="", flush=True)
                for name, by_threads in searched.items():
                    done = driver.round(name, "set", lasting(SEARCH_MS), threads=threads)
                    by_threads.setdefault(threads, []).append(done)
        best = {name: top(by_threads) for name, by_threads in searched.items()}
        found = interleaved(
            {
                name: lambda name=name, threads=threads: driver.round(  # type: ignore[misc]
                    name, "set", lasting(ROUND_MS), threads=threads
                )
                for name, threads in best.items()
            },
            PAIRS,
        )
    mine, other = found["first"], found["redis"]
    rates = ratio([it.rate for it in mine], [it.rate for it in other])
    tails = {name: tail_us(rounds) for name, rounds in found.items()}

    def of(name: str) -> str:
        rate = median(it.rate for it in found[name])
        return f"{rate:,.0f}/s with {best[name]} threads at {tails[name]:.4g} us"

    return [
        Result(
            name="throughput",
            what="Flurry SET first, 3 replicas, to Redis with 2 replicas, SET and WAIT 1:"
            " throughput at the best of 1 to 64 threads whose p99.9 is at most 1 ms, closed loop;"
            f" {WHERE}",
            bar=f">= {BAR}, p99.9 <= 1 ms",
            measured=f"{rates} of {rates.n} pairs ({of('first')}, Redis {of('redis')})",
            met=rates.low >= BAR and tails["first"] <= P999_MAX_US,
            raw={
                "search": {
                    name: {str(threads): kept(rounds=rounds) for threads, rounds in it.items()}
                    for name, it in searched.items()
                },
                "threads": best,
                **kept(ours=mine, theirs=other),
            },
            why=cost(mine, other) + TRIED,
        )
    ]


LOG_BAR = 0.97
LOG_THREADS = 8


def log() -> list[Result]:
    """What noting every copy of every operation takes of the throughput."""
    with processes() as started:
        driver = Driver(started)
        store = stores.Flurry(started)
        driver.open("plain", store.servers, "flurry", store.address, "first")
        run = started.folder / "run"
        driver.open("logged", store.servers, "flurry", store.address, "first", "log", str(run))
        found = interleaved(
            {
                name: lambda name=name: driver.round(  # type: ignore[misc]
                    name, "set", lasting(ROUND_MS), threads=LOG_THREADS
                )
                for name in ("logged", "plain")
            },
            PAIRS,
        )
        copies = driver.finish_recording("logged")["copies"]
    rates = ratio([it.rate for it in found["logged"]], [it.rate for it in found["plain"]])
    return [
        Result(
            name="log",
            what=f"Flurry SET first with {LOG_THREADS} threads, closed loop: throughput with the"
            f" arrival log to that without; {WHERE}",
            bar=f">= {LOG_BAR}, nothing dropped",
            measured=f"{rates} of {rates.n} pairs, {copies['recorded']:,} rows,"
            f" {copies['dropped']} dropped",
            met=rates.low >= LOG_BAR and copies["dropped"] == 0,
            raw={"copies": copies, **kept(logged=found["logged"], plain=found["plain"])},
            why=cost(found["logged"], found["plain"]) + LOG_TRIED,
        )
    ]
