"""Write the tables of docs/runtimes.md from the summary that is kept: ``python docs/runtimes.py``.

The run is that of the plan ``group-rpc-jvm``; what its summary says by runtime is kept, so that no
number of a table was typed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEPT = (
    ROOT
    / "bench"
    / "runs"
    / "2026-11-23-amd-2core"
    / "side-by-side"
    / "group-rpc-jvm.runtimes.json"
)
PAGE = Path(__file__).with_name("runtimes.md")
MS = 1e6
COLLECTORS = ("serial", "parallel", "g1", "shenandoah", "z")


def main() -> None:
    """Write the tables between their marks; the words around them stand in the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")


def written(page: str) -> str:
    """Return the page with its tables as the kept summary has them."""
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    for name, lines in (("tails", tails(found)), ("meetings", meetings(found))):
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        page = before + begin + "\n" + lines + "\n" + end + after
    return page


def table(head: list[str], rows: list[list[str]]) -> str:
    """Lay out a table, numbers to the right."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


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
    """Whether slow copies met a collection, and others, in each cell with machines of Java."""
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


if __name__ == "__main__":
    main()
