"""The memory of a key, in a server and in a gateway."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

from flurry_house import Cluster, cluster
from house import wait_for
from redis_house import Wire

HOST = "127.86.0.1"
KEYS = 200_000
BATCH = 1_000
VALUE = "v" * 64


def resident(parts: Cluster, name: str) -> int:
    """Bytes of memory that a process has for itself."""
    status = Path(f"/proc/{parts.running[name].pid}/status").read_text()
    found = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.M)
    assert found, status
    return 1024 * int(found[1])


def fill(wire: Wire, begin: int, count: int) -> None:
    for at in range(begin, begin + count, BATCH):
        commands = [("SET", f"key:{number:010}", VALUE) for number in range(at, at + BATCH)]
        assert set(wire.ask_all(commands)) == {b"+OK\r\n"}


def test_a_small_key_takes_little_memory_and_the_server_reports_it(tmp_path: Path) -> None:
    with cluster(tmp_path, HOST) as parts:
        parts.start("gateway-a")
        with closing(Wire(parts.address("gateway-a"), timeout=60)) as wire:
            fill(wire, 0, BATCH)
            before = {name: resident(parts, name) for name in ("server-1", "gateway-a")}
            told_before = parts.metric("server-1", "flurry_memory_bytes")
            fill(wire, BATCH, KEYS)
        everything = BATCH + KEYS
        wait_for(lambda: parts.metric("server-1", "flurry_records") == everything, "every key")
        wait_for(lambda: parts.metric("gateway-a", "flurry_unstable_operations") == 0, "stability")
        grown = {name: (resident(parts, name) - was) / KEYS for name, was in before.items()}
        told = (parts.metric("server-1", "flurry_memory_bytes") - told_before) / KEYS
    # A key of 14 bytes and a value of 64.
    assert grown["server-1"] <= 200, grown
    assert grown["gateway-a"] <= 200, grown
    assert abs(told / grown["server-1"] - 1) <= 0.1, (told, grown)
