"""Traces: the ids of the slowest requests, which a tracing system knows them by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.topics.topic import Topic
from unruly.topics.traces.statistics import has_traces, traces
from unruly.topics.traces.summary import summary

if TYPE_CHECKING:
    from unruly.base.context import Context
    from unruly.drawing.pieces import TopicPage
    from unruly.topics.topic import Asked, Look


def _applies(context: Context, _: Asked) -> bool:
    return has_traces(context)


def _judge(look: Look) -> object | None:
    return traces(look.context)


def _page() -> TopicPage:
    from unruly.topics.traces.page import PAGE  # noqa: PLC0415 - as for all topics

    return PAGE


TOPIC: Final = Topic("traces", applies=_applies, judge=_judge, summary=summary, page=_page)
