"""Latency without faults: against memcached, Redis with two replicas, and etcd with three nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flurry.bench import stores
from flurry.bench.driver import Driver
from flurry.bench.pace import lasting
from flurry.bench.processes import processes
from flurry.bench.rounds import compared, interleaved

if TYPE_CHECKING:
    from collections.abc import Callable

    from flurry.bench.driver import Round
    from flurry.bench.processes import Processes

    from bench.result import Result

ROUND_MS = 600
SLOW_ROUND_MS = 1_500
"""For a store whose operations take a hundred times as long."""

WAYS = {
    "": "",
    "-sleep": "; Flurry's caller sleeps at once, as every peer's does",
    "-spin": "; Flurry's servers busy-poll too, for 200 us before they sleep",
}
"""Ways to wait for a message.

By default Flurry's caller busy-polls for up to 50 us before it sleeps. With ``-sleep`` no process
busy-polls. With ``-spin`` all do, which needs a spare core.
"""

TRIED = (
    "In a profile of writes at quorum both cores are halted for 55 % of the time, and the kernel's"
    " wake-ups of the other core are the largest part of the rest. The rows of this bar therefore"
    " differ only in the processes that busy-poll instead of sleeping"
)
"""The measured causes of a latency."""


def gets() -> list[Result]:
    """Reads at the first correct reply of three, against memcached over UDP with one copy."""
    with processes() as started:
        driver = Driver(started)
        _open_flurry(driver, started, "first")
        peer = stores.memcached(started)
        driver.open("memcached", peer.servers, "memcached", peer.address)
        found = interleaved(
            {
                **{f"first{way}": _round(driver, f"first{way}", "get") for way in WAYS},
                "memcached": _round(driver, "memcached", "get"),
            }
        )
    return [
        compared(
            f"get-{word}{way}",
            f"Flurry GET first, 3 replicas, to memcached over UDP with one copy{WAYS[way]}, {word}",
            ours=found[f"first{way}"],
            theirs=found["memcached"],
            share=share,
            bar=1.5,
        )
        for word, share in (("p50", 0.5), ("p99", 0.99))
        for way in WAYS
    ]


def writes() -> list[Result]:
    """Replicated writes at two levels, against Redis with two replicas and ``WAIT 2``."""
    levels = {"first": 0.35, "quorum": 0.5}
    with processes() as started:
        driver = Driver(started)
        _open_flurry(driver, started, *levels)
        peer = stores.redis(started)
        driver.open("redis", peer.servers, "redis", peer.address, "2")
        names = [f"{level}{way}" for level in levels for way in WAYS]
        sides = {name: _round(driver, name, "set") for name in [*names, "redis"]}
        found = interleaved(sides | _trip(driver, started))
    return [
        compared(
            f"write-{level}{way}",
            f"Flurry SET {level}, 3 replicas, to Redis with 2 replicas, SET and WAIT 2 in one"
            f" message{WAYS[way]}, p50",
            ours=found[f"{level}{way}"],
            theirs=found["redis"],
            trip=found["trip"],
            tried=TRIED,
            share=0.5,
            bar=bar,
        )
        for level, bar in levels.items()
        for way in WAYS
    ]


def consensus() -> list[Result]:
    """Writes that a majority has, against etcd."""
    with processes() as started:
        driver = Driver(started)
        _open_flurry(driver, started, "quorum")
        peer = stores.etcd(started)
        driver.open("etcd", peer.servers, "etcd", peer.address)
        sides = {
            **{f"quorum{way}": _round(driver, f"quorum{way}", "set") for way in WAYS},
            "etcd": _round(driver, "etcd", "set", SLOW_ROUND_MS),
        }
        found = interleaved(sides | _trip(driver, started))
    return [
        compared(
            f"etcd{way}",
            f"Flurry SET quorum, 3 replicas, to a Put of {stores.ETCD} with 3 nodes, data in"
            f" memory, through the leader{WAYS[way]}, p50",
            ours=found[f"quorum{way}"],
            theirs=found["etcd"],
            trip=found["trip"],
            tried=TRIED,
            share=0.5,
            bar=0.1,
        )
        for way in WAYS
    ]


def _trip(driver: Driver, started: Processes) -> dict[str, Callable[[], Round]]:
    """What one datagram there and one back take: memcached's GET, which does little else."""
    peer = stores.memcached(started)
    driver.open("trip", peer.servers, "memcached", peer.address)
    return {"trip": _round(driver, "trip", "get", ROUND_MS // 2)}


def _open_flurry(driver: Driver, started: Processes, *levels: str) -> None:
    """Open each level in every way; servers that look are others than those that do not."""
    store, looking = stores.Flurry(started), stores.Flurry(started, "--spin", "200us")
    for level in levels:
        driver.open(level, store.servers, "flurry", store.address, level)
        driver.open(f"{level}-sleep", store.servers, "flurry", store.address, level, "sleep")
        driver.open(f"{level}-spin", looking.servers, "flurry", looking.address, level)


def _round(
    driver: Driver, name: str, operation: str, milliseconds: int = ROUND_MS
) -> Callable[[], Round]:
    return lambda: driver.round(name, operation, lasting(milliseconds))
