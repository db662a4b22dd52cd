"""Streams: bandwidth and cost, alone and under a competing load."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from unruly.base.worked import NOTHING
from unruly.quantity import count
from unruly.topics.streams.rules import RULES
from unruly.topics.streams.statistics import streams, wanted
from unruly.topics.streams.summary import summary
from unruly.topics.topic import Topic

if TYPE_CHECKING:
    from unruly.base.context import Context
    from unruly.base.worked import Worked
    from unruly.drawing.pieces import TopicPage
    from unruly.topics.streams.model import Streams
    from unruly.topics.topic import Asked, Look


def _applies(context: Context, _: Asked) -> bool:
    return wanted(context)


def _judge(look: Look) -> Streams | None:
    return streams(look.context, look.rows)


def _worked(found: Streams) -> tuple[float, Worked]:
    """Answer for streams whose ends are on several hosts, so that no message has a latency."""
    measured_ns = _measured_ns(found)
    if not measured_ns:
        return 0.0, NOTHING
    wrong = [leg for leg in found.legs if leg.failed or leg.broken]
    read = sum(leg.read for leg in found.legs)
    rest = (
        f"; {count(len(wrong))} of {count(len(found.legs))} streams failed or broke"
        if wrong
        else ""
    )
    if not read:
        return measured_ns, replace(NOTHING, sentence=f"No: no message came{rest}.")
    lost = sum(leg.lost for leg in found.legs)
    told = f"Yes: {count(read)} messages came, {count(lost)} were lost{rest}."
    return measured_ns, replace(NOTHING, sentence=told, ok=True)


def _measured_ns(found: Streams) -> float:
    return float(sum(leg.last_ns - leg.first_ns for leg in found.legs if not leg.failed))


def _silences(found: Streams) -> frozenset[str]:
    """Return the shared rules that a run of streams answers in its own way."""
    failed = any(leg.failed for leg in found.legs)
    measured = {"nothing-measured"} if failed or _measured_ns(found) else set()
    # a reader stamps messages itself
    return frozenset({"kernel-stamps-missing", *measured})


def _page() -> TopicPage:
    from unruly.topics.streams.page import PAGE  # noqa: PLC0415 - importing Altair takes a second

    return PAGE


TOPIC: Final = Topic(
    "streams",
    applies=_applies,
    judge=_judge,
    rules=RULES,
    summary=summary,
    page=_page,
    measures_nothing=True,
    worked=_worked,
    silences=_silences,
)
