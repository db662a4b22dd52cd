"""Transactions of a gateway: other clients see them whole, also when the gateway dies."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import redis
from house import FLURRY, started
from redis_house import Wire, Word, encoded, gateway, redis_server
from test_gateway import Gateway, gateways

T = TypeVar("T")

KEYS = [b"t%d" % number for number in range(6)]
FIELDS = [b"f%d" % number for number in range(5)] + [b"", b"with space"]
VALUES = [b"", b"v", b"10", b"-3", b"9223372036854775807", b"\x00\xff\r\n"]
NUMBERS: list[Word] = [0, 1, -1, 7, 100, 2**63 - 1, "x", "1.5"]
BITS: list[Word] = [0, 1, 7, 8, 100, -1, "x"]

# As in `make differential`.
COMMANDS = 40_000 * int(os.environ.get("DIFFERENTIAL_TIMES", "1"))
SEED = int(os.environ.get("DIFFERENTIAL_SEED", "20261129"))
BATCH = 100


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    with gateway(tmp_path_factory.mktemp("transactions"), "127.57.0.1") as ours:
        yield ours


class Commands:
    """Random commands on strings, hashes and several keys, and transactions, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def any(self, of: Sequence[T]) -> T:
        return of[self.random.integers(len(of))]

    def of(self, *choices: Word) -> Word:
        return self.any(choices)

    def key(self) -> Word:
        return self.of(*KEYS)

    def field(self) -> Word:
        return self.of(*FIELDS)

    def value(self) -> Word:
        return self.of(*VALUES)

    def hash(self) -> list[Word]:
        key, pairs = self.key(), int(self.random.integers(1, 4))
        both = [word for _ in range(pairs) for word in (self.field(), self.value())]
        return self.any(
            [
                ["HSET", key, *both],
                ["HSET", key, *both],
                ["HSET", key, *both, self.field()],
                ["HMSET", key, *both],
                ["HSETNX", key, self.field(), self.value()],
                ["HGET", key, self.field()],
                ["HMGET", key, self.field(), self.field()],
                [self.of("HGETALL", "HKEYS", "HVALS", "HLEN"), key],
                [self.of("HEXISTS", "HSTRLEN"), key, self.field()],
                ["HDEL", key, self.field(), self.field()],
                ["HINCRBY", key, self.field(), self.of(*NUMBERS)],
                ["HSCAN", key, self.of(0, 0, "x"), *self.any([[], ["MATCH", "f[1-3]"]])],
            ]
        )

    def bits(self) -> list[Word]:
        key = self.key()
        span: list[Word] = [self.of(0, 1, -1, -5, 3, "x"), self.of(0, 1, -1, -9, 40)]
        return self.any(
            [
                ["SETBIT", key, self.of(*BITS), self.of(0, 1, 1, 2)],
                ["GETBIT", key, self.of(*BITS)],
                ["BITCOUNT", key],
                ["BITCOUNT", key, *span],
                ["BITCOUNT", key, *span, self.of("BIT", "byte", "WHAT")],
                ["BITCOUNT", key, 0],
            ]
        )

    def text(self) -> list[Word]:
        key, value = self.key(), self.value()
        return self.any(
            [
                ["SET", key, value, *self.any([[], [], ["NX"], ["GET"], ["KEEPTTL"]])],
                [self.of("GET", "GETDEL", "TYPE", "STRLEN", "INCR", "PERSIST"), key],
                [self.of("APPEND", "GETSET", "SETNX"), key, value],
                ["SETRANGE", key, self.of(0, 3, -1), value],
                [self.of("MGET", "DEL", "EXISTS"), key, self.key()],
                ["MSET", key, value, self.key(), value],
                ["MSET", key, value, self.key()],
                ["INCRBY", key, self.of(*NUMBERS)],
                ["EXPIRE", key, self.of(100_000, 0, "x")],
                ["GETEX", key, *self.any([[], ["EX", "0"], ["EX", "100000"]])],
            ]
        )

    def several(self) -> list[Word]:
        """A command that is none of a transaction here: on several keys, or on a fraction."""
        one, other, number = self.key(), self.key(), self.of("n0", "n1", "n2")
        return self.any(
            [
                [self.of("RENAME", "RENAMENX", "COPY"), one, other],
                ["COPY", one, other, *self.any([["REPLACE"], ["replace", "DB", 0], ["WHAT"]])],
                ["MSETNX", one, self.value(), other, self.value()],
                ["MSETNX", one, self.value(), other],
                # Small numbers: Redis rounds larger ones to the precision of its machine.
                ["SET", number, self.of("0", "1.5", "-3.25", "x", "2e1", "10.50")],
                ["INCRBYFLOAT", number, self.of("0.1", "-1.25", "3", "5e-1", ".05", "x", "1.")],
                ["INCRBYFLOAT", number, self.of("0.01", "-0.3", "-2")],
            ]
        )

    def one(self) -> list[Word]:
        made: list[Word] = self.any([self.hash, self.hash, self.bits, self.text])()
        return made

    def queued(self) -> list[Word]:
        wrong: list[list[Word]] = [["GET"], ["NOTHING", "a"], ["HSET", "a", "b"]]
        about: list[list[Word]] = [["PING"], ["ECHO", "a"], ["SELECT", "0"], ["MULTI"], ["UNWATCH"]]
        drawn = self.random.random()
        if drawn < 0.02:
            return self.any(wrong)
        return self.any(about) if drawn < 0.1 else self.one()

    def transaction(self) -> list[list[Word]]:
        length = int(self.random.integers(6))
        end: list[Word] = [self.of("EXEC", "EXEC", "EXEC", "DISCARD")]
        before: list[list[Word]] = []
        if self.random.random() < 0.3:
            before = [["WATCH", self.key(), self.key()]]
            # A watched key changes, or does not, and the watch may be taken back.
            before += self.any([[], [], [["SET", self.key(), "new"]], [["UNWATCH"]]])
        return [*before, ["MULTI"], *(self.queued() for _ in range(length)), end]

    def batch(self) -> list[list[Word]]:
        commands: list[list[Word]] = []
        while len(commands) < BATCH:
            drawn = self.random.random()
            if drawn < 0.2:
                commands += self.transaction()
            elif drawn < 0.22:
                commands += [[self.of("EXEC", "DISCARD", "UNWATCH")]]
            elif drawn < 0.35:
                commands += [self.several()]
            else:
                commands += [self.one()]
        return commands


