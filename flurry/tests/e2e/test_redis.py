"""The gateway beside a real redis-server: the same commands, the same bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from redis_house import Wire, Word, encoded, gateway, redis_server

T = TypeVar("T")

# `make differential` asks for more of them, of a seed of its own.
COMMANDS = 100_000 * int(os.environ.get("DIFFERENTIAL_TIMES", "1"))
SEED = int(os.environ.get("DIFFERENTIAL_SEED", "20261122"))
BATCH = 100

KEYS = [b"k%d" % number for number in range(24)] + [b"", b"key with spaces", b"bin\x00\r\n\xff"]
NUMBERS = [0, 1, -1, 2, 7, 100, 2**31, 2**63 - 1, -(2**63), "1.5", "01", "+1", " 1", "x", ""]
VALUES = [b"", b"v", b"10", b"-3", b"007", b"9223372036854775807", b"long" * 40, b"\x00\xff\r\n"]

# Far enough that nothing ends while the test runs, or long ago.
TIMES_S = [4_000_000_000, 4_000_000_001, 5_000_000_000, 1, 0, -5]

# What these answer follows the clock, which moves on between the two servers.
BY_THE_CLOCK = {"TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Wire, Wire]]:
    folder = tmp_path_factory.mktemp("redis")
    with (
        gateway(folder, "127.45.0.1") as ours,
        redis_server(folder, "127.45.0.1") as theirs,
        closing(Wire(ours)) as one,
        closing(Wire(theirs)) as other,
    ):
        yield one, other


# How often each kind of command comes, as Commands.next lists them.
WEIGHTS = [16, 10, 10, 8, 4, 4, 5, 6, 6, 8, 5, 5, 6, 3, 3, 4, 8, 2, 3]


class Commands:
    """Random commands, sensible ones and others, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.later_s = 0

    def any(self, of: Sequence[T]) -> T:
        return of[self.random.integers(len(of))]

    def below(self, most: int) -> int:
        return int(self.random.integers(most))

    def key(self) -> bytes:
        # The empty key is refused here, and taken there.
        return self.any([key for key in KEYS if key])

    def value(self) -> Word:
        if self.random.random() < 0.5:
            return self.any(VALUES)
        return self.random.bytes(self.below(12))

    def number(self) -> Word:
        if self.random.random() < 0.6:
            return self.below(220) - 20
        return self.any(NUMBERS)

    def end(self) -> list[Word]:
        option = self.any(["EX", "PX", "EXAT", "PXAT", "ex", "Pxat"])
        scale = 1_000 if option.upper().startswith("P") else 1
        if option.upper().endswith("AT"):
            return [option, self.any(TIMES_S) * scale]
        return [option, self.any([100_000 * scale, 0, -1, "x", 2**63 - 1])]

    def mixed(self, name: str) -> str:
        return self.any([name, name.lower(), name.title()])

    def set(self) -> list[Word]:
        words: list[Word] = ["SET", self.key(), self.value()]
        for _ in range(self.any([0, 0, 0, 1, 1, 2, 3])):
            words += self.any(
                [["NX"], ["XX"], ["GET"], ["KEEPTTL"], self.end(), self.end(), ["WHAT"]]
            )
        return words

    def getex(self) -> list[Word]:
        more = self.any([[], ["PERSIST"], self.end(), self.end(), ["PERSIST", 1], ["EX"]])
        return ["GETEX", self.key(), *more]

    def expire(self) -> list[Word]:
        name = self.any(["EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"])
        scale = 1_000 if name.startswith("P") else 1
        given: Word = self.any(TIMES_S) * scale
        if not name.endswith("AT"):
            # No two alike: which of two equal ones ends later would be the clock's choice.
            self.later_s = self.later_s % 90_000_000 + 100 + self.below(9_900)
            given = self.any([self.later_s * scale, self.later_s * scale, 0, -1])
        if self.random.random() < 0.1:
            # Not soon, and not after the year 2262: the gateway sets such an expiry to that year.
            given = self.any([it for it in NUMBERS if it not in (1, 2, 7, 100, 2**63 - 1)])
        options = ["NX", "XX", "GT", "LT", "gt", "WHAT"]
        more = [self.any(options) for _ in range(self.any([0, 0, 0, 1, 1, 2]))]
        return [name, self.key(), given, *more]

    def keys(self) -> list[bytes]:
        return [self.key() for _ in range(1 + self.below(4))]

    def pairs(self) -> list[Word]:
        pairs = [word for _ in range(1 + self.below(3)) for word in (self.key(), self.value())]
        return pairs[:-1] if self.random.random() < 0.1 else pairs

    def wrong(self) -> list[Word]:
        """No command, or one with words too many or too few."""
        return self.any(
            [
                ["GET"],
                ["GET", "a", "b"],
                ["SET", "a"],
                ["MGET"],
                ["NOTHING", "a", "b\r\nc"],
                ["nothing", "x" * 200, "y" * 200],
                ["INCRBY", "a"],
                ["STRLEN"],
                ["TTL", "a", "b"],
                ["ECHO"],
                ["PING", "a", "b"],
                ["SELECT", "x"],
                ["SELECT", "99999"],
                ["WAIT", "x", "1"],
                ["WAIT", "0", "-1"],
                ["CLIENT", "SETNAME", "with space"],
                ["CLIENT", "ID", "1"],
                ["CLIENT", "NOTHING"],
                ["CLIENT", "REPLY", "on"],
                ["COMMAND", "COUNT", "1"],
                ["COMMAND", "NOTHING"],
                ["COMMAND", "GETKEYS", "GET"],
                ["CONFIG", "GET"],
                ["SCAN", "x"],
                ["SCAN", "0", "COUNT", "0"],
                ["SCAN", "0", "WHAT"],
                ["HELLO", "9"],
                ["HELLO", "x"],
                ["AUTH", "a", "b", "c"],
                ["AUTH", "a"],
            ]
        )

    def about(self) -> list[Word]:
        return self.any(
            [
                ["PING"],
                ["PING", self.value()],
                ["ECHO", self.value()],
                ["SELECT", "0"],
                ["CLIENT", "SETNAME", "me"],
                ["CLIENT", "GETNAME"],
                ["COMMAND", "GETKEYS", "MSET", "a", "1", "b", "2"],
                ["CONFIG", "GET", "save"],
                ["CONFIG", "GET", "appendonl?"],
            ]
        )

    def next(self) -> list[Word]:
        """Words of the next command."""
        makes: list[Callable[[], list[Word]]] = [
            self.set,
            lambda: ["GET", self.key()],
            self.expire,
            self.getex,
            lambda: ["MGET", *self.keys()],
            lambda: ["MSET", *self.pairs()],
            lambda: [self.any(["INCR", "DECR"]), self.key()],
            lambda: [self.any(["INCRBY", "DECRBY"]), self.key(), self.number()],
            lambda: ["APPEND", self.key(), self.value()],
            lambda: [self.any(["STRLEN", "TYPE", "PERSIST", "GETDEL"]), self.key()],
            lambda: [
                self.any(["GETRANGE", "SUBSTR"]),
                self.key(),
                self.number(),
                self.number(),
            ],
            lambda: [
                "SETRANGE",
                self.key(),
                self.any([0, 1, 5, 300, -1, "x", 2**29]),
                self.value(),
            ],
            lambda: [self.any(["DEL", "UNLINK", "EXISTS", "TOUCH"]), *self.keys()],
            lambda: ["SETNX", self.key(), self.value()],
            lambda: ["GETSET", self.key(), self.value()],
            lambda: [
                self.any(["SETEX", "PSETEX"]),
                self.key(),
                self.any([100_000_000, 0, -1, "x"]),
                self.value(),
            ],
            lambda: [self.any(sorted(BY_THE_CLOCK)), self.key()],
            self.about,
            self.wrong,
        ]
        make = self.random.choice(len(makes), p=np.array(WEIGHTS) / sum(WEIGHTS))
        words = makes[make]()
        return [self.mixed(str(words[0])), *words[1:]]


