"""Stores as ``unruly drive`` asks them, beside the tools that come with them; and the stall oracle.

Both clients have core 0 and the server core 1. Ours keeps every request as a row on disk and sees
whether each answer is right; theirs count into a histogram. What ours takes is what the
generator's process takes, with its recorder.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from flurry.bench.processes import free_port, processes, program, until

from bench.pairs import interleaved, ratio
from bench.program import UNRULY, Trace, measured
from bench.result import Result
from bench.stall import BAR, RATE, RUN_S, STALL_S, of_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAIRS = 8
SECONDS = 3
CLIENT_CORE, SERVER_CORE = 0, 1
VALUE_BYTES = 1_000
KEYS = 100_000
RATE_BAR = 0.9
CPU_BAR = 1.2

DRIVE = """
name = "bench"
[run]
duration = "{seconds}s"
warmup = "300ms"
[drive]
{place}
clients = {clients}
pipeline = {pipeline}
{load}
operations = "write"
keys = {keys}
value = "{value}B"
timeout = "5s"
[probe]
{probe}
{more}
"""

MEMCASLAP = """key
16 16 1
value
{value} {value} 1
cmd
0 1.0
"""


@dataclass(frozen=True)
class Round:
    """Operations a second, and what each took of the client's processor."""

    rate_hz: float
    cpu_us: float


def run_client(words: list[str | Path], seconds: float = 120) -> tuple[str, float]:
    """Run a client on its core; what it says, and its processor time with that of its children."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            ["taskset", "-c", str(CLIENT_CORE), *words], stdout=said, stderr=subprocess.STDOUT,
            env=os.environ | {"UNRULY_PYTHON": "/bin/true"},
        )  # fmt: skip
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode(errors="replace")
    if process.returncode != 0:
        raise RuntimeError(f"{words[0]}: exit {process.returncode}; {text[-500:]}")
    return text, usage.ru_utime + usage.ru_stime


def ours(url: str, clients: int, pipeline: int) -> Round:
    """Write as fast as the store answers, every request a row."""
    plan = DRIVE.format(
        seconds=SECONDS, place=f'url = "{url}"', clients=clients, pipeline=pipeline, load="",
        keys=KEYS, value=VALUE_BYTES, probe='period = "500ms"', more="",
    )  # fmt: skip
    with run_plan(plan) as (trace, _):
        [(counted, right)] = trace.rows(
            "select sum((phase = 'measure')::int), bool_and(status = 'ok') from requests"
        )
        # The generator with its recorder's thread, between two samples, and what it did then.
        [(cpu_ns, operations)] = trace.rows(
            "with seen as (select sum(user_ns + system_ns) cpu_ns, min(started_ns) began,"
            "  max(ended_ns) ended from resources where watched = 'drive-0')"
            " select max(cpu_ns), count(*) from seen, requests"
            "  where intended_ns between began and ended"
        )
    if not right:
        raise RuntimeError(f"{url}: not every answer was right; wanted all of them ok")
    return Round(counted / SECONDS, cpu_ns / operations / 1e3)


@contextmanager
def run_plan(plan: str) -> Iterator[tuple[Trace, float]]:
    """Run a plan on the client's core: its trace, and the processor time of all its processes."""
    with tempfile.TemporaryDirectory(prefix="unruly-bench-") as folder:
        file, out = Path(folder, "plan.toml"), Path(folder, "run")
        file.write_text(plan)
        _, cpu_s = run_client([UNRULY, "run", file, "-q", "--yes", "-o", out])
        yield Trace(out), cpu_s


def redis_benchmark(port: int, clients: int, pipeline: int) -> Round:
    """Run the same by redis-benchmark, for about as long."""
    operations = (150_000 if clients > 1 else 40_000) * (5 if pipeline > 1 else 2)
    said, cpu_s = run_client(
        [*program("redis-benchmark", "redis-tools"), "-p", str(port), "--csv", "-t", "set",
         "-n", str(operations), "-c", str(clients), "-P", str(pipeline),
         "-d", str(VALUE_BYTES), "-r", str(KEYS)],
    )  # fmt: skip
    fields = said.strip().splitlines()[-1].replace('"', "").split(",")
    return Round(float(fields[1]), cpu_s / operations * 1e6)


def memcaslap(port: int, clients: int, folder: Path) -> Round:
    """Run the same by memcaslap."""
    config = folder / "memcaslap.cnf"
    config.write_text(MEMCASLAP.format(value=VALUE_BYTES))
    said, cpu_s = run_client(
        [*program("memcaslap", "libmemcached-tools"), "-s", f"127.0.0.1:{port}", "-T", "1",
         "-c", str(clients), "-t", f"{SECONDS}s", "-F", config],
    )  # fmt: skip
    found = re.search(r"Ops: (\d+) TPS: (\d+)", said)
    if found is None:
        raise RuntimeError(f"memcaslap: no rate in what it said: {said[-500:]}")
    return Round(float(found.group(2)), cpu_s / int(found.group(1)) * 1e6)


@dataclass(frozen=True)
class Server:
    """A store's server on its core."""

    port: int
    pid: int
    folder: Path


@contextmanager
def server(words: Callable[[int], list[str]]) -> Iterator[Server]:
    """Start a store's server; it is ended with the block."""
    with processes() as started:
        port = free_port()
        process = started.start(*words(port), core=SERVER_CORE)
        until("the server listens", lambda: listens(port))
        yield Server(port, process.pid, started.folder)


