"""What a topic adds to the page: pieces of the shared sections, or a section of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from unruly.drawing.document import Part
    from unruly.drawing.view import View

Kind = Literal["lead", "figures", "tables", "closed_tables"]
QUESTIONS: Final = {
    "trust": "Can I trust this measurement?",
    "promise": "What can I promise?",
    "unruly": "How unruly is it?",
    "where": "When and where?",
    "slow": "What made the slow ones slow?",
    "help": "What would help?",
}
"""The shared sections, in the order of the page."""


@dataclass(frozen=True)
class Piece:
    """A figure, a table or sentences of a shared section.

    Attributes
    ----------
    section : str
        A key of `QUESTIONS`.
    kind : str
        Which list of the section it stands in.
    place : int
        Orders the pieces of one list: the lowest stands first.
    build : callable
        Returns a figure, a table, None, or several of them in a sequence.
    """

    section: str
    kind: Kind
    place: int
    build: Callable[[View], Any]


@dataclass(frozen=True)
class OwnSection:
    """A section that belongs to one topic.

    Attributes
    ----------
    key, heading : str
        The anchor, and the heading above the section.
    after : str
        The key of the shared section that it follows.
    build : callable
        Returns its only part.
    without_rows : bool
        True if the page shows it even if no row was measured.
    """

    key: str
    heading: str
    after: str
    build: Callable[[View], Part]
    without_rows: bool = False


@dataclass(frozen=True)
class TopicPage:
    """All that a topic shows."""

    pieces: tuple[Piece, ...] = ()
    section: OwnSection | None = None
