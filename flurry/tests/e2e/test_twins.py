"""Two machines with a server of the same number: one takes part, and the other waits."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from house import FLURRY, need_root, wait_for
from machines import machines, within

CONTROLLER = "10.77.0.1:7700"
LEASE_S = 1.0
KEYS = 50


class Cluster:
    """A controller and three servers on machine 1, and the processes started beside them."""

    def __init__(self, pids: list[int], folder: Path) -> None:
        self.pids, self.folder = pids, folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, machine: int, *words: str) -> None:
        line = within(self.pids[machine - 1], FLURRY, *words, "--insecure")
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(line, stdout=log, stderr=log)

    def server(self, name: str, machine: int, number: int) -> None:
        listen = f"10.77.0.{machine}:0"
        where = ["--listen", listen, "--controller", CONTROLLER]
        self.start(name, machine, "server", "--id", str(number), *where)

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def kill(self, name: str) -> None:
        self.running[name].kill()
        self.running[name].wait()

    def redis(self, *words: str) -> str:
        line = within(self.pids[0], "redis-cli", "-p", "6379", *words)
        done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=20)
        return done.stdout.strip()


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    with machines(2) as pids:
        made = Cluster(pids, folder)
        try:
            state = str(folder / "state")
            made.start("controller", 1, "controller", "--listen", CONTROLLER, "--dir", state)
            wait_for(lambda: "ready" in made.said("controller"), "the controller")
            for number in (1, 2, 3):
                made.server(f"server-{number}", 1, number)
            for number in (1, 2, 3):
                name = f"server-{number}"
                wait_for(lambda name=name: "ready" in made.said(name), name)
            listen = ["--listen", "127.0.0.1:6379", "--controller", CONTROLLER]
            made.start("gateway", 1, "gateway", *listen)
            wait_for(lambda: "ready" in made.said("gateway"), "the gateway")
            yield made
        finally:
            for process in made.running.values():
                process.kill()
                process.wait()


def test_a_server_of_a_number_that_is_taken_waits_until_the_other_has_ended(
    tmp_path: Path,
) -> None:
    need_root("network namespaces")
    with cluster(tmp_path) as parts:
        for key in range(KEYS):
            assert parts.redis("SET", f"key:{key}", f"value-{key}") == "OK"
        parts.server("twin", 2, 3)
        wait_for(
            lambda: "another server has this number" in parts.said("twin"), "the twin's warning"
        )
        assert "10.77.0.1:" in parts.said("twin"), "where the other one is"
        # Time in which it would have been let in.
        time.sleep(3 * LEASE_S)
        assert "counted out" not in parts.said("server-3")
        assert "takes part" not in parts.said("twin")
        for key in range(KEYS):
            assert parts.redis("GET", f"key:{key}") == f"value-{key}"
        parts.kill("server-3")
        wait_for(lambda: "takes part" in parts.said("twin"), "the twin, once it is alone", 60)
        for key in range(KEYS):
            assert parts.redis("GET", f"key:{key}") == f"value-{key}"