def listens(port: int) -> bool:
    """Whether somebody listens there."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        return any(f":{port:04X} 00000000:0000 0A" in line for line in table)


def redis_words(port: int) -> list[str]:
    """A Redis that writes nothing to disk."""
    redis = program("redis-server", "redis-server")
    return [*map(str, redis), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]


def memcached_words(port: int) -> list[str]:
    """A memcached of one thread."""
    memcached = program("memcached", "memcached")
    more = ["-u", "root", "-l", "127.0.0.1", "-p", str(port), "-t", "1", "-m", "512"]
    return [*map(str, memcached), *more]


def throughput() -> list[Result]:
    """Top rate and processor time of an operation, beside redis-benchmark and memcaslap."""
    results = []
    with server(redis_words) as redis:
        port = redis.port
        for clients, pipeline in ((1, 1), (16, 1), (16, 16)):
            url = f"redis://127.0.0.1:{port}"
            results += pairs(
                "redis", "redis-benchmark SET", clients, pipeline,
                partial(ours, url, clients, pipeline),
                partial(redis_benchmark, port, clients, pipeline),
            )  # fmt: skip
    with server(memcached_words) as it:
        url = f"memcached://127.0.0.1:{it.port}"
        results += pairs(
            "memcached", "memcaslap set", 16, 1,
            lambda: ours(url, 16, 1), lambda: memcaslap(it.port, 16, it.folder),
        )  # fmt: skip
    return results


def pairs(
    store: str,
    peer: str,
    clients: int,
    pipeline: int,
    us: Callable[[], Round],
    them: Callable[[], Round],
) -> list[Result]:
    """Interleave rounds of both, and compare rates and processor times."""
    rounds = list(zip(*interleaved(PAIRS, us, them), strict=True))
    rate = ratio([it.rate_hz for it, _ in rounds], [it.rate_hz for _, it in rounds])
    cpu = ratio([it.cpu_us for it, _ in rounds], [it.cpu_us for _, it in rounds])
    of = f"{store} SET of {VALUE_BYTES} bytes, {clients} connections, pipeline {pipeline}"
    raw = {"ours": [vars(it) for it, _ in rounds], "theirs": [vars(it) for _, it in rounds]}
    medians = [
        np.median([getattr(pair[side], field) for pair in rounds])
        for field in ("rate_hz", "cpu_us")
        for side in (0, 1)
    ]
    name = f"stores-{store}-{clients:03}-{pipeline:02}"
    return [
        Result(
            name=f"{name}-rate",
            what=f"{of}: top rate of unruly drive, every request a row, to {peer}",
            bar=f">= {RATE_BAR}",
            measured=f"{rate} of {PAIRS} pairs ({medians[0]:,.0f}/s to {medians[1]:,.0f}/s)",
            met=rate.low >= RATE_BAR,
            raw=raw,
        ),
        Result(
            name=f"{name}-cpu",
            what=f"{of}: processor time of an operation in the client, to {peer}",
            bar=f"<= {CPU_BAR}",
            measured=f"{cpu} of {PAIRS} pairs ({medians[2]:.2f} us to {medians[3]:.2f} us)",
            met=cpu.high <= CPU_BAR,
            raw={},
        ),
    ]


def stall() -> list[Result]:
    """Stop Redis for a second of ten, and compare our report with that of redis-benchmark."""
    more = (
        f'[pin]\n"drive-0" = [{CLIENT_CORE}]\n"redis-1" = [{SERVER_CORE}]\n'
        f'[[fault]]\nkind = "stop"\nprocess = "redis-1"\nat = "4s"\nduration = "{STALL_S}s"'
    )
    load = f'rate = "{RATE}/s"\nin_flight = 100000'
    plan = DRIVE.format(
        seconds=int(RUN_S), place='store = "redis"', clients=16, pipeline=1, load=load, keys=KEYS,
        value=VALUE_BYTES, probe="enabled = false", more=more,
    )  # fmt: skip
    with measured(plan) as trace:
        found = of_trace(trace)
    said = stopped_benchmark()
    told = f"redis-benchmark says p99 {said['p99_ms']:.3f} ms, max {said['max_ms']:.0f} ms"
    right = found.all_ok and found.rows == RATE * RUN_S
    return [
        Result(
            name="stores-stall",
            what="stall oracle on Redis, stopped 1 s in 10 s at 10,000/s over 16 connections",
            bar="p99 within 2 % of the analytic value",
            measured=f"{100 * found.error:+.2f} % (p99 {found.p99_s:.4f} s, "
            f"analytic {found.analytic_s:.4f} s); {told}",
            met=abs(found.error) <= BAR and right,
            raw={**vars(found), "theirs": said},
        )
    ]


def stopped_benchmark() -> dict[str, float]:
    """What redis-benchmark says of some ten seconds in which the server is stopped for one."""
    with server(redis_words) as redis:
        words = [
            "taskset", "-c", str(CLIENT_CORE), *program("redis-benchmark", "redis-tools"),
            "-p", str(redis.port), "--csv", "-t", "set", "-n", "700000", "-c", "16",
            "-d", str(VALUE_BYTES), "-r", str(KEYS),
        ]  # fmt: skip
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            time.sleep(3)
            os.kill(redis.pid, signal.SIGSTOP)
            time.sleep(STALL_S)
            os.kill(redis.pid, signal.SIGCONT)
            out, _ = process.communicate(timeout=120)
    fields = out.strip().splitlines()[-1].replace('"', "").split(",")
    return {"rate_hz": float(fields[1]), "p99_ms": float(fields[6]), "max_ms": float(fields[7])}
