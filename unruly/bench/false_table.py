"""The tables of false promises in two pages, generated from the kept results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench.false_promises import PERCENTILES, SECONDS, percentile
from bench.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PAGE: Final = ROOT / "unruly" / "docs" / "methods" / "block-interval.md"
MARKS: Final = (
    "<!-- table of the ladder: begin -->",
    "<!-- table of the ladder: end -->",
)
BEGIN, END = "<!-- table of false promises: begin -->", "<!-- table of false promises: end -->"
CI_PAGE: Final = ROOT / "unruly" / "docs" / "ci.md"
LENGTH_MARKS: Final = (
    "<!-- table of lengths: begin -->",
    "<!-- table of lengths: end -->",
)
LENGTH_FAMILIES: Final = ("F1", "F2", "LN", "N6", "N5", "F5b", "M/M/1")
LENGTH_STEPS: Final = ("p90", "p99", "p99.9")
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


def length_table(cells: Sequence[dict[str, Any]]) -> str:
    """Return the share of runs that can promise each percentile, for each duration."""
    found = {(c["family"], c["seconds"]): c for c in cells}
    lengths = ", ".join(f"{seconds} s" for seconds in SECONDS)
    lines = [
        "| system | " + " | ".join(f"{step}: {lengths}" for step in LENGTH_STEPS) + " |",
        "|---|" + "---|" * len(LENGTH_STEPS),
    ]
    for name in LENGTH_FAMILIES:
        own = [found[name, seconds] for seconds in SECONDS]
        shown = (
            ", ".join(f"{100 * c['steps'][step]['promised'] / c['runs']:.0f} %" for c in own)
            for step in LENGTH_STEPS
        )
        lines.append(f"| {own[0]['words']} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def pages(cells: Sequence[dict[str, Any]], ladders: Sequence[dict[str, Any]]) -> dict[Path, str]:
    """Return the text of each page with a table between each pair of marks."""
    found = {page: page.read_text(encoding="utf-8") for page in (PAGE, CI_PAGE)}
    for page, (begin, end), lines in (
        (PAGE, (BEGIN, END), table(cells)),
        (PAGE, MARKS, ladder_table(ladders)),
        (CI_PAGE, LENGTH_MARKS, length_table(ladders)),
    ):
        before, rest = found[page].split(begin)
        _, after = rest.split(end)
        found[page] = f"{before}{begin}\n{lines}\n{end}{after}"
    return found
