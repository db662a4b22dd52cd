"""How often a planted fault is called by its name, and how often a clean run blames somebody."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from bench.program import ROOT
from bench.result import Result

sys.path.append(str(ROOT / "unruly" / "python" / "tests"))

from planted import SIDES, WANTED, looked_at, write_planted

RUNS: Final = 20
"""Of each fault, each a run of its own."""
CLEAN: Final = 200
SEED: Final = 1_000
FIRST, THREE, BLAMED = 0.90, 0.98, 0.02


def run() -> list[Result]:
    """Plant every fault in runs of its own, then look at clean ones; ten minutes of one core."""
    os.nice(10)
    rows = [_faulted(fault) for fault in WANTED]
    clean = _clean()
    print(table(rows, clean), file=sys.stderr)
    first, three = (sum(row[name] for row in rows) / (RUNS * len(rows)) for name in ("1", "3"))
    runs, requests = clean["runs"] / CLEAN, clean["blamed"] / clean["slow"]
    what = f"in {RUNS} runs of each of {len(rows)} faults"
    return [
        Result(
            name="causes-found",
            what=f"the planted cause comes first, {what}",
            bar=f">= {100 * FIRST:g} %; within three {100 * THREE:g} %",
            measured=f"{100 * first:.1f} %; within three {100 * three:.1f} %",
            met=first >= FIRST and three >= THREE,
            raw={"rows": rows},
        ),
        Result(
            name="causes-clean",
            what=f"share of {CLEAN} clean runs that blame a cause, and of their slow requests",
            bar=f"<= {100 * BLAMED:g} %",
            measured=f"{100 * runs:.1f} %, {100 * requests:.2f} %",
            met=max(runs, requests) <= BLAMED,
            raw=clean,
        ),
    ]


def _faulted(fault: str) -> dict[str, Any]:
    cause, side = WANTED[fault]
    row: dict[str, Any] = {"fault": fault, "cause": cause, "1": 0, "3": 0, "unknown": 0.0}
    for seed in range(SEED, SEED + RUNS):
        (found,) = _looked_at([fault], seed).rows
        named = [(it.cause, it.process.startswith(SIDES[side])) for it in found.causes]
        row["1"] += named[:1] == [(cause, True)]
        row["3"] += (cause, True) in named[:3]
        row["unknown"] += found.unknown.estimate / RUNS
    return row


def _clean() -> dict[str, Any]:
    found = {"runs": 0, "blamed": 0, "slow": 0}
    for seed in range(SEED, SEED + CLEAN):
        (row,) = _looked_at([None], seed).rows
        found["runs"] += bool(row.causes)
        found["blamed"] += sum(it.requests for it in row.causes)
        found["slow"] += row.looked_at
    return found


def _looked_at(faults: list[str | None], seed: int) -> Any:
    with tempfile.TemporaryDirectory(prefix="unruly-bench-") as folder:
        return looked_at(write_planted(Path(folder, "run"), faults, seed))


def table(rows: list[dict[str, Any]], clean: dict[str, Any]) -> str:
    """Return the table of the method's page as Markdown."""
    lines = ["| planted | wanted | first | within three | unknown |", "|---|---|---|---|---|"]
    for row in rows:
        first, three = (f"{100 * row[name] / RUNS:.0f} %" for name in ("1", "3"))
        unknown = f"{100 * row['unknown']:.0f} %"
        lines.append(f"| {row['fault']} | {row['cause']} | {first} | {three} | {unknown} |")
    share = f"{100 * clean['blamed'] / clean['slow']:.1f} % of {clean['slow']} slow requests"
    lines.append(f"| nothing ({CLEAN} runs) | nothing | {clean['runs']} runs blame | {share} | |")
    return "\n".join(lines)
