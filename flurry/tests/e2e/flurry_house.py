"""A Flurry cluster of real processes, each of which a test may stop, kill and start again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from house import FLURRY, wait_for


class Cluster:
    """A controller, servers and gateways by name: `controller`, `server-1`, `gateway-a`."""

    def __init__(self, folder: Path, host: str, *server_words: str) -> None:
        self.folder, self.host, self.server_words = folder, host, server_words
        self.controller = f"{host}:7700"
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        # By how many seconds the time of day of a part is ahead.
        self.ahead_s: dict[str, float] = {}

    def start(self, name: str, *words: str) -> None:
        """Start a part and wait until it says that it is ready."""
        self.begin(name, *words)
        if not name.startswith("server-"):
            self.wait_until_ready(name)

    def begin(self, name: str, *words: str) -> None:
        """Start a part."""
        part, _, which = name.partition("-")
        where = ["--controller", self.controller]
        known: dict[str, list[str]] = {
            "controller": ["--listen", self.controller, "--dir", str(self.folder / "state")],
            "server": ["--id", which, *where, "--metrics", "127.0.0.1:0", *self.server_words],
            "gateway": [*where, "--listen", f"{self.host}:0", "--metrics", "127.0.0.1:0"],
        }
        with self.said_at(name).open("wb") as said, self.log_of(name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                [FLURRY, part, *known[part], *words], stdout=said, stderr=log,
                env=os.environ | self.clock(name),
            )  # fmt: skip

    def clock(self, name: str) -> dict[str, str]:
        """What sets a part's time of day; its other clocks are right."""
        if name not in self.ahead_s:
            return {}
        # A missing library would be ignored, and the clock would stay right.
        (library,) = map(str, Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        ahead = f"{self.ahead_s[name]:+.3f}"
        return {"LD_PRELOAD": library, "FAKETIME": ahead, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}

    def wait_until_ready(self, name: str) -> None:
        """Wait until a part says where it listens; a server takes part a little later."""
        process = self.running[name]
        wait_for(lambda: "ready" in self.said(name) or process.poll() is not None, name)
        assert process.poll() is None, self.log_of(name).read_text()

    def said_at(self, name: str) -> Path:
        return self.folder / f"{name}.out"

    def said(self, name: str) -> str:
        return self.said_at(name).read_text()

    def log_of(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def address(self, gateway: str) -> tuple[str, int]:
        found = re.search(r"^gateway ([\d.]+):(\d+)", self.said(gateway), re.M)
        assert found, self.said(gateway)
        return found[1], int(found[2])

    def stop(self, name: str) -> None:
        """Stop a part and wait until all its threads have: on a busy machine that takes a while."""
        process = self.running[name]
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: has_stopped(process.pid), f"{name} to stop")

    def go_on(self, name: str) -> None:
        self.running[name].send_signal(signal.SIGCONT)

    def kill(self, name: str) -> None:
        self.running[name].kill()
        self.running[name].wait()

    def status(self) -> str:
        words = [FLURRY, "status", "--controller", self.controller]
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
        return done.stdout

    def metric(self, name: str, which: str) -> float:
        """A number of a part's metrics page."""
        found = re.search(r"http://(\S+)/metrics", self.said(name))
        assert found, self.said(name)
        with urllib.request.urlopen(f"http://{found[1]}/metrics", timeout=5) as page:
            text = page.read().decode()
        numbers = re.findall(rf"^{which}(?:{{.*}})? (\S+)$", text, re.M)
        assert numbers, text
        return sum(map(float, numbers))

    def is_whole(self) -> bool:
        """Three servers are up and nothing changes."""
        status = self.status()
        up = re.findall(r"^\d+ +up", status, re.M)
        return len(up) == 3 and "changing" not in status


def has_stopped(pid: int) -> bool:
    """Return true if no thread of a process runs."""
    stats = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


@contextmanager
def cluster(
    folder: Path,
    host: str,
    *server_words: str,
    lease: str = "1s",
    ahead_s: dict[str, float] | None = None,
) -> Iterator[Cluster]:
    """A controller and three servers that take part."""
    made = Cluster(folder, host, *server_words)
    made.ahead_s |= ahead_s or {}
    try:
        made.start("controller", "--lease", lease)
        for number in (1, 2, 3):
            made.start(f"server-{number}")
        for number in (1, 2, 3):
            made.wait_until_ready(f"server-{number}")
        wait_for(made.is_whole, "three servers that take part")
        yield made
    finally:
        for process in made.running.values():
            if process.poll() is None:
                os.kill(process.pid, signal.SIGCONT)
                process.kill()
                process.wait()
