"""The memory of a key, in a server and in the gateway, and what the server reports of it."""

from __future__ import annotations

import re
import socket
import urllib.request
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from flurry.bench import stores
from flurry.bench.pace import ROUGH
from flurry.bench.processes import free_port, processes, until

from bench.result import Result

if TYPE_CHECKING:
    from flurry.bench.processes import Process

KEYS = 20_000 if ROUGH else 500_000
KEY_BYTES = 14
VALUE_BYTES = 64
CLUSTERS = 1 if ROUGH else 6
BATCH = 1_000

BYTES_BAR = 200
REPORTED_BAR = 0.10


def run() -> list[Result]:
    """Fill fresh clusters through the gateway, and see how much each process grows."""
    found = [_filled() for _ in range(CLUSTERS)]
    what = f"{KEYS:,} keys of {KEY_BYTES} bytes with values of {VALUE_BYTES}, set once each"
    servers = [it["server"] for it in found]
    gateways = [it["gateway"] for it in found]
    shares = [it["reported"] / it["server"] for it in found]
    return [
        _row("memory-server", f"memory of a server by key: {what}", servers),
        _row("memory-gateway", f"memory of the gateway by key: {what}", gateways),
        Result(
            name="memory-reported",
            what=f"memory that a server reports to the memory that it takes: {what}",
            bar=f"within {REPORTED_BAR:.0%}",
            measured=f"{median(shares):.3f} [{min(shares):.3f}, {max(shares):.3f}] of"
            f" {CLUSTERS} clusters",
            met=all(abs(it - 1) <= REPORTED_BAR for it in shares),
            raw={"clusters": found},
        ),
    ]


def _row(name: str, what: str, values: list[float]) -> Result:
    return Result(
        name=name,
        what=f"{what}; the growth of its resident memory",
        bar=f"<= {BYTES_BAR} bytes",
        measured=f"{median(values):.0f} [{min(values):.0f}, {max(values):.0f}] bytes of"
        f" {CLUSTERS} clusters",
        met=max(values) <= BYTES_BAR,
        raw={"bytes": values},
    )


def _filled() -> dict[str, Any]:
    """Bytes by key of the first server and of the gateway, and what the server reports."""
    print(".", end="", flush=True)
    port = free_port()
    with processes() as started:
        gateway = stores.Gateway(
            started,
            core="0,1",
            servers=("--memory", "1GB"),
            first=("--metrics", f"127.0.0.1:{port}"),
        )
        server, owner = gateway.servers[0], gateway.servers[-1]
        # What a process needs for its first operations is not memory of a key.
        _fill(gateway.address, 0, BATCH)
        before = (_resident(server), _resident(owner), _told(port))
        _fill(gateway.address, BATCH, BATCH + KEYS)
        until("server: every key", lambda: _told(port, "flurry_records") >= BATCH + KEYS)
        grown = (_resident(server), _resident(owner), _told(port))
    names = ("server", "gateway", "reported")
    return {
        name: (after - at_first) / KEYS
        for name, at_first, after in zip(names, before, grown, strict=True)
    }


def _fill(address: str, begin: int, end: int) -> None:
    """Set keys with these numbers; each batch waits for its answers."""
    host, _, port = address.rpartition(":")
    value = b"v" * VALUE_BYTES
    with socket.create_connection((host, int(port)), timeout=60) as stream:
        answers = stream.makefile("rb")
        for at in range(begin, end, BATCH):
            numbers = range(at, min(at + BATCH, end))
            stream.sendall(
                b"".join(
                    b"*3\r\n$3\r\nSET\r\n$%d\r\nkey:%010d\r\n$%d\r\n%s\r\n"
                    % (KEY_BYTES, number, VALUE_BYTES, value)
                    for number in numbers
                )
            )
            for _ in numbers:
                answer = answers.readline()
                if answer != b"+OK\r\n":
                    raise RuntimeError(f"gateway: {answer!r}; wanted OK")


def _resident(process: Process) -> int:
    """Bytes of memory that a process has for itself."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise RuntimeError("proc: no RssAnon; wanted it in the status of a process")
    return 1024 * int(found[1])


def _told(port: int, name: str = "flurry_memory_bytes") -> float:
    """The sum of a server's metric over its shards."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
        lines = page.read().decode().splitlines()
    return sum(float(it.split()[-1]) for it in lines if re.match(rf"{name}(\{{|\s)", it))
