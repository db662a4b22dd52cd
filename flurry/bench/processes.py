"""Processes of a bar: each pinned, each ended by its number when the bar is over."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DRIVER_CORE = 0
SERVER_CORE = 1
TIMEOUT_S = 20.0

OUTLIVES_NOBODY = ("setpriv", "--pdeathsig", "KILL")
"""A process that is started with these words ends with its parent, even if that is killed."""

Process = subprocess.Popen[bytes]


class Processes:
    """What a bar has started, and where: on this machine, or in a network of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.prefix: list[str] = []
        self.started: list[Process] = []

    def start(
        self,
        *words: str | Path,
        core: int | str = SERVER_CORE,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
    ) -> Process:
        """Start a program on a core; what it complains of goes into a file of the folder."""
        with self._complaints(len(self.started)).open("wb") as said:
            process = subprocess.Popen(
                [*OUTLIVES_NOBODY, *self.prefix, "taskset", "-c", str(core), *words],
                stdin=stdin, stdout=said if stdout is None else stdout, stderr=said,
            )  # fmt: skip
        self.started.append(process)
        return process

    def complaints(self, process: Process) -> str:
        """What a process that was started here has complained of."""
        return self._complaints(self.started.index(process)).read_text(errors="replace").strip()

    def _complaints(self, number: int) -> Path:
        return self.folder / f"complaints-{number}.txt"

    def enter_network(self) -> None:
        """Start what follows in a network namespace without a name, which ends with its keeper."""
        keeper = self.start(
            "unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        if keeper.stdout is None or keeper.stdout.readline() != b"up\n":
            raise RuntimeError("unshare: no network namespace; wanted one; hint: be root")
        self.prefix = ["nsenter", f"--net=/proc/{keeper.pid}/ns/net"]

    def call(self, *words: str | Path) -> str:
        """Run a program to its end where the others are; its standard output."""
        done = subprocess.run(
            [*self.prefix, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{words[0]}: exit {done.returncode}; {done.stderr.strip()}")
        return done.stdout

    def end(self, process: Process) -> None:
        """End one, stopped or not, and wait until it is gone."""
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=5)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def processes() -> Iterator[Processes]:
    """Processes that end with the block, and a folder in memory for what they keep."""
    with tempfile.TemporaryDirectory(prefix="flurry-bench-", dir="/dev/shm") as folder:
        started = Processes(Path(folder))
        try:
            yield started
        finally:
            for process in reversed(started.started):
                started.end(process)


def until(what: str, holds: Callable[[], bool]) -> None:
    """Ask again until it holds.

    Raises
    ------
    RuntimeError
        When it does not within the time that anything may take.
    """
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        if holds():
            return
        time.sleep(0.05)
    raise RuntimeError(f"{what}: not within {TIMEOUT_S:.0f} s")


def free_port() -> int:
    """A port that nobody listens on now, neither with TCP nor with UDP."""
    for _ in range(100):
        with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
            stream.bind(("127.0.0.1", 0))
            port = int(stream.getsockname()[1])
            try:
                datagrams.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("port: none is free for TCP and UDP")


def program(name: str, package: str) -> list[str]:
    """The words that start a peer's program: the system's, or Debian's package in the cache."""
    found = shutil.which(name)
    if found:
        return [found]
    subprocess.run([ROOT / "scripts" / "package.sh", package], check=True)
    place = ROOT / ".cache" / "packages" / package
    libraries = {str(file.parent) for file in place.glob("**/*-linux-gnu*/*.so*")}
    for folder in ("usr/bin", "usr/sbin"):
        if (place / folder / name).exists():
            path = "LD_LIBRARY_PATH=" + ":".join(sorted(libraries))
            return ["env", path, str(place / folder / name)]
    raise RuntimeError(f"{package}: Debian's package has no {name}; wanted it there")
