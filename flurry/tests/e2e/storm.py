"""A Flurry cluster of real processes under faults; owners record their results.

`test_linearizable.py` starts it in network and process namespaces of its own, so that its rules
touch nobody else and its end is the end of every process that it started.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from house import EXAMPLES, FLURRY
from weather import (
    ADDRESSES,
    CONTROLLER,
    GROUPS,
    OWNERS,
    SERVERS,
    Fault,
    deal,
    rules,
    table,
)

HISTORY = EXAMPLES / "history"
CONTROLLER_AT = f"{ADDRESSES[CONTROLLER]}:7700"

# Far more than anything takes once nothing goes wrong any more; only reached by a failure.
DEADLINE_S = 60.0

TURN_S = 0.02


class StormError(Exception):
    """Something happened that no fault explains."""


class Storm:
    """The processes of one cluster, and their faults."""

    def __init__(self, folder: Path, seed: int, transport: str) -> None:
        self.folder = folder
        self.seed = seed
        self.transport = transport
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: dict[str, Path] = {}
        self.lives: Counter[str] = Counter()
        self.usurped: dict[str, subprocess.Popen[bytes]] = {}
        self.pushed_aside: list[subprocess.Popen[bytes]] = []
        self.network: list[Fault] = []
        self.away: set[str] = set()

    def start(self, part: str) -> None:
        """Begin a new life of a part."""
        self.lives[part] += 1
        name = f"{part}-{self.lives[part]}"
        # An owner works until its input ends.
        stdin = subprocess.PIPE if part in OWNERS else subprocess.DEVNULL
        self.running[part] = self.spawn(name, self.words(part), stdin, GROUPS.get(part))
        self.logs[part] = self.log(name)

    def spawn(
        self, name: str, words: list[str], stdin: int, group: int | None = None
    ) -> subprocess.Popen[bytes]:
        # What a part logs is not what it says: of that the places are read.
        errors = (
            self.log(name) if name.startswith(tuple(OWNERS)) else self.folder / f"{name}.errors"
        )
        with self.log(name).open("ab") as out, errors.open("ab") as more:
            return subprocess.Popen(words, stdin=stdin, stdout=out, stderr=more, group=group)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def words(self, part: str) -> list[str]:
        if part == CONTROLLER:
            state = str(self.folder / "state")
            return [str(FLURRY), "controller", "--listen", CONTROLLER_AT, "--dir", state]
        if part in SERVERS:
            number = part.removeprefix("server-")
            listen = f"{ADDRESSES[part]}:0"
            where = ["--controller", CONTROLLER_AT, "--listen", listen]
            return [str(FLURRY), "server", "--id", number, *where]
        return self.owner_words(part, f"{part}-{self.lives[part]}")

    def owner_words(self, owner: str, name: str) -> list[str]:
        seed = self.seed * 1_000_000 + OWNERS.index(owner) * 1_000 + self.lives[owner]
        return [
            str(HISTORY), "--controller", CONTROLLER_AT, "--transport", self.transport,
            "--session", owner.replace("owner", "session"), "--seed", str(seed),
            "--history", str(self.folder / f"{name}.jsonl"),
        ]  # fmt: skip

    def signal(self, part: str, number: signal.Signals) -> None:
        self.running[part].send_signal(number)

    def begin(self, fault: Fault) -> None:
        """Make something go wrong."""
        for part in fault.parts:
            if fault.kind == "kill":
                self.signal(part, signal.SIGKILL)
                self.running[part].wait()
                self.away.add(part)
            elif fault.kind == "stop":
                self.signal(part, signal.SIGSTOP)
            elif fault.kind == "usurp":
                self.signal(part, signal.SIGSTOP)
                self.usurped[part] = self.running[part]
                self.pushed_aside.append(self.running[part])
                self.start(part)
        if fault.kind in {"loss", "cut", "mute", "isolate"}:
            self.network.append(fault)
            nft(rules(self.network))

    def end(self, fault: Fault) -> None:
        """Let it be right again."""
        for part in fault.parts:
            if fault.kind == "kill":
                self.away.discard(part)
                self.start(part)
            elif fault.kind == "stop":
                self.signal(part, signal.SIGCONT)
            elif fault.kind == "usurp":
                self.usurped.pop(part).send_signal(signal.SIGCONT)
        if fault in self.network:
            self.network.remove(fault)
            nft(rules(self.network))

    def look_after(self) -> None:
        """The next owner for a session whose owner was pushed aside; nothing else may end."""
        for part, process in list(self.running.items()):
            code = process.poll()
            if code is None or part in self.away:
                continue
            if part in OWNERS and code == 0:
                self.start(part)
            else:
                raise StormError(f"{part} ended with {code}: {self.logs[part].read_text()}")

    def weather(self, faults: list[Fault], seconds: float) -> None:
        began = time.monotonic()
        due = [(fault.at_s, self.begin, fault) for fault in faults]
        due += [(fault.until_s, self.end, fault) for fault in faults]
        for at_s, act, fault in sorted(due, key=lambda it: it[0]):
            self.wait_until(began + at_s)
            act(fault)
        self.wait_until(began + seconds)

    def wait_until(self, instant: float) -> None:
        while (left_s := instant - time.monotonic()) > 0:
            self.look_after()
            time.sleep(min(left_s, TURN_S))

    def until_whole(self) -> None:
        """Wait for every server to take part, in its present life."""
        seen = ""
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until:
            words = [str(FLURRY), "status", "--controller", CONTROLLER_AT, "--timeout", "1s"]
            said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
            seen = said.stdout + said.stderr
            up = [line.split()[2] for line in said.stdout.splitlines() if " up " in line]
            if "changing" not in seen and sorted(up) == sorted(self.listening()):
                return
            time.sleep(TURN_S)
        raise StormError(f"not every server takes part again after {DEADLINE_S} s: {seen}")

    def listening(self) -> list[str]:
        said = [self.logs[part].read_text().split() for part in SERVERS]
        # `server 1 127.0.0.11:40123`, `ready`
        return [words[2] if words[-1:] == ["ready"] else "nowhere" for words in said]

    def finish(self) -> None:
        """Owners read all keys and let go; then a last owner of each session reads them again."""
        # One that was stopped before its session was open may own it only now.
        owners = [*(self.running[owner] for owner in OWNERS), *self.pushed_aside]
        for process in owners:
            assert process.stdin is not None
            process.stdin.close()
        for process in owners:
            self.see_end(process)
        for owner in OWNERS:
            name = f"{owner}-last"
            words = self.owner_words(owner, name)
            self.see_end(self.spawn(name, words, subprocess.DEVNULL))

    def see_end(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for an owner to end well."""
        try:
            code: int | None = process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            logs = sorted(self.folder.glob("owner-*.log"))
            said = "".join(f"\n{log.stem}: {text}" for log in logs if (text := log.read_text()))
            what = "did not end" if code is None else f"ended with {code}"
            raise StormError(f"an owner {what}; owners said:{said}")


def nft(script: str) -> None:
    subprocess.run(["nft", "-f", "-"], input=script, text=True, check=True, timeout=30)


def dropped() -> dict[str, int]:
    """How many packets each kind of rule has dropped."""
    words = ["nft", "-j", "list", "counters"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout
    rows = [row["counter"] for row in json.loads(said)["nftables"] if "counter" in row]
    return {row["name"]: row["packets"] for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--mix", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--transport", required=True)
    given = parser.parse_args()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=30)
    nft(table())
    storm = Storm(given.folder, given.seed, given.transport)
    faults = deal(given.mix, given.seed, given.seconds)
    try:
        for part in (CONTROLLER, *SERVERS):
            storm.start(part)
        storm.until_whole()
        for part in OWNERS:
            storm.start(part)
        storm.weather(faults, given.seconds)
        storm.until_whole()
        storm.finish()
    except StormError as error:
        sys.stderr.write(f"storm: {error}\n")
        return 1
    told = {"faults": Counter(fault.name for fault in faults), "dropped": dropped()}
    (given.folder / "storm.json").write_text(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
