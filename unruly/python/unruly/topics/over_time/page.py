"""What the report shows of a run over its time."""

from __future__ import annotations

from typing import Final

from unruly.drawing.pieces import Piece, TopicPage
from unruly.topics.over_time import section
from unruly.topics.over_time.figures import timeline
from unruly.topics.over_time.figures_windows import short_windows
from unruly.topics.over_time.section_warmup import warm_ups

PAGE: Final = TopicPage(
    (
        Piece("where", "figures", 120, timeline),
        Piece("where", "figures", 130, short_windows),
        Piece("where", "tables", 200, section.recoveries),
        Piece("where", "closed_tables", 100, section.steadiness),
        Piece("where", "closed_tables", 110, warm_ups),
    )
)
