"""A server that stands still neither fills the gateway nor slows its reads."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from flurry_house import Cluster, cluster
from house import wait_for
from redis_house import Wire
from test_blips import read_wrong, write

MIB = 1 << 20
BACKLOG = 20 * MIB

# The standing server is a member throughout: nobody may count it out.
LEASE = "60s"
KEYS = 2_000


def memory_of(parts: Cluster, name: str) -> int:
    """What a process has in memory, in bytes."""
    status = Path(f"/proc/{parts.running[name].pid}/status").read_text()
    (line,) = [it for it in status.splitlines() if it.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


def test_writes_that_a_standing_server_lacks_are_bounded_in_bytes_and_reads_go_on(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, "127.65.0.1", lease=LEASE) as parts:
        parts.start("gateway-a", "--backlog", f"{BACKLOG}B")
        with closing(Wire(parts.address("gateway-a"))) as wire:
            write(wire, range(100))
            before = memory_of(parts, "gateway-a")
            parts.stop("server-3")
            value = b"x" * (MIB - 100)
            replies = [wire.ask("SET", f"large:{it % 10}", value) for it in range(200)]
            done = [reply == b"+OK\r\n" for reply in replies]
            # All up to the bound, and none beyond.
            assert done == sorted(done, reverse=True)
            assert 18 <= sum(done) <= 20, sum(done)
            assert replies[-1].startswith(b"-BUSY"), replies[-1]
            assert b"not on every server yet" in replies[-1]
            assert not read_wrong(wire, range(100))
            assert memory_of(parts, "gateway-a") - before < 3 * BACKLOG
            parts.go_on("server-3")
            wait_for(lambda: wire.ask("SET", "large:1", value) == b"+OK\r\n", "room again")


@pytest.mark.parametrize("starts", [1, 2], ids=["in_a_new_cluster", "after_a_gateway_was_killed"])
def test_keys_that_the_gateway_forgot_are_read_while_a_server_stands_still(
    tmp_path: Path, starts: int
) -> None:
    with cluster(tmp_path, f"127.65.0.{1 + starts}", lease=LEASE) as parts:
        for start in range(starts):
            if start > 0:
                parts.kill("gateway-a")
            parts.start("gateway-a", "--keys", "100")
            with closing(Wire(parts.address("gateway-a"))) as wire:
                write(wire, range(KEYS))
        with closing(Wire(parts.address("gateway-a"))) as wire:
            wait_for(lambda: wire.ask("WAIT", "2", "1000") == b":2\r\n", "copies everywhere")
            parts.stop("server-3")
            # A question to all servers would take until the timeout, and be unknown then.
            assert not read_wrong(wire, range(KEYS))
