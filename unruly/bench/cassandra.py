"""Cassandra of three nodes as ``unruly drive`` asks it, beside the Python driver of its makers.

The three nodes have core 1 together and both clients core 0, so that the top rate is the cluster's
as soon as a client can fill it. Both write the same keys at the same level with as many requests
open at once; ours keeps each as a row and sees whether it was right.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from flurry.bench.processes import OUTLIVES_NOBODY

from bench.program import UNRULY
from bench.stores import (
    CLIENT_CORE,
    DRIVE,
    KEYS,
    SERVER_CORE,
    VALUE_BYTES,
    Round,
    pairs,
    run_client,
    run_plan,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.result import Result

CLIENTS = 16
SECONDS = 8
TIMEOUT_S = 300.0
DRIVER = "cassandra-driver==3.30.1"
PEER = Path(__file__).with_name("cassandra_peer.py")

HOLD = """
name = "hold"
[run]
duration = "1h"
warmup = "0s"
[drive]
store = "cassandra"
rate = "1/min"
keys = 1
[probe]
enabled = false
[pin]
"drive-0" = [{client}]
"cassandra-1" = [{server}]
"cassandra-2" = [{server}]
"cassandra-3" = [{server}]
"""


def run() -> list[Result]:
    """Top rate and processor time of a write, in interleaved pairs; ten minutes."""
    with tempfile.TemporaryDirectory(prefix="unruly-bench-") as place:
        library = Path(place, "library")
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--target", library, DRIVER],
            check=True,
        )
        with cluster(Path(place)) as url:
            ours(url)  # both are cold once: nodes compile, and caches fill
            return pairs(
                "cassandra", "the Python driver", CLIENTS, 1,
                lambda: ours(url), lambda: theirs(url, library),
            )  # fmt: skip


@contextmanager
def cluster(place: Path) -> Iterator[str]:
    """Three nodes that a run of ours has started and holds; where they are."""
    plan, out = place / "hold.toml", place / "hold"
    plan.write_text(HOLD.format(client=CLIENT_CORE, server=SERVER_CORE))
    words: list[str | Path] = [*OUTLIVES_NOBODY, UNRULY, "run", plan, "-q", "-o", out]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            job = out / "logs" / "drive-0-c0r0.job.json"
            until = time.monotonic() + TIMEOUT_S
            while not job.exists():
                if process.poll() is not None or time.monotonic() > until:
                    process.terminate()
                    raise RuntimeError(f"cassandra: it does not start; {process.communicate()[1]}")
                time.sleep(0.2)
            yield json.loads(job.read_text())["plan"]["load"]["drive"]["store"]["url"]
        finally:
            process.terminate()


def ours(url: str) -> Round:
    """Write as fast as the cluster answers; the processor time is that of the whole run."""
    plan = DRIVE.format(
        seconds=SECONDS, place=f'url = "{url}"', clients=CLIENTS, pipeline=1, load="",
        keys=KEYS, value=VALUE_BYTES, probe='period = "500ms"', more="",
    )  # fmt: skip
    with run_plan(plan) as (trace, cpu_s):
        [(counted, asked, right)] = trace.rows(
            "select sum((phase = 'measure')::int), count(*), bool_and(status = 'ok') from requests"
        )
    if not right:
        raise RuntimeError(f"{url}: not every answer was right; wanted all of them ok")
    return Round(counted / SECONDS, cpu_s / asked * 1e6)


def theirs(url: str, library: Path) -> Round:
    """Run the same by the Python driver, for as long."""
    words = [sys.executable, PEER, library, url, CLIENTS, SECONDS, KEYS, VALUE_BYTES]
    said, cpu_s = run_client([str(it) for it in words])
    counted, asked, seconds = (float(it) for it in said.split()[-3:])
    return Round(counted / seconds, cpu_s / asked * 1e6)
