"""The callers of middleware systems against a loop by hand around the same library."""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.pairs import interleaved, ratio
from bench.program import ROOT, measured
from bench.result import Result
from bench.speed import CLIENT_CORE, SERVER_CORE

if TYPE_CHECKING:
    from collections.abc import Iterator

PAIRS: Final = 6
CALLS: Final = 20_000
BYTES: Final = 2_000
BAR: Final = 1.05
PORT: Final = 21_116
ARCHIVE: Final = ROOT / "unruly" / "jvm" / "target" / "unruly-jvm.jar"
LOOP: Final = Path(__file__).parent / "callers_loop" / "Loop.java"
OPENS: Final = "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"
FLAGS: Final = ("-Xms256m", "-Xmx256m", "-XX:+UseParallelGC", OPENS)
PLAN: Final = """
name = "bench"
seed = 1
tag = "bench"
[run]
duration = "60s"
warmup = "{warmup}s"
[drive]
url = '''program:{command}'''
arrivals = "closed"
requests = {calls}
payload = "{size}B"
clients = 1
timeout = "5s"
[probe]
period = "500ms"
[pin]
"drive-0" = [{core}]
"""
WARMUP_S: Final = 4


@dataclass(frozen=True)
class Case:
    """A system, and the folder of its libraries in the cache of services, if it needs any."""

    name: str
    jars: str = ""


CASES: Final = (
    Case("rmi"),
    Case("jacorb", "org.jacorb-jacorb-3.9-*"),
    Case("grpc-java", "io.grpc-grpc-netty-shaded-*"),
)


def _class_path(case: Case, more: Path | None = None) -> str:
    places = [str(ARCHIVE)]
    if case.jars:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "unruly" / "jars"
        found = sorted(cache.glob(case.jars))
        if not found:
            raise RuntimeError(
                f"{case.name}: no libraries in {cache}; hint: unruly drive system:{case.name}"
                " --payload 64B -d 1s fetches them"
            )
        places.append(f"{found[0]}/*")
    return os.pathsep.join([*places, *([str(more)] if more else [])])


@contextmanager
def _server(case: Case, folder: Path) -> Iterator[list[str]]:
    """The server of a system on its core; yields the options of its clients."""
    where = ["host=127.0.0.1", f"port={PORT}"]
    ior = [f"ior={folder}/ior"] if case.name == "jacorb" else []
    words = ["taskset", "-c", str(SERVER_CORE), "java", *FLAGS, "-cp", _class_path(case)]
    words += ["org.unruly.systems.Main", "serve", case.name, *where, *ior]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        if server.stdout is None or not server.stdout.readline().endswith("is ready\n"):
            raise RuntimeError(f"{case.name}: its server ended before it was ready")
        yield ior or where
    finally:
        server.terminate()
        server.wait(timeout=10)


def ours(case: Case, options: list[str]) -> float:
    """The median of a call (ns), of a run of unruly."""
    words = ["java", *FLAGS, "-cp", _class_path(case), "org.unruly.systems.Main", "call"]
    plan = PLAN.format(
        command=" ".join(f'"{it}"' for it in [*words, case.name, *options]),
        warmup=WARMUP_S, calls=CALLS, size=BYTES, core=CLIENT_CORE,
    )  # fmt: skip
    with measured(plan) as trace:
        [(failed, median)] = trace.rows(
            "select count(*) filter (status != 'ok'), median(received_ns - sent_ns)"
            " from requests where phase = 'measure'"
        )
    if failed:
        raise RuntimeError(f"{case.name}: {failed} calls failed")
    return float(median)


def theirs(case: Case, options: list[str], classes: Path) -> float:
    """The median of a call (ns), of the loop."""
    words = ["taskset", "-c", str(CLIENT_CORE), "java", *FLAGS, "-cp", _class_path(case, classes)]
    words += ["org.unruly.systems.Loop", case.name, str(CALLS), str(BYTES), *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    return float(done.stdout)


def run() -> list[Result]:
    """Measure each system."""
    with tempfile.TemporaryDirectory(prefix="unruly-bench-") as text:
        folder = Path(text)
        words = ["javac", "-d", str(folder), "-cp", str(ARCHIVE), str(LOOP)]
        subprocess.run(words, check=True, timeout=120)
        return [_of(case, folder) for case in CASES]


def _of(case: Case, folder: Path) -> Result:
    with _server(case, folder) as options:
        us, them = interleaved(
            PAIRS, lambda: ours(case, options), lambda: theirs(case, options, folder)
        )
    found = ratio(us, them)
    return Result(
        name=f"callers-{case.name}",
        what=f"p50 of a call of {BYTES:,} B, {case.name}, to a loop by hand around its library (the"
        " server on core 0; the load generator and its caller, or the loop, on core 1)",
        bar=f"<= {BAR}",
        measured=f"{found} of {found.n} pairs",
        met=found.high <= BAR,
        raw={"ours_ns": us, "theirs_ns": them},
    )
