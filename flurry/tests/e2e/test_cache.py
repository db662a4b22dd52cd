"""Servers that evict are a cache: a key that had to make room is one that does not exist."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from flurry_house import Cluster, cluster
from house import wait_for
from redis_house import Wire

MEMORY_BYTES = 4_000_000
# Several times as many as fit.
KEYS = 60_000
BATCH = 500


def value(key: int) -> bytes:
    return f"value-{key}".ljust(100, ".").encode()


def fill(wire: Wire, keys: range) -> None:
    for begin in range(keys.start, keys.stop, BATCH):
        batch = range(begin, min(begin + BATCH, keys.stop))
        replies = wire.ask_all(("SET", f"key:{it}", value(it).decode()) for it in batch)
        assert set(replies) == {b"+OK\r\n"}, (begin, set(replies))


def found(wire: Wire, keys: range) -> list[int]:
    """The keys that are there; each has its own value, or none."""
    there = []
    for begin in range(keys.start, keys.stop, BATCH):
        batch = range(begin, min(begin + BATCH, keys.stop))
        replies = wire.ask_all(("GET", f"key:{it}") for it in batch)
        for key, reply in zip(batch, replies, strict=True):
            if reply == b"$100\r\n" + value(key) + b"\r\n":
                there.append(key)
            else:
                assert reply == b"$-1\r\n", (key, reply)
    return there


def records(parts: Cluster) -> list[float]:
    return [parts.metric(f"server-{it}", "flurry_records") for it in (1, 2, 3)]


def check_that_recent_keys_are_there_and_the_others_are_nil(parts: Cluster) -> None:
    with closing(Wire(parts.address("gateway-a"), 60)) as wire:
        recent = range(KEYS - 2_000, KEYS)
        assert len(found(wire, recent)) > 0.9 * len(recent)
        early = range(10_000)
        assert len(found(wire, early)) < 0.1 * len(early)
        replies = wire.ask("MGET", "key:1", f"key:{KEYS - 1}")
        assert replies == b"*2\r\n$-1\r\n$100\r\n" + value(KEYS - 1) + b"\r\n"


def check_that_commands_do_what_they_do_where_nothing_is(parts: Cluster) -> None:
    with closing(Wire(parts.address("gateway-a"), 60)) as wire:
        commands = [
            (("EXISTS", "key:{}"), b":0\r\n"),
            (("TTL", "key:{}"), b":-2\r\n"),
            (("DEL", "key:{}"), b":0\r\n"),
            (("GETDEL", "key:{}"), b"$-1\r\n"),
            (("INCR", "key:{}"), b":1\r\n"),
            (("APPEND", "key:{}", "abc"), b":3\r\n"),
            (("SET", "key:{}", "x", "XX"), b"$-1\r\n"),
            (("SET", "key:{}", "x", "NX"), b"+OK\r\n"),
            (("STRLEN", "key:{}"), b":0\r\n"),
        ]
        # Each command on keys of its own, of those that were written first.
        for number, (words, wanted) in enumerate(commands):
            for key in range(number * 100, number * 100 + 50):
                assert wire.ask(*(word.format(key) for word in words)) == wanted, (words, key)


def check_that_names_of_evicted_keys_do_not_fill_the_memory(parts: Cluster) -> None:
    with closing(Wire(parts.address("gateway-a"), 60)) as wire:

        def only_live_keys() -> bool:
            live = int(wire.ask("DBSIZE")[1:-2])
            return live > 5_000 and max(records(parts)) <= 1.1 * live

        # Each operation reports to the servers which writes all of them have, so that they forget.
        def forgotten() -> bool:
            wire.ask("SET", "alive", "yes")
            return only_live_keys()

        wait_for(forgotten, "evicted keys to be forgotten", 60)
        used = [parts.metric(f"server-{it}", "flurry_memory_bytes") for it in (1, 2, 3)]
        assert max(used) <= MEMORY_BYTES


def check_that_the_next_gateway_finds_what_is_left(parts: Cluster) -> None:
    parts.kill("gateway-a")
    parts.start("gateway-b")
    with closing(Wire(parts.address("gateway-b"), 60)) as wire:
        assert len(found(wire, range(KEYS - 2_000, KEYS))) > 1_000
        fill(wire, range(KEYS, KEYS + 20_000))
        recent = range(KEYS + 18_000, KEYS + 20_000)
        assert len(found(wire, recent)) > 0.9 * len(recent)


def test_servers_that_evict_are_a_cache(tmp_path: Path) -> None:
    memory = ["--memory", f"{MEMORY_BYTES // 1_000_000}MB", "--evict"]
    with cluster(tmp_path, "127.61.0.1", *memory) as parts:
        parts.start("gateway-a")
        with closing(Wire(parts.address("gateway-a"), 60)) as wire:
            fill(wire, range(KEYS))
        check_that_recent_keys_are_there_and_the_others_are_nil(parts)
        check_that_commands_do_what_they_do_where_nothing_is(parts)
        check_that_names_of_evicted_keys_do_not_fill_the_memory(parts)
        check_that_the_next_gateway_finds_what_is_left(parts)
