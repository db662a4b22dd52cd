"""Goodput: the requests that met each limit that the plan sets them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.topics.goodput.statistics import goodput, has_goodput
from unruly.topics.goodput.summary import summary
from unruly.topics.topic import Topic

if TYPE_CHECKING:
    from unruly.base.context import Context
    from unruly.drawing.pieces import TopicPage
    from unruly.topics.topic import Asked, Look


def _applies(context: Context, _: Asked) -> bool:
    return has_goodput(context)


def _judge(look: Look) -> object | None:
    return goodput(look.context)


def _page() -> TopicPage:
    from unruly.topics.goodput.page import PAGE  # noqa: PLC0415 - as for all topics

    return PAGE


TOPIC: Final = Topic("goodput", applies=_applies, judge=_judge, summary=summary, page=_page)
