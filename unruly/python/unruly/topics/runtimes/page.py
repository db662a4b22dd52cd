"""What the report shows by runtime."""

from __future__ import annotations

from typing import Final

from unruly.drawing.pieces import Piece, TopicPage
from unruly.topics.runtimes import section
from unruly.topics.runtimes.figures import by_runtime

PAGE: Final = TopicPage(
    (
        Piece("slow", "lead", 200, section.lead),
        Piece("slow", "figures", 300, by_runtime),
        Piece("slow", "tables", 100, section.tails),
        Piece("slow", "tables", 110, section.meetings),
        Piece("slow", "closed_tables", 200, section.collecting),
    )
)
