"""Twelve kinds of fault, done to real processes from outside: by signals, limits and real work.

A fault is known to the benchmark alone. The faults of a plan write an event of their own (``fault
stop``), which the search for causes ignores.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import real_systems as systems
from bench.real_systems import System

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

EPISODES: Final = 3
FIRST_S, APART_S, LEFT_S = 2.0, 3.5, 2.0
"""Least time from the start to an episode, from one to the next, and from one to the end."""
MEMORY: Final = Path("/sys/fs/cgroup/memory/unruly-bench")
SWAP_MIB: Final = 256
RULES: Final = "unruly_bench"
Wanted = frozenset[tuple[str, str]]
Episode = tuple[float, float]
"""Seconds from the start of measurement, and the length in seconds."""
Span = tuple[int, int]
"""Begin and end, wall clock in ns."""


@dataclass(frozen=True)
class Fault:
    """A kind of fault, the systems that it is done to, and the causes that name it rightly."""

    name: str
    systems: tuple[System, ...]
    causes: tuple[str, ...]
    whose: str
    """``target``; ``servers`` for any of the store's, whose core they share; ``client``; or
    ``host`` for what only a host can count."""
    length_s: tuple[float, float]
    plan: Callable[[System, Episode], str] | None = None
    """The fault of a plan that does it."""
    work: Callable[[Live, Episode], None] | None = None
    """What is done from outside, in place of that."""
    around: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    """What the host needs for it."""

    def wanted(self, system: System) -> Wanted:
        """Return the (cause, process) that name it rightly in a system."""
        own = {
            "target": (system.target,),
            "servers": (*system.servers, "local"),
            "client": ("drive-0",),
            "host": ("local", system.target),
        }[self.whose]
        return frozenset((cause, process) for cause in self.causes for process in own)

    def episodes(self, draw: np.random.Generator) -> list[Episode]:
        """Draw when it happens in one run."""
        room_s = systems.DURATION_S - FIRST_S - LEFT_S - (EPISODES - 1) * APART_S
        places = sorted(float(draw.uniform(0, room_s)) for _ in range(EPISODES))
        starts = [FIRST_S + place + number * APART_S for number, place in enumerate(places)]
        return [(start, float(draw.uniform(*self.length_s))) for start in starts]


@dataclass(frozen=True)
class Live:
    """The processes of a run that goes on."""

    system: System
    runner: int

    def pids(self, word: str) -> list[int]:
        """Return the run's processes whose command has a word, in the order of their start."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if word in words and self._is_ours(int(folder.name)):
                    found.append(int(folder.name))
        return sorted(found)

    def _is_ours(self, pid: int) -> bool:
        while pid > 1:
            if pid == self.runner:
                return True
            stat = Path(f"/proc/{pid}/stat").read_text()
            pid = int(stat.rpartition(")")[2].split()[1])
        return False

    def ports(self) -> list[int]:
        """Return the TCP ports that the processes of the store listen on."""
        words = self.system.servers[0].rpartition("-")[0]
        inodes = set()
        for pid in self.pids(words):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    inodes |= set(re.findall(r"socket:\[(\d+)\]", str(link.readlink())))
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = [row for row in rows if row[3] == "0A" and row[9] in inodes]
        return sorted({int(row[1].rpartition(":")[2], 16) for row in listening})


def _planned(kind: str, more: str = "") -> Callable[[System, Episode], str]:
    def text(system: System, episode: Episode) -> str:
        at, length = episode
        return (
            f'[[fault]]\nkind = "{kind}"\nprocess = "{system.target}"\n'
            f'at = "{1e3 * at:.0f}ms"\nduration = "{1e3 * length:.0f}ms"\n{more}'
        )

    return text


def _of_generator(_: System, episode: Episode) -> str:
    return _planned("stop")(System("", ("drive-0",)), episode)


def _lose_packets(live: Live, episode: Episode) -> None:
    """Have the kernel's packet filter drop a tenth of the packets to and from the store."""
    ports = ", ".join(map(str, live.ports()))
    drop = "numgen random mod 100 < 10 drop"
    text = (
        f"table ip {RULES} {{ chain c {{ type filter hook input priority 0;\n"
        f"tcp dport {{ {ports} }} {drop}\ntcp sport {{ {ports} }} {drop}\n}}\n}}\n"
    )
    subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True, timeout=10)
    try:
        time.sleep(episode[1])
    finally:
        _no_rules()


def _no_rules() -> None:
    subprocess.run(
        ["nft", "delete", "table", "ip", RULES], check=False, capture_output=True, timeout=10
    )


@contextmanager
def _filtered() -> Iterator[None]:
    try:
        yield
    finally:
        _no_rules()


@contextmanager
def _swapping() -> Iterator[None]:
    """Give the host a file to swap to, and the store a control group of memory."""
    file = Path("/var/tmp/unruly-bench.swap")
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    subprocess.run(["dd", "if=/dev/zero", f"of={file}", "bs=1M", f"count={SWAP_MIB}"],
                   check=True, capture_output=True)  # fmt: skip
    subprocess.run(["mkswap", file], check=True, capture_output=True)
    subprocess.run(["swapon", file], check=True)
    MEMORY.mkdir(exist_ok=True)
    try:
        yield
    finally:
        subprocess.run(["swapoff", file], check=True)
        file.unlink()
        with contextlib.suppress(OSError):
            MEMORY.rmdir()


