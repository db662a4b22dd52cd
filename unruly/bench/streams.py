"""Streams against iperf3, and whether competing loads hold their share."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bench.pairs import interleaved, ratio
from bench.program import ROOT, Trace, measured
from bench.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterator

PAIRS: Final = 12
SECONDS: Final = 3
SETTLED_S: Final = 1
PORT: Final = 21_201
MESSAGE_BYTES: Final = 2_000
BAR: Final = 0.95
CORES: Final = (0, 1)
"""Of the sending and of the receiving end, ours and theirs alike."""
HOSTS: Final = ("unruly-bench-a", "unruly-bench-b")
BRIDGE: Final = "unruly-bench-br"
POINTS_MAX: Final = 0.02
OCCUPANCY: Final = 0.6

PLAN: Final = """
name = "bench"
[run]
duration = "{seconds}s"
warmup = "{settled}s"
hosts = "{hosts}"
[stream]
protocol = "{protocol}"
message = "2000B"
[probe]
enabled = false
[pin]
writer-0 = [{writer}]
reader-0 = [{reader}]
"""


# Long beside one collection, which takes up to 2 s of CPU: 1.5 points at an edge of 40 s.
SHARE: Final = """
name = "bench"
[run]
duration = "80s"
[drive]
transport = "udp"
rate = "10/s"
[probe]
enabled = false
[compete]
kind = "{kind}"
occupancy = {occupancy}
lead = "5s"
{busy}
"""

BUSY: Final = """
[[fault]]
kind = "busy"
process = "echo-0"
threads = {cores}
at = "0s"
duration = "80s"
"""


def run() -> list[Result]:
    """Measure both."""
    return [*peers(), *shares()]


def peers() -> list[Result]:
    """Goodput beside iperf3, with messages as long, over loopback and over a veth pair."""
    ways = ("processes", "namespaces")
    return [_beside_iperf(hosts, protocol) for hosts in ways for protocol in ("tcp", "udp")]


def _beside_iperf(hosts: str, protocol: str) -> Result:
    with ExitStack() as stack:
        prefixes: list[list[str]] = [[], []]
        address = "127.0.0.1"
        if hosts == "namespaces":
            prefixes, address = stack.enter_context(_pair())
        sides = interleaved(
            PAIRS,
            lambda: _ours(hosts, protocol),
            lambda: _theirs(protocol, prefixes, address),
        )
    way = "loopback" if hosts == "processes" else "a veth pair of MTU 1500"
    name = f"stream-{protocol}-{'loopback' if hosts == 'processes' else 'veth'}"
    return beside(name, f"{protocol}, messages of 2,000 bytes over {way}", "iperf3", sides)


def beside(name: str, what: str, whom: str, sides: tuple[list[float], list[float]]) -> Result:
    """Say how the goodput of a stream, bits a second, stands to somebody else's."""
    found = ratio(*sides)
    middle = [float(np.median(side)) / 1e9 for side in sides]
    return Result(
        name=name,
        what=f"goodput of {what}, a row each 100 ms at both ends, to {whom}",
        bar=f">= {BAR}",
        measured=f"{found} of {len(sides[0])} pairs ({middle[0]:.2f} to {middle[1]:.2f} Gbit/s)",
        met=found.low >= BAR,
        raw={"ours_bit_per_s": sides[0], "theirs_bit_per_s": sides[1]},
    )


def _ours(hosts: str, protocol: str) -> float:
    plan = PLAN.format(
        seconds=SECONDS, settled=SETTLED_S, hosts=hosts, protocol=protocol,
        writer=CORES[0], reader=CORES[1],
    )  # fmt: skip
    with measured(plan) as trace:
        return goodput(trace)


def goodput(trace: Trace, seconds: int = SECONDS, settled: int = SETTLED_S) -> float:
    """Bits a second at the reader, in the rows that lie within the measured time."""
    # The rows of the first seconds, and the one in which the stream ended, are not of it.
    ((bits, took_s),) = trace.rows(
        f"""
        with bounds as (select min(started_ns) + {settled}e9 as low,
                        min(started_ns) + {settled + seconds}e9 as high
                        from intervals where side = 'reader')
        select 8 * sum(bytes), sum(ended_ns - started_ns) / 1e9 from intervals, bounds
        where side = 'reader' and started_ns >= low and ended_ns <= high
        """
    )
    return float(bits / took_s)


