"""Tiers: what a tap saw of services, by short windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.topics.tiers.rules import RULES
from unruly.topics.tiers.statistics import has_tiers, tiers
from unruly.topics.tiers.summary import summary
from unruly.topics.topic import Topic

if TYPE_CHECKING:
    from unruly.base.context import Context
    from unruly.drawing.pieces import TopicPage
    from unruly.topics.topic import Asked, Look


def _applies(context: Context, _: Asked) -> bool:
    return has_tiers(context)


def _judge(look: Look) -> object | None:
    return tiers(look.context)


def _page() -> TopicPage:
    from unruly.topics.tiers.page import PAGE  # noqa: PLC0415 - importing Altair takes a second

    return PAGE


TOPIC: Final = Topic(
    "tiers", applies=_applies, judge=_judge, rules=RULES, summary=summary, page=_page
)
