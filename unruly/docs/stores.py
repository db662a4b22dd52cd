"""Write the tables of the page stores.md from the summaries that are kept.

Run ``make pages``.

The runs are those of the plans ``stores``, ``store-levels`` and ``store-faults``. The
``summary.json`` of each is kept, so that nobody types the numbers of a table. Above each table
stand the doubts that the run's own findings report.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kept
from kept import table

KEPT = {
    "stores": "2026-11-27-amd-2core/side-by-side",
    "store-levels": "2026-11-22-intel-2core/side-by-side",
    "store-faults": "2026-11-27-amd-2core/side-by-side",
}
PAGE = Path(__file__).with_name("stores.md")
MS = 1e6
UNSETTLED = ("drift",)
"""Findings that do not question the measurement, but limit its numbers to this run."""


def written(page: str) -> str:
    """Return the page with its tables as the kept summaries have them."""
    stores, levels, struck = (read(name) for name in ("stores", "store-levels", "store-faults"))
    parts = {
        "stores": doubts(stores) + tails(stores, "mean_ok"),
        "stores by turns": turns(stores),
        "store-levels": doubts(levels) + tails(levels, "cell"),
        "store-levels by turns": turns(levels),
        "store-faults": doubts(struck) + faults(struck),
    }
    return kept.filled(page, parts)


def read(name: str) -> dict[str, Any]:
    """Read a kept summary."""
    return kept.read(f"{KEPT[name]}/{name}.summary.json")


def ms(value: float | None) -> str:
    """Nanoseconds as milliseconds of three digits."""
    if value is None:
        return "-"
    return kept.number(value / MS)


def interval(value: dict[str, Any] | None, least: float | None = None) -> str:
    """An estimate with its interval, or its lower bound."""
    if value is None:
        return "-" if least is None else f"at least {ms(least)}"
    low, high = ms(value["low"]), ms(value["high"])
    return f"{ms(value['estimate'])} [{low}, {high}]"


def name_of(cell: str) -> str:
    """The values of a cell's factors."""
    return ", ".join(part.split("=", 1)[-1] for part in cell.split(" ")) or cell


def doubts(found: dict[str, Any]) -> str:
    """Return the doubts of the run's own findings, and how late its requests were sent."""
    told = [
        f"- `{it['code']}`, {it['severity']}: {it['title']}. {it['text']}"
        for it in found["findings"]
        if it["severity"] != "informs" and (it["section"] == "trust" or it["code"] in UNSETTLED)
    ]
    lag = found["self_distrust"]["send_lag_ns"]
    shown = (("p50", "p50"), ("p99", "p99"), ("p99_9", "p99.9"), ("max", "largest"))
    late = ", ".join(f"{name} {ms(lag[key])} ms" for key, name in shown)
    verdict = f"The verdict of this run says `trustworthy: {json.dumps(found['trustworthy'])}`:"
    return "\n".join([verdict, "", *told, f"- the send lag: {late}.", "", ""])


def tail_row(row: dict[str, Any], service: dict[str, Any]) -> list[str]:
    """One line of a store's tail; `service` is the same in service time."""
    target = row["target"]
    mean = row["mean_ok"]
    of_mean = "-" if not mean or row["max_ok"] is None else f"{row['max_ok'] / mean:.0f}"
    return [
        f"{name_of(row['cell'])}, {row['op']}",
        f"{row['n']:,}",
        str(row["failed"]),
        ms(mean),
        ms(service["mean_ok"]),
        ms(row["p99"]),
        ms(service["p99"]),
        interval(row["p99_9"], row["least"].get("p99_9")),
        interval(row["p99_99"], row["least"].get("p99_99")),
        ms(row["max_ok"]),
        ms(service["max_ok"]),
        of_mean,
        "-" if row["over_10x_mean"] is None else str(row["over_10x_mean"]),
        target["outcome"],
    ]


TAIL_HEAD = [
    "ms", "requests", "failed", "mean", "service mean", "p99", "service p99", "p99.9", "p99.99",
    "slowest", "service slowest", "slowest / mean", "beyond 10 x the mean", "99.999 % in 500 ms",
]  # fmt: skip


def tails(found: dict[str, Any], order: str) -> str:
    """The far tail of every cell."""
    rows = sorted(found["stores"]["tails"], key=lambda row: (row[order] or 0.0, row["op"]))
    service = {
        (row["cell"], row["op"]): row for row in found["cells"] if row["latency"] == "service"
    }
    return table(TAIL_HEAD, [tail_row(row, service[row["cell"], row["op"]]) for row in rows])


def turns(found: dict[str, Any]) -> str:
    """What the turns of each cell say together: the p99 as their geometric mean, and the rate."""
    lines = [
        [
            name_of(row["cell"]),
            str(row["repeats"]),
            interval(row["p99"]),
            f"{row['asked_hz']:.0f}",
            f"{row['achieved_hz']['estimate']:.1f}",
            "late itself" if row["own"] else "-",
        ]
        for row in sorted(found["stores"]["loads"], key=lambda row: row["cell"])
    ]
    head = ["ms", "turns", "p99 of a turn", "asked for /s", "good replies /s", "the generator was"]
    return table(head, lines)


def faults(found: dict[str, Any]) -> str:
    """What each kind of fault did to the clients of each store."""
    rows = sorted(found["stores"]["faults"], key=lambda row: (row["kind"], row["cell"]))
    lines = [
        [
            f"{row['kind']}, {name_of(row['cell'])}",
            ms(row["lasted_ns"]),
            f"{row['due']:,}",
            str(row["failed"]),
            ms(row["p99"]),
            ms(row["free_p99"]),
            "-" if row["p99_ratio"] is None else f"{row['p99_ratio']:.3g}",
            ms(row["max_ok"]),
            ms(row["free_max_ok"]),
            ms(row["gap_ns"]),
        ]
        for row in rows
    ]
    head = [
        "ms", "lasted", "requests due", "failed", "p99 meanwhile", "p99 without a fault", "ratio",
        "slowest meanwhile", "slowest without a fault", "longest without a good reply",
    ]  # fmt: skip
    return table(head, lines)
