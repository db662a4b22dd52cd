"""What the report shows of layers."""

from __future__ import annotations

from typing import Final

from unruly.drawing.pieces import Piece, TopicPage
from unruly.topics.layers import section
from unruly.topics.layers.figures import slowest, usual_and_slow

PAGE: Final = TopicPage(
    (
        Piece("slow", "figures", 120, usual_and_slow),
        Piece("slow", "figures", 130, slowest),
        Piece("slow", "tables", 310, section.layers),
    )
)
