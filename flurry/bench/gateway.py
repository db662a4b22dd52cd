"""The gateway beside Redis, asked by redis-benchmark itself and by our driver."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from flurry.bench import stores
from flurry.bench.driver import Driver, cpu_s, flurry
from flurry.bench.pace import PAIRS, ROUGH, lasting
from flurry.bench.processes import processes, program
from flurry.bench.rounds import compared, interleaved

from bench.pairs import ratio
from bench.program import ROOT
from bench.result import Result

if TYPE_CHECKING:
    from pathlib import Path

    from flurry.bench.processes import Processes
    from flurry.bench.stores import Store

BOTH_CORES = "0,1"
WHERE = "redis-benchmark and all servers of both on two cores"

CONNECTIONS = (1, 16, 128)
PIPELINES = (1, 16)
RATE_BAR = 0.5
ROUND_MS = 1_000

# About a second of Redis alone.
COMMANDS = {1: 8_000, 16: 60_000, 128: 60_000}

COST_CONNECTIONS = 16

TRIED = (
    "With 128 connections the gateway's thread has 0.84 of a core and each of the three servers"
    " 0.17; redis-benchmark gets the rest of the two cores. Half of the gateway's time is the"
    " protocol (router and portal, with their trees and small allocations), the rest the kernel's"
    " sockets"
)


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
        for threads in (1, 16):
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
                    bar=1.0,
                    tried=TRIED,
                )
            )
    return results


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
    """Return the row of a throughput; only pipeline 1 has a bar."""
    mine, other = found["gateway"], found["redis"]
    rates = ratio([it.rate for it in mine], [it.rate for it in other])
    cost = ratio([it.server_us for it in mine], [it.server_us for it in other])
    held = pipeline == 1
    return Result(
        name=f"gateway-rate-{connections}-{pipeline}",
        what=f"redis-benchmark SET, 64 bytes, {connections} connections, pipeline {pipeline}:"
        f" throughput of the gateway at first with 3 replicas to Redis alone; {WHERE}",
        bar=f">= {RATE_BAR}" if held else "",
        measured=f"{rates} of {rates.n} pairs ({median(it.rate for it in mine):,.0f}/s to"
        f" {median(it.rate for it in other):,.0f}/s)",
        met=rates.low >= RATE_BAR if held else None,
        raw={name: [it.summary() for it in rounds] for name, rounds in found.items()},
        why=f"the servers' processor time of an operation is {cost} times Redis's, copies and all."
        f" {TRIED}",
    )


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
        cost(name, way.beside, found[name], found[way.beside])
        for name, way in measured.items()
        if name != "plain"
    ]


def cost(name: str, beside: str, mine: list[Asked], other: list[Asked]) -> Result:
    """Return the row that compares the throughput of one way with that of another."""
    rates = ratio([it.rate for it in mine], [it.rate for it in other])
    without = "that without" if beside == "plain" else f"that with {beside}"
    return Result(
        name=f"gateway-cost-{name.rsplit(maxsplit=1)[-1].lower()}",
        what=f"redis-benchmark SET, 64 bytes, {COST_CONNECTIONS} connections: throughput of"
        f" the gateway with {name} to {without}; {WHERE}",
        bar="",
        measured=f"{rates} of {rates.n} pairs ({median(it.rate for it in mine):,.0f}/s to"
        f" {median(it.rate for it in other):,.0f}/s)",
        met=None,
        raw={
            "with": [it.summary() for it in mine],
            "without": [it.summary() for it in other],
        },
        why="",
    )


def certificate(started: Processes) -> tuple[Path, Path]:
    """One that signs itself, and its key."""
    script = ROOT / "scripts" / "certificate.sh"
    subprocess.run([script, started.folder, "127.0.0.1"], check=True)
    return started.folder / "cert.pem", started.folder / "key.pem"
