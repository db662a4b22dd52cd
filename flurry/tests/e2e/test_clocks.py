"""Wrong clocks and suspended machines: no secret comes back, and nobody answers from the past."""

from __future__ import annotations

import signal
import struct
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
from flurry_house import Cluster, cluster
from house import need_root, wait_for
from machines import typist
from redis_house import Wire

SHIM = Path(__file__).parent / "suspended.c"
NOTHING = b"$-1\r\n"

# A suspended machine is away for this long at least: several leases.
AWAY_S = 3.0

# Only reached by a failure.
LIMIT_S = 120.0


def test_an_expired_value_stays_so_when_the_next_gateways_clock_is_behind(tmp_path: Path) -> None:
    with cluster(tmp_path, "127.64.0.1", ahead_s={"gateway-b": -60.0}) as parts:
        parts.start("gateway-a")
        with closing(Wire(parts.address("gateway-a"))) as wire:
            assert wire.ask("SET", "secret", "s", "PX", "300") == b"+OK\r\n"
            wait_for(lambda: wire.ask("GET", "secret") == NOTHING, "the value to expire")
        parts.kill("gateway-a")
        parts.start("gateway-b")
        with closing(Wire(parts.address("gateway-b"))) as wire:
            assert wire.ask("GET", "secret") == NOTHING
            assert wire.ask("PTTL", "secret") == b":-2\r\n"
            # Time goes on for it all the same.
            assert wire.ask("SET", "short", "s", "PX", "300") == b"+OK\r\n"
            wait_for(lambda: wire.ask("GET", "short") == NOTHING, "its own value to expire")


def disks(parts: Cluster) -> None:
    """Start the three servers, each with its disk."""
    for number in (1, 2, 3):
        words = ["--disk", str(parts.folder / f"disk-{number}")]
        parts.begin(f"server-{number}", *words)


def test_a_server_whose_clock_is_ahead_is_named_when_its_disk_stops_the_others(
    tmp_path: Path,
) -> None:
    parts = Cluster(tmp_path, "127.64.0.2")
    parts.ahead_s["server-3"] = 120.0
    try:
        parts.start("controller")
        disks(parts)
        wait_for(parts.is_whole, "all three")
        parts.start("gateway-a", "--level", "disk")
        with closing(Wire(parts.address("gateway-a"))) as wire:
            assert wire.ask("SET", "k", "v") == b"+OK\r\n"
        for name in ("gateway-a", "server-1", "server-2", "server-3"):
            parts.kill(name)
        disks(parts)
        wait_for(lambda: "is back, but its records end" in parts.status(), "the cause", LIMIT_S)
        said = " ".join(parts.status().split())
        assert "compare the servers' clocks" in said, said
        # The hint does not advise removing an intact disk.
        assert "flurry remove" not in said, said
        # What the page advises once it is known that the third clock was ahead.
        for number in (1, 2):
            parts.kill(f"server-{number}")
            words = ["--disk", str(tmp_path / f"disk-{number}"), "--disk-lost"]
            parts.begin(f"server-{number}", *words)
        wait_for(parts.is_whole, "all three again", LIMIT_S)
        parts.start("gateway-a")
        with closing(Wire(parts.address("gateway-a"))) as wire:
            replies = [wire.ask("GET", "k") for _ in range(2)]
        assert replies[-1] == b"$1\r\nv\r\n", replies
    finally:
        for process in parts.running.values():
            process.kill()
            process.wait()


class Sleeper:
    """The clocks of a machine that is suspended, for processes that are merely stopped."""

    def __init__(self, folder: Path) -> None:
        self.slept = folder / "slept"
        self.slept.write_bytes(struct.pack("qq", 0, 0))
        self.library = folder / "suspended.so"
        words = ["cc", "-shared", "-fPIC", "-O1", "-o", self.library, SHIM, "-ldl"]
        subprocess.run(words, check=True, timeout=60)

    def prefix(self) -> str:
        """What a command begins with so that its clocks stand still."""
        return f"env LD_PRELOAD={self.library} SLEPT_FILE={self.slept}"

    def set_slept(self, monotonic_s: float, boot_s: float) -> None:
        """Write in place: the processes have mapped the file."""
        with self.slept.open("r+b") as file:
            file.write(struct.pack("qq", int(monotonic_s * 1e9), int(boot_s * 1e9)))


def suspend(folder: Path, clock: str) -> tuple[list[str], list[str]]:
    """Suspend the machine of a gateway and a server, and let another gateway take over.

    Returns what the former gateway says afterwards, and what the present one does.
    """
    sleeper = Sleeper(folder)
    with typist(folder) as someone:
        someone.type(1, "flurry key cluster.key")
        where = "--key-file cluster.key --controller 10.77.0.1:7700"
        someone.leave_running(
            1, "flurry controller --listen 10.77.0.1:7700 --dir state --key-file cluster.key"
        )
        for machine in (1, 2, 3):
            prefix = sleeper.prefix() if machine == 3 else "env"
            listen = f"--listen 10.77.0.{machine}:7701"
            words = f"{prefix} flurry server --id {machine} {listen} {where}"
            someone.begin(machine, words)
        gateway = f"flurry gateway --listen 127.0.0.1:6379 --timeout 300ms {where}"
        someone.leave_running(3, f"{sleeper.prefix()} {gateway}")
        assert someone.type(3, "redis-cli set k old") == "OK\n"
        assert someone.type(3, "redis-cli wait 2 10000") == "2\n"
        someone.signal(3, signal.SIGSTOP)
        since = time.monotonic()
        someone.plug(3, "down")
        someone.leave_running(2, gateway)
        assert someone.type(2, "redis-cli set k new") == "OK\n"
        wait_for(lambda: time.monotonic() - since > AWAY_S, "the machine to be away")
        away_s = time.monotonic() - since
        behind = {"monotonic": (away_s, 0.0), "both": (away_s, away_s), "neither": (0.0, 0.0)}
        sleeper.set_slept(*behind[clock])
        someone.signal(3, signal.SIGCONT)
        asked = ("get k", "set other past", "get k", "set other past")
        former = [someone.try_to(3, f"redis-cli {words}").stdout for words in asked]
        # A client hears first that a write of the former one may be lost.
        twice = "printf 'get other\\nget other\\n' | redis-cli"
        present = [someone.type(2, "redis-cli get k"), someone.type(2, twice)]
        return former, present


@pytest.mark.parametrize(
    "clock",
    [
        pytest.param("monotonic", id="of_a_machine_that_sleeps"),
        pytest.param("both", id="of_a_virtual_machine_that_its_host_suspends"),
        pytest.param("neither", id="of_processes_that_are_stopped"),
    ],
)
def test_a_suspended_gateway_answers_nothing_from_before(tmp_path: Path, clock: str) -> None:
    need_root("network namespaces")
    former, present = suspend(tmp_path, clock)
    errors = ("FENCED", "UNKNOWN", "LOADING", "NOREPLICAS", "Error:")
    assert all(it.startswith(errors) or not it.strip() for it in former), former
    assert present[0] == "new\n", present
    assert "past" not in present[1], present
    assert present[1].endswith("\n\n"), "nothing is there"
