"""Factors: what the slowest 1 % does over a matrix of cells, and which factor explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.topics.factors.rules import RULES
from unruly.topics.factors.statistics import Measured, magical, measure
from unruly.topics.factors.summary import summary
from unruly.topics.topic import Topic

if TYPE_CHECKING:
    from unruly.base.context import Context
    from unruly.drawing.pieces import TopicPage
    from unruly.topics.topic import Asked, Look


def _applies(_: Context, asked: Asked) -> bool:
    return asked.several


def _judge(look: Look) -> object | None:
    return magical(
        look.context,
        look.summaries,
        Measured.joined(look.parts),
        pictures=look.asked.pictures,
        interactions=look.asked.interactions,
    )


def _page() -> TopicPage:
    from unruly.topics.factors.page import PAGE  # noqa: PLC0415 - importing Altair takes a second

    return PAGE


TOPIC: Final = Topic(
    "magical",
    applies=_applies,
    measure_part=measure,
    judge=_judge,
    rules=RULES,
    summary=summary,
    page=_page,
)
