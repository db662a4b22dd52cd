"""Tables of a page, written from the kept results of a run, so that nobody types their numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

RUNS = Path(__file__).resolve().parents[1] / "bench" / "runs"


def read(place: str) -> dict[str, Any]:
    """Read a kept result, at a place below unruly/bench/runs."""
    found: dict[str, Any] = json.loads((RUNS / place).read_text(encoding="utf-8"))
    return found


def filled(page: str, parts: Mapping[str, str]) -> str:
    """Return the page with these parts between their marks; the text around them stays."""
    for name, lines in parts.items():
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        page = before + begin + "\n" + lines + "\n" + end + after
    return page


def table(head: list[str], rows: list[list[str]], *, right: bool = True) -> str:
    """Lay out a table, all but its first column to the right."""
    rule = "---:" if right else "---"
    lines = ["| " + " | ".join(head) + " |", "|---" + f"|{rule}" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
