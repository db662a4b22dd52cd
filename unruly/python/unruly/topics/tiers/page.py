"""What the report shows of tiers."""

from __future__ import annotations

from typing import Final

from unruly.drawing.pieces import Piece, TopicPage
from unruly.topics.tiers import section
from unruly.topics.tiers.figures import lanes

PAGE: Final = TopicPage(
    (Piece("where", "figures", 110, lanes), Piece("where", "tables", 100, section.services))
)
