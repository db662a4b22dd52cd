"""A month of a standing agent, an hour in two seconds: flat memory, and a disk within its room.

The runs are real; only their length is not. `SOAK_HOURS` changes how many there are (720: 24
minutes). Only `make soak` runs this.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from house import UNRULY, wait_for
from http_house import nginx
from test_memory import resident_bytes

HOURS = int(os.environ.get("SOAK_HOURS", "720"))
HOUR_S = 2.0
KEEP_S = HOUR_S * min(24, HOURS // 10)
# A busy machine takes longer for an hour than planned, and old rows are merged after it.
SLACK_S = 8 * HOUR_S
ROOM_BYTES = 12_000_000
GROWTH_BYTES = 1 << 20
PLAN = """
name = "month"
[run]
duration = "1s"
warmup = "0s"
[drive]
url = "{url}/page.txt"
clients = 2
arrivals = "poisson"
rate = "500/s"
"""


def size_bytes(folder: Path) -> int:
    """Files that go meanwhile count nothing."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(place) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def manifest(run: Path) -> dict[str, object]:
    return dict(json.loads((run / "manifest.json").read_text()))


def sent(run: Path) -> bool:
    counts: Any = manifest(run)["counts"]
    return bool(counts["copies"]["scheduled"])


def test_a_month_takes_no_more_than_its_room(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    (tmp_path / "nginx").mkdir()
    with nginx(tmp_path / "nginx") as url, (tmp_path / "log").open("w") as log:
        (tmp_path / "plan.toml").write_text(PLAN.format(url=url))
        words = [UNRULY, "standing", tmp_path / "plan.toml", "-o", agent, "--every", f"{HOUR_S}s"]
        keep = ["--keep", f"{KEEP_S}s", "--room", f"{ROOM_BYTES}B"]
        process = subprocess.Popen([*words, *keep], stdout=log, stderr=log)
        try:
            sizes, memory = watched(process.pid, agent, tmp_path / "log")
        finally:
            process.terminate()
            assert process.wait(60) == 0, (tmp_path / "log").read_text()[-2_000:]
    judge(agent, sizes, memory, (tmp_path / "log").read_text())


def lines(log: Path) -> int:
    return log.read_text().count(" requests, ")


def watched(pid: int, agent: Path, log: Path) -> tuple[list[int], list[int]]:
    """Sizes of the runs and memory of the agent, until all hours are over."""
    sizes, memory = [], []
    seen = 0
    while seen < HOURS:
        wait_for(lambda seen=seen: lines(log) > seen, "the next hour", 60)
        seen = lines(log)
        sizes.append(size_bytes(agent / "runs"))
        memory.append(resident_bytes(pid) or 0)
        # The agent makes old runs smaller right after it has printed the line of one.
        time.sleep(HOUR_S / 2)
    return sizes, memory


def judge(agent: Path, sizes: list[int], memory: list[int], log: str) -> None:
    runs = sorted(it.parent for it in agent.glob("runs/*/manifest.json"))
    with_rows = [it for it in runs if (it / "requests").is_dir()]
    largest = max(size_bytes(it) for it in with_rows)
    removed = log.count("was removed")
    early = memory[len(memory) // 5]
    sys.stdout.write(
        f"{len(runs)} runs are left of {len(runs) + removed}, {len(with_rows)} with rows; at most "
        f"{max(sizes)} bytes of {ROOM_BYTES}, a run has {largest}; memory {early} bytes, "
        f"then {memory[-1]}\n"
    )
    assert max(sizes) <= ROOM_BYTES + 2 * largest
    ended_s = {it: int(str(manifest(it)["ended_ns"])) / 1e9 for it in runs}
    latest_s = max(ended_s.values())
    young = [it for it in runs if latest_s - ended_s[it] < KEEP_S - SLACK_S and sent(it)]
    assert young
    assert set(young) <= set(with_rows)
    assert all(latest_s - ended_s[it] < KEEP_S + SLACK_S for it in with_rows)
    assert memory[-1] - early < GROWTH_BYTES
    failed = [it for it in runs if (manifest(it)["status"]) not in ("complete", "stopped")]
    assert not failed
    assert "its rows stay" not in log
