"""Three machines in one: network namespaces without a name, joined by a bridge in a fourth."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from house import FLURRY, wait_for

NETWORK = "10.77.0"


@contextmanager
def _namespace() -> Iterator[int]:
    """A network namespace that lives as long as the process that holds it."""
    words = ["unshare", "--net", "--kill-child", "sh", "-c", "echo ready; exec sleep 3600"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n"
            yield holder.pid
        finally:
            holder.kill()


def within(pid: int, *words: str | Path) -> list[str | Path]:
    """The words of a command, run inside a namespace."""
    return ["nsenter", "--target", str(pid), "--net", "--", *words]


def run(pid: int, *words: str) -> None:
    done = subprocess.run(within(pid, *words), capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)


@contextmanager
def machines(count: int, middle: int | None = None) -> Iterator[list[int]]:
    """Machines 10.77.0.1, 10.77.0.2, ...: the processes that hold their namespaces.

    The bridge is made in the namespace of the process `middle`, with 10.77.0.100 as its address
    there; without `middle` it has a namespace that nobody else uses.
    """
    with ExitStack() as stack:
        own = middle is not None
        middle = stack.enter_context(_namespace()) if middle is None else middle
        run(middle, "ip", "link", "add", "bridge", "type", "bridge")
        if own:
            run(middle, "ip", "address", "add", f"{NETWORK}.100/24", "dev", "bridge")
        run(middle, "ip", "link", "set", "bridge", "up")
        pids = []
        for number in range(1, count + 1):
            pid = stack.enter_context(_namespace())
            port = f"port{number}"
            peer = ["peer", "name", "eth0", "netns", str(pid)]
            run(middle, "ip", "link", "add", port, "type", "veth", *peer)
            run(middle, "ip", "link", "set", port, "master", "bridge", "up")
            run(pid, "ip", "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            run(pid, "ip", "link", "set", "eth0", "up")
            run(pid, "ip", "link", "set", "lo", "up")
            pids.append(pid)
        yield pids


class Typist:
    """Types commands on machines, in a directory that all of them have."""

    def __init__(self, pids: list[int], folder: Path) -> None:
        self.pids = pids
        self.folder = folder
        self.path = f"{FLURRY.parent}:{os.environ['PATH']}"
        self.background: list[tuple[int, subprocess.Popen[bytes]]] = []
        self.number = count()

    def words(self, machine: int, line: str) -> list[str | Path]:
        return within(self.pids[machine - 1], "sh", "-c", line)

    def begin(self, machine: int, line: str) -> tuple[Path, subprocess.Popen[bytes]]:
        """Start a command in the background; return its log and its process."""
        log = self.folder / f"background-{next(self.number)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                self.words(machine, f"exec {line}"),
                stdout=out, stderr=out, cwd=self.folder, env={**os.environ, "PATH": self.path},
            )  # fmt: skip
        self.background.append((machine, process))
        return log, process

    def leave_running(self, machine: int, line: str) -> None:
        """Start a command in the background and wait until it says that it is ready."""
        log, process = self.begin(machine, line)
        started = ("ready", "standing by")
        wait_for(
            lambda: any(it in log.read_text() for it in started) or process.poll() is not None, line
        )
        assert process.poll() is None, log.read_text()

    def type(self, machine: int, line: str) -> str:
        done = self.try_to(machine, line)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    def try_to(self, machine: int, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(machine, line), capture_output=True, text=True, timeout=30, check=False,
            cwd=self.folder, env={**os.environ, "PATH": self.path},
        )  # fmt: skip

    def signal(self, machine: int, number: signal.Signals) -> None:
        """Send a signal to all that runs in the background of a machine."""
        for where, process in self.background:
            if where == machine:
                process.send_signal(number)

    def plug(self, machine: int, state: str) -> None:
        """Pull a machine's network cable (`down`), or put it back (`up`)."""
        run(self.pids[machine - 1], "ip", "link", "set", "eth0", state)

    def switch_off(self, machine: int) -> None:
        for where, process in self.background:
            if where == machine:
                process.send_signal(signal.SIGKILL)
                process.wait()
        self.background = [it for it in self.background if it[0] != machine]


@contextmanager
def typist(folder: Path) -> Iterator[Typist]:
    with machines(3) as pids:
        someone = Typist(pids, folder)
        try:
            yield someone
        finally:
            for _, process in someone.background:
                process.kill()
                process.wait()
