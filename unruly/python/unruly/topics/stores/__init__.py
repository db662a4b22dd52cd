"""Stores: the target, the far tail, faults and loads of a run that drives a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.topics.stores.rules import RULES
from unruly.topics.stores.statistics import stores, timed
from unruly.topics.stores.summary import summary
from unruly.topics.topic import Topic

if TYPE_CHECKING:
    from unruly.base.context import Context
    from unruly.drawing.pieces import TopicPage
    from unruly.topics.topic import Asked, Look


def _applies(_: Context, asked: Asked) -> bool:
    return asked.target is not None


def _measure(context: Context, asked: Asked) -> object:
    return timed(context, pictures=asked.pictures)


def _judge(look: Look) -> object:
    assert look.asked.target is not None
    return stores(look.context, look.asked.target, look.rows, look.far, look.whole)


def _page() -> TopicPage:
    from unruly.topics.stores.page import PAGE  # noqa: PLC0415 - importing Altair takes a second

    return PAGE


TOPIC: Final = Topic(
    "stores",
    applies=_applies,
    measure=_measure,
    judge=_judge,
    rules=RULES,
    summary=summary,
    page=_page,
)
