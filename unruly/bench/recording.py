"""What recording costs: the hot side of the recorder, and an engine's top throughput."""

from __future__ import annotations

import json
import subprocess

from bench.pairs import difference, ratio
from bench.program import ROOT
from bench.result import Result

BAR_NS = 30
BAR_THROUGHPUT = 0.98


def run() -> list[Result]:
    """Run the Rust benchmark, which interleaves its pairs itself."""
    words = ["cargo", "bench", "--locked", "--quiet", "-p", "unruly-load", "--bench", "recording"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    raw = json.loads(done.stdout.strip().splitlines()[-1])
    cost = difference(raw["clock_and_record_ns"], raw["clock_ns"])
    share = ratio(raw["requests_per_second_recording"], raw["requests_per_second_counting"])
    return [
        Result(
            name="recording-cost",
            what="cost of recording a request, beyond reading the clock twice",
            bar=f"<= {BAR_NS} ns",
            measured=f"{cost[0]:.1f} ns [{cost[1]:.1f}, {cost[2]:.1f}]",
            met=cost[2] <= BAR_NS,
            raw={key: raw[key] for key in ("clock_ns", "clock_and_record_ns", "record_bytes")},
        ),
        Result(
            name="recording-throughput",
            what="top throughput with recording to without: 16 connections, closed loop,"
            " engine on core 0, server and drain thread on core 1",
            bar=f">= {BAR_THROUGHPUT}",
            measured=f"{share} of {share.n} pairs",
            met=share.low >= BAR_THROUGHPUT,
            raw={key: value for key, value in raw.items() if key.startswith("requests")},
            why="a request takes 6.4 us; the row above has the hot side's part of it. The ratio"
            " was 0.974 when the drain thread took 1.2 % of the server's core, three quarters of it"
            " for checksums. They now use an instruction of the processor; copies and the shared"
            " caches remain",
        ),
    ]
