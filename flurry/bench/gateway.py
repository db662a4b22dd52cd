"""The gateway beside Redis, asked by redis-benchmark itself and by our driver."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Protocol

from flurry.bench import stores
from flurry.bench.driver import Driver, cpu_s, flurry
from flurry.bench.pace import PAIRS, ROUGH, lasting
from flurry.bench.processes import processes, program
from flurry.bench.rounds import WHERE as SPLIT
from flurry.bench.rounds import compared, cost, interleaved, kept

from bench.pairs import ratio
from bench.program import ROOT
from bench.result import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flurry.bench.processes import Processes
    from flurry.bench.rounds import Rounds
    from flurry.bench.stores import Store

    from bench.pairs import Ratio

BOTH_CORES = "0,1"
WHERE = "redis-benchmark and all servers of both on two cores"

CONNECTIONS = (1, 16, 128)
PIPELINES = (1, 16)
RATE_BARS = {1: 0.7, 16: 0.4}
"""The wanted throughput beside Redis alone, by the commands that a client sends together."""
LATENCY_BAR = 0.8
BESIDE_BAR = 1.0
DISKS_BAR = 0.8
ROUND_MS = 1_000

# About a second of Redis alone.
COMMANDS = {1: 8_000, 16: 60_000, 128: 60_000}

COST_CONNECTIONS = 16

EARLIER = "FLURRY_EARLIER"
"""Environment variable: the program of an earlier build, which this one is compared with."""
EARLIER_IS = "FLURRY_EARLIER_IS"
"""Environment variable: the commit and the profile of that build, to be kept."""

TRIED = (
    "With 128 connections an operation takes 16 us of the gateway's processor and 3.5 us of each"
    " server's, and 10 and 2.7 us with pipelines of 16. In a profile of a usual release build the"
    " kernel has 52 % of the gateway's time without pipelines and libc 12 %; with pipelines of 16"
    " Flurry's own code has 62 %, libc 24 % and the kernel 13 %. Tried: a hash map instead of"
    " trees, one encoding for all copies, a key found once for each step, and copies of half the"
    " size made the throughput 1.07 to 1.35 of that before: see the rows of the earlier build"
)

DISKS_TRIED = (
    "With records on disks an operation takes 19 us of each server's processor instead of 5.5. In a"
    " profile 57 % of a server's time is the thread that writes, most of it in the pages of the"
    " database. It gathers 20 ms of changes, of which hardly two are for one key here. A log that"
    " is only appended to would cost less; it was not tried"
)


class Rated(Protocol):
    """A round with a throughput."""

    @property
    def rate(self) -> float:
        """Operations a second."""


class Asked:
    """What redis-benchmark said of a round, and what it cost the servers."""

    def __init__(self, rate: float, p99_ms: float, server_us: float) -> None:
        self.rate = rate
        self.p99_ms = p99_ms
        self.server_us = server_us

    def summary(self) -> dict[str, float]:
        """In short, for the kept values."""
        return {
            "rate_hz": round(self.rate),
            "p99_ms": self.p99_ms,
            "server_cpu_us_per_operation": round(self.server_us, 2),
        }


def ask(
    store: Store, operation: str, connections: int, pipeline: int = 1, *more: str | Path
) -> Asked:
    """Run redis-benchmark once, with values of 64 bytes in 100,000 keys."""
    host, _, port = store.address.rpartition(":")
    commands = COMMANDS[connections] * min(pipeline, 4) // (4 if ROUGH else 1)
    before = sum(cpu_s(it.pid) for it in store.servers)
    done = subprocess.run(
        [*program("redis-benchmark", "redis-tools"), "-h", host, "-p", port, "--csv",
         "-t", operation, "-n", str(commands), "-c", str(connections), "-P", str(pipeline),
         "-d", "64", "-r", "100000", *more],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    spent = sum(cpu_s(it.pid) for it in store.servers) - before
    fields = done.stdout.strip().splitlines()[-1].replace('"', "").split(",")
    rate, p99 = float(fields[1]), float(fields[6])
    return Asked(rate, p99, spent / commands * 1e6)


def latency() -> list[Result]:
    """A write through the gateway, against Redis and the wait for one replica."""
    results = []
    with processes() as started:
        driver = Driver(started)
        ours, peer = stores.Gateway(started), stores.redis(started)
        driver.open("gateway", ours.servers, "redis", ours.address, "0")
        driver.open("redis", peer.servers, "redis", peer.address, "1")
        for threads in CONNECTIONS:
            found = interleaved(
                {
                    name: lambda name=name, threads=threads: driver.round(  # type: ignore[misc]
                        name, "set", lasting(ROUND_MS), threads=threads
                    )
                    for name in ("gateway", "redis")
                },
            )
            results.append(
                compared(
                    f"gateway-p99-{threads}",
                    f"SET first through the gateway, 3 replicas, {threads} connections, closed"
                    " loop, to Redis with 2 replicas, SET and WAIT 1 in one message, p99",
                    ours=found["gateway"],
                    theirs=found["redis"],
                    share=0.99,
                    bar=LATENCY_BAR,
                    tried=TRIED,
                )
            )
            results.append(beside(found, threads))
    return results


def told(rates: Ratio, mine: Sequence[Rated], other: Sequence[Rated]) -> str:
    """Return the ratio of two throughputs, and both."""
    medians = [median(it.rate for it in side) for side in (mine, other)]
    return f"{rates} of {rates.n} pairs ({medians[0]:,.0f}/s to {medians[1]:,.0f}/s)"


def beside(found: Rounds, threads: int) -> Result:
    """Return the row of the throughput in the same rounds."""
    mine, other = found["gateway"], found["redis"]
    rates = ratio([it.rate for it in mine], [it.rate for it in other])
    return Result(
        name=f"gateway-beside-{threads}",
        what=f"SET first through the gateway, 3 replicas, {threads} connections, closed loop, to"
        f" Redis with 2 replicas, SET and WAIT 1 in one message, throughput; {SPLIT}",
        bar=f">= {BESIDE_BAR}",
        measured=told(rates, mine, other),
        met=rates.low >= BESIDE_BAR,
        raw=kept(ours=mine, theirs=other),
        why=f"{cost(mine, other)}. {TRIED}",
    )


def throughput() -> list[Result]:
    """Measure the throughput of redis-benchmark with the gateway and with Redis alone."""
    results = []
    with processes() as started:
        ours = stores.Gateway(started, core=BOTH_CORES)
        peer = stores.redis(started, nodes=1, core=BOTH_CORES)
        for pipeline in PIPELINES:
            for connections in CONNECTIONS:
                found: dict[str, list[Asked]] = {"gateway": [], "redis": []}
                for pair in range(PAIRS):
                    print(".", end="", flush=True)
                    sides = [("gateway", ours), ("redis", peer)][:: 1 if pair % 2 else -1]
                    for name, store in sides:
                        found[name].append(ask(store, "set", connections, pipeline))
                print(flush=True)
                results.append(rated(found, connections, pipeline))
    return results


def rated(found: dict[str, list[Asked]], connections: int, pipeline: int) -> Result:
    """Return the row of a throughput."""
    mine, other = found["gateway"], found["redis"]
    rates = ratio([it.rate for it in mine], [it.rate for it in other])
    spent = ratio([it.server_us for it in mine], [it.server_us for it in other])
    wanted = RATE_BARS[pipeline]
    return Result(
        name=f"gateway-rate-{connections}-{pipeline}",
        what=f"redis-benchmark SET, 64 bytes, {connections} connections, pipeline {pipeline}:"
        f" throughput of the gateway at first with 3 replicas to Redis alone; {WHERE}",
        bar=f">= {wanted}",
        measured=told(rates, mine, other),
        met=rates.low >= wanted,
        raw={name: [it.summary() for it in rounds] for name, rounds in found.items()},
        why=f"the servers' processor time of an operation is {spent} times Redis's, copies and all."
        f" {TRIED}",
    )


def before() -> list[Result]:
    """Measure the throughput of this build to that of an earlier one, at :data:`EARLIER`."""
    results = []
    with processes() as started:
        stands = {
            "now": stores.Gateway(started, core=BOTH_CORES),
            "earlier": stores.Gateway(
                started, core=BOTH_CORES, program=Path(os.environ[EARLIER]).resolve(strict=True)
            ),
        }
        for pipeline, connections in ((1, 16), (1, 128), (16, 128)):
            found: dict[str, list[Asked]] = {name: [] for name in stands}
            for pair in range(PAIRS):
                print(".", end="", flush=True)
                for name in list(stands)[:: 1 if pair % 2 else -1]:
                    found[name].append(ask(stands[name], "set", connections, pipeline))
            print(flush=True)
            mine, other = found["now"], found["earlier"]
            rates = ratio([it.rate for it in mine], [it.rate for it in other])
            spent = ratio([it.server_us for it in mine], [it.server_us for it in other])
            results.append(
                Result(
                    name=f"gateway-before-{connections}-{pipeline}",
                    what=f"redis-benchmark SET, 64 bytes, {connections} connections, pipeline"
                    f" {pipeline}: throughput of the gateway to that of the earlier build; {WHERE}",
                    bar="",
                    measured=told(rates, mine, other),
                    met=None,
                    raw={
                        "earlier_program": os.environ.get(EARLIER_IS, "not said"),
                        **{side: [it.summary() for it in rounds] for side, rounds in found.items()},
                    },
                    why=f"the servers' processor time of an operation is {spent} times the earlier"
                    " one, gateway included",
                )
            )
    return results


@dataclass
class Way:
    """A gateway with some options, and the name of the gateway that it is compared with."""

    store: Store
    beside: str = "plain"
    more: tuple[str | Path, ...] = ()


def ways(started: Processes) -> dict[str, Way]:
    """Start a gateway for each way, and the gateways that they are compared with."""
    key = started.folder / "cluster.key"
    key.touch(0o600)
    key.write_bytes(subprocess.run([flurry(), "key"], capture_output=True, check=True).stdout)
    chain, private = certificate(started)
    gateway = partial(stores.Gateway, started, core=BOTH_CORES)
    tls = gateway("--tls-cert", chain, "--tls-key", private)
    return {
        "plain": Way(gateway()),
        "TLS": Way(tls, more=("--tls", "--cacert", chain)),
        "the cluster's key": Way(gateway(key=key)),
        "metrics": Way(gateway("--metrics", "127.0.0.1:0")),
        "records on disks": Way(gateway(disks=True)),
        "level quorum": Way(gateway("--level", "quorum")),
        "level disk": Way(gateway("--level", "disk", disks=True), beside="level quorum"),
    }


def costs() -> list[Result]:
    """Measure the cost of TLS, the cluster key, metrics, disks and higher levels."""
    with processes() as started:
        measured = ways(started)
        found: dict[str, list[Asked]] = {name: [] for name in measured}
        for pair in range(PAIRS):
            print(".", end="", flush=True)
            names = list(measured)
            for name in names[pair % len(names) :] + names[: pair % len(names)]:
                way = measured[name]
                found[name].append(ask(way.store, "set", COST_CONNECTIONS, 1, *way.more))
        print(flush=True)
    return [
        cost_of(name, way.beside, found[name], found[way.beside])
        for name, way in measured.items()
        if name != "plain"
    ]


def cost_of(name: str, other_way: str, mine: list[Asked], other: list[Asked]) -> Result:
    """Return the row that compares the throughput of one way with that of another."""
    rates = ratio([it.rate for it in mine], [it.rate for it in other])
    without = "that without" if other_way == "plain" else f"that with {other_way}"
    has_bar = name == "records on disks"
    return Result(
        name=f"gateway-cost-{name.rsplit(maxsplit=1)[-1].lower()}",
        what=f"redis-benchmark SET, 64 bytes, {COST_CONNECTIONS} connections: throughput of"
        f" the gateway with {name} to {without}; {WHERE}",
        bar=f">= {DISKS_BAR}" if has_bar else "",
        measured=told(rates, mine, other),
        met=rates.low >= DISKS_BAR if has_bar else None,
        raw={
            "with": [it.summary() for it in mine],
            "without": [it.summary() for it in other],
        },
        why=DISKS_TRIED if has_bar else "",
    )


def certificate(started: Processes) -> tuple[Path, Path]:
    """One that signs itself, and its key."""
    script = ROOT / "scripts" / "certificate.sh"
    subprocess.run([script, started.folder, "127.0.0.1"], check=True)
    return started.folder / "cert.pem", started.folder / "key.pem"
