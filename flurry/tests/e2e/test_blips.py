"""A process that merely stands still costs no data, and keys that are used once cost no memory."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest
from flurry_house import Cluster, cluster
from house import wait_for
from redis_house import Wire

LEASE_S = 1.0
KEYS = 20_000
BATCH = 200
ATTEMPTS = 10


def value_of(key: int, bytes_: int) -> str:
    return f"value-{key}".ljust(bytes_, ".")


def write(wire: Wire, keys: range, bytes_: int = 0) -> None:
    for begin in range(keys.start, keys.stop, BATCH):
        batch = range(begin, min(begin + BATCH, keys.stop))
        replies = wire.ask_all(("SET", f"key:{it}", value_of(it, bytes_)) for it in batch)
        assert set(replies) == {b"+OK\r\n"}


def read_wrong(wire: Wire, keys: range, bytes_: int = 0) -> list[tuple[int, bytes]]:
    """Return the keys with another value than the written one, and that value."""
    wrong = []
    for begin in range(keys.start, keys.stop, BATCH):
        batch = range(begin, min(begin + BATCH, keys.stop))
        replies = wire.ask_all(("GET", f"key:{it}") for it in batch)
        for key, reply in zip(batch, replies, strict=True):
            value = value_of(key, bytes_)
            if reply != f"${len(value)}\r\n{value}\r\n".encode():
                wrong.append((key, reply))
    return wrong


def stand_still(parts: Cluster, name: str, seconds: float) -> None:
    """Stop a process for so long; the length of the stall is what the test is about."""
    parts.stop(name)
    time.sleep(seconds)
    parts.go_on(name)


def stall_amid_copying(parts: Cluster) -> bool:
    """Stop server 3 while the new servers 1 and 2 copy from it; whether the cluster waited for it.

    It does not if they had copied everything already: then it may go on without the third one.
    """
    for name in ("server-1", "server-2"):
        parts.kill(name)
    for name in ("server-1", "server-2"):
        parts.start(name)
    wait_for(lambda: "joining" in parts.status() or parts.is_whole(), "new lives")
    parts.stop("server-3")
    time.sleep(2 * LEASE_S)
    waited = "waiting for server 3: it is silent" in parts.status()
    parts.go_on("server-3")
    wait_for(parts.is_whole, "all three copies", 60)
    return waited


def test_the_last_server_that_has_everything_may_stand_still_while_others_copy(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, "127.59.0.1") as parts:
        parts.start("gateway-a")
        with closing(Wire(parts.address("gateway-a"), 60)) as wire:
            write(wire, range(KEYS), 2_000)
            waited = False
            for _ in range(ATTEMPTS):
                log = parts.log_of("server-3")
                before = log.read_text().count("counted out")
                waited = stall_amid_copying(parts)
                wrong = read_wrong(wire, range(KEYS), 2_000)
                assert not wrong, (len(wrong), wrong[:3])
                if waited:
                    assert log.read_text().count("counted out") == before
                    break
            assert waited, f"in {ATTEMPTS} stalls it was never waited for"


def test_a_server_that_stood_still_copies_only_what_it_missed(tmp_path: Path) -> None:
    with cluster(tmp_path, "127.59.0.5") as parts:
        parts.start("gateway-a")
        with closing(Wire(parts.address("gateway-a"), 60)) as wire:
            write(wire, range(KEYS), 1_000)
            # Acknowledged writes may not be on server 3 yet; it would copy them as well.
            assert wire.ask("WAIT", 2, 60_000) == b":2\r\n"
            before = parts.metric("server-3", "flurry_states_installed_total")
            parts.stop("server-3")
            wait_for(lambda: "2 of 3 copies" in parts.status(), "server 3 is counted out")
            write(wire, range(100), 500)
            assert wire.ask("DEL", *(f"key:{it}" for it in range(100, 110))) == b":10\r\n"
            # With the next write servers learn that each has the deletions, and they forget them.
            write(wire, range(100), 500)
            parts.go_on("server-3")
            wait_for(parts.is_whole, "all three copies", 60)

            def kept() -> bool:
                return parts.metric("server-3", "flurry_records_kept_total") == KEYS - 110

            # The page is renewed once a second.
            wait_for(kept, "all but the changed and the deleted ones")
            copied = parts.metric("server-3", "flurry_states_installed_total") - before
            assert 100 <= copied <= 200, "the changed ones, and nothing else"
            # It is right, not only fast: now the other two are gone.
            for name, left in (("server-1", 2), ("server-2", 1)):
                parts.kill(name)

                # While they change, the controller waits for a second silent server.
                def is_out(left: int = left) -> bool:
                    status = parts.status()
                    return f"{left} of 3 copies" in status and "changing" not in status

                wait_for(is_out, f"{name} is counted out")
            wait_for(lambda: not read_wrong(wire, range(100), 500), "reads of the last server")
            assert not read_wrong(wire, range(110, KEYS), 1_000)
            assert wire.ask("EXISTS", *(f"key:{it}" for it in range(100, 110))) == b":0\r\n"


@pytest.mark.parametrize("seconds", [1.5, 3.0])
def test_a_controller_that_stands_still_counts_nobody_out(tmp_path: Path, seconds: float) -> None:
    with cluster(tmp_path, "127.59.0.2") as parts:
        parts.start("gateway-a")
        with closing(Wire(parts.address("gateway-a"), 60)) as wire:
            write(wire, range(1_000))
            for _ in range(3):
                stand_still(parts, "controller", seconds * LEASE_S)
                wait_for(parts.is_whole, "the controller's answer")
                # A lease later it would have been decided.
                time.sleep(1.5 * LEASE_S)
            assert parts.is_whole()
            logs = [parts.log_of(f"server-{it}").read_text() for it in (1, 2, 3)]
            assert not any("counted out" in log for log in logs)
            assert not read_wrong(wire, range(1_000))


def test_keys_that_are_used_once_never_fill_the_memory(tmp_path: Path) -> None:
    """Carts, calls and the like: of 60,000 keys ever used a hundred live at a time."""
    with cluster(tmp_path, "127.59.0.3", "--memory", "2MB") as parts:
        parts.start("gateway-a")
        with closing(Wire(parts.address("gateway-a"), 60)) as wire:
            for begin in range(0, 60_000, 100):
                keys = [f"cart:{number}" for number in range(begin, begin + 100)]
                replies = wire.ask_all(
                    [*(("SET", key, "x" * 20) for key in keys), *(("DEL", key) for key in keys)]
                )
                assert set(replies) == {b"+OK\r\n", b":1\r\n"}, begin
            assert wire.ask("DBSIZE") == b":0\r\n"
        kept = [parts.metric(f"server-{it}", "flurry_records") for it in (1, 2, 3)]
        # The last ones are known to be everywhere with the next operation.
        assert max(kept) <= 1_000, kept
        # An owner that ends at once leaves deletions that the next one must see to.
        parts.kill("gateway-a")
        parts.start("gateway-b")
        with closing(Wire(parts.address("gateway-b"), 60)) as wire:

            def few() -> bool:
                wire.ask("SET", "alive", "yes")
                kept = [parts.metric(f"server-{it}", "flurry_records") for it in (1, 2, 3)]
                return max(kept) <= 5

            wait_for(few, "the earlier owner's deletions to be forgotten", 60)


def test_a_level_that_promises_copies_is_refused_where_one_server_is_left(tmp_path: Path) -> None:
    with cluster(tmp_path, "127.59.0.4") as parts:
        parts.start("gateway-a")
        with closing(Wire(parts.address("gateway-a"), 60)) as wire:
            write(wire, range(100))
            for left, name in ((2, "server-1"), (1, "server-2")):
                parts.kill(name)

                def counted_out(left: int = left) -> bool:
                    status = parts.status()
                    return f"{left} of 3 copies" in status and "changing" not in status

                wait_for(counted_out, name)
            # The gateway hears of it from the server that is left.
            wait_for(lambda: not read_wrong(wire, range(100)), "reads of the last server")
            for level in ("QUORUM", "ALL"):
                assert wire.ask("FLURRY", "LEVEL", level) == b"+OK\r\n"
                assert wire.ask("SET", "key:1", "other").startswith(b"-NOREPLICAS ")
            assert wire.ask("FLURRY", "LEVEL", "FIRST") == b"+OK\r\n"
            assert wire.ask("SET", "key:2", "value-2") == b"+OK\r\n"
            assert not read_wrong(wire, range(100))
            for name in ("server-1", "server-2"):
                parts.start(name)
            wait_for(parts.is_whole, "all three copies", 60)
            assert wire.ask("FLURRY", "LEVEL", "QUORUM") == b"+OK\r\n"
            wait_for(lambda: wire.ask("SET", "key:1", "value-1") == b"+OK\r\n", "a quorum")
            assert not read_wrong(wire, range(100))
