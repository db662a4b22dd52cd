"""The section of the report on an arrival log."""

from __future__ import annotations

from typing import Final

from unruly.drawing.pieces import OwnSection, TopicPage
from unruly.topics.arrival_log.section import HEADING, arrival_log

PAGE: Final = TopicPage(section=OwnSection("arrivals", HEADING, "unruly", arrival_log))
