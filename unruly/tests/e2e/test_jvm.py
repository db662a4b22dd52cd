"""Streams that Java speaks: counted like the others, told by one agent, and gone at the end."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from house import UNRULY, Measured, call, need_root, running, wait_for
from streams_house import check_counts, flows, machines, measured, one_after_the_other

RELIABLE = ["jvm-tcp", "jvm-nio", "jgroups-udp", "jgroups-tcp", "aeron", "aeron-daemon"]
PROTOCOLS = [*RELIABLE, "jvm-udp"]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    heap = '[jvm]\nheap = "256MiB"\n'
    return one_after_the_other(tmp_path_factory.mktemp("everything"), PROTOCOLS, heap)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_written_is_what_came_and_what_was_lost(
    everything: Measured, protocol: str
) -> None:
    check_counts(everything, protocol, reliable=protocol in RELIABLE)


def test_nothing_is_left_of_it(everything: Measured) -> None:
    assert machines(everything.path) == {}
    assert everything.manifest["missing"] == []


def test_a_network_without_multicast_is_named_and_the_others_run(tmp_path: Path) -> None:
    need_root("a network of its own")
    plan, out = tmp_path / "plan.toml", tmp_path / "out"
    plan.write_text(
        'name = "a"\n[run]\nduration = "500ms"\n[stream]\nprotocol = "jgroups-tcp"\n'
        '[matrix]\n"stream.protocol" = ["jgroups-udp", "jgroups-tcp"]\n'
    )
    # In a network of its own, in which nothing goes to many.
    rules = "add table ip t; add chain ip t out { type filter hook output priority 0; };"
    rules += " add rule ip t out ip daddr 224.0.0.0/4 drop"
    alone = f"ip link set lo up && nft '{rules}' && exec {UNRULY} run {plan} -q -o {out}"
    said = subprocess.run(
        ["unshare", "-n", "sh", "-c", alone],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    run = Measured(out)
    assert flows(run)["protocol=jgroups-tcp", "reader"]["messages"] > 100
    told = run.rows(
        "select kind, detail from events where cell = 'protocol=jgroups-udp'"
        " and process = 'reader-0' and kind like 'stream%'"
    )
    assert told == [
        (
            "stream failed",
            "jgroups-udp: nothing that is sent to 239.8.8.8 comes back to 127.0.0.1;"
            " wanted a network with multicast; hint: try jgroups-tcp",
        )
    ]


def test_a_collector_in_the_stream_s_own_machine_is_work_that_is_told(tmp_path: Path) -> None:
    more = '[compete]\nkind = "gc"\noccupancy = 0.3\nlive = "64MiB"\n[jvm]\nheap = "128MiB"\n'
    more += 'collector = "serial"\n[pin]\nwriter-0 = [0]\nreader-0 = [0]\n'
    run = measured(tmp_path, 'protocol = "jvm-tcp"', "", more, duration="3s")
    found = flows(run)["all", "reader"]
    assert found["messages"] > 100
    assert found["lost"] == 0
    sides = run.rows("select distinct side from intervals order by all")
    assert sides == [("compete",), ("reader",), ("writer",)]
    ((collections, took),) = run.rows(
        "select sum(gc_count), sum(gc_ns) from resources where watched = 'reader-0'"
    )
    assert collections > 0
    assert took > 0
    ((pauses, longest),) = run.rows(
        "select count(*), max(ended_ns - started_ns) from events"
        " where kind = 'gc' and process = 'reader-0'"
    )
    assert pauses > 0
    assert longest > 0


def test_a_collector_beside_another_s_stream_has_a_machine_of_its_own(tmp_path: Path) -> None:
    more = '[compete]\nkind = "gc"\noccupancy = 0.3\nlive = "64MiB"\n[jvm]\nheap = "160MiB"\n'
    more += "[pin]\ncompete-0 = [0]\n"
    run = measured(tmp_path, 'protocol = "tcp"', "", more, duration="2s")
    assert flows(run)["all", "reader"]["messages"] > 100
    ((used, lasted, processes),) = run.rows(
        "select sum(cpu_ns), max(ended_ns) - min(started_ns), min(process)"
        " from intervals where side = 'compete'"
    )
    assert processes == "compete-0-0"
    # Where others want the core as well it may get less.
    assert 0.1 < used / lasted < 0.4
    assert machines(run.path) == {}


def shared_memory() -> set[Path]:
    """Aeron's files in memory, named after the process that keeps them."""
    return set(Path("/dev/shm").glob("unruly-aeron-*"))