def _theirs(protocol: str, prefixes: list[list[str]], address: str) -> float:
    program = iperf3()
    server_words = [
        *prefixes[1],
        "taskset",
        "-c",
        str(CORES[1]),
        program,
        "-s",
        "-1",
        "-B",
        address,
    ]
    server = subprocess.Popen(
        [*server_words, "-p", str(PORT), "--forceflush"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        for line in server.stdout:
            if "listening" in line:
                break
        flags = ["-u", "-b", "0"] if protocol == "udp" else []
        done = subprocess.run(
            [*prefixes[0], "taskset", "-c", str(CORES[0]), program, "-c", address, "-p", str(PORT),
             "-l", str(MESSAGE_BYTES), "-t", str(SECONDS), "-O", str(SETTLED_S), "-J", *flags],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
    finally:
        server.kill()
        server.wait()
    return received(json.loads(done.stdout), protocol)


def received(said: dict[str, Any], protocol: str) -> float:
    """Bits a second that the receiving end had."""
    end = said["end"]
    if protocol == "tcp":
        return float(end["sum_received"]["bits_per_second"])
    whole = end["sum"]
    arrived = 1 - whole["lost_packets"] / whole["packets"]
    return float(whole["bytes"] * 8 / whole["seconds"] * arrived)


def iperf3() -> str:
    """The peer's program: the system's, or Debian's package unpacked into the cache."""
    found = shutil.which("iperf3")
    if found:
        return found
    subprocess.run([ROOT / "scripts" / "package.sh", "iperf3"], check=True)
    return str(ROOT / ".cache" / "packages" / "iperf3" / "usr" / "bin" / "iperf3")


@contextmanager
def _pair() -> Iterator[tuple[list[list[str]], str]]:
    """Two hosts behind a bridge, as a run of ours has them; prefixes, and the second's address."""
    made = [*HOSTS, BRIDGE]
    try:
        for name in made:
            _ip("netns", "add", name)
        _ip("-n", BRIDGE, "link", "add", "br0", "type", "bridge")
        _ip("-n", BRIDGE, "link", "set", "br0", "up")
        for number, name in enumerate(HOSTS):
            port = f"port{number}"
            _ip("-n", BRIDGE, "link", "add", port, "type", "veth", "peer", "eth0", "netns", name)
            _ip("-n", BRIDGE, "link", "set", port, "master", "br0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "addr", "add", f"10.78.0.{number + 1}/16", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
        yield [["ip", "netns", "exec", name] for name in HOSTS], "10.78.0.2"
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def shares() -> list[Result]:
    """What competing loads use, on a machine that is idle and on one that is busy."""
    return [_share(kind, busy=busy) for kind in ("cpu", "gc") for busy in (False, True)]


def _share(kind: str, *, busy: bool) -> Result:
    cores = os.cpu_count() or 1
    plan = SHARE.format(
        kind=kind, occupancy=OCCUPANCY, busy=BUSY.format(cores=cores) if busy else ""
    )
    with measured(plan) as trace:
        ((used, took),) = trace.rows(
            "select sum(cpu_ns), max(ended_ns) - min(started_ns) from intervals"
            " where side = 'compete' and started_ns >"
            " (select min(started_ns) + 5000000000 from intervals where side = 'compete')"
        )
    share = used / took / cores
    how = "busy" if busy else "idle"
    return Result(
        name=f"compete-{kind}-{how}",
        what=f"share of {cores} cores that the competing load {kind} holds, the machine else {how}",
        bar=f"{OCCUPANCY:g} within {POINTS_MAX:g}",
        measured=f"{share:.3f}",
        met=abs(share - OCCUPANCY) <= POINTS_MAX,
        raw={"cpu_ns": used, "took_ns": took, "cores": cores},
    )