def _take_memory(_: Live, episode: Episode) -> None:
    """Lower the limit of the store's memory to a third of what it uses."""
    used = int((MEMORY / "memory.usage_in_bytes").read_text())
    limit = MEMORY / "memory.limit_in_bytes"
    until = time.monotonic() + episode[1]
    try:
        # The kernel refuses a limit that it cannot reach by now, and has swapped meanwhile.
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                limit.write_text(str(used // 3))
            time.sleep(0.02)
    finally:
        limit.write_text("-1")


def _collect(live: Live, episode: Episode) -> None:
    """Ask the JVM of the target for full collections, one after the other."""
    (pid,) = live.pids(f"{live.system.target}-")[-1:]
    until = time.monotonic() + episode[1]
    while time.monotonic() < until:
        subprocess.run(["jcmd", str(pid), "GC.run"], check=True, capture_output=True, timeout=20)


def _queue(live: Live, episode: Episode) -> None:
    """Send a script to Redis that keeps its only thread busy."""
    loops = int(episode[1] * 1e8)
    script = f"local n = 0; for i = 1, {loops} do n = n + i end; return 1"
    words = ["EVAL", script, "0"]
    asked = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
    (port,) = live.ports()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as server:
        server.sendall(f"*{len(words)}\r\n{asked}".encode())
        server.recv(64)


def _compress(_: Live, episode: Episode) -> None:
    """Run a job of the host beside the servers, as a backup at night would: three of them."""
    jobs = [
        subprocess.Popen(
            ["taskset", "-c", "0", "sh", "-c", "head -c 1G /dev/urandom | gzip -9"],
            stdout=subprocess.DEVNULL, start_new_session=True,
        )
        for _ in range(3)
    ]  # fmt: skip
    time.sleep(episode[1])
    for job in jobs:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def work_on(live: Live, fault: Fault, episodes: list[Episode], start: float) -> list[Span]:
    """Do the episodes of a fault from outside, and return when each was done.

    `start` is the instant of `time.monotonic` at which measurement begins.
    """
    assert fault.work
    done = []
    for episode in episodes:
        time.sleep(max(0.0, start + episode[0] - time.monotonic()))
        begun = time.time_ns()
        fault.work(live, episode)
        done.append((begun, time.time_ns()))
    return done


def missing() -> list[str]:
    """Return the programs of the faults that this host does not have."""
    programs = ("nft", "jcmd", "taskset", "mkswap", "swapon", "redis-server", "etcd", "memcached")
    return [name for name in programs if shutil.which(name) is None]


STORES: Final = (systems.REDIS, systems.ETCD, systems.FLURRY)
ALL: Final = (*STORES, systems.AGENTS)
GROUPED: Final = tuple(systems.grouped(name, str(MEMORY)) for name in systems.GROUPED)
UNSPLIT: Final = ("network and queue", "server or network")
SHORT_OF_CPU: Final = ("cpu wait", "busy cpus")

FAULTS: Final = (
    Fault(
        "stop", ALL, ("process stopped",), "target", (0.15, 0.4),
        plan=_planned("stop"),
    ),
    Fault(
        "kill", STORES, ("process died",), "target", (0.2, 0.6),
        plan=_planned("kill"),
    ),
    Fault(
        "cpu limit", ALL, ("cpu quota",), "target", (0.4, 0.8),
        plan=_planned("quota", "cores = 0.02\n"),
    ),
    Fault(
        "busy neighbours", ALL, SHORT_OF_CPU, "servers", (0.4, 0.8),
        plan=_planned("busy", "cpu = 0\nthreads = 6\n"),
    ),
    Fault(
        "disk stall", (systems.SYNCED, systems.ETCD, systems.ON_DISK), ("disk wait", "busy disk"),
        "host", (0.2, 0.5),
        plan=_planned("disk"),
    ),
    Fault(
        "delay", STORES, UNSPLIT, "target", (0.3, 0.6),
        plan=_planned("network", 'delay = "40ms"\n'),
    ),
    Fault(
        "loss", STORES, ("lost packets",), "host", (0.3, 0.6),
        work=_lose_packets, around=_filtered,
    ),
    Fault(
        "memory pressure", GROUPED, ("page faults", "lack of memory"), "host", (0.4, 0.8),
        work=_take_memory, around=_swapping,
    ),
    Fault(
        "gc pause", (systems.JVMS,), ("gc pause", "safepoint"), "target", (0.4, 0.8),
        work=_collect,
    ),
    Fault(
        "single-thread queue", (systems.REDIS,), ("busy process",), "target", (0.15, 0.4),
        work=_queue,
    ),
    Fault(
        "generator stall", STORES, ("process stopped",), "client", (0.15, 0.4),
        plan=_of_generator,
    ),
    Fault(
        "background job", ALL, SHORT_OF_CPU, "servers", (0.5, 1.0),
        work=_compress,
    ),
)  # fmt: skip
