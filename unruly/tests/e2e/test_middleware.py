"""Middleware systems: a run starts each, calls its echo, and goes on without a missing one."""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from house import Measured, call, running

ECHO = '''
about = "An echo in Python"
url = """program:{python} -u {client} \\
{{{{ processes['server'].host }}}} {{{{ processes['server'].port }}}}"""
programs = ["{program}"]
[[process]]
name = "server"
command = ["{python}", "-u", "{server}", "{{{{ host }}}}", "{{{{ port }}}}"]
ready = "10s"
'''

CHECK = """check = ["sh", "-c", "echo seat 7 was sold twice; exit {code}"]
[[process]]"""

SERVER = """
import socketserver, sys
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line{change})
socketserver.ThreadingTCPServer((sys.argv[1], int(sys.argv[2])), Echo).serve_forever()
"""

CLIENT = """
import socket, sys, time
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
replies = peer.makefile("rb")
print("unruly 1")
for line in sys.stdin:
    word, *numbers = line.split()
    if word == "unruly":
        continue
    sent = time.monotonic_ns()
    payload = numbers[0].encode().ljust(int(numbers[2]) - 1) + b"\\n"
    peer.sendall(payload)
    same = replies.readline() == payload
    times = f"{numbers[0]} {sent} {time.monotonic_ns()}"
    print(f"done {times}" if same else f"failed {times} store another echo")
with open(sys.argv[0] + ".ended", "w"):
    pass
"""

PLAN = """
name = "calls"
seed = 3
[run]
duration = "30s"
warmup = "0s"
[drive]
system = "tcp"
arrivals = "closed"
requests = 300
payload = "100B"
[matrix]
"drive.system" = {systems}
"""


def write_system(folder: Path, name: str, *, program: str = "sh", change: str = "") -> Path:
    """Write the file of a system in Python, with its programs; return it."""
    server, client = folder / f"{name}-server.py", folder / f"{name}-client.py"
    server.write_text(SERVER.format(change=change))
    client.write_text(CLIENT)
    file = folder / f"{name}.toml"
    words = {"python": sys.executable, "server": server, "client": client, "program": program}
    file.write_text(ECHO.format(**words))
    return file


def write_plan(folder: Path, *systems: str | Path) -> Path:
    """Write a plan that calls these systems."""
    plan = folder / "calls.toml"
    plan.write_text(PLAN.format(systems=json.dumps([str(it) for it in systems])))
    return plan


def measured(folder: Path, *systems: str | Path, code: int = 0) -> tuple[Measured, str]:
    """Measure a plan; return the run and what the program printed beside it."""
    out = folder / "run"
    said = call("run", write_plan(folder, *systems), "-o", out)
    assert said.returncode == code, said.stderr + said.stdout
    return Measured(out), said.stderr + said.stdout


def calls(run: Measured) -> dict[str, int]:
    """Count the good calls of each cell."""
    cells = [it["name"] for it in run.manifest["cells"]]
    counted = "select cell, count(*) from requests where status = 'ok' group by cell"
    return {cells[cells.index(str(cell))]: count for cell, count in run.rows(counted)}


def test_a_sweep_calls_our_own_echo_and_systems_that_it_starts(tmp_path: Path) -> None:
    own = write_system(tmp_path, "own")
    run, _ = measured(tmp_path, "tcp", "udp", "rmi", own)
    found = calls(run)
    assert sorted(it.split("/")[-1] for it in found) == [
        "own.toml", "system=rmi", "system=tcp", "system=udp",
    ]  # fmt: skip
    assert all(count == 300 for count in found.values()), found
    assert run.manifest["status"] == "complete"
    # its input has ended, and it had the time to do what it does then
    assert (tmp_path / "own-client.py.ended").exists()
    # the caller stamps its calls: a response begins when it sends, and has the bytes of the payload
    stamps = "select min(sent_ns - intended_ns), max(sent_ns - intended_ns), min(received_bytes)"
    where = "from requests where cell = 'system=rmi'"
    assert run.rows(f"{stamps}, min(sent_bytes) {where}") == [(0, 0, 100, 100)]


