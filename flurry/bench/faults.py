"""Replicas that stop, datagrams that are lost, a replica that is killed."""

from __future__ import annotations

import re
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flurry.bench import stores
from flurry.bench.driver import Driver
from flurry.bench.pace import ROUGH, lasting
from flurry.bench.processes import processes, program
from flurry.bench.rounds import compared, interleaved, kept

from bench.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flurry.bench.driver import Round
    from flurry.bench.processes import Process, Processes

TAIL = (
    "Such a quantile is one of the few slowest operations of a round. The stalls of the machine,"
    " which delay other programs too, are as long as the wanted quantile. The rounds were made"
    " four times as long"
)
"""The known causes of a missed bar on a tail."""

STALL_S = 0.02
PERIOD_S = 0.2
STALL_RATE = 2_000
STALL_MS = 8_000
TRIP_MS = 2_000
LOSS_MS = 5_000
KILL_MS = 4_000
KILL_AFTER_S = 1.0
KILLS = 2 if ROUGH else 6
KILL_THREADS = 8


def stalls() -> list[Result]:
    """Stop one replica repeatedly; the fixed rate counts every wait, also during a stop."""
    with processes() as started:
        driver = Driver(started)
        ours, peer = stores.Flurry(started), stores.redis(started)
        driver.open("first", ours.servers, "flurry", ours.address, "first")
        driver.open("redis", peer.servers, "redis", peer.address, "2")

        def calm() -> Round:
            return driver.round("first", "set", lasting(STALL_MS), rate=STALL_RATE)

        def stalled(name: str, replica: Process) -> Round:
            with stopping(replica):
                return driver.round(name, "set", lasting(STALL_MS), rate=STALL_RATE)

        reference = stores.memcached(started)
        driver.open("trip", reference.servers, "memcached", reference.address)
        found = interleaved(
            {
                "calm": calm,
                "stalled": lambda: stalled("first", ours.servers[-1]),
                "redis": lambda: stalled("redis", peer.servers[-1]),
                "trip": lambda: driver.round("trip", "get", lasting(TRIP_MS), rate=STALL_RATE),
            }
        )
    how = f"one of three replicas stopped 20 ms each 200 ms, {STALL_RATE}/s from the scheduled time"
    return [
        compared(
            "stalls",
            f"Flurry SET first, {how}, to itself without stops, p99.9",
            ours=found["stalled"],
            theirs=found["calm"],
            trip=found["trip"],
            share=0.999,
            bar=1.1,
            tried=TAIL,
        ),
        compared(
            "stalls-redis",
            f"Flurry SET first, {how}, to Redis with 2 replicas and WAIT 2 under the same, p99.9",
            ours=found["stalled"],
            theirs=found["redis"],
            trip=found["trip"],
            share=0.999,
            bar=0.05,
            tried=TAIL,
        ),
    ]


@contextmanager
def stopping(process: Process) -> Iterator[None]:
    """Stop a process for 20 ms of each 200 ms, as long as the block lasts."""
    over = threading.Event()

    def stop_and_continue() -> None:
        while not over.wait(PERIOD_S - STALL_S):
            process.send_signal(signal.SIGSTOP)
            try:
                over.wait(STALL_S)
            finally:
                process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=stop_and_continue)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def loss() -> list[Result]:
    """One of a hundred datagrams lost in each direction, in a network of its own."""
    with processes() as started:
        started.enter_network()
        driver = Driver(started)
        ours = stores.Flurry(started)
        driver.open("first", ours.servers, "flurry", ours.address, "first")
        dropped: list[int] = []

        def whole() -> Round:
            return driver.round("first", "both", lasting(LOSS_MS))

        def lossy() -> Round:
            with losing(started, dropped):
                return driver.round("first", "both", lasting(LOSS_MS))

        found = interleaved({"whole": whole, "lossy": lossy})
    result = compared(
        "loss",
        "Flurry SET and GET in turn, first, 3 replicas, 1 % of all datagrams lost"
        f" ({sum(dropped):,} were), to itself without loss, p99.99",
        ours=found["lossy"],
        theirs=found["whole"],
        share=0.9999,
        bar=1.5,
        tried=TAIL,
    )
    return [result]


@contextmanager
def losing(started: Processes, dropped: list[int]) -> Iterator[None]:
    """Drop 1 % of the datagrams that come in, at either end; notes how many that were."""
    nft = program("nft", "nftables")
    rule = "meta l4proto udp numgen random mod 100 == 0 counter drop"
    chain = "type filter hook input priority 0;"
    started.call(*nft, f"table inet loss {{ chain input {{ {chain} {rule}; }}; }}")
    try:
        yield
    finally:
        said = started.call(*nft, "list", "table", "inet", "loss")
        started.call(*nft, "delete", "table", "inet", "loss")
        dropped += [int(count) for count in re.findall(r"counter packets (\d+)", said)]


def kill() -> list[Result]:
    """Kill one replica after the other at half load; no operation may fail."""
    with processes() as started:
        driver = Driver(started)
        ours = stores.Flurry(started)
        for level in ("first", "quorum"):
            driver.open(level, ours.servers, "flurry", ours.address, level)
        top = driver.round("quorum", "set", lasting(2_000), threads=KILL_THREADS).rate
        rounds = []
        for number in range(KILLS):
            level, victim = ("first", "quorum")[number % 2], number % stores.REPLICAS
            driver.begin(level, "both", KILL_MS, threads=KILL_THREADS, rate=top / 2)
            time.sleep(KILL_AFTER_S)
            ours.servers[victim].kill()
            ours.servers[victim].wait()
            rounds.append(driver.finish())
            ours.replace(victim)
    failed = sum(it.failed for it in rounds)
    done = sum(it.sorted_ns.size for it in rounds)
    worst = max(it.quantile_us(1) for it in rounds) / 1e3
    said = next((it.failure for it in rounds if it.failure), "")
    return [
        Result(
            name="kill",
            what=f"kill -9 of one of three replicas at half load ({top / 2:,.0f}/s,"
            f" {KILL_THREADS} threads, SET and GET in turn), {KILLS} times, at first and at quorum",
            bar="no failed operation",
            measured=f"{failed} failed of {failed + done:,}, the slowest took {worst:.3g} ms",
            met=failed == 0,
            raw={"top_rate": top, **kept(rounds=rounds)},
            why=f"The first failure: {said}" if said else "",
        )
    ]
