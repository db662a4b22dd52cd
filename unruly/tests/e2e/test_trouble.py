"""Bad input and bad luck: a clear error, nothing lost, nothing hangs."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from house import (
    Measured,
    call,
    need_root,
    pids_of,
    running,
    spooled,
    wait_for,
    write_plan,
)
from test_drive import write_drive

SPOILED_BY_THE_HOST = {"generator-stalled", "rate-not-reached"}
"""What a busy host may do to any run."""


def free_port(count: int) -> int:
    """The first of `count` neighbouring free ports."""
    for first in range(20_000, 30_000, count):
        sockets = []
        try:
            for port in range(first, first + count):
                sockets.append(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        finally:
            for each in sockets:
                each.close()
        return first
    raise AssertionError("no free ports")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (None, "there is no such plan"),
        ("name = [", "plan.toml:1"),
        ('name = "x"\ndurration = 1\n', 'unknown key "durration"'),
    ],
)
def test_a_bad_plan_is_refused_with_its_place_and_a_hint(
    tmp_path: Path, text: str | None, wanted: str
) -> None:
    plan = tmp_path / "plan.toml"
    if text is not None:
        plan.write_text(text)
    said = call("run", plan, "-o", tmp_path / "out")
    assert said.returncode == 2
    assert wanted in said.stderr
    assert "hint: " in said.stderr
    assert not (tmp_path / "out").exists()


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    port = free_port(4)
    with socket.create_server(("127.0.0.1", port + 1)):
        plan = write_plan(tmp_path, mesh=f"port = {port}")
        said = call("run", plan, "-o", tmp_path / "out")
    assert said.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port + 1}" in said.stderr
    assert "hint: choose another mesh.port" in said.stderr
    assert not pids_of(tmp_path)


def test_a_run_is_not_written_over(measure: Callable[..., Measured], tmp_path: Path) -> None:
    run = measure(duration="1s")
    said = call("run", write_plan(tmp_path), "-o", run.path)
    assert said.returncode == 2
    assert "holds a run already" in said.stderr


@pytest.mark.smoke
def test_ctrl_c_makes_the_run_shorter_and_valid(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with running(write_plan(tmp_path, duration="60s"), folder) as process:
        wait_for(lambda: spooled(folder) > 20_000, "the first rows")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    run = Measured(folder)
    copies = run.manifest["counts"]["copies"]
    assert run.manifest["status"] == "stopped"
    assert (
        copies["scheduled"] == copies["recorded"] == run.rows("select count(*) from requests")[0][0]
    )
    assert not pids_of(folder)
    verdict = run.verdict()
    findings = {it["code"]: it["severity"] for it in verdict["findings"]}
    assert findings["run-stopped"] == "informs"
    assert verdict["missing"] == []
    assert verdict["conservation"]["checked"]
    assert verdict["conservation"]["rows"] == copies["recorded"]
    # A busy host may spoil the run; that it was stopped may not.
    spoils = {code for code, severity in findings.items() if severity == "spoils"}
    assert spoils <= SPOILED_BY_THE_HOST
    assert verdict["trustworthy"] == (not spoils)


@pytest.mark.smoke
def test_a_killed_runner_leaves_no_process_and_a_run_that_opens(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with running(write_plan(tmp_path, duration="60s"), folder) as process:
        wait_for(lambda: spooled(folder) > 20_000, "the first rows")
        process.kill()
        process.wait()
        wait_for(lambda: not pids_of(folder), "the end of the agents")
    run = Measured(folder)
    verdict = run.verdict()
    assert run.manifest["status"] == "cut off"
    assert any("cut off" in sentence for sentence in verdict["missing"])
    assert run.rows("select count(*) from requests")[0][0] > 100


def test_a_killed_agent_costs_at_most_its_last_second(either: Callable[..., Measured]) -> None:
    fault = '[[fault]]\nkind = "kill"\nprocess = "agent-1"\nat = "3s"'
    run = either(duration="5s", more=fault)
    start, last = run.rows(
        "select (select min(intended_ns) from requests), max(intended_ns) from requests"
        " where process = 'agent-1'"
    )[0]
    killed = run.rows("select started_ns from events where kind = 'fault kill'")[0][0]
    assert killed - start > 2.5e9
    assert killed - last < 1e9
    exits = {process["name"]: process["exit"] for process in run.manifest["processes"]}
    assert exits["agent-1"] == {"signal": 9}
    assert exits["agent-0"] == {"code": 0}
    assert any("agent-1" in sentence for sentence in run.manifest["missing"])
    statuses = run.rows(
        "select distinct status from requests where server = 1 and process <> 'agent-1'"
        " and intended_ns > ? + 500000000".replace("?", str(killed))
    )
    assert {status for (status,) in statuses} <= {"refused", "error:reset", "error:disconnected"}
    copies = run.manifest["counts"]["copies"]
    assert copies["recorded"] == run.rows("select count(*) from requests")[0][0]


@pytest.mark.smoke
def test_a_stopped_agent_is_seen_in_the_rows_and_nothing_hangs(
    either: Callable[..., Measured],
) -> None:
    fault = '[[fault]]\nkind = "stop"\nprocess = "agent-1"\nat = "1s"\nduration = "2s"'
    run = either(duration="5s", more=fault, timeout="5s")
    ((to_it, by_it, to_others),) = run.rows(
        "select max(received_ns - intended_ns) filter (server = 1 and client <> 1) / 1e9,"
        "       max(received_ns - intended_ns) filter (client = 1) / 1e9,"
        "       max(received_ns - intended_ns) filter (client <> 1 and server <> 1) / 1e9"
        " from requests"
    )
    assert 1.8 < to_it < 4
    assert 1.8 < by_it < 4
    assert to_others < 1
    assert run.manifest["counts"]["copies"]["ok"] == run.manifest["counts"]["copies"]["scheduled"]
    schedule = run.rows("select count(*) from requests where client = 1")[0][0]
    assert schedule == run.rows("select count(*) from requests where client = 0")[0][0]


def test_a_reply_after_the_timeout_is_a_row_with_its_time(
    either: Callable[..., Measured],
) -> None:
    fault = '[[fault]]\nkind = "stop"\nprocess = "agent-1"\nat = "1s"\nduration = "1s"'
    run = either(duration="4s", more=fault, timeout="300ms")
    late, fast = run.rows(
        "select count(received_ns) filter (status = 'timeout'),"
        "       count(*) filter (status = 'timeout' and received_ns - intended_ns < 300000000)"
        " from requests"
    )[0]
    assert late > 10
    assert fast == 0


def test_a_full_disk_stops_the_run_and_keeps_what_was_written(tmp_path: Path) -> None:
    need_root("a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
    try:
        plan = write_plan(
            tmp_path, duration="30s", period="1ms", mesh='disk_file = "200KB"\nbody = "1KB"'
        )
        said = call("run", plan, "-q", "-o", disk / "out")
        manifest = json.loads((disk / "out" / "manifest.json").read_text())
        assert "No space left" in said.stderr + "".join(manifest["broken"])
        assert manifest["status"] == "incomplete"
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        recovered = call("recover", disk / "out")
        assert recovered.returncode == 0, recovered.stderr
        assert Measured(disk / "out").rows("select count(*) from requests")[0][0] > 1000
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("disk", ["size=1m", "size=2m", "size=64m,nr_inodes=17"])
def test_a_run_whose_disk_was_full_says_so_after_there_is_space_again(
    tmp_path: Path, disk: str
) -> None:
    need_root("a small disk")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", disk, "tmpfs", place], check=True)
    try:
        plan = write_drive(
            tmp_path, duration="6s", arrivals='arrivals = "constant"\nrate = "5000/s"'
        )
        said = call("run", plan, "-q", "-o", place / "out")
        if not (place / "out" / "manifest.json").exists():
            # there was no room to begin
            assert "No space left" in said.stderr
            return
        assert said.returncode != 0
        subprocess.run(["mount", "-o", "remount,size=64m,nr_inodes=1000", place], check=True)
        verdict = call("verdict", place / "out")
        assert "No space left" in verdict.stdout + verdict.stderr, verdict.stdout
        assert "its runner ended without a word" not in verdict.stdout
    finally:
        subprocess.run(["umount", place], check=True)


GARBAGE = [
    ("random bytes", os.urandom(4096)),
    ("an oversized length", b""),
    ("half a message", struct.pack(">HBB", 0x5501, 1, 0) + b"\0" * 10),
]


@pytest.mark.smoke
def test_garbage_and_idle_connections_do_not_disturb_the_agents(
    tmp_path: Path, runtime: str
) -> None:
    port = free_port(4)
    folder = tmp_path / "out"
    mesh = f'port = {port}\nruntime = "{runtime}"'
    plan = write_plan(tmp_path, duration="4s", mesh=mesh, timeout="2s")
    idle: list[socket.socket] = []
    with running(plan, folder) as process:
        wait_for(lambda: spooled(folder) > 5_000, "the first rows")
        head = struct.pack(">HBBIQHHI", 0x5501, 1, 4, 0, 1, 0, 0, 1 << 31)
        oversized = head + struct.pack(">I", zlib.crc32(head))
        for _, garbage in GARBAGE:
            for target in range(port, port + 3):
                peer = socket.create_connection(("127.0.0.1", target), timeout=5)
                peer.sendall(garbage or oversized)
                idle.append(peer)
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
                    datagram.sendto((garbage or oversized)[:1400], ("127.0.0.1", target))
        for _ in range(1000):
            idle.append(socket.create_connection(("127.0.0.1", port), timeout=5))
        assert process.wait(timeout=60) == 0
    for each in idle:
        each.close()
    run = Measured(folder)
    copies = run.manifest["counts"]["copies"]
    assert copies["ok"] == copies["scheduled"] > 500
    refused = run.rows("select sum(detail::int) from events where kind = 'connections refused'")
    assert refused[0][0] >= 700


@pytest.mark.parametrize("verb", ["verdict", "report", "recover"])
def test_a_directory_that_is_no_run_is_said_to_be_none(tmp_path: Path, verb: str) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        said = call(verb, folder)
        assert said.returncode == 2
        assert str(folder) in said.stderr
        assert "hint: " in said.stderr


def test_a_small_address_space_is_refused_instead_of_hanging(tmp_path: Path) -> None:
    def small() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (500 << 20, 500 << 20))

    done = call("verdict", tmp_path, timeout=60, preexec_fn=small)
    assert done.returncode == 2
    assert "the address space is limited to 500 MiB" in done.stderr
    assert "hint: ulimit -v unlimited" in done.stderr


def test_a_run_that_goes_on_is_not_recovered(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with running(write_plan(tmp_path, duration="30s"), folder):
        wait_for(lambda: spooled(folder) > 5_000, "the first rows")
        said = call("recover", folder)
    assert said.returncode == 2
    assert "still going on" in said.stderr


def test_a_package_in_the_working_directory_is_not_run(tmp_path: Path) -> None:
    """It may be anybody's: a checkout of this project has a folder of that name too."""
    package = tmp_path / "unruly"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("open('ran', 'w').close()")
    said = call("verdict", tmp_path / "nowhere", cwd=tmp_path)
    assert not (tmp_path / "ran").exists()
    assert "there is no such" in said.stderr or "nowhere" in said.stderr, said.stderr


def test_a_folder_with_the_name_of_a_shipped_plan_does_not_hide_the_plan(tmp_path: Path) -> None:
    (tmp_path / "echo").mkdir()
    sets = ["--set", "rate=50/s", "-d", "300ms", "-w", "0s", "-q", "-o", "run"]
    said = call("run", "echo", *sets, cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert (tmp_path / "run" / "manifest.json").is_file()
