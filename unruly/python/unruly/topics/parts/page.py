"""What the report shows of the parts of requests."""

from __future__ import annotations

from typing import Final

from unruly.drawing.pieces import Piece, TopicPage
from unruly.topics.parts import section

PAGE: Final = TopicPage((Piece("slow", "closed_tables", 300, section.layers),))