@pytest.mark.parametrize(("code", "told"), [(0, False), (1, True)])
def test_data_that_contradict_themselves_after_a_trial_spoil_the_run(
    tmp_path: Path, code: int, told: bool
) -> None:
    own = write_system(tmp_path, "own")
    own.write_text(own.read_text().replace("[[process]]", CHECK.format(code=code)))
    run, said = measured(tmp_path, own, code=1 if told else 0)
    assert ("its data contradict themselves: seat 7 was sold twice" in said) == told
    spoiling = [it for it in run.verdict()["findings"] if it["severity"] == "spoils"]
    assert ("seat 7 was sold twice" in json.dumps(spoiling)) == told


def test_spans_of_a_system_that_exports_none_are_refused() -> None:
    said = call("drive", "system:rmi", "--payload", "64B", "--spans", "127.0.0.1:4318")
    assert said.returncode == 2
    assert "rmi exports no spans" in said.stderr


def test_a_missing_system_costs_its_own_cells_and_is_named(tmp_path: Path) -> None:
    gone = write_system(tmp_path, "gone", program="no-such-program")
    run, said = measured(tmp_path, "tcp", gone)
    assert list(calls(run)) == ["system=tcp"]
    assert "left out: service" in said
    assert "no-such-program not found" in said
    (finding,) = [it for it in run.verdict()["findings"] if it["code"] == "cells-left-out"]
    assert "no-such-program not found" in json.dumps(finding)
    assert run.manifest["status"] == "complete"


def test_a_system_that_does_not_start_costs_its_own_cells_and_is_named(tmp_path: Path) -> None:
    broken = write_system(tmp_path, "broken")
    (tmp_path / "broken-server.py").write_text("raise SystemExit('no room for it')")
    run, said = measured(tmp_path, broken, "udp")
    assert list(calls(run)) == ["system=udp"]
    assert "left out: " in said
    assert "broken.toml could not be started" in said
    assert [it["cell"] for it in run.manifest["trials"]] == ["system=udp"]
    assert run.manifest["status"] == "complete"


def test_without_any_system_that_can_be_measured_the_run_says_why(tmp_path: Path) -> None:
    gone = write_system(tmp_path, "gone", program="no-such-program")
    said = call("run", write_plan(tmp_path, gone), "-o", tmp_path / "run")
    assert said.returncode == 2
    assert "no cell that can be measured" in said.stderr
    assert "no-such-program not found" in said.stderr


def test_a_run_in_which_no_system_starts_fails(tmp_path: Path) -> None:
    broken = [write_system(tmp_path, name) for name in ("one", "two")]
    for name in ("one", "two"):
        (tmp_path / f"{name}-server.py").write_text("raise SystemExit('no room for it')")
    said = call("run", write_plan(tmp_path, *broken), "-o", tmp_path / "run")
    assert said.returncode == 2, said.stderr
    assert "could not be started" in said.stderr
    assert Measured(tmp_path / "run").manifest["status"] == "incomplete"


def test_a_resumed_sweep_keeps_its_cells_when_a_system_has_come_since(tmp_path: Path) -> None:
    late = write_system(tmp_path, "late", program="no-such-program")
    own = write_system(tmp_path, "own")
    plan, out = write_plan(tmp_path, "tcp", late, own, "udp"), tmp_path / "run"
    said = call("run", plan, "-q", "-o", out, "--for", "1ns")
    assert said.returncode == 0, said.stderr
    write_system(tmp_path, "late")
    said = call("run", plan, "-q", "--resume", out)
    assert said.returncode == 0, said.stderr
    run = Measured(out)
    assert sorted(it["cell"].split("/")[-1] for it in run.manifest["trials"]) == [
        "own.toml", "system=tcp", "system=udp",
    ]  # fmt: skip
    assert [count for _, count in sorted(calls(run).items())] == [300, 300, 300]
    assert "no-such-program" in run.manifest["left_out"][0]


