"""The pages that are generated from the kept results of unruly's benchmarks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from bench import false_table, page
from bench.program import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = ROOT / "unruly" / "bench"
HEAD: Final = """# Benchmarks

`make bench` measures every row of this page, and `make bench NAMES="echo stall"` some of them. Each
row compares unruly with a peer or with a bar. The two sides alternate in pairs and are pinned to
the same cores. The raw values are kept in `unruly/bench/runs`, one folder for each day and host.
`make pages` writes this page from them. Flurry has
[benchmarks of its own](../../flurry/bench/README.md).

A ratio is the Hodges-Lehmann estimate over the pairs, with its 95 % signed-rank interval: a
disturbed pair hardly moves it. A bar is met only if the whole interval is on the wanted side. The
list under each table explains the missed bars. No test of the project asserts a time, because these
machines are shared. A comparison holds for one machine in one minute.

Loopback latency has two values: about 5.5 us with both processes on one core, and about 25 us
across two cores. A comparison must therefore pin both sides to the same cores.
"""


def texts() -> dict[Path, str]:
    """Return the text of each page."""
    runs = FOLDER / "runs"
    promises = sorted(runs.glob("*/false-promises.json"))[-1]
    beside = ("false-ladder.json", "false-rivals.json", "false-tried.json")
    kept = (promises, *(promises.with_name(name) for name in beside))
    tables = false_table.pages(*(json.loads(it.read_text())["raw"]["cells"] for it in kept))
    return {FOLDER / "README.md": page.text(HEAD, runs), **tables}
