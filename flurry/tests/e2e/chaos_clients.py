"""Redis clients of a Flurry cluster that reconnect, and write down what they asked and got.

Each gateway that clients meet has a history of its own, named by its epoch, in the form that
`flurry/tests/linearizability` reads. Keys are new every few seconds, so that each has a
short history.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
from redis_house import Wire, Word

# A client gives up and tries the next gateway after so long. A client that waits longer than a
# takeover lasts would measure its own timeout.
CONNECT_S, REPLY_S = 0.1, 0.25

# For how long the same keys are used.
WINDOW_S = 10.0
THINK_MAX_S = 0.04
ONCE_SHARE = 0.05

KINDS = ("register", "counter", "list")

# The command was not done, or may have been; the gateway sends nothing older for either.
LOST = ("TAILUNKNOWN", "DATALOSS")
UNKNOWN = ("UNKNOWN", "FENCED", "NOREPLICAS", "BUSY", "TRYAGAIN", "LOADING")

Address = tuple[str, int]


class UnexpectedReplyError(Exception):
    """A gateway sent something that no fault explains."""


class Histories:
    """A file for each gateway that was open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = threading.Lock()
        self.files: dict[int, TextIO] = {}
        self.calls = 0
        # Keys that a gateway has answered for, by its epoch.
        self.answered: dict[int, set[str]] = {}

    def opened(self, epoch: int) -> None:
        """Note that a gateway is open: a client got an answer from it."""
        with self.lock:
            if epoch not in self.files:
                self.files[epoch] = (self.folder / f"epoch-{epoch}.jsonl").open("w", buffering=1)
                self.write(self.files[epoch], line="opened", session="slots", epoch=epoch)

    def write(self, file: TextIO, **fields: object) -> None:
        file.write(json.dumps(fields | {"at_ns": time.monotonic_ns()}) + "\n")

    def called(self, epoch: int, level: str, key: str, asked: dict[str, object]) -> int:
        with self.lock:
            self.calls += 1
            self.write(
                self.files[epoch], line="called", call=self.calls, key=key, level=level, **asked
            )
            return self.calls

    def returned(self, epoch: int, call: int, key: str, came: dict[str, object]) -> None:
        with self.lock:
            self.write(self.files[epoch], line="returned", call=call, **came)
            if came["outcome"] == "done":
                self.answered.setdefault(epoch, set()).add(key)

    def is_answered(self, epoch: int, key: str) -> bool:
        with self.lock:
            return key in self.answered.get(epoch, set())

    def close(self) -> None:
        for file in self.files.values():
            file.close()


@dataclass(frozen=True)
class Silence:
    """A client's time between two answers in which at least one attempt failed."""

    level: str
    from_ns: int
    to_ns: int


@dataclass(frozen=True)
class Loss:
    """A reply that reports a lost write, or one that may be."""

    level: str
    key: str
    at_ns: int
    reply: str


