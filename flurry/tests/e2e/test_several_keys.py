"""Commands on several keys, numbered commands, and what a gateway reports of a key."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import redis
from flurry_house import cluster
from house import FLURRY, started, wait_for
from redis_house import Wire, Word, encoded, gateway
from test_gateway import Gateway, gateways

HOST = "127.84.0.1"
OTHER_HOST = "127.85.0.1"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    with gateway(tmp_path_factory.mktemp("several"), HOST) as ours:
        yield ours


def test_a_key_that_is_renamed_is_never_at_two_places_nor_at_none(
    address: tuple[str, int],
) -> None:
    rounds, names = 200, ("moves:a", "moves:b")
    stop = threading.Event()
    seen: set[bytes] = set()

    def move() -> None:
        with closing(Wire(address)) as wire:
            for number in range(rounds):
                one, other = names if number % 2 == 0 else names[::-1]
                # The client's next command finds the value at its new key.
                replies = wire.ask_all([("RENAME", one, other), ("GET", other)])
                assert replies == [b"+OK\r\n", b"$1\r\nv\r\n"]

    def read() -> None:
        with closing(Wire(address)) as wire:
            while not stop.is_set():
                seen.add(wire.ask("EXISTS", *names))
                replies = wire.ask_all([("MULTI",), *(("GET", it) for it in names), ("EXEC",)])
                seen.add(b":%d\r\n" % replies[-1].count(b"$1\r\nv\r\n"))

    with closing(Wire(address)) as wire:
        wire.ask("SET", names[0], "v", "EX", "100000")
        readers = [threading.Thread(target=read) for _ in range(3)]
        mover = threading.Thread(target=move)
        for thread in [mover, *readers]:
            thread.start()
        mover.join()
        stop.set()
        for thread in readers:
            thread.join()
        assert seen == {b":1\r\n"}
        assert int(wire.ask("TTL", names[0])[1:]) > 90_000


def test_a_write_whose_turn_comes_while_its_key_is_moved_waits_for_the_move(
    tmp_path: Path,
) -> None:
    """The servers stand still until the gateway has read both commands.

    It begins no more than 1,024 operations of the first one, which has its write of the key behind
    them; by then the other client's command has looked at the key.
    """
    with cluster(tmp_path, "127.87.0.1", lease="10s") as made:
        made.start("gateway-a", "--timeout", "15s")
        address = made.address("gateway-a")
        with closing(Wire(address)) as one, closing(Wire(address)) as other:
            one.ask_all([("CLIENT", "SETNAME", "one"), ("SET", "race:a", "old")])
            other.ask("CLIENT", "SETNAME", "other")
            filler: list[Word] = [word for number in range(3_000) for word in (f"f:{number}", "v")]
            for number in (1, 2, 3):
                made.stop(f"server-{number}")
            one.send(encoded("MSET", *filler, "race:a", "new"))
            wait_for(lambda: is_under_way(address, b"one"), "the long command")
            other.send(encoded("RENAME", "race:a", "race:b"))
            wait_for(lambda: is_under_way(address, b"other"), "the other command")
            for number in (1, 2, 3):
                made.go_on(f"server-{number}")
            assert (one.reply(), other.reply()) == (b"+OK\r\n", b"+OK\r\n")
            found = one.ask("MGET", "race:a", "race:b")
    # The write came after the move, and nothing is lost.
    assert found == b"*2\r\n$3\r\nnew\r\n$3\r\nold\r\n"


def is_under_way(address: tuple[str, int], name: bytes) -> bool:
    """Return whether a client of this name has a command that is not answered yet."""
    with closing(Wire(address)) as wire:
        lines = wire.ask("CLIENT", "LIST").splitlines()
    return any(b"name=%s " % name in line and b" pending=1 " in line for line in lines)


def test_a_counter_that_is_moved_away_while_others_add_to_it_loses_nothing(
    address: tuple[str, int],
) -> None:
    """One client sends its commands at once, so that the gateway serves the other in between."""
    each, rounds = 2_000, 10
    moved = 0
    with closing(Wire(address)) as one, closing(Wire(address)) as other:
        for _ in range(rounds):
            # The PING makes the length odd: turns of the gateway end at any place of a command.
            one.send(encoded("INCR", "sum:a") * each + encoded("PING", "end"))
            thread = threading.Thread(target=lambda: [one.reply() for _ in range(each + 1)])
            thread.start()
            while thread.is_alive():
                if other.ask("RENAME", "sum:a", "sum:b") == b"+OK\r\n":
                    moved += int(other.ask("GETDEL", "sum:b").split(b"\r\n")[1])
            thread.join()
        left = one.ask("GET", "sum:a").split(b"\r\n")
        assert moved > 0
        assert moved + (int(left[1]) if len(left) > 2 else 0) == each * rounds


def test_of_clients_that_set_the_same_absent_keys_one_succeeds(address: tuple[str, int]) -> None:
    clients, rounds = 6, 60
    won = np.zeros(rounds, dtype=int)
    lock = threading.Lock()

    def set_all(name: int) -> None:
        with closing(Wire(address)) as wire:
            for number in range(rounds):
                # In other orders, so that their keys overlap crosswise.
                keys = [f"claim:{number}:{part}" for part in range(4)]
                keys = keys[name % 4 :] + keys[: name % 4]
                words = [word for key in keys for word in (key, f"owner-{name}")]
                reply = wire.ask("MSETNX", *words)
                assert reply in (b":0\r\n", b":1\r\n")
                with lock:
                    won[number] += reply == b":1\r\n"

    threads = [threading.Thread(target=set_all, args=(name,)) for name in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (won == 1).all()
    with closing(Wire(address)) as wire:
        for number in range(rounds):
            reply = wire.ask("MGET", *(f"claim:{number}:{part}" for part in range(4)))
            assert len(set(reply.split(b"\r\n")[2::2])) == 1


def test_a_client_that_leaves_in_the_middle_of_a_command_holds_no_key(
    address: tuple[str, int],
) -> None:
    with closing(Wire(address)) as wire:
        wire.ask("SET", "left:0", "v")
        for number in range(60):
            with closing(Wire(address)) as other:
                other.send(encoded("RENAME", f"left:{number}", f"left:{number + 1}"))
            # Whether or not it happened, both keys can be used at once.
            keys = [f"left:{at}" for at in (number, number + 1)]
            there = int(wire.ask("EXISTS", *keys)[1:])
            assert there >= 1
            wire.ask_all([("DEL", keys[0]), ("SET", keys[1], "v")])


def test_a_value_is_not_lost_when_the_gateway_dies_while_it_moves(tmp_path: Path) -> None:
    controller, rounds = f"{OTHER_HOST}:7700", 5
    serve = [FLURRY, "serve", "--controller", controller]
    moves: list[tuple[Word, ...]] = [("RENAME", "a", "b"), ("RENAME", "b", "a")] * 100
    with started(serve, "ready", tmp_path / "serve.log"), gateways() as running:
        for number in range(rounds):
            name, listen = f"gateway-{number}", f"{OTHER_HOST}:0"
            running.append(Gateway(tmp_path, name, listen=listen, controller=controller))
            with closing(Wire(running[-1].address)) as wire:
                if number == 0:
                    wire.ask("HSET", "a", "field", "value")
                kept = [it for it in ("a", "b") if wire.ask("EXISTS", it) == b":1\r\n"]
                assert kept, "a dead gateway left both keys, or one, but never none"
                for key in kept:
                    assert wire.ask("HGET", key, "field") == b"$5\r\nvalue\r\n"
                if kept == ["b"]:
                    wire.ask("RENAME", "b", "a")
                wire.send(b"".join(encoded(*words) for words in moves))
                wire.reply()
                running[-1].kill()


def numbered(wire: Wire, number: int, *words: Word) -> bytes:
    """The reply to a command with a number, from a client with a name."""
    commands: list[tuple[Word, ...]] = [
        ("CLIENT", "SETNAME", "worker-7"),
        ("FLURRY", "ID", number),
        words,
    ]
    *before, reply = wire.ask_all(commands)
    assert before == [b"+OK\r\n", b"+OK\r\n"]
    return reply


def test_a_numbered_command_is_done_once_however_often_it_is_sent(
    address: tuple[str, int],
) -> None:
    with closing(Wire(address)) as wire, closing(Wire(address)) as again:
        assert numbered(wire, 1, "INCRBY", "once", 5) == b":5\r\n"
        assert wire.ask("INCR", "once") == b":6\r\n", "a number is for one command"
        assert numbered(again, 1, "INCRBY", "once", 5) == b":5\r\n"
        assert numbered(again, 2, "GETDEL", "once") == b"$1\r\n6\r\n"
        assert numbered(wire, 2, "GETDEL", "once") == b"$1\r\n6\r\n"
        assert wire.ask("EXISTS", "once") == b":0\r\n"
        assert numbered(wire, 1, "INCR", "once").startswith(b"-ERR number: ")
        # The number is that of another command.
        assert numbered(wire, 2, "INCR", "once").startswith(b"-ERR number: ")
        # A library may look after its connection in between.
        wire.ask_all([("FLURRY", "ID", "3"), ("PING",), ("CLIENT", "ID")])
        assert wire.ask("SET", "once", "v", "EX", "100") == b"+OK\r\n"
        assert numbered(again, 3, "SET", "once", "v", "EX", "100") == b"+OK\r\n"
        assert numbered(again, 4, "GETDEL", "once") == b"$1\r\nv\r\n"
        # Reads are answered anew.
        assert numbered(wire, 1, "EXISTS", "once") == b":0\r\n"


def test_a_number_needs_a_name_and_one_command_on_one_key(address: tuple[str, int]) -> None:
    with closing(Wire(address)) as wire:
        assert wire.ask("FLURRY", "ID", "1").startswith(b"-ERR id: ")
        wire.ask("CLIENT", "SETNAME", "worker-8")
        for number in ("x", "-1", "1.5"):
            assert wire.ask("FLURRY", "ID", number).startswith(b"-ERR id: ")
        for words in (("MSET", "a", "1", "b", "2"), ("RENAME", "a", "b"), ("MULTI",)):
            assert numbered(wire, 1, *words).startswith(b"-ERR id: ")
        assert wire.ask("EXEC").startswith(b"-ERR EXEC without MULTI")
        assert wire.ask("EXISTS", "a", "b") == b":0\r\n"


def test_a_counter_is_exact_although_its_gateway_dies_again_and_again(tmp_path: Path) -> None:
    """The client does not know what became of its last command, and sends it again."""
    host = "127.86.0.1"
    controller, rounds = f"{host}:7700", 6
    serve = [FLURRY, "serve", "--controller", controller]
    generator = np.random.default_rng(11)
    number = 0
    with started(serve, "ready", tmp_path / "serve.log"), gateways() as running:
        for turn in range(rounds):
            name, listen = f"gateway-{turn}", f"{host}:0"
            running.append(Gateway(tmp_path, name, listen=listen, controller=controller))
            with closing(Wire(running[-1].address)) as wire:
                if number:
                    # What became of the last one is unknown: it is sent again.
                    assert numbered(wire, number, "INCR", "exact") == b":%d\r\n" % number
                for _ in range(int(generator.integers(20, 100))):
                    number += 1
                    assert numbered(wire, number, "INCR", "exact") == b":%d\r\n" % number
                number += 1
                wire.send(encoded("FLURRY", "ID", number) + encoded("INCR", "exact"))
                if turn % 2:
                    wire.reply()
                running[-1].kill()
    assert number > 100


def test_what_a_gateway_reports_of_a_key_is_read_by_redis_py(address: tuple[str, int]) -> None:
    with redis.Redis(*address) as client:
        client.set("text", "v" * 1_000)
        client.set("number", "12")
        client.hset("hash", mapping={"a": "1", "b": "2"})
        encodings = [client.object("encoding", it) for it in ("text", "number", "hash", "none")]
        assert encodings == [b"raw", b"int", b"listpack", None]
        assert client.object("refcount", "text") == 1
        with pytest.raises(redis.ResponseError, match="when a key was last used"):
            client.object("idletime", "text")
        assert 1_000 < client.memory_usage("text", samples=5) < 1_200
        assert client.memory_usage("none") is None
        client.slowlog_reset()
        assert client.slowlog_len() == 0
        client.exists(*(f"many:{number}" for number in range(100_000)))
        (slow,) = client.slowlog_get(1)
        assert slow["command"] == b"EXISTS many:0 ... (99999 more keys)"
        assert slow["duration"] >= 10_000
