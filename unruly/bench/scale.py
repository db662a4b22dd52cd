"""A hundred million rows in two thousand cells: the verdict, beside plain SQL for its quantiles.

The plain query reads the same files, and gives the same six quantiles of both latencies of every
cell; everything else that a verdict says (intervals, tails, streaks, drift, causes) it leaves out.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.big_trace import Size, write
from bench.pairs import interleaved, ratio
from bench.program import UNRULY
from bench.result import Result
from unruly.base.ladder import PERCENTILES as QUANTILES
from unruly.tables.duckdb_engine import MEMORY_MOST

SIZE = Size(rows=100_000_000, cells=2_000)
PAIRS = 6
BAR_S = 40.0
BAR_GB = 2.5
PLAIN = """
import json, sys
import duckdb
files, memory, quantiles = sys.argv[1:]
with duckdb.connect() as connection:
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET preserve_insertion_order = false")
    if memory:
        connection.execute(f"SET memory_limit = '{memory}'")
    rows = connection.execute(f'''
        SELECT cell, count(*), quantile_cont(response, {quantiles}),
               quantile_cont(service, {quantiles})
        FROM (SELECT cell,
                CASE WHEN status = 'ok' THEN (received_ns - intended_ns)::DOUBLE
                     ELSE 'inf'::DOUBLE END AS response,
                CASE WHEN status = 'ok' THEN (received_ns - sent_ns)::DOUBLE
                     ELSE 'inf'::DOUBLE END AS service
              FROM read_parquet('{files}') WHERE phase <> 'warmup')
        GROUP BY cell''').fetchall()
    print(json.dumps({cell: [n, first, second] for cell, n, first, second in rows}))
"""


def run() -> list[Result]:
    """Write the trace once, then time pairs of a verdict and the plain query."""
    with tempfile.TemporaryDirectory(prefix="unruly-bench-") as folder:
        place = write(Path(folder, "run"), SIZE)
        ours, theirs = interleaved(PAIRS, lambda: _verdict(place), lambda: _plain(place))
        if any(it["exit"] for it in [*ours, *theirs]):
            raise RuntimeError("scale: one of the two failed; wanted exit code 0")
        same = _same(json.loads(theirs[0]["said"]), place)
        bounded = _plain(place, f"{MEMORY_MOST}B")
    return _results(ours, theirs, same, bounded)


def _results(
    ours: list[dict[str, Any]],
    theirs: list[dict[str, Any]],
    same: tuple[int, int],
    bounded: dict[str, Any],
) -> list[Result]:
    seconds, plain = ([it["s"] for it in side] for side in (ours, theirs))
    peak, plain_peak = (max(it["gigabytes"] for it in side) for side in (ours, theirs))
    middle, plain_middle = median(seconds), median(plain)
    kept = ("s", "processor_s", "gigabytes")
    worked = median(it["processor_s"] for it in ours)
    raw = {
        "verdict": [{name: it[name] for name in kept} for it in ours],
        "plain": [{name: it[name] for name in kept} for it in theirs],
        "plain_bounded": {"exit": bounded["exit"], "gigabytes": bounded["gigabytes"]},
    }
    what = f"{SIZE.rows:,} rows in {SIZE.cells:,} cells, two cores"
    answer = "answers too" if bounded["exit"] == 0 else "gives up for want of memory"
    return [
        Result(
            name="scale-seconds",
            what=f"verdict of {what}, median of {PAIRS}",
            bar=f"<= {BAR_S:g} s",
            measured=f"{middle:.1f} s (most {max(seconds):.1f}), {worked:.1f} s of processor"
            f" time; plain DuckDB SQL for the quantiles"
            f" alone {plain_middle:.1f} s, ratio {ratio(seconds, plain)}",
            met=middle <= BAR_S,
            raw=raw,
            why="the quantiles take a tenth of a verdict: intervals that survive stalls, tails,"
            " streaks, drift and causes read the same rows again",
        ),
        Result(
            name="scale-memory",
            what=f"memory of that verdict, most of {PAIRS}",
            bar=f"<= {BAR_GB:g} GB",
            measured=f"{peak:.2f} GB; plain DuckDB SQL {plain_peak:.2f} GB, and held to the"
            f" {MEMORY_MOST / 1e9:g} GB that the verdict's engine has it {answer}",
            met=peak <= BAR_GB,
            raw=raw,
        ),
        Result(
            name="scale-exact",
            what="quantiles of that verdict against plain SQL",
            bar="all equal",
            measured=f"{same[0]:,} of {same[1]:,} equal",
            met=same[0] == same[1],
            raw={"equal": same[0], "compared": same[1]},
        ),
    ]


def _verdict(place: Path) -> dict[str, Any]:
    return _timed([str(UNRULY), "verdict", str(place)])


def _plain(place: Path, memory: str = "") -> dict[str, Any]:
    wanted = str(list(QUANTILES.values()))
    return _timed([sys.executable, "-c", PLAIN, f"{place}/requests/*.parquet", memory, wanted])


def _timed(words: list[str]) -> dict[str, Any]:
    """Run a program: seconds, the most memory that it or a child of it held, what it said."""
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:
        started = time.monotonic()
        running = subprocess.Popen(words, stdout=said, stderr=complained)
        _, status, usage = os.wait4(running.pid, 0)
        seconds = time.monotonic() - started
        running.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return {
            "s": seconds,
            "processor_s": usage.ru_utime + usage.ru_stime,
            "gigabytes": usage.ru_maxrss * 1024 / 1e9,
            "exit": running.returncode,
            "said": said.read().decode(),
        }


def _same(plain: dict[str, Any], place: Path) -> tuple[int, int]:
    """How many of the quantiles that the verdict gives are plain SQL's, and how many it gives.

    It leaves out those among the failed, and those of too few rows.
    """
    given = [
        (value, plain[row["cell"]][1 if row["latency"] == "response" else 2][at])
        for row in json.loads((place / "summary.json").read_text())["cells"]
        for at, name in enumerate(QUANTILES)
        if (value := row[name]) is not None
    ]
    return sum(math.isclose(ours, theirs, rel_tol=1e-12) for ours, theirs in given), len(given)
