"""What the report shows of goodput."""

from __future__ import annotations

from typing import Final

from unruly.drawing.pieces import Piece, TopicPage
from unruly.topics.goodput import section

PAGE: Final = TopicPage((Piece("slow", "tables", 200, section.good),))
