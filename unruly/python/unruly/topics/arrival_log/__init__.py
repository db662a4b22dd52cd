"""Arrival log: first, quorum and all replies to the same operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.topics.arrival_log.statistics import arrival_log
from unruly.topics.arrival_log.summary import summary
from unruly.topics.topic import Topic

if TYPE_CHECKING:
    from unruly.base.context import Context
    from unruly.drawing.pieces import TopicPage
    from unruly.topics.topic import Asked, Look


def _applies(context: Context, _: Asked) -> bool:
    """Return whether some request was sent to several receivers; its replies decide the rest."""
    return bool((context.extents["receivers"] > 1).any())


def _measure(context: Context, asked: Asked) -> object | None:
    return arrival_log(context, pictures=asked.pictures)


def _judge(look: Look) -> object | None:
    found: object | None = look.whole
    return found


def _page() -> TopicPage:
    from unruly.topics.arrival_log.page import PAGE  # noqa: PLC0415 - importing Altair takes a second

    return PAGE


TOPIC: Final = Topic(
    "arrival_log",
    applies=_applies,
    measure=_measure,
    judge=_judge,
    summary=summary,
    page=_page,
)
