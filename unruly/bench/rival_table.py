"""The tables of published methods and of tried ones, generated from the kept results."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final

from bench.rival_study import (
    COVERAGE_LEAST,
    METHODS,
    OURS,
    binding,
    share,
    too_often,
    totals,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS: Final = {"bound": "", "hold-out": " (hold-out)", "unseen": " (cannot be seen)"}


def answers(answered: int, wrong: int, runs: int) -> str:
    """Return answered of all, wrong of the answers with its interval, and wrong of all, in percent.

    Examples
    --------
    >>> answers(50, 5, 100), answers(0, 0, 100)
    ('50 · 10 [3, 22] · 5.0', '0 · - · 0.0')
    """
    if not answered:
        return "0 · - · 0.0"
    of_answers, low, high = (100 * it for it in share(wrong, answered))
    return (
        f"{100 * answered / runs:.0f} · {of_answers:.0f} [{low:.0f}, {high:.0f}]"
        f" · {100 * wrong / runs:.1f}"
    )


def _wide(width: float | None) -> str:
    return "-" if width is None else f"{width:.1f}"


def lengths(cells: Sequence[dict[str, Any]]) -> list[int]:
    """Return the durations of the cells, in s, shortest first."""
    return sorted({cell["seconds"] for cell in cells})


def summary(cells: Sequence[dict[str, Any]]) -> str:
    """Return the methods over all families in which a run can know: a row a method and length."""
    bound = binding(cells)
    lines = [
        "| method | run | answered | wrong, of the answers | wrong, of all | width"
        " | families with too many wrong |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, called in METHODS.items():
        for seconds in lengths(cells):
            found = totals([it for it in bound if it["seconds"] == seconds], name)
            wrong, low, high = (100 * it for it in share(found["wrong"], found["answered"]))
            lines.append(
                f"| {called} | {seconds} s | {100 * found['answered'] / found['runs']:.0f} %"
                f" | {wrong:.1f} % [{low:.1f}, {high:.1f}]"
                f" | {100 * found['wrong'] / found['runs']:.1f} % | {_wide(found['width'])}"
                f" | {len(found['bad'])} of {found['cells']} |"
            )
    return "\n".join(lines)


def conclusion(cells: Sequence[dict[str, Any]]) -> str:
    """Return what the tables show: how often each method answers and is wrong, and where."""
    bound = binding(cells)
    found = {name: totals(bound, name) for name in METHODS}
    own = found.pop(OURS)
    spans = ", ".join(str(seconds) for seconds in lengths(cells)[:-1])
    others = "; ".join(
        f"{METHODS[name]}: {100 * it['answered'] / it['runs']:.0f} % answered,"
        f" {_of_answers(it)} of the answers wrong, too many in {len(it['bad'])} of {it['cells']}"
        for name, it in found.items()
    )
    bad = "; ".join(_bad(it) for it in bound if too_often(**_own(it)))
    where = (
        f"It is wrong in more than a tenth of the answers for certain in {len(own['bad'])} of the"
        f" {own['cells']} families and lengths that it answers: {bad}. Those runs are too short for"
        " their system, and most of them are refused."
        if bad
        else "In no family and length is it wrong in more than a tenth of the answers for certain."
    )
    paragraphs = (
        f"In simulated runs of {spans} and {lengths(cells)[-1]} s of the"
        f" {len({it['family'] for it in bound})} families whose p99 a run can know, `unruly`"
        f" answers {100 * own['answered'] / own['runs']:.0f} % of the runs, and {_of_answers(own)}"
        f" of its answers are wrong. {where}",
        f"The same for published methods: {others}.",
        _better(bound),
    )
    return "\n\n".join(
        textwrap.fill(it, 100, break_long_words=False, break_on_hyphens=False) for it in paragraphs
    )


def _of_answers(found: dict[str, Any]) -> str:
    wrong, low, high = (100 * it for it in share(found["wrong"], found["answered"]))
    return f"{wrong:.1f} % [{low:.1f}, {high:.1f}]"


def _own(cell: dict[str, Any]) -> dict[str, int]:
    found = cell["methods"][OURS]
    return {"wrong": found["wrong"], "answered": found["answered"]}


def _bad(cell: dict[str, Any]) -> str:
    own = _own(cell)
    return f"{cell['words']}, {cell['seconds']} s ({own['wrong']} of {own['answered']} answers)"


def _better(cells: Sequence[dict[str, Any]]) -> str:
    """Return where FQUEST answers rightly and this method refuses more than half of the runs."""
    found = [
        cell
        for cell in cells
        for it in [cell["methods"]["fquest"]]
        if _own(cell)["answered"] < cell["runs"] / 2
        and it["wrong"] <= (1 - COVERAGE_LEAST) * it["answered"]
    ]
    if not found:
        return "FQUEST is better in none of them."
    widths = [it["methods"]["fquest"]["width_over_oracle"] for it in found]
    names = "; ".join(f"{it['words']}, {it['seconds']} s" for it in found)
    return (
        f"FQUEST is better in {len(found)} of them: it is wrong in a tenth of the runs or fewer"
        f" where `unruly` refuses more than half, with intervals {min(widths):.1f} to"
        f" {max(widths):.1f} times as wide as an oracle's: {names}."
    )


def by_family(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Return a table for each length: a row a family, a column a method."""
    lines = []
    for seconds in lengths(cells):
        lines += [
            "",
            f"The p99 of {seconds} s at 1,000 requests/s: answered · wrong, of the answers [95 %"
            " Clopper-Pearson] · wrong, of all · width over the oracle's; shares in percent:",
            "",
            "| family | " + " | ".join(METHODS.values()) + " |",
            "|---|" + "---|" * len(METHODS),
        ]
        for cell in cells:
            if cell["seconds"] == seconds:
                own = [cell["methods"][name] for name in METHODS]
                shown = (
                    f"{answers(it['answered'], it['wrong'], it['runs'])}"
                    f" · {_wide(it['width_over_oracle'])}"
                    for it in own
                )
                lines.append(f"| {cell['words']}{KINDS[cell['kind']]} | {' | '.join(shown)} |")
    return lines


def tried(cells: Sequence[dict[str, Any]]) -> str:
    """Return the ways of finding the variance: a row a family and length, a column a way."""
    ways = list(cells[0]["ways"])
    lines = ["| family, run | " + " | ".join(ways) + " |", "|---|" + "---|" * len(ways)]
    for cell in cells:
        own = [cell["ways"][way] for way in ways]
        shown = (answers(it["answered"], it["wrong"], cell["runs"]) for it in own)
        lines.append(f"| {cell['words']}, {cell['seconds']} s | {' | '.join(shown)} |")
    runs = sum(cell["runs"] for cell in cells)
    sums = {
        way: {key: sum(cell["ways"][way][key] for cell in cells) for key in ("answered", "wrong")}
        for way in ways
    }
    shown = (answers(it["answered"], it["wrong"], runs) for it in sums.values())
    lines.append(f"| all of these | {' | '.join(shown)} |")
    return "\n".join(lines)
