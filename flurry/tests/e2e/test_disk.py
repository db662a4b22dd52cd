"""Servers that keep their records on disk: which records outlive all of them, and bad disks."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from etcd_house import Process, free_ports
from house import FLURRY, need_root, wait_for

HOST = "127.60.0.1"

# Only reached by a failure.
LIMIT_S = 60.0


class Cluster:
    """A controller and three servers with disks, each a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        [port] = free_ports(HOST, 1)
        self.where = f"{HOST}:{port}"
        words: list[str | Path] = [FLURRY, "controller", "--listen", self.where]
        self.controller = Process(
            [*words, "--dir", folder / "controller"], folder / "controller.log", "ready"
        )
        self.servers = {number: self.server(number) for number in (1, 2, 3)}

    def disk(self, number: int) -> Path:
        return self.folder / f"disk-{number}"

    def server(self, number: int, *words: str) -> Process:
        own: list[str | Path] = [FLURRY, "server", "--id", str(number), "--controller", self.where]
        disk = ["--disk", self.disk(number), *words]
        return Process([*own, *disk], self.folder / f"server-{number}.log", "ready")

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [FLURRY, *words, "--controller", self.where],
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip

    def told(self, *words: str) -> str:
        said = self.ask(*words)
        assert said.returncode == 0, said.stderr
        return said.stdout.strip()

    def is_whole(self) -> bool:
        said = self.ask("status")
        return said.stdout.count(" up ") == 3 and "changing" not in said.stdout

    def has_all_on_disk(self) -> bool:
        return all((self.disk(number) / "current").exists() for number in self.servers)

    def kill(self) -> None:
        for server in self.servers.values():
            server.kill()

    def start(self, *numbers: int) -> None:
        for number in numbers or self.servers:
            self.servers[number].start()


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    cluster = Cluster(folder)
    try:
        wait_for(cluster.is_whole, "three servers to take part", LIMIT_S)
        wait_for(cluster.has_all_on_disk, "their disks to be complete", LIMIT_S)
        yield cluster
    finally:
        cluster.kill()
        cluster.controller.kill()


