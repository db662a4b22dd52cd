"""The page about three machines, typed as it stands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from house import REPOSITORY, need_root, wait_for
from machines import machines, within
from redis_house import FLURRY

PAGE = REPOSITORY / "docs" / "flurry" / "machines.md"

BLOCK = re.compile(r"```sh\n# machine (\d)(, in the background)?\n(.*?)```", re.DOTALL)


class Typist:
    """Types commands on machines, in a directory that all of them have."""

    def __init__(self, pids: list[int], folder: Path) -> None:
        self.pids = pids
        self.folder = folder
        self.path = f"{FLURRY.parent}:{os.environ['PATH']}"
        self.background: list[tuple[int, subprocess.Popen[bytes]]] = []

    def words(self, machine: int, line: str) -> list[str | Path]:
        return within(self.pids[machine - 1], "sh", "-c", line)

    def leave_running(self, machine: int, line: str) -> None:
        log = self.folder / f"background-{len(self.background)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                self.words(machine, f"exec {line}"),
                stdout=out, stderr=out, cwd=self.folder, env={**os.environ, "PATH": self.path},
            )  # fmt: skip
        self.background.append((machine, process))
        wait_for(lambda: "ready" in log.read_text() or process.poll() is not None, line)
        assert process.poll() is None, log.read_text()

    def type(self, machine: int, line: str) -> str:
        done = subprocess.run(
            self.words(machine, line), capture_output=True, text=True, timeout=30, check=False,
            cwd=self.folder, env={**os.environ, "PATH": self.path},
        )  # fmt: skip
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    def switch_off(self, machine: int) -> None:
        for where, process in self.background:
            if where == machine:
                process.send_signal(signal.SIGKILL)
                process.wait()


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


def test_three_machines_serve_redis_clients_and_lose_one_as_the_page_says(tmp_path: Path) -> None:
    need_root("network namespaces")
    text = PAGE.read_text()
    blocks = BLOCK.findall(text)
    assert len(blocks) == text.count("```sh") >= 10, "a block without its machine"
    said = []
    with typist(tmp_path) as someone:
        for number, background, line in blocks:
            if "still here" in line:
                someone.switch_off(2)
            if background:
                someone.leave_running(int(number), line.strip())
            else:
                # Servers join within a moment.
                if "flurry status" in line:
                    wait_for(
                        lambda line=line: someone.type(2, line).count(" up ") == 3, "three servers"
                    )
                said.append(someone.type(int(number), line))
        assert someone.type(3, "redis-cli get greeting") == "still here\n"
    assert said[0] == ""
    status = re.sub(r"\d+ ms ago", "12 ms ago", said[1])
    assert status in text, status
    assert said[2:] == ["OK\n", "hello\n", "OK\n"]
