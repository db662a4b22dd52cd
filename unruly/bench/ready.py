"""From the end of a short run to its verdict and report: how long a reader waits."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from statistics import median
from typing import TYPE_CHECKING

from bench.program import ROOT, drive, measured
from bench.result import Result

if TYPE_CHECKING:
    from pathlib import Path

RATE_HZ = 1_000
SECONDS = 20
REPEATS = 6
BAR_S = 4.0


def run() -> list[Result]:
    """Measure an echo server once, then time what `unruly drive` does at its end."""
    arrivals = f'arrivals = "constant"\nrate = "{RATE_HZ}/s"'
    plan = drive(duration=f"{SECONDS}s", warmup="1s", clients=16, arrivals=arrivals, probe="")
    with measured(plan) as trace:
        _conclude(trace.path)  # it makes the bundle of the figures, and byte code
        times = [_conclude(trace.path) for _ in range(REPEATS)]
    waited, worked = (median(column) for column in zip(*times, strict=True))
    return [
        Result(
            name="ready-seconds",
            what=f"verdict and report of {SECONDS} s at {RATE_HZ:,} requests a second, two cores,"
            f" median of {REPEATS}",
            bar=f"<= {BAR_S:g} s",
            measured=f"{waited:.1f} s (most {max(times)[0]:.1f}); {worked:.1f} s of processor time",
            met=waited <= BAR_S,
            raw={"s": [it[0] for it in times], "processor_s": [it[1] for it in times]},
            why="importing the libraries is a third of the processor time, translating and running"
            " 45 queries a third, and drawing the page a seventh; programs that share the host"
            " lengthen all of it",
        )
    ]


def _conclude(trace: Path) -> tuple[float, float]:
    """Return the seconds and the processor time of the verdict and the report."""
    words = [sys.executable, "-m", "unruly", "report", "--verdict", str(trace)]
    paths = os.environ | {"PYTHONPATH": str(ROOT / "unruly" / "python")}
    started = time.monotonic()
    running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=paths)
    assert running.stderr is not None
    complained = running.stderr.read()
    _, status, usage = os.wait4(running.pid, 0)
    running.returncode = os.waitstatus_to_exitcode(status)
    # 1 is a finding, such as a host that spoiled the run
    if running.returncode not in (0, 1):
        raise RuntimeError(f"ready: {complained.decode().strip()}")
    return time.monotonic() - started, usage.ru_utime + usage.ru_stime
