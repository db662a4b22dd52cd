"""How often a real fault of a real process is called by its name, and how often a clean run blames.

Each run of a fault has a clean run beside it, of the same system and load. A run whose slow
requests were not under way during the fault did not feel it: nobody can name a fault that made
nothing slow, so such runs are counted apart. So are runs on a host that was disturbed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import stats

import unruly
from bench import real_faults, result
from bench import real_systems as systems
from bench.program import UNRULY, Trace
from bench.result import Result
from unruly.topics.causes.model import causes_of

if TYPE_CHECKING:
    from bench.real_faults import Episode, Fault, Span
    from bench.real_systems import System

RUNS: Final = int(os.environ.get("CAUSES_RUNS", "20"))
"""Of each kind of fault, and as many clean ones beside them."""
FIRST, THREE, CLEAN = 0.90, 0.98, 0.98
FELT: Final = 2
"""A run felt a fault if at least this number of slow requests was under way during it."""
LATE_NS: Final = 1_000_000_000
"""What a fault leaves behind, such as a queue or an election, may last so long."""
LATEST_NS: Final = 5_000_000_000
"""The timeout of a request."""


@dataclass(frozen=True)
class Judged:
    """What the analysis said of one run."""

    causes: list[tuple[str, str]]
    """(cause, process), by how many slow requests each explains, over all operations."""
    slow: int
    felt: int
    spans: list[Span]
    """When the fault was there (wall clock, ns)."""
    trusted: bool
    doubts: list[str]


def one(fault: Fault | None, system: System, seed: int, hit: Fault) -> dict[str, Any]:
    """Measure a run of a system, with a fault or without, and return its row.

    `hit` is the fault that the clean run stands beside: the host is prepared alike for both.
    """
    draw = np.random.default_rng(seed)
    episodes = hit.episodes(draw)
    planned = "".join(fault.plan(system, it) for it in episodes) if fault and fault.plan else ""
    with tempfile.TemporaryDirectory(prefix="unruly-bench-") as folder, hit.around():
        service = Path(folder, "service.toml")
        service.write_text(system.service)
        text = system.plan(seed, planned).replace("./service.toml", str(service))
        Path(folder, "plan.toml").write_text(text)
        done = _run(Path(folder), fault, system, episodes)
        found = _judge(Path(folder, "run"), done)
    row = {
        "fault": hit.name,
        "clean": fault is None,
        "system": system.name,
        "seed": seed,
        "probe_ms": systems.PROBE_MS,
        "lasted_ms": [round((end - start) / 1e6) for start, end in found.spans],
        "causes": found.causes,
        "slow": found.slow,
        "felt": found.felt,
        "trusted": found.trusted,
        "doubts": found.doubts,
    }
    if fault:
        wanted = fault.wanted(system)
        hits = [(cause, process) in wanted for cause, process in found.causes]
        row |= {"first": hits[:1] == [True], "three": any(hits[:3])}
    return row


def _run(folder: Path, fault: Fault | None, system: System, episodes: list[Episode]) -> list[Span]:
    """Measure, and return when something was done from outside (wall clock, ns)."""
    out = folder / "run"
    done: list[Span] = []
    words: list[str | Path] = [UNRULY, "run", folder / "plan.toml", "-q", "-o", out]
    quiet = os.environ | {"UNRULY_PYTHON": "/bin/true"}
    errors = folder / "errors"
    with errors.open("w") as log:
        runner = subprocess.Popen(words, env=quiet, stdout=log, stderr=log)
        try:
            if fault and fault.work:
                start = _start_of(out, runner)
                live = real_faults.Live(system, runner.pid)
                done = real_faults.work_on(live, fault, episodes, start)
            code = runner.wait(timeout=systems.DURATION_S + 120)
        finally:
            if runner.poll() is None:
                runner.terminate()
                runner.wait(timeout=60)
    if code:
        raise RuntimeError(f"{system.name}: exit {code}; {errors.read_text().strip()}")
    return done


def _start_of(out: Path, runner: subprocess.Popen[bytes]) -> float:
    """Wait for the first records of a run; return when it begins to measure (`time.monotonic`)."""
    until = time.monotonic() + 90
    while time.monotonic() < until and runner.poll() is None:
        if any(out.glob("requests/*")):
            return time.monotonic() + systems.WARMUP_S
        time.sleep(0.05)
    raise RuntimeError("the run did not begin")


def _judge(out: Path, done: list[Span]) -> Judged:
    with contextlib.redirect_stderr(io.StringIO()):  # its progress
        analysis = unruly.analyse(unruly.open_run(out), pictures=False)
    found = causes_of(analysis)
    rows = found.rows if found else ()
    many: dict[tuple[str, str], int] = {}
    for row in rows:
        for cause in row.causes:
            key = (cause.cause, cause.process)
            many[key] = many.get(key, 0) + int(cause.requests)
    trace = Trace(out)
    planned = trace.rows("select started_ns, ended_ns from events where kind like 'fault %'")
    spans = [*done, *((start, end) for start, end in planned if end)]
    limits = {row.op: row.limit_ns for row in rows if row.limit_ns}
    return Judged(
        sorted(many, key=lambda key: -many[key]),
        sum(int(row.slow) for row in rows),
        _felt(trace, limits, spans),
        spans,
        bool(analysis.trustworthy),
        [str(it) for it in analysis.doubts],
    )


def _felt(trace: Trace, limits: dict[str, float], spans: list[Span]) -> int:
    """Return how many slow requests were under way in a span, or soon after."""
    if not spans or not limits:
        return 0
    slow = " or ".join(
        f"(op = '{op}' and (status <> 'ok' or received_ns - intended_ns > {limit}))"
        for op, limit in limits.items()
    )
    met = " or ".join(
        f"(intended_ns < {end + LATE_NS} and coalesce(received_ns, intended_ns + {LATEST_NS})"
        f" > {start})"
        for start, end in spans
    )
    ((felt,),) = trace.rows(
        f"select count(*) from requests where phase = 'measure' and ({slow}) and ({met})"
    )
    return int(felt)


def run() -> list[Result]:
    """Measure the missing runs of today, and judge all of them; three hours in all.

    ``CAUSES_RUNS`` makes it shorter: the number of runs of each kind.
    """
    gone = real_faults.missing()
    if gone:
        raise RuntimeError(f"causes-real: {', '.join(gone)} is not on this host; hint: make tools")
    kept = result.folder(Path(__file__).parent / "runs") / "causes-real.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    done = {(row["fault"], row["clean"], row["seed"]) for row in rows}
    for number in range(RUNS):
        for place, fault in enumerate(real_faults.FAULTS):
            system = fault.systems[number % len(fault.systems)]
            seed = 1_000 * (place + 1) + number
            for clean in (False, True) if seed % 2 else (True, False):
                if (fault.name, clean, seed) in done:
                    continue
                row = one(None if clean else fault, system, seed, fault)
                rows.append(row)
                with kept.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(_line(row), file=sys.stderr, flush=True)
    return judged(rows)


def _line(row: dict[str, Any]) -> str:
    said = ["no", "three", "first"][row.get("three", False) + row.get("first", False)]
    word = "clean" if row["clean"] else said
    head = f"{row['fault']:20} {row['system']:17} {row['seed']} {word:6}"
    return f"{head} felt {row['felt']:4} {row['causes'][:3]}"


def judged(rows: list[dict[str, Any]]) -> list[Result]:
    """Return the three bars, over the runs that felt their fault."""
    faulted = [row for row in rows if not row["clean"] and row["felt"] >= FELT]
    clean = [row for row in rows if row["clean"]]
    print(table(rows), file=sys.stderr)
    kinds = len({row["fault"] for row in rows})
    what = f"{len(faulted)} runs that felt a real fault, of {kinds} kinds"
    return [
        _bar("causes-real-first", f"{what}: the right cause comes first", faulted, "first", FIRST),
        _bar("causes-real-three", f"{what}: it is among the first three", faulted, "three", THREE),
        _bar(
            "causes-real-clean", f"{len(clean)} runs without a fault: those that blame nobody",
            [row | {"quiet": not row["causes"]} for row in clean], "quiet", CLEAN,
        ),
    ]  # fmt: skip


def _bar(name: str, what: str, rows: list[dict[str, Any]], key: str, least: float) -> Result:
    hits = sum(bool(row[key]) for row in rows)
    share = hits / max(1, len(rows))
    return Result(
        name=name,
        what=what,
        bar=f">= {100 * least:g} %",
        measured=f"{100 * share:.1f} % {_interval(hits, len(rows))}",
        met=share >= least,
        raw={"rows": rows},
    )


def _interval(hits: int, n: int) -> str:
    if not n:
        return "of no runs"
    low, high = stats.binomtest(hits, n).proportion_ci(method="exact")
    return f"[{100 * low:.0f}, {100 * high:.0f}] of {n}"


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of the method's page as Markdown."""
    lines = [
        "| fault | runs | felt | right cause first | within three | clean runs that blame nobody |",
        "|---|---|---|---|---|---|",
    ]
    for fault in dict.fromkeys(row["fault"] for row in rows):
        own = [row for row in rows if row["fault"] == fault]
        faulted = [row for row in own if not row["clean"]]
        felt = [row for row in faulted if row["felt"] >= FELT]
        clean = [row for row in own if row["clean"]]
        first, three = (
            _share(sum(row[key] for row in felt), len(felt)) for key in ("first", "three")
        )
        quiet = _share(sum(not row["causes"] for row in clean), len(clean))
        lines.append(f"| {fault} | {len(faulted)} | {len(felt)} | {first} | {three} | {quiet} |")
    return "\n".join(lines)


def _share(hits: int, n: int) -> str:
    return f"{100 * hits / n:.0f} % {_interval(hits, n)}" if n else ""
