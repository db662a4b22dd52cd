"""Echo round trips against sockperf's ping-pong, which records its samples in memory."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from itertools import pairwise
from typing import Any

from bench.pairs import ratio
from bench.program import ROOT, drive, measured
from bench.result import Result

PAIRS = 12
SECONDS = 3
PORT = 21_111
MESSAGE_BYTES = 64
BAR = 1.05


def sockperf() -> str:
    """The peer's program: the system's, or Debian's package unpacked into the cache."""
    found = shutil.which("sockperf")
    if found:
        return found
    subprocess.run([ROOT / "scripts" / "package.sh", "sockperf"], check=True)
    return str(ROOT / ".cache" / "packages" / "sockperf" / "usr" / "bin" / "sockperf")


def theirs_us(program: str, transport: str, core: int) -> float:
    """Median round trip of sockperf, both sides on one core."""
    flags = ["--tcp"] if transport == "tcp" else []
    pinned = ["taskset", "-c", str(core), program]
    address = ["-i", "127.0.0.1", "-p", str(PORT)]
    server = subprocess.Popen(
        [*pinned, "server", *flags, *address], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        _until_bound(transport)
        done = subprocess.run(
            [*pinned, "ping-pong", *flags, *address, "--full-rtt", "-t", str(SECONDS),
             "-m", str(MESSAGE_BYTES)],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=10)
    said = re.search(r"percentile 50\.000 =\s+([0-9.]+)", done.stdout + done.stderr)
    if said is None:
        raise RuntimeError(f"sockperf: no median in what it said: {done.stdout}")
    return float(said.group(1))


def _until_bound(transport: str) -> None:
    """Wait until the server's port is in the kernel's table."""
    wanted = f":{PORT:04X} "
    until = time.monotonic() + 10
    while time.monotonic() < until:
        with open(f"/proc/net/{transport}", encoding="ascii") as table:
            if any(wanted in line for line in table):
                return
        time.sleep(0.02)
    raise RuntimeError(f"sockperf: did not bind port {PORT} within 10 s")


def ours_us(transport: str, core: int) -> tuple[float, int]:
    """Median service time of our echo, every request a row, and how many rows."""
    plan = drive(
        transport=transport,
        duration=f"{SECONDS}s",
        payload=f"{MESSAGE_BYTES - 28}B",
        client_core=core,
        server_core=core,
    )
    with measured(plan) as trace:
        [(median, rows)] = trace.rows(
            "select median(received_ns - sent_ns) / 1e3, count(*) from requests"
            " where phase = 'measure' and status = 'ok'"
        )
        return float(median), int(rows)


def parts() -> dict[str, Any]:
    """What a bare TCP ping-pong costs more with each kernel facility that ours uses."""
    words = ["cargo", "bench", "--locked", "--quiet", "-p", "unruly-load", "--bench", "echo_parts"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def _made_of(found: dict[str, Any]) -> str:
    """Return the parts in words, each to the variant before it."""
    named = {
        "recvmsg": "receiving with room for a stamp",
        "stamps": "the kernel's stamps at both ends",
        "timeout": "a receive that gives up after some milliseconds",
        "thread": "a second thread in each process",
    }
    order, medians = found["order"], found["median_ns"]
    steps = [
        f"{named[name]} {100 * (ratio(medians[name], medians[before]).estimate - 1):+.1f} %"
        for before, name in pairwise(order)
    ]
    whole = ratio(medians[order[-1]], medians[order[0]])
    return (
        "A bare ping-pong over TCP with these facilities added one after the other: "
        + ", ".join(steps)
        + f"; together {whole}, which a generator pays that stamps every message, recovers from a"
        " dead peer and writes beside what it measures. The rest is our own code on both sides:"
        " two clock readings, a checksum, and the bookkeeping of a request"
    )


def run() -> list[Result]:
    """Measure both transports."""
    program = sockperf()
    made_of = parts()
    results = []
    for transport in ("tcp", "udp"):
        pairs: list[dict[str, Any]] = []
        for pair in range(PAIRS):
            if pair % 2 == 0:
                theirs = theirs_us(program, transport, 0)
                ours, rows = ours_us(transport, 0)
            else:
                ours, rows = ours_us(transport, 0)
                theirs = theirs_us(program, transport, 0)
            pairs.append({"ours_us": ours, "theirs_us": theirs, "rows": rows})
        found = ratio([p["ours_us"] for p in pairs], [p["theirs_us"] for p in pairs])
        results.append(
            Result(
                name=f"echo-{transport}",
                what=f"{transport.upper()} echo p50, every request a row, to sockperf ping-pong,"
                " both sides of each on core 0",
                bar=f"<= {BAR}",
                measured=f"{found} of {found.n} pairs",
                met=found.high <= BAR,
                raw={"pairs": pairs, "parts": made_of},
                why=_made_of(made_of),
            )
        )
    return results
