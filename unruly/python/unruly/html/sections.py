"""The order of the page: a reader's questions, and what answers each.

Each question has the findings about it, the pieces that every run has, and those of the topics. A
topic may also have a section of its own. Only sections that have something to say appear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unruly.drawing.document import Figure, Part, Section, Table
from unruly.drawing.findings import advice
from unruly.drawing.pieces import QUESTIONS, OwnSection, Piece
from unruly.html.shared import PIECES
from unruly.topics.advice.page import PAGE as ADVICE_PAGE
from unruly.topics.registry import TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.drawing.view import View

FOUND_IN: Final = {"slow": ("slow", "why")}
"""The sections of the findings that a question shows, where they differ from its key."""


def advice_alone(view: View) -> list[Section]:
    """Return the section on what would help, for a page of nothing else."""
    part = _answer(view, "help", list(ADVICE_PAGE.pieces))
    return [] if part.empty else [Section("help", QUESTIONS["help"], (part,))]


def sections(view: View) -> list[Section]:
    """Return the sections that have something to say, in the order of the questions."""
    pages = [topic.page() for topic in TOPICS if topic.page is not None]
    pieces = [*PIECES, *ADVICE_PAGE.pieces, *(it for page in pages for it in page.pieces)]
    own = [page.section for page in pages if page.section is not None]
    found = [section for it in own if it.after not in QUESTIONS for section in _own(view, it)]
    for key, heading in QUESTIONS.items():
        # a stream between two hosts has findings, and no latency
        if view.rows or view.analysis.measured_ns or key == "trust":
            part = _answer(view, key, pieces)
            found += [] if part.empty else [Section(key, heading, (part,))]
        found += [section for it in own if it.after == key for section in _own(view, it)]
    return found


def _own(view: View, section: OwnSection) -> Iterator[Section]:
    """Yield the section of a topic, where it has something to say."""
    if view.rows or section.without_rows:
        part = section.build(view)
        if not part.empty:
            yield Section(section.key, section.heading, (part,))


def _answer(view: View, key: str, pieces: list[Piece]) -> Part:
    """Return the findings about a question, and the pieces that answer it in their order."""
    shown: dict[str, list[Any]] = {"lead": [], "figures": [], "tables": [], "closed_tables": []}
    for piece in sorted(pieces, key=lambda it: it.place):
        if piece.section == key:
            shown[piece.kind] += _each(piece.build(view))
    return Part(
        lead=tuple(shown["lead"]),
        advice=tuple(it for name in FOUND_IN.get(key, (key,)) for it in advice(view, name)),
        figures=tuple(shown["figures"]),
        tables=tuple(shown["tables"]),
        closed_tables=tuple(shown["closed_tables"]),
    )


def _each(built: Any) -> list[str | Figure | Table]:
    """Return what a piece built as a list, without tables that hold nothing."""
    several = built if isinstance(built, list | tuple) else [built]
    return [
        it
        for it in several
        if it is not None and not (isinstance(it, Table) and (it.blank or not it.rows))
    ]
