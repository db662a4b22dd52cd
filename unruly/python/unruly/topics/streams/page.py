"""The section of the report on streams."""

from __future__ import annotations

from typing import Final

from unruly.drawing.pieces import OwnSection, TopicPage
from unruly.topics.streams.section import HEADING, streams

PAGE: Final = TopicPage(
    section=OwnSection("streams", HEADING, "trust", streams, without_rows=True),
)
