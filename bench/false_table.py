"""The table of false promises in the method's page, written from what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench.false_promises import PERCENTILES, SECONDS, percentile
from bench.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE: Final = ROOT / "docs" / "methods" / "block-interval.md"
BEGIN, END = "<!-- table of false promises: begin -->", "<!-- table of false promises: end -->"
KINDS: Final = {"bound": "", "hold-out": " (hold-out)", "unseen": " (cannot be seen)"}


def table(cells: Sequence[dict[str, Any]]) -> str:
    """Return the table as Markdown: a row a family, a column a percentile and length."""
    found = {(c["family"], c["p"], c["seconds"]): c for c in cells}
    keys = [(p, seconds) for p in PERCENTILES for seconds in SECONDS]
    lines = [
        "| family | " + " | ".join(f"{percentile(p)}, {s} s" for p, s in keys) + " |",
        "|---|" + "---|" * len(keys),
    ]
    for name in dict.fromkeys(c["family"] for c in cells):
        first = next(c for c in cells if c["family"] == name)
        shown = [_cell(found[name, p, seconds]) for p, seconds in keys]
        lines.append(f"| {first['words']}{KINDS[first['kind']]} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _cell(cell: dict[str, Any]) -> str:
    """Answered, coverage of the answers, false of all, width; the naive coverage in brackets."""
    runs, answered = cell["runs"], cell["answered"]
    naive = f"({100 * cell['naive_covered'] / runs:.0f})"
    false = f"{100 * cell['false'] / runs:.1f}"
    if not answered:
        return f"0 · - · {false} · - {naive}"
    covered = f"{100 * cell['covered'] / answered:.0f}"
    width = cell["width_over_oracle"]
    wide = "-" if width is None else f"{width:.1f}"
    return f"{100 * answered / runs:.0f} · {covered} · {false} · {wide} {naive}"


def write(cells: Sequence[dict[str, Any]]) -> None:
    """Put the table between its marks in the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(cells)}\n{END}{after}", encoding="utf-8")
