"""Planted truth: what was done to an agent is found; where nothing was done nothing is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from house import Measured, need_root, pids_of, running, spooled, wait_for, write_plan

ALL = '["null", "crypto", "disk", "network", "mixed"]'

QUOTA_US = 20_000
PERIOD_US = 100_000


@contextmanager
def quota(pid: int) -> Iterator[None]:
    """Let a process share a fifth of a core with a busy loop, by a control group of its own."""
    need_root("a CPU quota")
    folder, files = new_group()
    for name, value in files.items():
        (folder / name).write_text(value)
    (folder / "cgroup.procs").write_text(str(pid))
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        (folder / "cgroup.procs").write_text(str(busy.pid))
        yield
    finally:
        busy.kill()
        busy.wait()
        # Back to the parent, so that the group can go.
        for left in (folder / "cgroup.procs").read_text().split():
            (folder.parent / "cgroup.procs").write_text(left)
        folder.rmdir()


def new_group() -> tuple[Path, dict[str, str]]:
    name = f"unruly-test-{os.getpid()}"
    first = Path("/sys/fs/cgroup/cpu")
    if first.is_dir():
        folder = first / name
        folder.mkdir()
        return folder, {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(QUOTA_US)}
    folder = Path("/sys/fs/cgroup") / name
    folder.mkdir()
    return folder, {"cpu.max": f"{QUOTA_US} {PERIOD_US}"}


def children_of(pid: int) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "stat").read_text().rpartition(")")[2].split()[1] == str(pid):
                yield int(folder.name)


def test_an_agent_under_a_cpu_quota_is_named_slow_and_its_cpu_is_the_reason(
    tmp_path: Path, runtime: str
) -> None:
    plan = write_plan(
        tmp_path,
        mesh=f'runtime = "{runtime}"',
        agents=5,
        groups=[5],
        duration="15s",
        workloads='["null", "crypto"]',
        probe="500ms",
    )
    folder = tmp_path / "out"
    with running(plan, folder) as process:
        wait_for(lambda: spooled(folder) > 10_000, "the first rows")
        job = "agent-2-c0r0.job.json"
        (victim,) = [
            pid for pid in pids_of(folder) if job in Path(f"/proc/{pid}/cmdline").read_text()
        ]
        # What an agent on Java does, its machine does.
        with quota(next(children_of(victim), victim)):
            assert process.wait(timeout=60) == 0
    verdict = Measured(folder).verdict()
    assert {node["node"] for node in verdict["slow_nodes"]["named"]} == {"agent-2"}
    # The slow requests waited for that agent, and its CPU is what they rise with: a metric that
    # merely differs between nodes is not first.
    told = [it["evidence"] for it in verdict["findings"] if it["code"] == "slow-because"]
    assert {it["process"] for it in told} == {"agent-2"}
    assert verdict["correlations"]["metrics"][0]["metric"] in {
        "run_queue_wait_ns",
        "cgroup_throttled_ns",
        "cgroup_throttled_periods",
    }


def test_nobody_is_named_where_nothing_was_planted(measure: Callable[..., Measured]) -> None:
    for seed in range(5):
        run = measure(seed=seed, agents=5, groups=[5], duration="6s", workloads=ALL)
        assert run.verdict()["slow_nodes"]["named"] == []
