"""How each store is started, with the copies that a bar compares."""

from __future__ import annotations

import functools
import json
import os
import re
import socket
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flurry.bench.driver import flurry
from flurry.bench.processes import free_port, program, until

if TYPE_CHECKING:
    from flurry.bench.processes import Process, Processes

REPLICAS = 3


@dataclass
class Store:
    """A running store: what the driver connects to, and the processes of its servers."""

    address: str
    servers: list[Process]


class Flurry(Store):
    """A controller and three servers, each a process of its own, with a disk or without."""

    def __init__(
        self,
        started: Processes,
        *options: str | Path,
        core: str = "1",
        disks: bool = False,
        first: tuple[str | Path, ...] = (),
        program: Path | None = None,
    ) -> None:
        self.started = started
        self.first = first
        self.disks = started.folder / f"disks-{len(started.started)}" if disks else None
        self.options = options
        # Whoever talks to it needs its key too.
        self.sealed = options[:2] if options[:1] == ("--key-file",) else ()
        self.core = core
        self.program = program or flurry()
        controller = started.start(
            self.program, "controller", "--listen", "127.0.0.1:0",
            "--dir", started.folder / f"controller-{len(started.started)}", *self.sealed,
            core=core, stdout=subprocess.PIPE,
        )  # fmt: skip
        super().__init__(self.ready(controller).split()[1], [])
        self.controller = controller
        for number in range(REPLICAS):
            self.servers.append(self._server(number))
        self.whole()

    def _server(self, number: int) -> Process:
        disk = () if self.disks is None else ("--disk", self.disks / str(number))
        server = self.started.start(
            self.program, "server", "--id", str(number + 1), "--controller", self.address,
            *self.options, *disk, *(self.first if number == 0 else ()),
            core=self.core, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.ready(server)
        return server

    def ready(self, process: Process) -> str:
        """Wait until a part says that it is ready; the first line that it said."""
        assert process.stdout is not None
        lines: list[str] = []
        while "ready" not in lines:
            line = process.stdout.readline().decode()
            if not line:
                raise RuntimeError(f"flurry: it has ended; {self.started.complaints(process)}")
            lines.append(line.strip())
        return lines[0]

    def replace(self, number: int) -> None:
        """Start a server anew whose process has ended, and wait until it takes part."""
        self.servers[number] = self._server(number)
        self.whole()

    def whole(self) -> None:
        """Wait until every server is up and no change is under way."""

        def holds() -> bool:
            said = self.started.call(
                self.program, "status", "--controller", self.address, *self.sealed
            )
            up = len(re.findall(r"^\d+ +up ", said, re.MULTILINE))
            return up == REPLICAS and "changing" not in said

        until("flurry: three servers up", holds)


class Gateway(Store):
    """A gateway over a cluster of its own; its servers and itself have these cores."""

    def __init__(
        self,
        started: Processes,
        *options: str | Path,
        key: Path | None = None,
        core: str = "1",
        disks: bool = False,
        servers: tuple[str | Path, ...] = (),
        first: tuple[str | Path, ...] = (),
        program: Path | None = None,
    ) -> None:
        sealed: list[str | Path] = [] if key is None else ["--key-file", key]
        self.cluster = Flurry(
            started, *sealed, *servers, core=core, disks=disks, first=first, program=program
        )
        address = f"127.0.0.1:{free_port()}"
        gateway = started.start(
            self.cluster.program, "gateway", "--listen", address,
            "--controller", self.cluster.address, *sealed, *options,
            core=core, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.cluster.ready(gateway)
        super().__init__(address, [*self.cluster.servers, gateway])


def memcached(started: Processes) -> Store:
    """One memcached with one thread, on UDP."""
    port = free_port()
    as_root = ["-u", "root"] if os.geteuid() == 0 else []
    server = started.start(
        *program("memcached", "memcached"), *as_root,
        "-l", "127.0.0.1", "-p", str(port), "-U", str(port), "-t", "1", "-m", "256",
    )  # fmt: skip
    until("memcached: its port", functools.partial(listens, port))
    return Store(f"127.0.0.1:{port}", [server])


def redis(started: Processes, nodes: int = REPLICAS, core: str = "1") -> Store:
    """A Redis with replicas, or alone, and nothing kept on disk."""
    words: list[str | Path] = [
        *program("redis-server", "redis-server"), "--bind", "127.0.0.1", "--save", "",
        "--appendonly", "no", "--repl-diskless-sync-delay", "0", "--dir", started.folder,
    ]  # fmt: skip
    ports = [free_port() for _ in range(nodes)]
    servers: list[Process] = []
    for port in ports:
        follows = ["--replicaof", "127.0.0.1", str(ports[0])] if servers else []
        servers.append(started.start(*words, "--port", str(port), *follows, core=core))

    def holds() -> bool:
        return asked_redis(ports[0]).count("state=online") == nodes - 1

    until("redis: its port", functools.partial(listens, ports[0]))
    until("redis: two replicas online", holds)
    return Store(f"127.0.0.1:{ports[0]}", servers)


ETCD = "etcd-3.7.3"
"""The current version, which `unruly` builds from its source for the service `etcd-3.7`."""


def etcd(started: Processes) -> Store:
    """Three nodes of etcd with their data in memory; the address is the leader's.

    Raises
    ------
    RuntimeError
        When the service `etcd-3.7` was never started on this machine.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    built = cache / "unruly" / "go" / "bin" / ETCD
    if not built.exists():
        hint = "unruly drive --service etcd-3.7 -d 1s builds it"
        raise RuntimeError(f"etcd: {built} does not exist; wanted it; hint: {hint}")
    words = [built]
    clients = [f"http://127.0.0.1:{free_port()}" for _ in range(REPLICAS)]
    peers = [f"http://127.0.0.1:{free_port()}" for _ in range(REPLICAS)]
    cluster = ",".join(f"n{number}={peer}" for number, peer in enumerate(peers))
    servers = [
        started.start(
            *words, "--name", f"n{number}", "--data-dir", started.folder / f"etcd-{number}",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", cluster, "--logger", "zap", "--log-level", "error",
        )
        for number, (client, peer) in enumerate(zip(clients, peers, strict=True))
    ]  # fmt: skip
    until("etcd: a leader", lambda: leader(clients) is not None)
    found = leader(clients) or clients[0]
    return Store(found.removeprefix("http://"), servers)


def leader(clients: list[str]) -> str | None:
    """Which of the nodes leads; a put at another would take a hop more."""
    for client in clients:
        asked = urllib.request.Request(f"{client}/v3/maintenance/status", data=b"{}")
        try:
            with urllib.request.urlopen(asked, timeout=2) as said:
                status = json.load(said)
        except OSError:
            continue
        if status.get("leader") == status["header"]["member_id"]:
            return client
    return None


def listens(port: int) -> bool:
    """Whether somebody accepts connections."""
    with socket.socket() as stream:
        return stream.connect_ex(("127.0.0.1", port)) == 0


def asked_redis(port: int) -> str:
    """What a Redis says of its replicas."""
    with socket.create_connection(("127.0.0.1", port), timeout=2) as stream:
        stream.sendall(b"INFO replication\r\n")
        return stream.recv(1 << 16).decode()
