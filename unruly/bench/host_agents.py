"""Sixty-four agents on eight hosts: how late the runner's schedule is kept there."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from bench.program import UNRULY, measured
from bench.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterator

HOSTS: Final = 8
AGENTS: Final = 64
REPEATS: Final = 3
BAR_US: Final = 1_000
NETWORK: Final = "10.89.0"
PLAN: Final = """
name = "agents"
seed = {seed}
tag = "bench"
[run]
duration = "20s"
warmup = "2s"
[mesh]
agents = {agents}
groups = [{size}]
period = "100ms"
workloads = ["null"]
[probe]
enabled = false
"""
HOST: Final = """
[[host]]
name = "host-{number}"
reach = ["nsenter", "--net=/run/netns/ub-{number}"]
address = "{network}.{number}"
program = "{program}"
"""
GROUP: Final = 4


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


@contextmanager
def namespaces() -> Iterator[None]:
    """Eight network namespaces, joined by a bridge; all are gone afterwards."""
    with ExitStack() as stack:
        _ip("link", "add", "ub-bridge", "type", "bridge")
        stack.callback(_ip, "link", "del", "ub-bridge")
        _ip("link", "set", "ub-bridge", "up")
        for number in range(1, HOSTS + 1):
            name, port = f"ub-{number}", f"ub-port{number}"
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            stack.callback(_ip, "link", "del", port)
            _ip("link", "set", port, "master", "ub-bridge", "up")
            _ip("-n", name, "addr", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", name, "link", "set", device, "up")
        yield


def delays_us(seed: int) -> tuple[float, float, int]:
    """Return p50 and p99 of the send delay of one run, in us, and its requests."""
    hosts = "".join(
        HOST.format(number=number, network=NETWORK, program=UNRULY)
        for number in range(1, HOSTS + 1)
    )
    plan = PLAN.format(seed=seed, agents=AGENTS, size=GROUP) + hosts
    with measured(plan) as trace:
        [(median, tail, requests)] = trace.rows(
            "select quantile_cont(delay, 0.5) / 1e3, quantile_cont(delay, 0.99) / 1e3, count(*)"
            " from (select client, request, min(sent_ns) - min(intended_ns) as delay from requests"
            " where phase = 'measure' group by client, request)"
        )
    return float(median), float(tail), int(requests)


def run() -> list[Result]:
    """Measure three runs; the bar is for each of them."""
    with namespaces():
        runs = [delays_us(seed) for seed in range(1, REPEATS + 1)]
    tails = [tail for _, tail, _ in runs]
    shown = ", ".join(f"{tail:,.0f} us" for tail in tails)
    return [
        Result(
            name="host-agents",
            what=f"send delay p99 of {AGENTS} agents on {HOSTS} hosts (network namespaces), each of"
            f" which calls its group of {GROUP} ten times a second, two cores for all",
            bar="<= 1 ms in each run",
            measured=f"{shown} ({runs[0][2]:,} requests a run)",
            met=max(tails) <= BAR_US,
            raw={"p50_us": [median for median, _, _ in runs], "p99_us": tails},
            why="64 agents and their 64 connections share two cores with the runner",
        )
    ]
