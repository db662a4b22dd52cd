"""The one program that does the operations of every store."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from flurry.bench.processes import DRIVER_CORE

from bench.program import ROOT

if TYPE_CHECKING:
    from flurry.bench.processes import Process, Processes


PROFILE = "dist"
"""Cargo's profile: that of the release files, which users run."""


@dataclass(frozen=True)
class Round:
    """What came of a round: every latency in order of size, and what it cost."""

    sorted_ns: np.ndarray
    elapsed_s: float
    failed: int
    failure: str | None
    client_cpu_s: float
    server_cpu_s: float

    def quantile_us(self, share: float) -> float:
        """The smallest latency that this share of operations does not exceed, in us."""
        rank = int(np.ceil(share * self.sorted_ns.size))
        return float(self.sorted_ns[max(rank, 1) - 1]) / 1e3

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.sorted_ns.size / self.elapsed_s

    def summary(self) -> dict[str, Any]:
        """What is kept of it."""
        count = self.sorted_ns.size
        return {
            "operations": count,
            "failed": self.failed,
            "elapsed_s": round(self.elapsed_s, 4),
            **{f"p{100 * q:g}_us": self.quantile_us(q) for q in (0.5, 0.99, 0.999, 0.9999)},
            "max_us": self.quantile_us(1),
            "client_cpu_us": round(1e6 * self.client_cpu_s / count, 2),
            "server_cpu_us": round(1e6 * self.server_cpu_s / count, 2),
        }


class Driver:
    """The driver's process, commanded line by line."""

    def __init__(self, started: Processes) -> None:
        self.started = started
        self.process = started.start(
            built(), core=DRIVER_CORE, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.servers: dict[str, list[Process]] = {}
        self.cpu_before_s: dict[int, float] = {}

    def open(self, name: str, servers: list[Process], *words: str) -> None:
        """Connect to a store, whose servers' processor time is counted, and set every key."""
        self.servers[name] = servers
        self._say("open", name, *words)
        self._hear()

    def begin(
        self, name: str, operation: str, milliseconds: int, threads: int = 1, rate: float = 0
    ) -> None:
        """Begin a round; at a rate of 0 in a closed loop."""
        self.cpu_before_s = self._cpu_s(self.servers[name])
        self._say("round", name, operation, str(threads), str(milliseconds), str(round(rate)))

    def finish(self) -> Round:
        """Wait for the end of the round that was begun.

        Raises
        ------
        RuntimeError
            When the driver has ended, or no operation succeeded.
        """
        head = self._hear()
        wanted = 8 * head["samples"]
        assert self.process.stdout is not None
        latencies = np.frombuffer(self.process.stdout.read(wanted), dtype="<u8")
        if latencies.size == 0:
            raise RuntimeError(f"driver: no operation succeeded; {head['failure']}")
        # Only processes that ran during the whole round are counted.
        alive = [it for it in self.started.started if it.pid in self.cpu_before_s]
        spent_s = {pid: now_s - self.cpu_before_s[pid] for pid, now_s in self._cpu_s(alive).items()}
        client_s = spent_s.pop(self.process.pid)
        return Round(
            sorted_ns=np.sort(latencies),
            elapsed_s=head["elapsed_ns"] / 1e9,
            failed=head["failed"],
            failure=head["failure"],
            client_cpu_s=client_s,
            server_cpu_s=sum(spent_s.values()),
        )

    def round(
        self, name: str, operation: str, milliseconds: int, threads: int = 1, rate: float = 0
    ) -> Round:
        """A round in which nothing may fail.

        Raises
        ------
        RuntimeError
            When something did.
        """
        self.begin(name, operation, milliseconds, threads, rate)
        done = self.finish()
        if done.failed:
            raise RuntimeError(f"{name}: {done.failed} operations failed; {done.failure}")
        return done

    def finish_recording(self, name: str) -> dict[str, Any]:
        """Let go of a store that records, and what its run has counted."""
        self._say("finish", name)
        return dict(self._hear())

    def _cpu_s(self, servers: list[Process]) -> dict[int, float]:
        """Processor time of the driver and of those servers that run."""
        return {it.pid: cpu_s(it.pid) for it in [self.process, *servers] if it.poll() is None}

    def _say(self, *words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(words).encode() + b"\n")
        self.process.stdin.flush()

    def _hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"driver: it has ended; {self.started.complaints(self.process)}")
        return json.loads(line)


def cpu_s(pid: int) -> float:
    """Processor time of a process, by the clock that the kernel has for each."""
    clock_of_a_process = (~pid << 3) | 2
    return time.clock_gettime_ns(clock_of_a_process) / 1e9


@functools.cache
def built() -> str:
    """Build the driver as cargo builds a benchmark; its program."""
    words = ["cargo", "bench", "--locked", "--quiet", "-p", "unruly-flurry", "--bench", "peers"]
    done = subprocess.run(
        [*words, "--profile", PROFILE, "--no-run", "--message-format=json"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"driver: it does not build; {done.stderr.strip()}")
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    [program] = [
        it["executable"]
        for it in messages
        if it["reason"] == "compiler-artifact" and it["target"]["name"] == "peers"
    ]
    return str(program)


def flurry() -> str:
    """Build the program of the store itself; where it is."""
    words = ["cargo", "build", "--locked", "--quiet", "--package", "flurry-cli", "--bins"]
    subprocess.run([*words, "--profile", PROFILE], cwd=ROOT, check=True)
    return os.fspath(ROOT / "target" / PROFILE / "flurry")
