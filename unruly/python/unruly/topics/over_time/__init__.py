"""Over time: throughput, arrivals, changes of the p99, outages, recoveries, warm-ups."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from unruly.topics.over_time import rules, rules_warmup
from unruly.topics.over_time.statistics import over_time, short_windows
from unruly.topics.over_time.summary import summary
from unruly.topics.topic import Topic

if TYPE_CHECKING:
    from unruly.base.context import Context
    from unruly.drawing.pieces import TopicPage
    from unruly.topics.topic import Asked, Look


def _applies(context: Context, _: Asked) -> bool:
    return not context.empty


def _measure(context: Context, asked: Asked) -> object:
    found = over_time(context)
    return replace(found, windows=short_windows(context)) if asked.pictures else found


def _judge(look: Look) -> object | None:
    found: object | None = look.whole
    return found


def _page() -> TopicPage:
    from unruly.topics.over_time.page import PAGE  # noqa: PLC0415 - importing Altair takes a second

    return PAGE


TOPIC: Final = Topic(
    "over_time",
    applies=_applies,
    measure=_measure,
    judge=_judge,
    rules=(*rules_warmup.RULES, *rules.RULES),
    summary=summary,
    page=_page,
)
