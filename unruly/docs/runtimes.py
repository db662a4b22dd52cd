"""Write the tables of the page runtimes.md from the summary that is kept.

Run ``make pages``.

The run is that of the plan ``group-rpc-jvm``. The part of its summary about runtimes is kept, so
that nobody types the numbers of a table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kept
from kept import number, table

KEPT = "2026-11-23-amd-2core/side-by-side/group-rpc-jvm.runtimes.json"
PAGE = Path(__file__).with_name("runtimes.md")
MS = 1e6
COLLECTORS = ("serial", "parallel", "g1", "shenandoah", "z")


def written(page: str) -> str:
    """Return the page with its tables from the kept results."""
    found = kept.read(KEPT)
    parts = {"tails": tails(found), "meetings": meetings(found)}
    return kept.filled(page, parts)


def tails(found: dict[str, Any]) -> str:
    """Median and p99 of each runtime and collector, of every pair of runtimes."""
    by_cell: dict[tuple[str, str, str], str] = {
        (
            it["cell"],
            it["asks"],
            it["answers"],
        ): f"{number(it['p50'] / MS)} / {number(it['p99'] / MS)}"
        for it in found["tails"]
    }
    columns = [
        ("native", "native", "native"),
        ("mixed", "native", "native"),
        ("mixed", "native", "jvm"),
        ("mixed", "jvm", "native"),
        ("mixed", "jvm", "jvm"),
        ("jvm", "jvm", "jvm"),
    ]
    rows = [
        [
            f"`{collector}`",
            *(
                by_cell[f"runtime={runtime} collector={collector}", asks, answers]
                for runtime, asks, answers in columns
            ),
        ]
        for collector in COLLECTORS
    ]
    heads = [f"{runtime}: {asks} asks {answers}" for runtime, asks, answers in columns]
    return table(["p50 / p99, ms", *heads], rows)


def meetings(found: dict[str, Any]) -> str:
    """Count the slow copies, and the others, that met a collection, in each cell with JVMs."""
    told = {it["cell"]: it for it in found["collecting"]}
    rows = []
    for it in found["meetings"]:
        if it["op"] != "*":
            continue
        (end,) = [end for end in it["ends"] if end["end"] == "either"]
        cell = told[it["cell"]]
        lift = end["lift"]
        high = lift and number(lift["high"])
        rows.append([
            f"`{it['cell']}`".replace("runtime=", "").replace("collector=", ""),
            f"{end['slow_met']} of {end['slow']}",
            f"{end['others_met']} of {end['others']}",
            f"{number(lift['estimate'])} [{number(lift['low'])}, {high}]" if lift else "-",
            f"{100 * end['by_chance']:.1f} %",
            f"{100 * cell['share']:.2g} %",
            number(cell["longest_ns"] / MS),
        ])  # fmt: skip
    head = [
        "cell", "slow copies that met one", "others that did", "ratio of the shares",
        "chance would have it of", "time in collections", "longest, ms",
    ]  # fmt: skip
    return table(head, rows)
