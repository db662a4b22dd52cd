"""Write the tables of the page streams.md from the summary that is kept.

Run ``make pages``.

The run is that of the plan ``throughput-stability``. The part of its summary about streams is kept,
so that nobody types the numbers of a table.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import kept
from kept import number, table

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT = "2026-11-23-intel-2core/side-by-side/throughput-stability.streams.json"
PAGE = Path(__file__).with_name("streams.md")
M = 1e6
LOADS = ("none", "cpu", "gc")
SAID = {"link saturated": "link full", "bound by one core": "one core", "stable": ""}


def written(page: str) -> str:
    """Return the page with its tables from the kept results."""
    found = kept.read(KEPT)
    parts = {
        "bandwidths": bandwidths(found["rows"]),
        "hypotheses": hypotheses(found["hypotheses"]),
    }
    return kept.filled(page, parts)


def told(found: dict[str, Any]) -> bool:
    """Whether an interval says anything: one that spans a factor of a thousand does not."""
    return found["low"] is not None and 0 < found["high"] <= 1000 * max(found["low"], 1e-9)


def between(found: dict[str, Any] | None, write: Callable[[float], str], unit: str = "") -> str:
    """An estimate with its interval; one that says nothing is a question mark."""
    if found is None:
        return "-"
    limits = f"{write(found['low'])}, {write(found['high'])}" if told(found) else "?"
    return f"{write(found['estimate'])}{unit} [{limits}]"


def percents(found: dict[str, Any] | None) -> str:
    """A share with its interval."""
    return between(found, lambda share: f"{100 * share:.3g}", " %")


def ratios(found: dict[str, Any] | None) -> str:
    """A ratio with its interval."""
    return between(found, "{:.2g}".format)


def bandwidths(rows: list[dict[str, Any]]) -> str:
    """Each protocol beside each load, the fastest first."""
    cells = {(it["protocol"], it["load"]): it for it in rows}
    alone = {it["protocol"]: mean(it) for it in rows if it["load"] == "none"}
    body = []
    for protocol in sorted(alone, key=lambda it: -alone[it]):
        row = [f"`{protocol}`"]
        for load in LOADS:
            it = cells[protocol, load]
            words = [number(mean(it) / M)]
            if load != "none":
                words.append(percents(it["of_unloaded"]))
            words.append(SAID.get(it["verdict"], it["verdict"]))
            doubt = " ?" if it["in_doubt"] else ""
            row.append(", ".join(word for word in words if word) + doubt)
        body.append(row)
    head = ["Mbit/s, share of the unloaded", "unloaded", "beside `cpu`", "beside `gc`"]
    return table(head, body)


def mean(row: dict[str, Any]) -> float:
    """The mean bandwidth of a cell, 0 where there is none."""
    return float((row["bandwidth_bps"] or {"estimate": 0.0})["estimate"])


def hypotheses(found: list[dict[str, Any]]) -> str:
    """Each hypothesis with its outcome, and the outcome for each of its protocols."""
    parts = []
    for it in found:
        rows = [
            [
                f"`{row['protocol']}`",
                percents(row["keeps"]),
                f"{ratios(row['relative'])} of `{row['reference']}`" if row["reference"] else "-",
                row["state"] + (" ?" if row["in_doubt"] else ""),
            ]
            for row in it["rows"]
        ]
        head = ["protocol", "keeps", "that over what kernel TCP keeps", "the claim is"]
        claim = it["claim"][0].upper() + it["claim"][1:]
        parts.append(f"*{claim}*: **{it['outcome']}**.\n\n{table(head, rows, right=False)}")
    return "\n".join(parts)
