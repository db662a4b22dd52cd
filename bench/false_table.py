"""The table of false promises in the method's page, written from what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench.false_promises import PERCENTILES, SECONDS, percentile
from bench.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE: Final = ROOT / "docs" / "methods" / "block-interval.md"
MARKS: Final = (
    "<!-- table of the ladder: begin -->",
    "<!-- table of the ladder: end -->",
)
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


def ladder_table(cells: Sequence[dict[str, Any]]) -> str:
    """Return the table of the ladder as Markdown: a row a family, a column a length."""
    found = {(c["family"], c["seconds"]): c for c in cells}
    lines = [
        "| family | " + " | ".join(f"{s} s" for s in SECONDS) + " |",
        "|---|" + "---|" * len(SECONDS),
    ]
    for name in dict.fromkeys(c["family"] for c in cells):
        first = found[name, SECONDS[0]]
        shown = [_ladder_cell(found[name, seconds]) for seconds in SECONDS]
        lines.append(f"| {first['words']}{KINDS[first['kind']]} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _ladder_cell(cell: dict[str, Any]) -> str:
    """Promised of all, broken of all, and the commonest highest step."""
    runs = cell["runs"]
    if not cell["promised"]:
        return "0 · 0.0"
    steps = {name: it["highest"] for name, it in cell["steps"].items()}
    common = max(steps, key=lambda name: steps[name])
    broken = f"{100 * cell['broken'] / runs:.1f}"
    return f"{100 * cell['promised'] / runs:.0f} · {broken} · {common}"


def write(cells: Sequence[dict[str, Any]], ladders: Sequence[dict[str, Any]]) -> None:
    """Put both tables between their marks in the page."""
    text = PAGE.read_text(encoding="utf-8")
    for (begin, end), lines in (((BEGIN, END), table(cells)), (MARKS, ladder_table(ladders))):
        before, rest = text.split(begin)
        _, after = rest.split(end)
        text = f"{before}{begin}\n{lines}\n{end}{after}"
    PAGE.write_text(text, encoding="utf-8")
