"""What the report shows of the causes of slow requests."""

from __future__ import annotations

from typing import Final

from unruly.drawing.pieces import Piece, TopicPage
from unruly.topics.causes import figures

PAGE: Final = TopicPage(
    (
        Piece("slow", "lead", 100, figures.lead),
        Piece("slow", "figures", 100, figures.explained),
        Piece("slow", "figures", 110, figures.over_time),
        Piece("slow", "closed_tables", 100, figures.cause_table),
        Piece("slow", "closed_tables", 110, figures.part_table),
    )
)
