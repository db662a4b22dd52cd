"""Streams over JGroups against MPerf, the performance test that JGroups brings along."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from bench.pairs import interleaved
from bench.program import ROOT, measured
from bench.streams import CORES, MESSAGE_BYTES, PLAN, beside, goodput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.result import Result

PAIRS: Final = 8
SECONDS: Final = 8
SETTLED_S: Final = 2
"""Of both the first seconds are left out: each is a virtual machine that has just begun."""
LIBRARIES: Final = ROOT / "unruly" / "jvm" / "target" / "lib" / "*"
MACHINE: Final = '[jvm]\nheap = "512MiB"\ncollector = "g1"\n'
FLAGS: Final = ("-Xmx512m", "-XX:+UseG1GC")
"""The same to both: left to itself, a virtual machine on one core takes the serial collector."""
SETTINGS: Final = {
    "threads": ("4", "1"),
    "time": ("6", str(SETTLED_S + SECONDS)),
    "message": ("7", str(MESSAGE_BYTES)),
    "senders": ("8", "1"),
}
"""Each key of MPerf's menu, and the typed value: one thread of one sender, as a stream has."""
TIMEOUT_S: Final = 60
FIRST, BOTH = "[A]", "[A, B]"
"""Views. The first member founds the group before the second joins: the leader sends."""
SINCE_START: Final = re.compile(r"(\d+): ([\d,.]+) msgs/sec")
"""The line that MPerf prints each second: messages per second since its start."""


def run() -> list[Result]:
    """Both stacks that JGroups comes with."""
    return [_beside_mperf(stack) for stack in ("udp", "tcp")]


def _beside_mperf(stack: str) -> Result:
    sides = interleaved(PAIRS, lambda: _ours(stack), lambda: _theirs(stack))
    what = f"jgroups-{stack}, messages of 2,000 bytes over loopback, one sender of one thread"
    return beside(f"stream-jgroups-{stack}", what, "MPerf of JGroups", sides)


def _ours(stack: str) -> float:
    plan = PLAN.format(
        seconds=SECONDS, settled=SETTLED_S, hosts="processes", protocol=f"jgroups-{stack}",
        writer=CORES[0], reader=CORES[1],
    )  # fmt: skip
    with measured(plan + MACHINE) as trace:
        return goodput(trace, SECONDS, SETTLED_S)


def _theirs(stack: str) -> float:
    """Bits a second that the second member received of the first."""
    with _member(stack, "A", CORES[0]) as first:
        _heard(first, FIRST)
        with _member(stack, "B", CORES[1]) as second:
            _heard(second, BOTH)
            for key, value in SETTINGS.values():
                _type(second, key)
                _type(second, value)
            _type(second, "l")
            _type(second, "1")
            return _received(second)


@contextmanager
def _member(stack: str, name: str, core: int) -> Iterator[subprocess.Popen[bytes]]:
    """A member that ends with the block, however that does."""
    member = subprocess.Popen(
        [
            "taskset", "-c", str(core), "java", *FLAGS, "-Djgroups.bind_addr=127.0.0.1",
            "-Djgroups.udp.ip_ttl=1", "-Djava.net.preferIPv4Stack=true",
            "-Djgroups.tcpping.initial_hosts=127.0.0.1[7800],127.0.0.1[7801]",
            "-cp", str(LIBRARIES), "org.jgroups.tests.perf.MPerf", "-props", f"{stack}.xml",
            "-name", name, *(["-nohup"] if name == "A" else []),
        ],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield member
    finally:
        member.kill()
        member.communicate()


def _type(member: subprocess.Popen[bytes], words: str) -> None:
    """Type one key; MPerf throws away input that arrives together with a key."""
    assert member.stdin is not None
    member.stdin.write(f"{words}\n".encode())
    member.stdin.flush()
    time.sleep(0.5)


def _lines(member: subprocess.Popen[bytes]) -> Iterator[str]:
    """What it says from now on, line by line; nothing of it waits in a buffer of ours."""
    until = time.monotonic() + TIMEOUT_S
    assert member.stdout is not None
    rest = b""
    while time.monotonic() < until:
        if not select.select([member.stdout], [], [], 1.0)[0]:
            continue
        came = os.read(member.stdout.fileno(), 65_536)
        if not came:
            raise EOFError("MPerf: it has ended; wanted a test that ends; hint: see its words")
        *lines, rest = (rest + came).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)
    raise TimeoutError("MPerf: the expected line is missing; wanted a test that ends")


def _heard(member: subprocess.Popen[bytes], words: str) -> None:
    for line in _lines(member):
        if words in line:
            return


def _received(member: subprocess.Popen[bytes]) -> float:
    by_then = {}
    for line in _lines(member):
        if found := SINCE_START.match(line):
            second = int(found[1])
            by_then[second] = second * float(found[2].replace(",", ""))
        if line.startswith("-- done"):
            break
    return received(by_then)


def received(by_then: dict[int, float]) -> float:
    """Bits a second after the first seconds; messages that had come by each second."""
    messages = by_then[SETTLED_S + SECONDS] - by_then[SETTLED_S]
    return messages / SECONDS * MESSAGE_BYTES * 8
