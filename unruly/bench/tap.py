"""The tap beside the client that it watches: counts, times, requests in flight, and its cost."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bench.pairs import interleaved, ratio
from bench.program import UNANALYSED, UNRULY, Trace, call
from bench.result import Result
from bench.usage import cpu_s, memory_bytes
from unruly.ingest.tally import Tally
from unruly.ingest.writer import RunWriter
from unruly.quantity import count, duration, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

PORT: Final = 21_113
REQUESTS: Final = 100_000
PAIRS: Final = 12
RATE_HZ: Final = 20_000
WINDOW_NS: Final = 100_000_000
ROWS: Final = 10_000_000
PLAN: Final = """
name = "bench"
seed = 1
tag = "bench"
[run]
duration = "{duration}"
warmup = "0s"
[drive]
url = "redis://127.0.0.1:{port}"
clients = {clients}
arrivals = "closed"
{more}
[probe]
enabled = false
[pin]
"drive-0" = [1]
"""


@contextmanager
def redis() -> Iterator[None]:
    """A Redis server on core 0."""
    words = ["taskset", "-c", "0", "redis-server", "--bind", "127.0.0.1", "--port", str(PORT)]
    server = subprocess.Popen([*words, "--save", ""], stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 10
        ping = ["redis-cli", "-p", str(PORT), "ping"]
        while subprocess.run(ping, capture_output=True, check=False).returncode:
            if time.monotonic() > until:
                raise RuntimeError(f"redis-server: does not answer on port {PORT}")
            time.sleep(0.05)
        yield
    finally:
        server.terminate()
        server.wait()


@dataclass
class Watched:
    """What a tap has used when it ended."""

    path: Path
    cpu_s: float = 0.0
    memory_bytes: int = 0


@contextmanager
def tap(folder: Path) -> Iterator[Watched]:
    """A tap on the server while the block runs."""
    out = folder / f"watched-{time.monotonic_ns()}"
    words: list[str | Path] = [UNRULY, "watch", f"cache=tcp://127.0.0.1:{PORT}", "-q", "-o", out]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, env=os.environ | UNANALYSED)
    found = Watched(out)
    try:
        until = time.monotonic() + 20
        while not (out / "manifest.json").exists():
            if time.monotonic() > until or process.poll() is not None:
                raise RuntimeError("unruly watch: did not start")
            time.sleep(0.02)
        before = cpu_s(process.pid)
        yield found
        found.memory_bytes = memory_bytes(process.pid)
        process.send_signal(signal.SIGINT)
        # what it uses until its end, and so for its segments too
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError("unruly watch: failed")
        found.cpu_s = used.ru_utime + used.ru_stime - before
    finally:
        process.kill()
        process.wait()


def _driven(folder: Path, clients: int, seconds: int, more: str = "") -> Trace:
    name = f"driven-{time.monotonic_ns()}"
    plan = folder / f"{name}.toml"
    plan.write_text(PLAN.format(duration=f"{seconds}s", port=PORT, clients=clients, more=more))
    call("run", plan, "-q", "-o", folder / name, analysed=False, fine=(0, 1))
    return Trace(folder / name)


def run() -> list[Result]:
    """Measure the tap, and the analysis of its rows."""
    with tempfile.TemporaryDirectory(prefix="unruly-bench-") as name, redis():
        folder = Path(name)
        return [*_beside_client(folder), *_on_and_off(folder), _analysis(folder)]


def _beside_client(folder: Path) -> list[Result]:
    """Count, times, requests in flight and cost, of one run of 16 clients."""
    with tap(folder) as watched:
        driven = _driven(folder, 16, 60, f"requests = {REQUESTS}")
        time.sleep(0.2)
    client = np.array(
        driven.rows("select sent_ns, kernel_received_ns from requests where status = 'ok'")
    )
    # before its run the load generator greets the server, and after it removes its keys
    seen = np.array(_turnarounds(watched.path, client[:, 0].min(), client[:, 1].max()))
    cost = watched.cpu_s / len(seen)
    p50 = float(np.median(client[:, 1] - client[:, 0])), float(np.median(seen[:, 1] - seen[:, 0]))
    apart = np.abs(_in_flight(client, client) - _in_flight(seen, client))
    return [
        Result(
            name="tap-count",
            what=f"turnarounds that the tap counted, of {count(REQUESTS)} requests of 16 clients",
            bar="every one, once",
            measured=f"{count(len(seen))} of {count(len(client))}",
            met=len(seen) == len(client) == REQUESTS,
            raw={"tap": len(seen), "client": len(client)},
        ),
        Result(
            name="tap-p50",
            what="median response time of the tap beside that of the client's kernel",
            bar="within 20 us",
            measured=f"{duration(p50[1])} and {duration(p50[0])}",
            met=abs(p50[0] - p50[1]) <= 20_000,
            raw={"client_ns": p50[0], "tap_ns": p50[1]},
        ),
        Result(
            name="tap-in-flight",
            what="requests in flight in each 100 ms, of the tap and of the client's kernel",
            bar="within 1 in every window",
            measured=f"at most {apart.max():.3g} apart in {count(len(apart))} windows",
            met=bool(apart.max() <= 1),
            raw={"most": float(apart.max()), "windows": len(apart)},
        ),
        Result(
            name="tap-cpu",
            what=f"CPU of the tap at {count(RATE_HZ)} turnarounds a second, its segments included",
            bar="<= 5 % of a core",
            measured=f"{100 * cost * RATE_HZ:.3g} % ({cost * 1e6:.3g} us for each turnaround)",
            met=cost * RATE_HZ <= 0.05,
            raw={"cpu_s": watched.cpu_s, "turnarounds": len(seen)},
        ),
        Result(
            name="tap-memory",
            what="memory of the tap",
            bar="<= 64 MiB",
            measured=size(watched.memory_bytes),
            met=watched.memory_bytes <= 64 << 20,
            raw={"bytes": watched.memory_bytes},
        ),
    ]


def _turnarounds(path: Path, since_ns: int, until_ns: int) -> list[tuple[Any, ...]]:
    import duckdb  # noqa: PLC0415

    files = path / "turnarounds" / "*.parquet"
    query = (
        f"select started_ns, ended_ns from read_parquet('{files}')"
        f" where status = 'ok' and started_ns between {since_ns} and {until_ns} order by 1"
    )
    with duckdb.connect() as connection:
        return connection.sql(query).fetchall()


def _in_flight(spans: NDArray[np.int64], client: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean number in flight in each whole window of the client's time."""
    first, last = client[:, 0].min(), client[:, 1].max()
    edges = np.arange(first, last - WINDOW_NS, WINDOW_NS)
    total = np.zeros(len(edges))
    for place, edge in enumerate(edges):
        within = np.minimum(spans[:, 1], edge + WINDOW_NS) - np.maximum(spans[:, 0], edge)
        total[place] = within[within > 0].sum() / WINDOW_NS
    return total


