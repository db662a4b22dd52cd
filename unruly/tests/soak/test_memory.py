"""Ten minutes under load: no process holds more memory at the end than after two minutes.

A leak of 30 KB a second, which a run of `-q` once had, is 14 MB between the two looks. `make
test-all` alone runs this; ``SOAK_MINUTES`` changes its length.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from house import UNRULY
from redis_house import gateway

MINUTES = float(os.environ.get("SOAK_MINUTES", "10"))
LOOK_S = 1.0
# A generator seals a spool for the first time after a million requests, at 100 s.
WARM = 0.2, 0.3
END = 0.9, 1.0
"""Windows of the soak whose memory is compared, as shares of it."""
GROWTH_BYTES = 4 << 20
GROWTH_SHARE = 0.1
HOST = "127.58.0.1"


def children_of(pid: int) -> list[int]:
    """A process and those that it has started."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [it for child in task.read_text().split() for it in children_of(int(child))]
        except OSError:
            continue
    return found


def resident_bytes(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(found[0]) * 1024 if found else None


def name_of(pid: int) -> str:
    """What it is called in a message: its program and what it does."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    jobs = [Path(word).name.split("-c")[0] for word in words if word.endswith(".job.json")]
    return " ".join([Path(words[0]).name, *(jobs or words[1:2])])


def least(samples: list[tuple[float, int]], window: tuple[float, float]) -> int:
    """Least memory in a window: the part that a process never gives back."""
    return min(size for at, size in samples if window[0] <= at <= window[1])


def test_no_process_grows_under_a_steady_load(tmp_path: Path) -> None:
    seconds = MINUTES * 60
    with ExitStack() as stack:
        address = stack.enter_context(gateway(tmp_path, HOST))
        echo = tmp_path / "echo.toml"
        echo.write_text(
            f'name = "soak"\n[run]\nduration = "{seconds + 60:g}s"\nwarmup = "0s"\n'
            '[drive]\nclients = 16\narrivals = "constant"\nrate = "10000/s"\n'
        )
        url = f"redis://{address[0]}:{address[1]}"
        long = f"{seconds + 60:g}s"
        # So few keys that all are written long before the first look.
        store = ["-r", "1000", "-c", "8", "--keys", "1000", "-d", long]
        words = [
            ["run", echo, "-q", "-o", tmp_path / "echo"],
            ["drive", url, *store, "-q", "-o", tmp_path / "gateway"],
        ]
        runs = [
            stack.enter_context(subprocess.Popen([UNRULY, *it], stderr=subprocess.DEVNULL))
            for it in words
        ]
        try:
            samples = watched(runs, seconds)
        finally:
            for run in runs:
                run.terminate()
    judge(samples)


def watched(
    runs: list[subprocess.Popen[bytes]], seconds: float
) -> dict[str, list[tuple[float, int]]]:
    """Memory of the runs' processes, of Flurry's and of nothing else, by name."""
    samples: dict[str, list[tuple[float, int]]] = {}
    names: dict[int, str] = {}
    start = time.monotonic()
    while (at := (time.monotonic() - start) / seconds) < 1:
        assert all(run.poll() is None for run in runs), "a run ended before its time"
        # Flurry's were started by this process, as the runs were.
        for pid in children_of(os.getpid())[1:]:
            size = resident_bytes(pid)
            if size is None:
                continue
            if pid not in names:
                names[pid] = f"{name_of(pid)} ({pid})"
            samples.setdefault(names[pid], []).append((at, size))
        time.sleep(LOOK_S)
    return samples


def judge(samples: dict[str, list[tuple[float, int]]]) -> None:
    whole = {
        name: found
        for name, found in samples.items()
        if found[0][0] < WARM[0] and found[-1][0] > END[0]
    }
    # Two runners, two generators, two probes, an echo server, Flurry's four parts in two processes.
    assert len(whole) >= 9, sorted(samples)
    grown = {}
    for name, found in sorted(whole.items()):
        before, after = least(found, WARM), least(found, END)
        sys.stdout.write(f"{name}: {before / 2**20:.1f} MiB, then {after / 2**20:.1f} MiB\n")
        if after - before > max(GROWTH_BYTES, GROWTH_SHARE * before):
            grown[name] = (before, after)
    assert not grown, "bytes after a fifth of the time and at its end"


def test_a_leak_is_noticed() -> None:
    steady = [(share / 100, 50 << 20) for share in range(101)]
    leaks = [(at, int((6 << 20) + at * 600 * 30_000)) for at, _ in steady]
    processes = {f"process {number}": steady for number in range(9)}
    judge(processes)
    with pytest.raises(AssertionError, match="at its end"):
        judge({**processes, "runner": leaks})
