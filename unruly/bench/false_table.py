"""The tables of false promises in the pages that quote them, generated from the kept results."""

from __future__ import annotations

import textwrap
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from bench import rival_table
from bench.false_promises import BAR, PERCENTILES, SECONDS, percentile
from bench.program import ROOT
from bench.rival_study import share
from bench.rival_table import KINDS

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
WORDS_MARKS: Final = (
    "<!-- words on false promises: begin -->",
    "<!-- words on false promises: end -->",
)
LADDER_WORDS_MARKS: Final = (
    "<!-- words on the ladder: begin -->",
    "<!-- words on the ladder: end -->",
)
CONCLUSION_MARKS: Final = ("<!-- conclusion: begin -->", "<!-- conclusion: end -->")
RIVAL_MARKS: Final = (
    "<!-- table of published methods: begin -->",
    "<!-- table of published methods: end -->",
)
TRIED_MARKS: Final = (
    "<!-- table of tried variances: begin -->",
    "<!-- table of tried variances: end -->",
)
README: Final = ROOT / "README.md"
README_MARKS: Final = (
    "<!-- how often an interval is wrong: begin -->",
    "<!-- how often an interval is wrong: end -->",
)
STALLS: Final = ("F2", "LN")
"""Families with a stall every two seconds, and one every second."""
LENGTHS: Final = (max(SECONDS), min(SECONDS))


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


def false_words(cells: Sequence[dict[str, Any]]) -> str:
    """Return in words which cells miss the bar, and how far off the others are."""
    over = [it for it in cells if it["kind"] == "bound" and _false_most(it) > BAR]
    missed = "; ".join(
        f"{_called(it)}: {_percent(it, 'false')} false answers, {_percent(it, 'broken')} wrong"
        " promises"
        for it in over
    )
    parts = [
        f"Cells that bind and miss the bar of {100 * BAR:g} %: {missed}."
        if missed
        else f"No cell that binds misses the bar of {100 * BAR:g} %."
    ]
    for kind, called in (("bound", "other families that bind"), ("hold-out", "hold-outs")):
        rest = [it for it in cells if it["kind"] == kind and it not in over]
        false, broken = (max(rest, key=itemgetter(name)) for name in ("false", "broken"))
        parts.append(
            f"The {called} have at most {_percent(false, 'false')} false answers"
            f" ({_called(false)}) and {_percent(broken, 'broken')} wrong one-sided 95 % promises"
            f" ({_called(broken)})."
        )
    stalls = [it for it in cells if it["family"] in STALLS]
    naive = [100 - 100 * it["naive_covered"] / it["runs"] for it in stalls]
    parts.append(
        f"Under stalls the naive interval is wrong in {min(naive):.0f} to {max(naive):.0f} % of"
        " runs."
    )
    return wrapped(" ".join(parts))


def _false_most(cell: dict[str, Any]) -> float:
    return float(max(cell["false"], cell["broken"]) / cell["runs"])


def _percent(cell: dict[str, Any], key: str) -> str:
    return f"{100 * cell[key] / cell['runs']:.1f} %"


def _called(cell: dict[str, Any]) -> str:
    step = f", {percentile(cell['p'])}" if "p" in cell else ""
    return f"{cell['words']}, {cell['seconds']} s{step}"


def ladder_words(cells: Sequence[dict[str, Any]]) -> str:
    """Return in words what the choice of the highest promise gains and costs."""
    bound = [it for it in cells if it["kind"] == "bound"]
    runs, promised, broken, several = (
        sum(it[key] for it in bound) for key in ("runs", "promised", "broken", "any_broken")
    )
    fixed, fixed_broken = (
        sum(it["steps"]["p99"][key] for it in bound) for key in ("promised", "broken")
    )
    over = "; ".join(
        f"{_called(it)}: {_percent(it, 'broken')}"
        for it in bound
        if it["broken"] > BAR * it["runs"]
    )
    return wrapped(
        f"{100 * promised / runs:.0f} % of the runs of the families that bind have a promise on"
        f" some step, where the p99 alone has one in {100 * fixed / runs:.0f} %. The share of wrong"
        f" ones is {100 * broken / promised:.1f} % of these promises, and"
        f" {100 * fixed_broken / fixed:.1f} % of those of the p99. Cells that bind and"
        f" miss the bar of {100 * BAR:g} %: {over or 'none'}."
        f" Printing every step instead of the highest would make {100 * several / runs:.1f} % of"
        " runs wrong somewhere."
    )


def wrapped(words: str) -> str:
    """Return a paragraph in lines of at most 100 columns."""
    return textwrap.fill(words, 100, break_long_words=False, break_on_hyphens=False)


def readme_words(cells: Sequence[dict[str, Any]]) -> str:
    """Return the README's paragraph: how often an interval is wrong, of the answers too."""
    found = {(it["family"], it["seconds"]): it for it in cells if it["p"] == PERCENTILES[0]}
    long = [found[name, LENGTHS[0]] for name in STALLS]
    runs, naive, answered, wrong = (
        sum(it[key] for it in long) for key in ("runs", "naive_covered", "answered", "false")
    )
    worst = found[STALLS[0], LENGTHS[1]]
    known = [it for it in found.values() if it["kind"] != "unseen"]
    return wrapped(
        "An interval that assumes independent requests misses the true p99 in"
        f" {100 - 100 * naive / runs:.0f} of 100 simulated runs of {LENGTHS[0]} s with a stall"
        " every one or two seconds. [The one used here](unruly/docs/methods/block-interval.md)"
        f" answers {100 * answered / runs:.0f} of 100, and {_wrong(wrong, answered)} of its answers"
        " are wrong. It refuses most runs that are too short, but not all: it answers"
        f" {100 * worst['answered'] / worst['runs']:.0f} of 100 runs of {LENGTHS[1]} s with a stall"
        " every two seconds,"
        f" and {_wrong(worst['false'], worst['answered'])} of these answers are wrong. Over all"
        f" families whose p99 a run can know, {_wrong(*_sums(known))} of its answers are wrong."
    )


def _sums(cells: Sequence[dict[str, Any]]) -> tuple[int, int]:
    return sum(it["false"] for it in cells), sum(it["answered"] for it in cells)


def _wrong(count: int, answered: int) -> str:
    of_answers, low, high = (100 * it for it in share(count, answered))
    return f"{of_answers:.1f} % [{low:.1f}, {high:.1f}]"


def pages(
    cells: Sequence[dict[str, Any]],
    ladders: Sequence[dict[str, Any]],
    rivals: Sequence[dict[str, Any]],
    tried: Sequence[dict[str, Any]],
) -> dict[Path, str]:
    """Return the text of each page with a table between each pair of marks."""
    found = {page: page.read_text(encoding="utf-8") for page in (PAGE, CI_PAGE, README)}
    for page, (begin, end), lines in (
        (PAGE, (BEGIN, END), table(cells)),
        (PAGE, WORDS_MARKS, false_words(cells)),
        (PAGE, MARKS, ladder_table(ladders)),
        (PAGE, LADDER_WORDS_MARKS, ladder_words(ladders)),
        (PAGE, CONCLUSION_MARKS, rival_table.conclusion(rivals)),
        (PAGE, RIVAL_MARKS, rival_table.summary(rivals)),
        (PAGE, TRIED_MARKS, rival_table.tried(tried)),
        (CI_PAGE, LENGTH_MARKS, length_table(ladders)),
        (README, README_MARKS, readme_words(cells)),
    ):
        before, rest = found[page].split(begin)
        _, after = rest.split(end)
        found[page] = f"{before}{begin}\n{lines}\n{end}{after}"
    return found