class Client:
    """One connection at a time, at one level."""

    def __init__(
        self,
        number: int,
        seed: int,
        level: str,
        gateways: Callable[[], list[Address]],
        histories: Histories,
    ) -> None:
        self.name, self.level = f"client-{number}", level
        self.dice = np.random.default_rng([seed, number])
        self.gateways, self.histories = gateways, histories
        self.wire: Wire | None = None
        self.epoch = 0
        # A gateway reports doubt once to each connection: the reply names one key of many.
        self.knows_of_doubt = False
        self.answered_ns = time.monotonic_ns()
        self.has_failed = False
        self.outcomes: Counter[str] = Counter()
        self.silences: list[Silence] = []
        self.losses: list[Loss] = []
        self.once = 0

    def work(self, until: threading.Event) -> None:
        began = time.monotonic()
        while not until.is_set():
            window = int((time.monotonic() - began) / WINDOW_S)
            if self.dice.random() < ONCE_SHARE:
                self.use_once()
            else:
                kind = str(self.dice.choice(KINDS))
                key = f"{self.level}-{kind}-{self.dice.integers(2)}:{window}"
                self.call(key, self.ask_of(kind))
            if self.dice.random() < 0.5:
                time.sleep(float(self.dice.uniform(0, THINK_MAX_S)))
        self.let_go()

    def use_once(self) -> None:
        """A cart, a call: written, read and deleted, and never used again."""
        self.once += 1
        key = f"{self.level}-{self.name}-once-{self.once}"
        for asked in ({"ask": "set", "value": "x" * 100}, {"ask": "get"}, {"ask": "delete"}):
            self.call(key, asked)

    def ask_of(self, kind: str) -> dict[str, object]:
        chance = self.dice.random()
        if chance < 0.4:
            return {"ask": "get"}
        if chance < 0.5:
            return {"ask": "delete"}
        number = int(self.dice.integers(1, 1_000_000))
        if kind == "counter":
            return {"ask": "increment", "by": number}
        if kind == "list":
            return {"ask": "append", "value": f"{number}."}
        if chance < 0.6:
            return {"ask": "compare_and_set", "expected": None, "value": str(number)}
        return {"ask": "set", "value": str(number)}

    def call(self, key: str, asked: dict[str, object]) -> bool:
        """One command; true if it was answered."""
        if self.wire is None and not self.connect():
            self.has_failed = True
            time.sleep(0.01)
            return False
        assert self.wire is not None
        if self.knows_of_doubt and not self.histories.is_answered(self.epoch, key):
            # The gateway's report of doubt covers this key too, until the gateway answers for it.
            told = self.histories.called(self.epoch, self.level, key, {"ask": "get"})
            came = {"outcome": "lost", "why": "reported to this client before"}
            self.histories.returned(self.epoch, told, key, came)
        number = self.histories.called(self.epoch, self.level, key, asked)
        try:
            reply = self.wire.ask(*words(key, asked))
        except (OSError, ValueError):
            reply = b""
        came = outcome(str(asked["ask"]), reply)
        self.histories.returned(self.epoch, number, key, came)
        self.note(key, str(came["outcome"]), reply)
        return came["outcome"] == "done"

    def note(self, key: str, came: str, reply: bytes) -> None:
        self.outcomes[came] += 1
        now_ns = time.monotonic_ns()
        if came == "done":
            if self.has_failed:
                self.silences.append(Silence(self.level, self.answered_ns, now_ns))
            self.answered_ns, self.has_failed = now_ns, False
            return
        if came == "lost":
            self.losses.append(Loss(self.level, key, now_ns, reply.decode().strip()))
            self.knows_of_doubt |= reply.startswith(b"-TAILUNKNOWN")
            return
        self.has_failed = True
        self.let_go()

    def connect(self) -> bool:
        """Ask the gateways in turn for one that is open."""
        for address in self.gateways():
            try:
                wire = Wire(address, CONNECT_S)
                said = wire.ask("FLURRY", "LEVEL", self.level), wire.ask("PING")
                epoch = epoch_of(wire.ask("INFO", "replication"))
            except (OSError, ValueError):
                continue
            if said == (b"+OK\r\n", b"+PONG\r\n") and epoch:
                wire.socket.settimeout(REPLY_S)
                self.wire, self.epoch, self.knows_of_doubt = wire, epoch, False
                self.histories.opened(epoch)
                return True
            wire.close()
        return False

    def let_go(self) -> None:
        if self.wire is not None:
            with suppress(OSError):
                self.wire.close()
            self.wire = None


def epoch_of(reply: bytes) -> int:
    """The epoch in INFO, or 0."""
    for line in reply.decode().splitlines():
        name, _, value = line.partition(":")
        if name == "epoch":
            return int(value)
    return 0


def words(key: str, asked: dict[str, object]) -> tuple[Word, ...]:
    value = str(asked.get("value", ""))
    return {
        "get": ("GET", key),
        "delete": ("DEL", key),
        "increment": ("INCRBY", key, str(asked.get("by", 0))),
        "append": ("APPEND", key, value),
        "compare_and_set": ("SET", key, value, "NX"),
        "set": ("SET", key, value),
    }[str(asked["ask"])]


def outcome(ask: str, reply: bytes) -> dict[str, object]:
    """A reply as a line of a history has it; no reply is an unknown outcome."""
    if not reply:
        return {"outcome": "unknown", "why": "no reply"}
    if reply[:1] == b"-":
        code = reply[1:].split(b" ")[0].decode()
        kind = "lost" if code in LOST else "unknown"
        if code not in LOST + UNKNOWN:
            raise UnexpectedReplyError(f"{ask}: {reply!r}")
        return {"outcome": kind, "why": code}
    return {"outcome": "done", "is_tail_unknown": False} | answer(ask, reply)


def answer(ask: str, reply: bytes) -> dict[str, object]:
    kind, rest = reply[:1], reply[1:].strip()
    if kind == b"+" and ask in {"set", "compare_and_set"}:
        return {"answer": "stored"}
    if reply == b"$-1\r\n":
        return {"answer": "not_found" if ask == "get" else "not_stored"}
    if kind == b"$" and ask == "get":
        return {"answer": "value", "value": reply.split(b"\r\n", 1)[1][:-2].decode()}
    if kind == b":":
        return {"answer": "number", "number": int(rest)}
    raise UnexpectedReplyError(f"{ask}: {reply!r}")
