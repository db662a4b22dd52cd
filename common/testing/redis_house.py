"""A gateway over three replicas, a redis-server beside it, and the bytes of both."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from house import FLURRY, started, wait_for

# Only reached by a failure.
LIMIT_S = 20.0
# A machine that stands still for a second or two has servers counted out and come back: tests of
# what a gateway answers wait for that.
TIMEOUT = ("--timeout", "15s")

Word = bytes | str | int


def encoded(*words: Word) -> bytes:
    """A command as clients send it."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(it), it) for it in parts)


class Wire:
    """A connection whose replies are kept as the bytes that they are."""

    def __init__(self, address: tuple[str, int], timeout: float = LIMIT_S) -> None:
        self.socket = socket.create_connection(address, timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def reply(self) -> bytes:
        """The next reply, whole."""
        line = self.reader.readline()
        kind, rest = line[:1], line[1:].strip()
        if kind == b"$" and int(rest) >= 0:
            return line + self.reader.read(int(rest) + 2)
        if kind in b"*%~>" and line:
            count = int(rest) * (2 if kind == b"%" else 1)
            return line + b"".join(self.reply() for _ in range(count))
        return line

    def ask(self, *words: Word) -> bytes:
        self.send(encoded(*words))
        return self.reply()

    def ask_all(self, commands: Iterable[tuple[Word, ...]]) -> list[bytes]:
        """Many at once, and their replies in order."""
        kept = list(commands)
        self.send(b"".join(encoded(*words) for words in kept))
        return [self.reply() for _ in kept]

    def is_closed(self) -> bool:
        """Return True once the other side has closed it, after reading its remaining replies."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


@contextmanager
def gateway(
    folder: Path, host: str, *words: str, servers: Iterable[str] = ()
) -> Iterator[tuple[str, int]]:
    """Three replicas and a gateway over them; where it listens."""
    controller = f"{host}:7700"
    serve = [FLURRY, "serve", "--embedded", "3", "--controller", controller, *servers]
    listen = ["--listen", f"{host}:0", "--controller", controller]
    with (
        started(serve, "ready", folder / "serve.log"),
        started(
            [FLURRY, "gateway", *listen, *TIMEOUT, *words], "ready", folder / "gateway.log"
        ) as said,
    ):
        address = said[0].split()[1]
        yield (host, int(address.rpartition(":")[2]))


def redis_binary(name: str) -> str:
    """Of Debian's package."""
    found = shutil.which(name)
    assert found, f"{name}: not installed; wanted it to compare with; hint: apt-get install redis"
    return found


@contextmanager
def redis_server(folder: Path, host: str) -> Iterator[tuple[str, int]]:
    port = free_port(host)
    words = [redis_binary("redis-server"), "--bind", host, "--port", str(port), "--save", ""]
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=folder)
        try:
            wait_for(lambda: answers((host, port)), "redis-server")
            yield (host, port)
        finally:
            process.kill()
            process.wait()


def free_port(host: str) -> int:
    with socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])


def answers(address: tuple[str, int]) -> bool:
    try:
        wire = Wire(address, 1.0)
    except OSError:
        return False
    try:
        return wire.ask("PING") == b"+PONG\r\n"
    finally:
        wire.close()


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, **more}