def keepers() -> set[str]:
    """The pids in the names of the files in memory."""
    return {file.name.split("-")[2] for file in shared_memory()}


def leaked() -> set[Path]:
    """Files in memory whose process is gone: those of a living one may be another run's."""
    return {file for file in shared_memory() if not Path("/proc", file.name.split("-")[2]).exists()}


@pytest.mark.parametrize("protocol", ["jvm-tcp", "aeron", "aeron-daemon"])
def test_a_machine_ends_with_its_agent_however_that_ends(tmp_path: Path, protocol: str) -> None:
    before = leaked()
    fault = '[[fault]]\nkind = "kill"\nprocess = "reader-0"\nat = "300ms"\n'
    run = measured(tmp_path, f'protocol = "{protocol}"', "", fault, duration="4s")
    wait_for(lambda: not machines(run.path), "the end of all virtual machines")
    assert leaked() <= before
    told = run.rows("select kind from events where process = 'writer-0' and kind like 'stream%'")
    assert told in ([("stream broken",)], [("stream not finished",)])


def without_java(folder: Path, duration: str, more: str) -> Measured:
    """A matrix in which some cells need Java, which is missing."""
    plan = folder / "plan.toml"
    plan.write_text(
        f'name = "a"\n[run]\nduration = "{duration}"\n[stream]\nprotocol = "tcp"\n{more}'
    )
    nowhere = {**os.environ, "UNRULY_JVM": str(folder)}
    said = call("run", plan, "-q", "-o", folder / "out", env=nowhere)
    assert said.returncode == 0, said.stderr
    return Measured(folder / "out")


def test_without_java_its_cells_say_so_and_the_others_run(tmp_path: Path) -> None:
    run = without_java(tmp_path, "500ms", '[matrix]\n"stream.protocol" = ["jvm-tcp", "tcp"]\n')
    ((detail,),) = run.rows(
        "select detail from events where kind = 'stream failed' and process = 'writer-0'"
    )
    assert "wanted both; hint: apt-get install openjdk-17-jre-headless, and make jvm" in detail
    assert flows(run)["protocol=tcp", "reader"]["messages"] > 100


def test_without_java_a_collector_s_load_is_missing_and_its_cell_is_in_doubt(
    tmp_path: Path,
) -> None:
    more = '[compete]\nkind = "none"\n[matrix]\n"compete.kind" = ["none", "gc"]\n'
    run = without_java(tmp_path, "2s", more)
    ((process, detail),) = run.rows("select process, detail from events where kind = 'load failed'")
    assert process == "compete-0-0"
    assert "hint: apt-get install openjdk-17-jre-headless" in detail
    assert flows(run)["kind=gc", "reader"]["messages"] > 100
    (finding,) = [it for it in run.verdict()["findings"] if it["code"] == "load-off-target"]
    assert finding["evidence"]["cells"].keys() == {"kind=gc"}


def test_a_machine_that_is_killed_leaves_no_memory(tmp_path: Path) -> None:
    out = tmp_path / "out"
    plan = tmp_path / "plan.toml"
    plan.write_text('name = "a"\n[run]\nduration = "20s"\n[stream]\nprotocol = "aeron"\n')
    with running(plan, out) as process:
        wait_for(lambda: len(machines(out)) == 2, "two virtual machines")
        own = machines(out)
        wait_for(lambda: {str(pid) for pid in own} <= keepers(), "its memory")
        for pid in own:
            os.kill(pid, signal.SIGKILL)
        assert process.wait(timeout=60) == 0
    assert not {str(pid) for pid in own} & keepers()


def test_a_heap_without_room_for_what_lives_is_told(tmp_path: Path) -> None:
    more = '[compete]\nkind = "gc"\nlive = "127MiB"\n[jvm]\nheap = "128MiB"\n'
    run = measured(tmp_path, 'protocol = "jvm-tcp"', "", more, duration="500ms")
    details = run.rows("select detail from events where kind = 'stream failed' order by all")
    assert len(details) == 2
    assert "live" in details[0][0]