class Writer(threading.Thread):
    """Adds at level disk as long as a server answers, and counts acknowledged additions."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__()
        self.cluster, self.name_, self.sum = cluster, name, 0

    def run(self) -> None:
        while True:
            said = self.cluster.ask(
                "incr", "sum", "--session", self.name_, "--level", "disk", "--timeout", "1s"
            )
            if said.returncode != 0:
                return
            self.sum = int(said.stdout)


@pytest.mark.smoke
def test_all_servers_end_at_once_and_every_write_that_was_acknowledged_from_disk_is_there(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as cluster:
        writers = [Writer(cluster, f"writer-{number}") for number in range(3)]
        for writer in writers:
            writer.start()
        wait_for(lambda: all(writer.sum >= 10 for writer in writers), "writes", LIMIT_S)
        cluster.kill()
        for writer in writers:
            writer.join(LIMIT_S)
            assert not writer.is_alive()
        cluster.start()
        wait_for(cluster.is_whole, "the servers to come back", LIMIT_S)
        for writer in writers:
            found = cluster.ask("get", "sum", "--session", writer.name_)
            # The owner is notified once that later writes, at other levels, may be lost.
            if found.returncode == 2:
                assert "last writes" in found.stderr, found.stderr
                found = cluster.ask("get", "sum", "--session", writer.name_)
            # What was under way at the end may have been done, and was not acknowledged.
            assert writer.sum <= int(found.stdout) <= writer.sum + 1


def test_a_deletion_from_disk_stays_one(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        assert cluster.told("set", "k", "v", "--level", "disk") == "ok"
        assert cluster.told("del", "k", "--level", "disk") == "1"
        cluster.kill()
        cluster.start()
        wait_for(cluster.is_whole, "the servers to come back", LIMIT_S)
        for _ in range(2):
            said = cluster.ask("get", "k")
            assert said.returncode == 1 or "last writes" in said.stderr, said.stderr
        assert cluster.ask("get", "k").returncode == 1


def test_a_server_alone_takes_nothing_from_its_disk_while_others_live(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        assert cluster.told("set", "k", "old", "--level", "disk") == "ok"
        cluster.servers[1].kill()
        assert cluster.told("del", "k", "--level", "all", "--timeout", "10s") == "1"
        cluster.start(1)
        wait_for(cluster.is_whole, "the server to come back", LIMIT_S)
        for number in (2, 3):
            cluster.servers[number].kill()
            cluster.start(number)
            wait_for(cluster.is_whole, "the server to come back", LIMIT_S)
        assert cluster.ask("get", "k").returncode == 1


def test_one_disk_of_three_may_be_lost_and_of_two_it_is_said_who_is_waited_for(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as cluster:
        assert cluster.told("set", "k", "v", "--level", "disk") == "ok"
        cluster.kill()
        cluster.start(1)

        wait_for(
            lambda: " up " not in cluster.ask("status").stdout, "the others to be missed", LIMIT_S
        )
        assert not cluster.is_whole()
        assert cluster.ask("get", "k", "--timeout", "500ms").returncode == 2
        # One is broken, and empty: with the first that is enough.
        subprocess.run(["rm", "-rf", cluster.disk(2)], check=True)
        cluster.start(2, 3)
        wait_for(cluster.is_whole, "the servers to come back", LIMIT_S)
        said = cluster.ask("get", "k")
        if said.returncode == 2:
            said = cluster.ask("get", "k")
        assert said.stdout == "v\n", said.stderr


def test_two_disks_of_three_that_are_gone_for_good_are_given_up_when_somebody_says_so(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as cluster:
        assert cluster.told("set", "k", "v", "--level", "disk") == "ok"
        cluster.kill()
        for number in (2, 3):
            subprocess.run(["rm", "-rf", cluster.disk(number)], check=True)
        cluster.start()
        waits = "waiting for the disks of servers 2, 3"
        wait_for(lambda: waits in cluster.ask("status").stdout, "it to be said", LIMIT_S)
        assert not cluster.is_whole()
        for number in (2, 3):
            cluster.servers[number].kill()
            cluster.servers[number] = cluster.server(number, "--disk-lost")
        wait_for(cluster.is_whole, "the servers to come back", LIMIT_S)
        said = cluster.ask("get", "k")
        if said.returncode == 2:
            said = cluster.ask("get", "k")
        assert said.stdout == "v\n", said.stderr


def test_a_damaged_disk_is_not_served_from(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        for number in range(20):
            assert cluster.told("set", f"k{number}", "v" * 2_000, "--level", "disk") == "ok"
        cluster.kill()
        name = (cluster.disk(1) / "current").read_text()
        path = cluster.disk(1) / name
        content = path.read_bytes()
        # Every copy: an older page that nothing names any more may hold one too.
        damaged = content.replace(b"v" * 1_000, b"v" * 999 + b"w")
        assert damaged != content
        path.write_bytes(damaged)
        done = subprocess.run(
            cluster.servers[1].words, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert done.returncode == 2
        assert "wanted records that are whole" in done.stderr
        # The other two are enough, and the third copies from them.
        subprocess.run(["rm", "-rf", cluster.disk(1)], check=True)
        cluster.start()
        wait_for(cluster.is_whole, "the servers to come back", LIMIT_S)


def test_a_full_disk_is_said_and_others_answer_and_it_is_used_again_when_there_is_room(
    tmp_path: Path,
) -> None:
    need_root("a file system of a few megabytes")
    with running(tmp_path) as cluster:
        cluster.servers[1].kill()
        disk = cluster.disk(1)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", disk], check=True)
        try:
            cluster.start(1)
            wait_for(cluster.is_whole, "the server to come back", LIMIT_S)
            filler = disk / "filler"
            with filler.open("wb") as file:
                try:
                    while True:
                        file.write(b"x" * 65_536)
                        file.flush()
                except OSError:
                    pass
            failed = "the disk failed"
            log = cluster.servers[1].log

            def is_said() -> bool:
                said = cluster.ask("set", "k", "v" * 100_000, "--level", "disk")
                assert said.returncode == 0, said.stderr
                return failed in log.read_text()

            wait_for(is_said, "it to be said", LIMIT_S)
            filler.unlink()
            seen = log.read_text().count("all records are on disk")
            wait_for(
                lambda: log.read_text().count("all records are on disk") > seen,
                "the disk to be used again",
                LIMIT_S,
            )
        finally:
            cluster.servers[1].kill()
            subprocess.run(["umount", disk], check=True)


def test_level_disk_without_disks_is_refused(tmp_path: Path) -> None:
    where = f"{HOST}:{free_ports(HOST, 1)[0]}"
    words: list[str | Path] = [FLURRY, "serve", "--controller", where]
    serve = Process(words, tmp_path / "serve.log", "ready")
    try:
        said = subprocess.run(
            [FLURRY, "set", "k", "v", "--level", "disk", "--controller", where],
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        assert said.returncode == 2
        assert "the servers keep nothing on one" in said.stderr
    finally:
        serve.kill()


def test_records_of_another_cluster_are_not_written_over(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        assert cluster.told("set", "k", "v", "--level", "disk") == "ok"
        cluster.kill()
        cluster.controller.kill()
        subprocess.run(["rm", "-rf", tmp_path / "controller"], check=True)
        cluster.controller.start()
        for number in cluster.servers:
            server = cluster.servers[number]
            with server.log.open("ab") as log:
                server.process = subprocess.Popen(server.words, stdout=log, stderr=log)
        for server in cluster.servers.values():
            assert server.process.wait(LIMIT_S) == 2
            assert "the records of another cluster" in server.log.read_text()
        # Starting it again does not help: the cluster has begun meanwhile.
        again = subprocess.run(
            cluster.servers[1].words, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert again.returncode == 2
        assert "remove the file refused" in again.stderr
