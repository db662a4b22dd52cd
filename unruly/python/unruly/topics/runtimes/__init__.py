"""Runtimes: the tail by who asks and who answers, native or a JVM, and GC pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.topics.runtimes.rules import RULES
from unruly.topics.runtimes.statistics import has_jvm, runtimes
from unruly.topics.runtimes.summary import summary
from unruly.topics.topic import Topic

if TYPE_CHECKING:
    from unruly.base.context import Context
    from unruly.drawing.pieces import TopicPage
    from unruly.topics.topic import Asked, Look


def _applies(context: Context, _: Asked) -> bool:
    return has_jvm(context)


def _judge(look: Look) -> object | None:
    return runtimes(look.context, look.rows)


def _page() -> TopicPage:
    from unruly.topics.runtimes.page import PAGE  # noqa: PLC0415 - importing Altair takes a second

    return PAGE


TOPIC: Final = Topic(
    "runtimes", applies=_applies, judge=_judge, rules=RULES, summary=summary, page=_page
)
