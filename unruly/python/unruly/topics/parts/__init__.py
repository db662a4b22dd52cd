"""Parts of requests: opening their connection, the tokens or messages of a reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.topics.parts.rules import RULES
from unruly.topics.parts.statistics import has_parts, parts
from unruly.topics.parts.summary import summary
from unruly.topics.topic import Topic

if TYPE_CHECKING:
    from unruly.base.context import Context
    from unruly.drawing.pieces import TopicPage
    from unruly.topics.topic import Asked, Look


def _applies(context: Context, _: Asked) -> bool:
    return has_parts(context)


def _judge(look: Look) -> object | None:
    return parts(look.context)


def _page() -> TopicPage:
    from unruly.topics.parts.page import PAGE  # noqa: PLC0415 - as for all topics

    return PAGE


TOPIC: Final = Topic(
    "parts", applies=_applies, judge=_judge, rules=RULES, summary=summary, page=_page
)