def test_each_system_takes_the_parameters_that_it_has(tmp_path: Path) -> None:
    plan = write_plan(tmp_path, "tcp", "jvm-tcp", write_system(tmp_path, "own"))
    text = plan.read_text()
    plan.write_text(text.replace("[matrix]", '[service]\nheap = "64MiB"\n[matrix]'))
    said = call("run", plan, "-q", "-o", tmp_path / "run")
    assert said.returncode == 0, said.stderr
    assert all(count == 300 for count in calls(Measured(tmp_path / "run")).values())
    plan.write_text(text.replace("[matrix]", "[service]\nhepa = 1\n[matrix]"))
    said = call("run", plan, "-q", "-o", tmp_path / "other")
    assert said.returncode == 2
    assert 'no system of the plan has the parameter "hepa"' in said.stderr
    assert "did you mean heap" in said.stderr


def test_an_echo_with_other_bytes_is_a_failed_call(tmp_path: Path) -> None:
    wrong = write_system(tmp_path, "wrong", change='.replace(b" ", b"x")')
    out = tmp_path / "run"
    said = call("run", write_plan(tmp_path, wrong), "-q", "-o", out)
    assert said.returncode == 0, said.stderr
    assert Measured(out).rows("select distinct status from requests") == [("error:store",)]


def test_a_call_in_an_open_loop_counts_from_its_schedule(tmp_path: Path) -> None:
    own = write_system(tmp_path, "own")
    flags = ["-r", "200", "-d", "1s", "-w", "0s", "--payload", "64B", "-q", "-o", tmp_path / "run"]
    said = call("drive", f"system:{own}", *flags)
    assert said.returncode == 0, said.stderr
    (least, rows) = Measured(tmp_path / "run").rows(
        "select min(sent_ns - intended_ns), count(*) from requests where status = 'ok'"
    )[0]
    assert rows == 200
    assert least > 0


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["system:rmj"], "did you mean rmi"),
        (["system:redis"], 'store = "redis" starts the service of this name'),
        (["system:rmi", "--retries", "1"], "every request is a call with payload bytes"),
        (["system:rmi", "--value", "1KB"], "every request is a call with payload bytes"),
        (["system:rmi", "--transport", "udp"], "the system names the server and its transport"),
    ],
)
def test_a_wrong_system_or_flag_is_refused_with_a_hint(words: list[str], wanted: str) -> None:
    said = call("drive", *words, "-d", "1s")
    assert said.returncode == 2
    assert wanted in said.stderr


def descendants(pid: int) -> Iterator[int]:
    """All processes that a process started, and those that they started."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").glob("*/children"))
        children = [int(it) for task in tasks for it in task.read_text().split()]
    except OSError:
        return  # it has ended
    for child in children:
        yield child
        yield from descendants(child)


def listeners(pid: int) -> set[str]:
    """Addresses on which a process listens in our network namespace, from the kernel's own list."""
    held = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            held.add(os.readlink(file))
        except OSError:
            continue
    found = set()
    for kind, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == state and f"socket:[{words[9]}]" in held:
                found.add(address(words[1].split(":")[0]))
    return found


def address(digits: str) -> str:
    """Return the IP address that a list of the kernel has in words of four bytes."""
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    packed = b"".join(struct.pack("=I", it) for it in words)
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, packed)


def test_no_system_listens_beyond_loopback(tmp_path: Path) -> None:
    plan = write_plan(tmp_path, "rmi", "jvm-nio", "three-tier")
    seen: set[str] = set()
    with running(plan, tmp_path / "run") as run:
        while run.poll() is None:
            for pid in list(descendants(run.pid)):
                try:
                    seen |= listeners(pid)
                except OSError:
                    continue
        assert run.returncode == 0
    assert seen, "the systems listened nowhere"
    assert {it for it in seen if not it.startswith(("127.", "::ffff:127."))} == set()
