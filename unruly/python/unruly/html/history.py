"""The page of a history: a percentile run after run, when it changed, and how much it varies."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from unruly.drawing import format
from unruly.drawing.document import Datum, Page, Part, Section, Statement, table
from unruly.html.figures.history import picture
from unruly.html.page import write_page
from unruly.output import history as words

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from unruly.drawing.document import Table
    from unruly.history import Series

PICTURES_MOST: Final = 48
NAMES_MOST: Final = 3
GLOSSARY: Final = (
    (
        "Changed",
        "From this run on, the level is another one. All series of the page together raise a false "
        "alarm in at most 5 % of the cases in which nothing changed.",
    ),
    (
        "Noise",
        "The factor by which two runs in a row differ without a change between them. A smaller "
        "change needs more runs, or longer ones.",
    ),
    (
        "Not trustworthy",
        "The load generator or its host spoiled the run. It is shown, and counts for nothing else.",
    ),
)


def write_history(found: Sequence[Series], output: str | os.PathLike[str]) -> Path:
    """Write one HTML page of a history.

    Parameters
    ----------
    found : sequence of Series
        As `unruly.history.history_of` returns them; at least one.
    output : path-like
        The file to write; its directory is made. An older file is replaced at once.

    Returns
    -------
    Path
        The file that was written.

    Raises
    ------
    ValueError
        If `found` is empty.
    """
    if not found:
        raise ValueError("found is empty; wanted at least one series; hint: unruly runs DIR")
    return write_page(history_page(found), output)


def history_page(found: Sequence[Series]) -> Page:
    """Return the page of a history, the conclusion first."""
    changed = [it for it in found if it.changes]
    return Page(
        _headline(found, changed),
        _sentence(found),
        kicker=f"Did the {found[0].percentile} change?",
        statements=(_changed(found, changed), _noise(found), _counted(found)),
        sections=_sections(found),
        title="unruly history",
        glossary=GLOSSARY,
    )


def _headline(found: Sequence[Series], changed: Sequence[Series]) -> str:
    if len(changed) == 1:
        return f"{_name(changed[0], found)} {words.conclusion(changed[0])}"
    if changed:
        return f"{len(changed)} of {len(found)} percentiles changed"
    unknown = sum(bool(it.absent) for it in found)
    if unknown == len(found):
        return "These runs cannot show a change yet"
    return "Nothing changed" if not unknown else "Nothing is known to have changed"


def _name(it: Series, found: Sequence[Series]) -> str:
    plans = {one.plan for one in found}
    cell = "" if it.cell in ("", "all") else f" ({it.cell})"
    plan = f" in {it.plan}" if len(plans) > 1 else ""
    tag = f" [{it.tag}]" if len({one.tag for one in found}) > 1 and it.tag else ""
    return f"{it.op}{cell}{plan}{tag}"


def _sentence(found: Sequence[Series]) -> str:
    runs = {one.directory for it in found for one in it.points}
    times = [one.started_ns for it in found for one in it.points]
    span = f"{words.day(min(times))} to {words.day(max(times))} UTC"
    return f"{format.plural(len(runs), 'run')} from {span}."


def _changed(found: Sequence[Series], changed: Sequence[Series]) -> Statement:
    question = "Which changed?"
    if changed:
        names = format.listing([_name(it, found) for it in changed], NAMES_MOST)
        answer = f"{len(changed)} of {len(found)}"
        return Statement(question, answer, f"{names}.", "bad" if _slower(changed) else "plain")
    unknown = [it for it in found if it.absent]
    if unknown:
        return Statement(question, "Not known", f"{format.capital(unknown[0].absent)}.")
    return Statement(question, "None", "All runs of each series have one level.", "good")


def _slower(changed: Sequence[Series]) -> bool:
    return any((it.changes[-1].ratio.estimate or 0.0) > 1 for it in changed)


def _noise(found: Sequence[Series]) -> Statement:
    question = "How much do two runs differ without a change?"
    known = [it for it in found if it.noise.estimate is not None]
    if not known:
        return Statement(question, "Not known", "Two trustworthy runs in a row would show it.")
    worst = max(known, key=lambda it: it.noise.estimate or 0.0)
    answer = f"Up to {format.times(worst.noise.estimate)}"
    others = "; the others differ less" if len(known) > 1 else ""
    return Statement(question, answer, f"The median of {_name(worst, found)}{others}.")


def _counted(found: Sequence[Series]) -> Statement:
    runs = {one.directory: one.trustworthy for it in found for one in it.points}
    good = sum(runs.values())
    text = "The others are shown, and count neither for changes nor for noise."
    answer = f"{good} of {len(runs)}"
    why = text if good < len(runs) else "Nothing spoiled them."
    return Statement("How many runs can be trusted?", answer, why, "plain" if good else "bad")


def _sections(found: Sequence[Series]) -> tuple[Section, ...]:
    """Return a section for each plan in each environment, with a part for each series."""
    sections: list[Section] = []
    drawn = 0
    for places, group in groupby(found, key=lambda it: (it.plan, it.tag, it.machine)):
        parts = []
        for it in group:
            figure = picture(it, f"history-{drawn}") if drawn < PICTURES_MOST else None
            drawn += figure is not None
            lead = tuple(line for line in (words.noise(it),) if line)
            parts.append(
                Part(
                    _name(it, (it,)),
                    lead=tuple(f"{format.capital(line)}." for line in lead),
                    figures=(figure,) if figure else (),
                    closed_tables=(_runs(it),),
                )
            )
        heading = ", ".join(filter(None, places))
        sections.append(Section(f"plan-{len(sections)}", heading, tuple(parts)))
    return tuple(sections)


def _runs(it: Series) -> Table:
    begins = {one.block for one in it.changes}
    rows = [
        [
            Datum(words.day(one.started_ns), number=False),
            Datum(words.value(one, it.unit), number=False, strong=place in begins),
            Datum("" if one.trustworthy else "not trustworthy", number=False),
            Datum(one.directory, number=False),
        ]
        for place, one in enumerate(it.points)
    ]
    columns = ("run (UTC)", it.percentile, "trust", "directory")
    return table(columns, rows, f"The {it.percentile} of each run")