def _on_and_off(folder: Path) -> list[Result]:
    """The latency of a client with and without the tap, in pairs."""

    def plain() -> tuple[float, float]:
        return _latency(_driven(folder, 1, 2))

    def tapped() -> tuple[float, float]:
        with tap(folder):
            return _latency(_driven(folder, 1, 2))

    on, off = interleaved(PAIRS, tapped, plain)
    results = []
    for place, name in enumerate(("p50", "p99")):
        found = ratio([it[place] for it in on], [it[place] for it in off])
        results.append(
            Result(
                name=f"tap-on-off-{name}",
                what=f"{name} of one client of Redis with the tap, to that without it",
                bar="<= 1.05",
                measured=f"{found} of {found.n} pairs",
                met=found.high <= 1.05,
                raw={"on_ns": [it[place] for it in on], "off_ns": [it[place] for it in off]},
            )
        )
    return results


def _latency(trace: Trace) -> tuple[float, float]:
    [(p50, p99)] = trace.rows(
        "select median(received_ns - sent_ns), quantile_cont(received_ns - sent_ns, 0.99)"
        " from requests where status = 'ok'"
    )
    return float(p50), float(p99)


def _analysis(folder: Path) -> Result:
    """The verdict of ten million turnarounds of three services."""
    random = np.random.default_rng(1)
    begin = 1_790_000_000 * 1_000_000_000
    path = folder / "ten-million"
    part = 1_000_000
    with RunWriter(path, run="tap", name="watch", tag="") as writer:
        cell = writer.cell({}, "the bench")
        for place in range(ROWS // part):
            started = begin + np.sort(random.integers(0, 60_000_000_000, part)) + place * 60 * 10**9
            ended = started + random.lognormal(13, 1, part).astype(np.int64)
            rows = {
                "cell": cell, "process": "tap-0", "tier": np.array(["web", "app", "db"])[
                    np.arange(part) % 3], "server": "10.0.0.2:80", "client": "10.0.0.1:4000",
                "asked_by": "nginx", "connection": np.arange(part) % 200,
                "turn": np.arange(part) // 200 + 4, "started_ns": started,
                "request_ended_ns": started, "first_reply_ns": ended, "ended_ns": ended,
                "request_bytes": 100, "reply_bytes": 1_000, "status": "ok",
            }  # fmt: skip
            writer.add("turnarounds", rows, part)
        writer.finish({"started_ns": begin, "ended_ns": begin + 600 * 10**9, "planned_ns": 0,
                       "counts": Tally().counts(), "missing": [], "processes": []})  # fmt: skip
    before = time.monotonic()
    call("verdict", path)
    took = time.monotonic() - before
    return Result(
        name="tap-analysis",
        what=f"verdict of {count(ROWS)} turnarounds of three services",
        bar="<= 15 s",
        measured=f"{took:.3g} s",
        met=took <= 15,
        raw={"seconds": took, "rows": ROWS},
    )
