"""Causes: what struck while requests were slow, and what correlates with latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.topics.causes.rules import RULES
from unruly.topics.causes.statistics import causes
from unruly.topics.causes.summary import summary
from unruly.topics.topic import Topic

if TYPE_CHECKING:
    from unruly.base.context import Context
    from unruly.drawing.pieces import TopicPage
    from unruly.topics.topic import Asked, Look


def _applies(_: Context, asked: Asked) -> bool:
    return asked.causes


def _judge(look: Look) -> object:
    asked = look.asked
    return causes(look.context, look.summaries, asked.options.floor_ns, asked.slow_beyond_ns)


def _page() -> TopicPage:
    from unruly.topics.causes.page import PAGE  # noqa: PLC0415 - importing Altair takes a second

    return PAGE


TOPIC: Final = Topic(
    "causes", applies=_applies, judge=_judge, rules=RULES, summary=summary, page=_page
)
