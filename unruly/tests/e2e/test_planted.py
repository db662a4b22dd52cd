"""Planted truth: a fault of an agent is found, and none is found where there was none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from house import Measured, need_root, pids_of, running, spooled, wait_for, write_plan

ALL = '["null", "crypto", "disk", "network", "mixed"]'

PERIOD_US = 100_000


@contextmanager
def quota(pid: int, cores: float) -> Iterator[Callable[[], int]]:
    """Let a process share part of a core with a busy loop, by a control group of its own.

    Yields what counts the periods in which the kernel held the group back.
    """
    need_root("a CPU quota")
    folder, files = new_group(round(cores * PERIOD_US))
    for name, value in files.items():
        (folder / name).write_text(value)
    (folder / "cgroup.procs").write_text(str(pid))
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        (folder / "cgroup.procs").write_text(str(busy.pid))
        yield lambda: held_back(folder)
    finally:
        busy.kill()
        busy.wait()
        wait_for(lambda: emptied(folder), "an empty group")
        folder.rmdir()


def emptied(group: Path) -> bool:
    """Move the processes of a group to its parent. Return whether none was left."""
    left = (group / "cgroup.procs").read_text().split()
    for pid in left:
        # It may have ended meanwhile.
        with suppress(ProcessLookupError):
            (group.parent / "cgroup.procs").write_text(pid)
    return not left


def new_group(quota_us: int) -> tuple[Path, dict[str, str]]:
    name = f"unruly-test-{os.getpid()}"
    first = Path("/sys/fs/cgroup/cpu")
    if first.is_dir():
        folder = first / name
        folder.mkdir()
        return folder, {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota_us)}
    folder = Path("/sys/fs/cgroup") / name
    folder.mkdir()
    return folder, {"cpu.max": f"{quota_us} {PERIOD_US}"}


def held_back(group: Path) -> int:
    counts = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return int(counts["nr_throttled"])


def children_of(pid: int) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "stat").read_text().rpartition(")")[2].split()[1] == str(pid):
                yield int(folder.name)


def agent_2(folder: Path) -> int:
    """The process of the agent; what an agent on Java does, its machine does."""
    job = "agent-2-c0r0.job.json"
    (pid,) = [pid for pid in pids_of(folder) if job in Path(f"/proc/{pid}/cmdline").read_text()]
    return next(children_of(pid), pid)


def five_agents(tmp_path: Path, runtime: str, duration: str) -> tuple[Path, Path]:
    plan = write_plan(
        tmp_path,
        mesh=f'runtime = "{runtime}"',
        agents=5,
        groups=[5],
        duration=duration,
        workloads='["null", "crypto"]',
        probe="250ms",
        # a copy that waits for the agent without CPU is late, not failed
        timeout="20s",
    )
    return plan, tmp_path / "out"


def test_an_agent_under_a_cpu_quota_is_named_slow_and_its_cpu_correlates(
    tmp_path: Path, runtime: str
) -> None:
    plan, folder = five_agents(tmp_path, runtime, "15s")
    with running(plan, folder) as process:
        wait_for(lambda: spooled(folder) > 10_000, "the first rows")
        with quota(agent_2(folder), cores=0.2):
            assert process.wait(timeout=60) == 0
    verdict = Measured(folder).verdict()
    assert {node["node"] for node in verdict["slow_nodes"]["named"]} == {"agent-2"}
    # A metric that merely differs between nodes is not first. What waits for an agent without CPU
    # takes up memory: an effect of the quota, which may rise with latency more closely than it.
    metrics = [it["metric"] for it in verdict["correlations"]["metrics"]]
    assert next(it for it in metrics if it != "rss_bytes") in {
        "run_queue_wait_ns",
        "cgroup_throttled_ns",
        "cgroup_throttled_periods",
    }


def test_while_an_agent_gets_almost_no_cpu_its_quota_is_why_requests_are_slow(
    tmp_path: Path, runtime: str
) -> None:
    plan, folder = five_agents(tmp_path, runtime, "30s")
    with running(plan, folder) as process:
        wait_for(lambda: spooled(folder) > 1_500_000, "a third of the rows")
        # So short that the slow requests are a part of the run, and so strong that no other
        # stall of a shared machine reaches them. The probe must see it several times: it compares
        # the counters of a group with those of its last sample.
        with quota(agent_2(folder), cores=0.01) as periods:
            held = spooled(folder)
            wait_for(lambda: periods() >= 25, "periods in which it is held back")
            wait_for(lambda: spooled(folder) > held + 200_000, "rows while it is held back")
        assert process.wait(timeout=60) == 0
    findings = Measured(folder).verdict()["findings"]
    told = [it["evidence"] for it in findings if it["code"] == "slow-because"]
    assert {(it["cause"], it["process"]) for it in told} == {("cpu quota", "agent-2")}


def test_nobody_is_named_where_nothing_was_planted(measure: Callable[..., Measured]) -> None:
    for seed in range(5):
        run = measure(seed=seed, agents=5, groups=[5], duration="6s", workloads=ALL)
        assert run.verdict()["slow_nodes"]["named"] == []