def agree(words: list[Word], ours: bytes, theirs: bytes) -> bool:
    if str(words[0]).upper() in BY_THE_CLOCK and ours.startswith(b":") and theirs.startswith(b":"):
        return abs(int(ours[1:]) - int(theirs[1:])) <= (2_000 if int(theirs[1:]) > 2**20 else 2)
    return ours == theirs


def test_random_commands_are_answered_byte_for_byte_as_redis_does(
    both: tuple[Wire, Wire],
) -> None:
    ours, theirs = both
    commands = Commands(SEED)
    for _ in range(COMMANDS // BATCH):
        batch = [commands.next() for _ in range(BATCH)]
        answers = zip(
            batch,
            ours.ask_all([tuple(words) for words in batch]),
            theirs.ask_all([tuple(words) for words in batch]),
            strict=True,
        )
        for words, one, other in answers:
            assert agree(words, one, other), (words, one, other, SEED)


@pytest.mark.smoke
def test_version_three_of_the_protocol_is_spoken_as_redis_speaks_it(
    both: tuple[Wire, Wire],
) -> None:
    commands = [
        ["GET", "nothing"],
        ["MGET", "nothing", "nothing"],
        ["SET", "a", "1"],
        ["CONFIG", "GET", "save"],
        ["SET", "a", "2", "NX"],
    ]
    for wire in both:
        hello = wire.ask("HELLO", "3", "SETNAME", "me")
        assert hello.startswith(b"%7\r\n"), hello
        assert re.search(rb"\$5\r\nproto\r\n:3\r\n", hello)
    for words in commands:
        assert both[0].ask(*words) == both[1].ask(*words), words
    for wire in both:
        assert wire.ask("HELLO", "2").startswith(b"*14\r\n")


def test_every_key_is_found_by_scan_once_and_only_what_is_there(both: tuple[Wire, Wire]) -> None:
    ours = both[0]
    keys = {b"scan:%d" % number for number in range(2_000)}
    ours.ask_all([("SET", key, "v") for key in keys])
    gone = {b"scan:%d" % number for number in range(0, 2_000, 7)}
    ours.ask_all([("DEL", key) for key in gone])
    for options in ([], ["COUNT", "500"]):
        found: list[bytes] = []
        cursor = b"0"
        while True:
            reply = ours.ask("SCAN", cursor, "MATCH", "scan:*", *options)
            _, _, cursor, _, rest = reply.split(b"\r\n", 4)
            found += rest.split(b"\r\n")[1::2] if rest else []
            if cursor == b"0":
                break
        assert len(found) == len(keys - gone)
        assert set(found) == keys - gone


def test_what_is_no_command_is_refused_as_redis_refuses_it(tmp_path: Path) -> None:
    streams = [
        b"*1\r\nGET\r\n",
        b"*x\r\n",
        b"*2147483648\r\n",
        b"*1\r\n$-5\r\n",
        b"*1\r\n$x\r\n",
        b'SET "a\r\n',
        b"x" * 65_537,
        b"*" + b"1" * 65_536,
        b"PING\r\n*1\r\n!\r\n",
        encoded("PING") + b"\r\n\r\n" + encoded("ECHO", "a") + b"QUIT\r\n" + encoded("PING"),
    ]
    with gateway(tmp_path, "127.46.0.1") as ours, redis_server(tmp_path, "127.46.0.1") as theirs:
        for stream in streams:
            said = []
            for address in (ours, theirs):
                wire = Wire(address)
                wire.send(stream)
                said.append(wire.reader.read())
                wire.close()
            assert said[0] == said[1], stream[:40]
