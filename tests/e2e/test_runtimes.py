"""Agents of one group on two runtimes: they speak one protocol, and each has its own rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from house import Measured, call, wait_for, write_plan
from streams_house import machines

ALL = '["null", "crypto", "disk", "network", "all"]'
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
    measure: Callable[..., Measured],
) -> None:
    fault = '[[fault]]\nkind = "kill"\nprocess = "agent-1"\nat = "1s"'
    folders = set(Path("/tmp").glob("unruly-*"))
    run = measure(mesh='runtime = "jvm"', more=fault)
    wait_for(lambda: not machines(run.path), "the end of all virtual machines")
    assert set(Path("/tmp").glob("unruly-*")) <= folders


def test_without_java_the_run_says_what_it_lacks(tmp_path: Path) -> None:
    plan = write_plan(tmp_path, mesh='runtime = "mixed"')
    nowhere = {**os.environ, "UNRULY_JVM": str(tmp_path)}
    said = call("run", plan, "-o", tmp_path / "out", env=nowhere)
    assert said.returncode == 2
    assert "wanted both; hint: apt-get install openjdk-17-jre-headless, and make jvm" in said.stderr
