"""Agents of one group on two runtimes: they speak one protocol, and each has its own rows."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from house import Measured, call, pids_of, running, spooled, wait_for, write_plan
from streams_house import machines

if TYPE_CHECKING:
    import pytest

ALL = '["null", "crypto", "disk", "network", "mixed"]'
HEAP = '[jvm]\nheap = "128MiB"\n'


def test_native_agents_and_those_on_java_ask_each_other_in_one_group(
    measure: Callable[..., Measured],
) -> None:
    run = measure(mesh='runtime = "mixed"', agents=4, groups=[4], workloads=ALL, duration="4s")
    copies = run.manifest["counts"]["copies"]
    assert copies["ok"] == copies["scheduled"] > 1_000
    runtimes = {it["id"]: it["runtime"] for it in run.manifest["processes"] if it["kind"] == "mesh"}
    assert runtimes == {0: "native", 1: "jvm", 2: "native", 3: "jvm"}
    asked = run.rows(
        "select client % 2, server % 2, count(*) > 200, count(kernel_received_ns) > 0,"
        "       count(server_kernel_received_ns) > 0,"
        "       min(sent_ns - intended_ns) >= 0, min(server_received_ns - sent_ns) > 0,"
        "       min(received_ns - server_sent_ns) > 0"
        " from requests group by all order by all"
    )
    # Java has no stamps of the kernel; every other is there and in its order.
    assert asked == [
        (client, server, True, client == 0, server == 0, True, True, True)
        for client in (0, 1)
        for server in (0, 1)
    ]


def test_a_collector_in_the_agents_own_machines_is_told_and_its_pauses_are_events(
    measure: Callable[..., Measured],
) -> None:
    more = f'[compete]\nkind = "gc"\noccupancy = 0.3\nlive = "64MiB"\n{HEAP}collector = "serial"'
    run = measure(mesh='runtime = "mixed"', more=more, duration="4s")
    collected = run.rows(
        "select watched, sum(gc_count) > 0, sum(gc_ns) > 0 from resources"
        " where gc_count is not null group by 1"
    )
    assert collected == [("agent-1", True, True)]
    assert run.rows("select distinct process from events where kind = 'gc'") == [("agent-1",)]
    assert run.rows("select distinct process from intervals") == [("agent-1",)]
    assert run.manifest["missing"] == []


def test_a_machine_ends_with_its_agent_and_leaves_nothing(
    measure: Callable[..., Measured], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = '[[fault]]\nkind = "kill"\nprocess = "agent-1"\nat = "1s"'
    # A folder of its own: other runs of this host have theirs in the common one.
    with TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        run = measure(mesh='runtime = "jvm"', more=fault)
        wait_for(lambda: not machines(run.path), "the end of all virtual machines")
        assert list(Path(folder).glob("unruly-*")) == []
    # That nobody is there is no reply that came.
    failed = run.rows(
        "select count(*) > 10, count(received_ns), coalesce(sum(received_bytes), 0)::bigint"
        " from requests where server = 1 and status not in ('ok', 'timeout')"
    )
    assert failed == [(True, 0, 0)]


def test_a_machine_that_dies_ends_no_cell_but_its_own(tmp_path: Path) -> None:
    plan, out = write_plan(
        tmp_path, mesh='runtime = "jvm"', agents=2, groups=[2], duration="3s",
        more='[matrix]\n"mesh.period" = ["20ms", "21ms"]',
    ), tmp_path / "out"  # fmt: skip
    with running(plan, out) as process:
        wait_for(lambda: spooled(out) > 0, "the first requests")
        victim = next(
            pid for pid, words in machines(out).items() if "/agent-1-" in words
        )  # fmt: skip
        os.kill(victim, signal.SIGKILL)
        assert process.wait(timeout=120) == 1
    run = Measured(out)
    assert run.manifest["status"] == "incomplete"
    ((told),) = [it for it in run.manifest["broken"] if "java is gone" in it]
    assert "agent-1" in told
    answered = dict(
        run.rows("select cell, count(*) from requests where status = 'ok' group by all")
    )
    assert len(answered) == 2


def left_by(pids: list[int]) -> list[Path]:
    """Memory and folders that are called after these processes."""
    places = [*Path("/tmp").glob("unruly-*"), *Path("/dev/shm").glob("unruly-aeron-*")]
    names = {str(pid) for pid in pids}
    return [path for path in places if names & set(path.name.split("-"))]


def test_a_run_that_is_stopped_before_its_start_leaves_nothing(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'name = "a"\n[run]\nduration = "60s"\n[stream]\nprotocol = "aeron-daemon"\n'
        '[compete]\nkind = "gc"\n[jvm]\nheap = "1GiB"\n'
    )
    out = tmp_path / "out"
    with running(plan, out) as process:
        wait_for(lambda: left_by(pids_of(out)), "a driver's memory")
        pids = [*pids_of(out), *machines(out)]
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    wait_for(lambda: not machines(out), "the end of all virtual machines")
    assert left_by(pids) == []


def test_without_java_the_run_says_what_it_lacks(tmp_path: Path) -> None:
    plan = write_plan(tmp_path, mesh='runtime = "mixed"')
    nowhere = {**os.environ, "UNRULY_JVM": str(tmp_path)}
    said = call("run", plan, "-o", tmp_path / "out", env=nowhere)
    assert said.returncode == 2
    assert "wanted both; hint: apt-get install openjdk-17-jre-headless, and make jvm" in said.stderr
