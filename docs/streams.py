"""Write the tables of docs/streams.md from the summary that is kept: ``python docs/streams.py``.

The run is that of the plan ``throughput-stability``; what its summary says of streams is kept, so
that no number of a table was typed.
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
    / "throughput-stability.streams.json"
)
PAGE = Path(__file__).with_name("streams.md")
M = 1e6
LOADS = ("none", "cpu", "gc")
SAID = {"link saturated": "link full", "bound by one core": "one core", "stable": ""}


def main() -> None:
    """Write the tables between their marks; the words around them stand in the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")


def written(page: str) -> str:
    """Return the page with its tables as the kept summary has them."""
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    for name, lines in (
        ("bandwidths", bandwidths(found["rows"])),
        ("hypotheses", hypotheses(found["hypotheses"])),
    ):
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        page = before + begin + "\n" + lines + "\n" + end + after
    return page


def table(head: list[str], rows: list[list[str]], *, right: bool) -> str:
    """Lay out a table, numbers to the right."""
    lines = ["| " + " | ".join(head) + " |", "|---" + f"|---{':' * right}" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def told(found: dict[str, Any]) -> bool:
    """Whether an interval says anything: one that spans a factor of a thousand does not."""
    return found["low"] is not None and 0 < found["high"] <= 1000 * max(found["low"], 1e-9)


def percents(found: dict[str, Any] | None) -> str:
    """A share with its interval."""
    if found is None:
        return "-"
    share = f"{100 * found['estimate']:.3g} %"
    if not told(found):
        return f"{share} [?]"
    return f"{share} [{100 * found['low']:.3g}, {100 * found['high']:.3g}]"


def ratios(found: dict[str, Any] | None) -> str:
    """A ratio with its interval."""
    if found is None:
        return "-"
    ratio = f"{found['estimate']:.2g}"
    if not told(found):
        return f"{ratio} [?]"
    return f"{ratio} [{found['low']:.2g}, {found['high']:.2g}]"


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
    return table(head, body, right=True)


def mean(row: dict[str, Any]) -> float:
    """The mean bandwidth of a cell, 0 where there is none."""
    return float((row["bandwidth_bps"] or {"estimate": 0.0})["estimate"])


def hypotheses(found: list[dict[str, Any]]) -> str:
    """Each hypothesis, what became of it, and of each of its protocols."""
    parts = []
    for it in found:
        rows = [
            [
                f"`{row['protocol']}`",
                percents(row["keeps"]),
                f"{ratios(row['relative'])} of `{row['reference']}`" if row["reference"] else "-",
                row["state"],
            ]
            for row in it["rows"]
        ]
        head = ["protocol", "keeps", "that over what kernel TCP keeps", "the claim is"]
        claim = it["claim"][0].upper() + it["claim"][1:]
        parts.append(f"*{claim}*: **{it['outcome']}**.\n\n{table(head, rows, right=False)}")
    return "\n".join(parts)


if __name__ == "__main__":
    main()