def test_hashes_bits_and_transactions_are_answered_byte_for_byte_as_redis_does(
    address: tuple[str, int], tmp_path: Path
) -> None:
    commands = Commands(SEED)
    with (
        redis_server(tmp_path, "127.57.0.1") as server,
        closing(Wire(address)) as ours,
        closing(Wire(server)) as theirs,
    ):
        for protocol in ("2", "3"):
            for wire in (ours, theirs):
                wire.ask("HELLO", protocol)
            for _ in range(COMMANDS // BATCH // 2):
                batch = [tuple(words) for words in commands.batch()]
                answers = zip(batch, ours.ask_all(batch), theirs.ask_all(batch), strict=True)
                for place, (words, one, other) in enumerate(answers):
                    before = batch[max(0, place - 12) : place]
                    assert one == other, (words, one, other, before, SEED)


def test_nobody_sees_half_of_a_transaction(address: tuple[str, int]) -> None:
    """Writers set two keys to one value; readers must never see two values."""
    keys, rounds = ["whole:a", "whole:b", "whole:c"], 300
    stop = threading.Event()
    seen: set[tuple[bytes, ...]] = set()

    def write(name: int) -> None:
        with closing(Wire(address)) as wire:
            for number in range(rounds):
                value = f"{name}-{number}"
                sets: list[tuple[Word, ...]] = [("SET", key, value) for key in keys]
                wire.ask_all([("MULTI",), *sets, ("EXEC",)])

    def read() -> None:
        with closing(Wire(address)) as wire:
            while not stop.is_set():
                gets: list[tuple[Word, ...]] = [("GET", key) for key in keys]
                reply = wire.ask_all([("MULTI",), *gets, ("EXEC",)])[-1]
                seen.add(tuple(reply.split(b"\r\n")[2::2]))

    with closing(Wire(address)) as wire:
        wire.ask("MSET", *(word for key in keys for word in (key, "first")))
    writers = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in [*writers, *readers]:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert len(seen) > 1
    assert all(len(set(values)) == 1 for values in seen), seen


def test_a_counter_that_clients_watch_loses_no_addition(address: tuple[str, int]) -> None:
    """Each client reads, adds and writes; it does so again when the key changed meanwhile."""
    clients, each = 6, 60
    refused = [0] * clients

    def add(name: int) -> None:
        with redis.Redis(*address) as client, client.pipeline() as pipeline:
            for _ in range(each):
                while True:
                    try:
                        pipeline.watch("watched")
                        value = int(pipeline.get("watched") or 0)
                        pipeline.multi()
                        pipeline.set("watched", value + 1)
                        pipeline.execute()
                        break
                    except redis.WatchError:
                        refused[name] += 1

    threads = [threading.Thread(target=add, args=(name,)) for name in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with closing(Wire(address)) as wire:
        assert wire.ask("GET", "watched") == b"$3\r\n%d\r\n" % (clients * each)
    assert sum(refused) > 0, "the clients never met, so the test shows nothing"


def test_a_watched_value_that_ends_has_changed(address: tuple[str, int]) -> None:
    with closing(Wire(address)) as wire:
        for end_ms, wanted in [(300, b"*-1\r\n"), (100_000, b"*1\r\n$1\r\nv\r\n")]:
            wire.ask_all([("SET", "ends", "v", "PX", end_ms), ("WATCH", "ends")])
            while end_ms == 300 and wire.ask("GET", "ends") != b"$-1\r\n":
                pass
            wire.ask("MULTI")
            wire.ask("GET", "ends")
            assert wire.ask("EXEC") == wanted


def test_a_value_that_is_too_large_is_refused_and_the_connection_stays(
    address: tuple[str, int],
) -> None:
    with closing(Wire(address)) as wire:
        large = b"v" * ((1 << 20) + 1)
        replies = wire.ask_all([("SET", "large", large), ("GET", "large"), ("PING",)])
        assert replies[0].startswith(b"-ERR value too large: at most 1048576 bytes")
        assert replies[1:] == [b"$-1\r\n", b"+PONG\r\n"]
        replies = wire.ask_all([("MULTI",), ("SET", "a", large), ("SET", "b", "v"), ("EXEC",)])
        assert replies[3].startswith(b"-EXECABORT")
        assert wire.ask("EXISTS", "b") == b":0\r\n"
        # Each fits, but together they are no operation on one key.
        half = b"v" * (600 << 10)
        replies = wire.ask_all([("MULTI",), *[("APPEND", "long", half)] * 2, ("EXEC",)])
        assert replies[3].startswith(b"-EXECABORT")
        assert wire.ask("EXISTS", "long") == b":0\r\n"
        # Nothing waits for an operation that no message can carry.
        for words in [("HSET", "hash", "a", half, "b", half), ("SET", "a", half, "IFEQ", half)]:
            assert wire.ask(*words).startswith(b"-ERR value")
        assert wire.ask("DBSIZE").startswith(b":")
        # A value that does not fit the replies of a transaction twice is not taken for none.
        wire.ask("SET", "big", half)
        replies = wire.ask_all([("MULTI",), ("MGET", "big", "big"), ("EXEC",)])
        assert replies[-1].startswith(b"*1\r\n-ERR")
        wire.ask("DEL", "big")


def test_a_lock_is_released_by_its_holder_alone(address: tuple[str, int]) -> None:
    with redis.Redis(*address) as client:
        lock, other = client.lock("lock", timeout=100), client.lock("lock", timeout=100)
        assert lock.acquire(blocking=False)
        assert not other.acquire(blocking=False)
        assert lock.extend(200)
        assert 290_000 < client.pttl("lock") <= 300_000
        assert lock.extend(100, replace_ttl=True)
        assert 90_000 < client.pttl("lock") <= 100_000
        assert lock.reacquire()
        other.local.token = b"somebody else"
        with pytest.raises(redis.exceptions.LockNotOwnedError):
            other.release()
        lock.release()
        assert not client.exists("lock")
        with pytest.raises(redis.ResponseError, match="runs no Lua"):
            client.eval("return 1", 1, "lock")
        with closing(Wire(address)) as wire:
            wire.ask("SET", "cas", "a")
            assert wire.ask("SET", "cas", "b", "IFEQ", "x", "GET") == b"$1\r\na\r\n"
            assert wire.ask("SET", "cas", "b", "IFEQ", "x") == b"$-1\r\n"
            assert wire.ask("SET", "cas", "b", "IFEQ", "a") == b"+OK\r\n"
            assert wire.ask("DELIFEQ", "cas", "a") == b":0\r\n"
            assert wire.ask("DELIFEQ", "cas", "b") == b":1\r\n"


def scanned(wire: Wire, kind: str) -> list[bytes]:
    """All keys of a kind."""
    found: list[bytes] = []
    cursor = b"0"
    while True:
        _, _, cursor, _, *rest = wire.ask("SCAN", cursor, "TYPE", kind).split(b"\r\n")
        found += rest[1::2]
        if cursor == b"0":
            return found


def test_flushdb_removes_every_key(address: tuple[str, int]) -> None:
    with closing(Wire(address)) as wire:
        wire.ask_all([("SET", f"flush:{number}", "v") for number in range(3_000)])
        wire.ask("HSET", "flush:hash", "a", "1")
        assert int(wire.ask("DBSIZE")[1:]) > 3_000
        assert wire.ask("FLUSHDB", "WHAT") == b"-ERR syntax error\r\n"
        assert wire.ask_all([("FLUSHDB",), ("DBSIZE",)]) == [b"+OK\r\n", b":0\r\n"]
        wire.ask("HSET", "hash", "a", "1")
        wire.ask("SET", "text", "v")
        for kind, found in [("hash", b"hash"), ("string", b"text"), ("list", None)]:
            assert scanned(wire, kind) == ([found] if found else [])


def test_a_transaction_on_one_key_is_whole_when_its_gateway_is_killed(tmp_path: Path) -> None:
    """Each transaction adds "a" and "b"; whenever the gateway dies, there are as many of both."""
    controller, rounds = "127.58.0.1:7700", 5
    seen = 0
    serve = [FLURRY, "serve", "--controller", controller]
    generator = np.random.default_rng(7)
    with started(serve, "ready", tmp_path / "serve.log"), gateways() as running:
        for number in range(rounds):
            name, listen = f"gateway-{number}", "127.58.0.1:0"
            running.append(Gateway(tmp_path, name, listen=listen, controller=controller))
            with closing(Wire(running[-1].address)) as wire:
                value = wire.ask("GET", "pairs")
                kept = b"" if value == b"$-1\r\n" else value.split(b"\r\n")[1]
                assert kept == b"ab" * (len(kept) // 2), kept[-20:]
                assert len(kept) >= seen
                pair: list[tuple[Word, ...]] = [
                    ("MULTI",),
                    ("APPEND", "pairs", "a"),
                    ("APPEND", "pairs", "b"),
                    ("EXEC",),
                ]
                for _ in range(int(generator.integers(20, 200))):
                    seen = int(wire.ask_all(pair)[-1].split(b":")[-1])
                # More are under way when it dies.
                wire.send(b"".join(encoded(*words) for words in pair * 100))
                running[-1].kill()
    assert seen > 0
