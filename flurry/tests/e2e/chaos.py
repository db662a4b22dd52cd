"""Three machines with a controller and a server each, two with a gateway, one at a time in trouble.

`test_chaos.py` starts it in network and process namespaces of its own, and each machine has another
network namespace. One fault
follows another: the next begins when all servers take part again, and not before the controllers
have judged the silence of the last one. So at most one machine is in trouble at any moment, and
nothing that was written at `quorum` may be lost, nor reported as lost.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
from chaos_clients import CONNECT_S, Address, Client, Histories, UnexpectedReplyError
from house import FLURRY
from machines import NETWORK, machines, run, within
from redis_house import Wire

ADDRESS = {number: f"{NETWORK}.{number}" for number in (1, 2, 3)}
CONTROLLERS_AT = ",".join(f"{address}:7700" for address in ADDRESS.values())
MACHINES = {
    1: ("controller-1", "server-1"),
    2: ("controller-2", "server-2", "gateway-a"),
    3: ("controller-3", "server-3", "gateway-b"),
}
PARTS = tuple(sorted(part for parts in MACHINES.values() for part in parts))
LISTEN = {"gateway-a": (ADDRESS[2], 6379), "gateway-b": (ADDRESS[3], 6379)}

CLIENTS = 6
DEADLINE_S = 60.0
TURN_S = 0.02
# A silence that ends just before a lease does may still count a server out: packets under way say
# so within this time. A fault of another machine meanwhile would be the second of two at once.
JUDGED_S = 0.5
# How long a service manager waits before it starts an ended process again.
RESTART_S = 0.1

# A missing library would be ignored, and every clock would stay right.
(FAKETIME,) = map(str, Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
# How far a wall clock may jump, either way.
JUMP_MAX_S = 5.0

# What happens to the packets of a machine, as rules of nftables in its own namespace.
DEAF = "chain in { type filter hook input priority 0; iif eth0 drop; }"
MUTE = "chain out { type filter hook output priority 0; oif eth0 drop; }"
LOSSY = "chain out { type filter hook output priority 0; oif eth0 numgen random mod 10 < 3 drop; }"
# An interface that is set down and up again takes up to a second longer than that.
DROP = {"deaf": DEAF, "mute": MUTE, "lossy": LOSSY, "cut": f"{DEAF}; {MUTE}"}


class ChaosError(Exception):
    """Something happened that no fault explains."""


@dataclass(frozen=True)
class Fault:
    """A fault of one part or one machine."""

    kind: str
    where: str
    lasts_s: float
    from_ns: int = 0
    to_ns: int = 0


def deck(dice: np.random.Generator) -> list[Fault]:
    """Every kind of fault at every part and machine once, in a random order."""
    spans = ((0.01, 0.1), (0.1, 1.0), (1.0, 5.0))

    def lasts(low: float, high: float) -> float:
        return float(np.exp(dice.uniform(np.log(low), np.log(high))))

    cards = [Fault("kill", part, lasts(0.01, 1.5)) for part in PARTS]
    cards += [Fault("stop", part, lasts(*span)) for part in PARTS for span in spans]
    for machine in map(str, MACHINES):
        cards.append(Fault("off", machine, lasts(0.5, 5.0)))
        cards.append(Fault("freeze", machine, lasts(1.0, 5.0)))
        cards.append(Fault("clock", machine, float(dice.uniform(-JUMP_MAX_S, JUMP_MAX_S))))
        cards += [Fault(kind, machine, lasts(0.1, 5.0)) for kind in DROP]
    return [cards[index] for index in dice.permutation(len(cards))]


class Chaos:
    """The processes of one cluster."""

    def __init__(self, folder: Path, level: str, pids: list[int]) -> None:
        self.folder, self.level, self.pids = folder, level, pids
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.lives: Counter[str] = Counter()
        self.away: set[str] = set()
        self.again: dict[str, float] = {}
        self.ahead_s: dict[int, float] = dict.fromkeys(MACHINES, 0.0)
        for machine in MACHINES:
            self.set_clock(machine, 0.0)

    def start(self, part: str) -> None:
        self.lives[part] += 1
        name, machine = f"{part}-{self.lives[part]}", machine_of(part)
        clock = {
            "LD_PRELOAD": FAKETIME,
            "FAKETIME_TIMESTAMP_FILE": str(self.clock_of(machine)),
            "FAKETIME_CACHE_DURATION": "1",
            # The boot clock of a machine goes on; only its time of day is set.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        files = self.folder / f"{name}.out", self.folder / f"{name}.log"
        with files[0].open("wb") as out, files[1].open("wb") as log:
            self.running[part] = subprocess.Popen(
                within(self.pids[machine - 1], *self.words(part)),
                stdin=subprocess.DEVNULL, stdout=out, stderr=log,
                env=os.environ | clock,
            )  # fmt: skip

    def words(self, part: str) -> list[str]:
        kind, _, which = part.partition("-")
        if kind == "controller":
            more = ["--listen", f"{ADDRESS[int(which)]}:7700", "--controllers", CONTROLLERS_AT]
            return [str(FLURRY), kind, *more, "--dir", str(self.folder / part), "--insecure"]
        where = ["--controller", CONTROLLERS_AT, "--metrics", "127.0.0.1:0", "--insecure"]
        if kind == "server":
            return [str(FLURRY), "server", "--id", which, "--listen",
                    f"{ADDRESS[int(which)]}:7701", *where]  # fmt: skip
        host, port = LISTEN[part]
        return [
            str(FLURRY), "gateway", "--listen", f"{host}:{port}", "--standby",
            "--level", self.level, *where,
        ]  # fmt: skip

    def clock_of(self, machine: int) -> Path:
        return self.folder / f"machine-{machine}.clock"

    def set_clock(self, machine: int, by_s: float) -> None:
        self.ahead_s[machine] += by_s
        fresh = self.folder / "clock.new"
        fresh.write_text(f"{self.ahead_s[machine]:+.3f}")
        fresh.rename(self.clock_of(machine))

    def trouble(self, fault: Fault) -> Fault:
        """Let a fault happen from beginning to end, and return it with its times."""
        from_ns = time.monotonic_ns()
        if fault.kind == "clock":
            self.set_clock(int(fault.where), fault.lasts_s)
            # The processes read the file once a second.
            self.wait(2.0)
            return Fault(fault.kind, fault.where, fault.lasts_s, from_ns, time.monotonic_ns())
        if fault.kind in DROP:
            pid = self.pids[int(fault.where) - 1]
            run(pid, "nft", f"table ip trouble {{ {DROP[fault.kind]}; }}")
            self.wait(fault.lasts_s)
            run(pid, "nft", "delete table ip trouble")
            return Fault(fault.kind, fault.where, fault.lasts_s, from_ns, time.monotonic_ns())
        is_machine = fault.kind in {"off", "freeze"}
        parts = MACHINES[int(fault.where)] if is_machine else (fault.where,)
        for part in parts:
            if fault.kind in {"kill", "off"}:
                self.away.add(part)
                self.running[part].kill()
                self.running[part].wait()
            else:
                self.running[part].send_signal(signal.SIGSTOP)
        self.wait(fault.lasts_s)
        for part in parts:
            if fault.kind in {"kill", "off"}:
                self.away.discard(part)
                self.start(part)
            else:
                self.running[part].send_signal(signal.SIGCONT)
        return Fault(fault.kind, fault.where, fault.lasts_s, from_ns, time.monotonic_ns())

    def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0:
            self.look_after()
            time.sleep(min(left_s, TURN_S))

    def look_after(self) -> None:
        """Start a gateway again that was pushed aside, as a service manager does."""
        for part, process in list(self.running.items()):
            code = process.poll()
            if code is None or part in self.away:
                continue
            log = self.folder / f"{part}-{self.lives[part]}.log"
            if not part.startswith("gateway") or code != 2:
                raise ChaosError(f"{part} ended with {code}: {log.read_text()[-2_000:]}")
            due = self.again.setdefault(part, time.monotonic() + RESTART_S)
            if time.monotonic() >= due:
                del self.again[part]
                self.start(part)

    def until_whole(self) -> None:
        """Wait until all controllers and servers take part and one gateway serves."""
        self.wait(JUDGED_S)
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until:
            status = self.status()
            up = re.findall(r"^\d+ +up", status, re.M)
            settled = "changing" not in status and "silent" not in status
            if len(up) == 3 and settled and self.is_open():
                return
            self.wait(TURN_S)
        raise ChaosError(f"not every server takes part after {DEADLINE_S} s: {self.status()}")

    def is_open(self) -> bool:
        """True if one gateway serves and the other stands by."""
        replies = []
        for address in LISTEN.values():
            try:
                with closing(Wire(address, CONNECT_S)) as wire:
                    replies.append(wire.ask("PING"))
            except OSError:
                return False
        return sorted(reply[:5] for reply in replies) == [b"+PONG", b"-LOAD"]

    def status(self) -> str:
        words = [str(FLURRY), "status", "--controller", CONTROLLERS_AT, "--timeout", "1s"]
        words.append("--insecure")
        said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
        return said.stdout + said.stderr

    def read_page(self, machine: int, url: str) -> str:
        """Read a page that only the machine itself can reach."""
        program = (
            f"import urllib.request as it; print(it.urlopen({url!r}, timeout=5).read().decode())"
        )
        words = within(self.pids[machine - 1], sys.executable, "-c", program)
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout

    def records(self) -> int:
        """The most records that a server holds."""
        most = 0
        for part in PARTS:
            if part.startswith("server"):
                said = (self.folder / f"{part}-{self.lives[part]}.out").read_text()
                (at,) = re.findall(r"http://(\S+)/metrics", said)
                text = self.read_page(machine_of(part), f"http://{at}/metrics")
                counts = re.findall(r"^flurry_records(?:{.*})? (\S+)$", text, re.M)
                most = max(most, int(sum(map(float, counts))))
        return most


def machine_of(part: str) -> int:
    return next(machine for machine, parts in MACHINES.items() if part in parts)


def gateways_from(first: int) -> list[Address]:
    every = [LISTEN["gateway-a"], LISTEN["gateway-b"]]
    return every[first:] + every[:first]


class Crowd:
    """The clients, each in a thread."""

    def __init__(self, folder: Path, seed: int, level: str) -> None:
        self.histories = Histories(folder)
        turn = cycle((0, 1))
        # A gateway of level quorum lets nobody choose a lower one.
        levels = cycle(("quorum",) if level == "quorum" else ("quorum", "first"))
        self.clients = [
            Client(number, seed, next(levels), lambda: gateways_from(next(turn)), self.histories)
            for number in range(CLIENTS)
        ]
        self.over = threading.Event()
        self.errors: list[Exception] = []
        self.threads = [threading.Thread(target=self.work, args=(it,)) for it in self.clients]

    def work(self, client: Client) -> None:
        try:
            client.work(self.over)
        except (UnexpectedReplyError, OSError, ValueError) as error:
            self.errors.append(error)

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(DEADLINE_S)
        if self.errors:
            raise ChaosError(f"a client ended: {self.errors[0]!r}")

    def read_all(self) -> int:
        """Read every key once more; return how many have a value."""
        keys: set[tuple[str, str]] = set()
        for path in self.histories.folder.glob("epoch-*.jsonl"):
            for row in path.read_text().splitlines():
                line = json.loads(row)
                if line["line"] == "called":
                    keys.add((line["level"], line["key"]))
        reader = {client.level: client for client in self.clients}
        for level, key in sorted(keys):
            until = time.monotonic() + DEADLINE_S
            while not reader[level].call(key, {"ask": "get"}):
                if time.monotonic() > until:
                    raise ChaosError(f"{key} was not answered within {DEADLINE_S} s")
        return len(keys)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--level", required=True, choices=("first", "quorum"))
    given = parser.parse_args()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=30)
    with machines(len(MACHINES), os.getpid()) as pids:
        return play(given, Chaos(given.folder, given.level, pids))


def play(given: argparse.Namespace, chaos: Chaos) -> int:
    """Let clients work while one fault follows another, and keep the counts."""
    dice = np.random.default_rng(given.seed)
    crowd = Crowd(given.folder, given.seed, given.level)
    happened: list[Fault] = []
    try:
        for part in PARTS:
            chaos.start(part)
            chaos.wait(TURN_S)
        chaos.until_whole()
        crowd.start()
        until = time.monotonic() + given.seconds
        while time.monotonic() < until:
            for fault in deck(dice):
                if time.monotonic() >= until:
                    break
                chaos.wait(float(dice.uniform(0.2, 1.0)))
                happened.append(chaos.trouble(fault))
                chaos.until_whole()
        chaos.wait(2.0)
        crowd.stop()
        keys = crowd.read_all()
        told = {"faults": [asdict(it) for it in happened], "keys": keys}
        told |= {"records": chaos.records()}
        told |= {"silences": [asdict(it) for one in crowd.clients for it in one.silences]}
        told |= {"losses": [asdict(it) for one in crowd.clients for it in one.losses]}
        outcomes = sum((one.outcomes for one in crowd.clients), Counter[str]())
        (given.folder / "chaos.json").write_text(json.dumps(told | {"outcomes": outcomes}))
    except ChaosError as error:
        sys.stderr.write(f"chaos: {error}\n")
        crowd.over.set()
        return 1
    finally:
        crowd.histories.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
