"""Write the table of real files on the page methods/audit.md from the kept results.

Run ``make pages``. ``python -m bench.audits NAME=FILE ...`` makes the results.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import kept

from unruly.quantity import count, duration

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE: Final = Path(__file__).with_name("methods") / "audit.md"
HEAD: Final = [
    "file", "p99", "usual: true", "early: true", "supported: true", "undecided", "parts: usual",
    "parts: early", "whole: usual", "whole: early",
]  # fmt: skip
KEPT: Final = "2026-11-29-intel-2core/side-by-side/audits.json"


def written(page: str) -> str:
    """Return the page with the table of the kept results."""
    rows = [row(it) for it in kept.read(KEPT)["files"]]
    return kept.filled(page, {"real files": kept.table(HEAD, rows)})


def row(it: Mapping[str, Any]) -> list[str]:
    """Return the row of one file."""
    parts, whole, figures = it["parts"], it["whole"], it["figures"]
    length = f"{count(it['requests'])} requests in {duration(it['length_ns'])}"
    return [
        f"{it['name']}, {length}",
        duration(it["truth_ns"]),
        f"{it['usual_held']} of {parts}",
        f"{it['early_held']} of {parts}",
        f"{it['supported_held']} of {it['supported']}",
        f"{parts - figures['interval_held']['n']} of {parts}",
        figure(figures["interval_held"]),
        figure(figures["bound_held"]),
        figure(whole["interval_held"]),
        figure(whole["bound_held"]),
    ]


def figure(found: Mapping[str, Any]) -> str:
    """Return the mean figure of the audits and their mean range; a dash without any."""
    if not found["n"]:
        return "-"
    low, high = (f"{100 * found[name]:.0f}" for name in ("low", "high"))
    return f"{100 * found['share']:.0f} % [{low}, {high}]"
