"""The middleware systems in C++ and Go echo every payload, and leave nothing behind.

The first time, each is built from its source, which takes some seconds.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from house import REPOSITORY, UNRULY, Measured, call, need_root, wait_for

SYSTEMS = REPOSITORY / "unruly" / "systems"
NATIVE = ["omniorb", "grpc", "sctp", "corosync-cpg"]
IN_NAMESPACES = ["sctp", "corosync-cpg"]
CALLS = 200
SERVICE_SECONDS_MAX = 900


def drive(folder: Path, system: str, payload: str) -> Measured:
    """Make a fixed number of calls, however slow the machine is."""
    out = folder / payload
    load = ["-n", str(CALLS), "-d", "10min", "--timeout", "60s", "-c", "4", "-w", "0s"]
    words = ["drive", f"system:{SYSTEMS / system}.toml", *load, "--payload", payload]
    said = call(*words, "-q", "-o", out, timeout=SERVICE_SECONDS_MAX)
    assert said.returncode == 0, said.stderr
    return Measured(out)


def listeners(pids: set[int]) -> list[str]:
    """The local addresses of sockets that these processes have open on the host itself."""
    lines = subprocess.run(
        ["ss", "-H", "-l", "-n", "-t", "-u", "-w", "-p"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    of_them = [line for line in lines if any(f"pid={pid}," in line for pid in pids)]
    return [line.split()[4] for line in of_them]


@dataclass(frozen=True)
class Running:
    """A process, as `ps` shows it."""

    pid: int
    parent: int
    network: str
    command: str


def descendants(pid: int) -> list[Running]:
    """The children of a process, and theirs."""
    columns = "pid=,ppid=,netns=,args="
    lines = subprocess.run(
        ["ps", "-e", "-w", "-w", "-o", columns], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    rows = [line.split(maxsplit=3) for line in lines]
    every = [Running(int(it[0]), int(it[1]), it[2], it[3]) for it in rows]
    family = {pid}
    while more := {it.pid for it in every if it.parent in family} - family:
        family |= more
    return [it for it in every if it.pid in family - {pid}]


@pytest.fixture(params=NATIVE)
def system(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name in IN_NAMESPACES:
        need_root(f"{name}, for its network namespaces,")
    return name


@pytest.mark.parametrize("payload", ["4B", "2KB", "64KB"])
def test_every_call_is_echoed(system: str, payload: str, tmp_path: Path) -> None:
    run = drive(tmp_path, system, payload)
    copies = run.manifest["counts"]["copies"]
    assert copies["scheduled"] == copies["recorded"] == copies["ok"] >= CALLS
    of_service = [it for it in run.manifest["processes"] if it["kind"] == "service"]
    assert of_service
    assert not any(Path(f"/proc/{it['pid']}").exists() for it in of_service)
    assert not (run.path / "services").exists()


def test_nothing_listens_beyond_loopback(system: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["drive", f"system:{SYSTEMS / system}.toml", "-d", "10min", "-q", "-o", str(out)]
    process = subprocess.Popen([UNRULY, *words], stderr=subprocess.DEVNULL)
    with process:
        try:
            of_client = re.compile(r"/built/client\b|/built client\b|/corosync-cpg-\w+/client\b")
            wait_for(
                lambda: any(of_client.search(it.command) for it in descendants(process.pid)),
                f"the client of {system}",
                SERVICE_SECONDS_MAX,
            )
            family = descendants(process.pid)
            found = listeners({it.pid for it in family})
        finally:
            process.terminate()
    networks = {it.network for it in family}
    if system in IN_NAMESPACES:
        assert (found, len(networks) > 1) == ([], True)
    else:
        assert found
        assert all(it.startswith("127.") for it in found), found


def test_the_clients_in_cpp_read_the_same_lines() -> None:
    """A service file includes no other, so three of them have the same text."""
    texts = set()
    for name in ["omniorb", "sctp", "corosync-cpg"]:
        file = tomllib.loads((SYSTEMS / f"{name}.toml").read_text())
        texts |= {it["files"]["calls.hh"] for it in file["process"] if "calls.hh" in it["files"]}
    assert len(texts) == 1
