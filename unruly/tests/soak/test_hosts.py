"""Two hundred broken connections to other hosts: ten seconds later nothing of ours is there.

Every second time the runner is killed, and every other time the connections are, as by a network
that forgets them. Only `make soak` runs this.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts_house import HERE, Hosts, left_over, ssh_hosts
from house import UNRULY, wait_for
from http_house import nginx

PORT = 8088
CONNECTIONS = 200
# Each has a generator and a probe, each with a connection of its own.
GENERATORS = 6
GONE_S = 10.0


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    (tmp_path / "nginx").mkdir()
    with (
        ssh_hosts(tmp_path / "ssh", 3) as found,
        nginx(tmp_path / "nginx", f"listen {HERE}:{PORT};"),
    ):
        yield found


def connections(runner: int) -> list[int]:
    """The processes that a runner reaches hosts with."""
    children = Path(f"/proc/{runner}/task").glob("*/children")
    pids = [int(pid) for it in children for pid in it.read_text().split()]
    return [pid for pid in pids if b"ssh\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_nothing_stays_on_a_host_after_any_broken_connection(hosts: Hosts, tmp_path: Path) -> None:
    broken, rounds = 0, 0
    names = ",".join(f"ssh:node-{1 + number % 3}" for number in range(GENERATORS))
    while broken < CONNECTIONS:
        words = [UNRULY, "drive", f"http://{HERE}:{PORT}/page.txt", "--from", names]
        words += ["--from-program", str(UNRULY), "-c", str(GENERATORS), "-r", "60", "-d", "60s"]
        with subprocess.Popen(
            [*words, "-o", tmp_path / f"run-{rounds}", "-q"],
            env=hosts.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as runner:  # fmt: skip
            # Three for each: its folder, the process of the host, and the one that it started.
            wait_for(lambda: len(left_over()) >= 3 * GENERATORS, "all hosts at work", 60)
            pids = connections(runner.pid)
            assert len(pids) >= GENERATORS, pids
            if rounds % 2:
                for pid in pids:
                    subprocess.run(["kill", "-KILL", str(pid)], check=True)
            else:
                runner.kill()
            wait_for(lambda: not left_over(), lambda: f"empty hosts: {left_over()}", GONE_S)
            runner.kill()
        broken, rounds = broken + len(pids), rounds + 1
    sys.stdout.write(f"{broken} connections broken in {rounds} rounds: nothing stayed\n")
