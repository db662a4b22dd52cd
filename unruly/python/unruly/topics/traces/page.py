"""What the report shows of traces."""

from __future__ import annotations

from typing import Final

from unruly.drawing.pieces import Piece, TopicPage
from unruly.topics.traces import section

PAGE: Final = TopicPage((Piece("slow", "tables", 300, section.slowest),))
