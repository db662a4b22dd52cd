"""Layers: where in the services slow requests spent their time, by the spans they export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.topics.layers.rules import RULES
from unruly.topics.layers.statistics import has_layers, layers
from unruly.topics.layers.summary import summary
from unruly.topics.topic import Topic

if TYPE_CHECKING:
    from unruly.base.context import Context
    from unruly.drawing.pieces import TopicPage
    from unruly.topics.topic import Asked, Look


def _applies(context: Context, _: Asked) -> bool:
    return has_layers(context)


def _judge(look: Look) -> object | None:
    return layers(look.context, look.rows)


def _page() -> TopicPage:
    from unruly.topics.layers.page import PAGE  # noqa: PLC0415 - importing Altair takes a second

    return PAGE


TOPIC: Final = Topic(
    "layers", applies=_applies, judge=_judge, rules=RULES, summary=summary, page=_page
)
