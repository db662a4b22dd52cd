"""Three nodes of etcd, which may be killed and come back, and controllers that keep state there."""

from __future__ import annotations

import base64
import json
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

from house import FLURRY, wait_for

# Only reached by a failure.
LIMIT_S = 40.0


class Process:
    """One that may be killed, and started again with the same words."""

    def __init__(self, words: list[str | Path], log: Path, ready: str = "") -> None:
        self.words, self.log, self.ready = words, log, ready
        self.start()

    def start(self) -> None:
        said = self.log.with_suffix(".out")
        with self.log.open("ab") as errors, said.open("wb") as out:
            self.process = subprocess.Popen(self.words, stdout=out, stderr=errors)
        if self.ready:
            running = self.process.poll
            wait_for(lambda: self.ready in said.read_text() or running() is not None, str(self.log))
            assert running() is None, self.log.read_text()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def free_ports(host: str, count: int) -> list[int]:
    sockets = [socket.create_server((host, 0)) for _ in range(count)]
    ports = [it.getsockname()[1] for it in sockets]
    for it in sockets:
        it.close()
    return ports


class EtcdNodes:
    """Nodes of one etcd; with files of a certificate, by TLS that asks for the client's too."""

    def __init__(
        self, folder: Path, host: str, count: int = 3, tls: tuple[Path, Path] | None = None
    ) -> None:
        scheme = "https" if tls else "http"
        ports = free_ports(host, 2 * count)
        self.addresses = [f"{host}:{port}" for port in ports[:count]]
        self.urls = [f"{scheme}://{address}" for address in self.addresses]
        peers = [f"http://{host}:{port}" for port in ports[count:]]
        cluster = ",".join(f"n{number}={peer}" for number, peer in enumerate(peers))
        secure: list[str | Path] = []
        if tls:
            chain, key = tls
            secure = ["--cert-file", chain, "--key-file", key, "--client-cert-auth"]
            secure += ["--trusted-ca-file", chain]
        self.nodes = [
            Process(
                [
                    "etcd", "--name", f"n{number}", "--data-dir", folder / f"etcd-{number}",
                    "--listen-client-urls", client, "--advertise-client-urls", client,
                    "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                    "--initial-cluster", cluster, "--logger", "zap", "--log-level", "error",
                    *secure,
                ],
                folder / f"etcd-{number}.log",
            )
            for number, (client, peer) in enumerate(zip(self.urls, peers, strict=True))
        ]  # fmt: skip

    def value(self, key: str) -> bytes | None:
        """What there is under a key, at any node that answers; without TLS."""
        question = json.dumps({"key": base64.b64encode(key.encode()).decode()}).encode()
        for url in self.urls:
            try:
                with urllib.request.urlopen(f"{url}/v3/kv/range", question, timeout=2) as said:
                    found = json.load(said).get("kvs")
            except OSError:
                continue
            return base64.b64decode(found[0].get("value", "")) if found else None
        return None

    def put(self, key: str, value: bytes) -> None:
        words = {"key": key.encode(), "value": value}
        encoded = {name: base64.b64encode(it).decode() for name, it in words.items()}
        question = json.dumps(encoded).encode()
        with urllib.request.urlopen(f"{self.urls[0]}/v3/kv/put", question, timeout=5):
            pass

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def start(self) -> None:
        for node in self.nodes:
            node.start()


class Cluster:
    """Controllers on an etcd, three servers, and the commands that ask them."""

    def __init__(self, folder: Path, host: str, etcd: EtcdNodes, name: str) -> None:
        self.folder, self.etcd, self.name = folder, etcd, name
        place = f"etcd://{','.join(etcd.addresses)}/{name}"
        ports = free_ports(host, 3)
        self.controllers = {}
        for port in ports:
            words = ["--listen", f"{host}:{port}", "--etcd", place, "--metrics", "127.0.0.1:0"]
            self.controllers[f"{host}:{port}"] = Process(
                [FLURRY, "controller", *words], folder / f"controller-{port}.log", "ready"
            )
        self.where = ",".join(self.controllers)
        self.servers = [
            Process(
                [FLURRY, "server", "--id", str(number), "--controller", self.where],
                folder / f"server-{number}.log",
                "ready",
            )
            for number in range(1, 4)
        ]

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [FLURRY, *words, "--controller", self.where],
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip

    def leader(self) -> str | None:
        """The controller that leads, as etcd has it."""
        found = self.etcd.value(f"/flurry/{self.name}/controller")
        return found.decode() if found else None

    def is_whole(self) -> bool:
        said = self.ask("status")
        return said.returncode == 0 and said.stdout.count(" up ") == 3

    def metrics_of(self, controller: str) -> str:
        said = self.controllers[controller].log.with_suffix(".out").read_text()
        address = said.split("metrics ", 1)[1].split()[0]
        with urllib.request.urlopen(address, timeout=5) as page:
            return str(page.read().decode())

    def end(self) -> None:
        for it in [*self.controllers.values(), *self.servers]:
            it.signal(signal.SIGCONT)
            it.kill()
