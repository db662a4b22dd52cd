"""By runtime: the tables of who asks and who answers, and of slow copies that met a collection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.drawing import format
from unruly.drawing.document import Datum, Table, number, table, text
from unruly.drawing.tables import MOST_ROWS, cut, interval, op_name
from unruly.topics.runtimes.figures import ARROW, pair_name
from unruly.topics.runtimes.model import ANYBODY, runtimes_of

if TYPE_CHECKING:
    from unruly.drawing.view import View
    from unruly.stats import Interval
    from unruly.topics.runtimes.model import CollectorMeetings, Meeting, RuntimeTail

LEAD = (
    "Some agents are JVMs. Whether slow copies met a garbage collection is counted below, copy by "
    "copy. The receiver's time in collections (gc_ns) is also one of the metrics that are "
    "correlated with latency, sample by sample. The study of group requests found a strong "
    "correlation for it, and one of about 0.4 for disk writes, paging, network and stalls."
)
ENDS = {"either": "either", "asking": "who asks", "answering": "who answers"}


def lead(view: View) -> tuple[str, ...]:
    """Say how collections are looked at; nothing where no agent is a JVM."""
    return (LEAD,) if runtimes_of(view.analysis) is not None else ()


def tails(view: View) -> Table | None:
    """Return the tail between every two runtimes of each cell."""
    found = runtimes_of(view.analysis)
    if found is None:
        return None
    several = len({row.cell for row in found.tails}) > 1
    repeated = any(row.over_repeats is not None for row in found.tails)
    columns = (
        *(["cell"] if several else []), f"asks {ARROW} answers", "copies", "failed", "p50",
        "interval of the p50", "p99", "interval of the p99",
        *(["over repeats"] if repeated else []), "p99.9", "interval of the p99.9",
    )  # fmt: skip
    body = [
        [
            *([text(row.cell)] if several else []),
            text(pair_name(row).replace(" ", format.NBSP)),
            number(format.count(row.n)),
            number(format.count(row.failed)),
            *_quantile(row, "p50"),
            *_quantile(row, "p99"),
            *([_over(row)] if repeated else []),
            *_quantile(row, "p99_9"),
        ]
        for row in found.tails
    ]
    ratios = [
        f"{format.quoted(it.cell)}: {_ratio(it.ratio)}"
        for it in found.ratios
        if it.ratio.estimate is not None and it.ratio.low is not None
    ]
    note = (
        "Response times of all workloads together. Intervals are those of blocks of time, which "
        "allow for bursts. "
    )
    if repeated:
        note += "“Over repeats” is that of the p99 from repeat to repeat. "
    if ratios:
        note += f"p99 of what JVMs answer over what native agents do: {format.listing(ratios)}. "
    return _cut(columns, body, "By runtime of who asks and who answers", note)


def _quantile(row: RuntimeTail, name: str) -> tuple[Datum, Datum]:
    value: float | None = getattr(row, name)
    held: Interval | None = getattr(row, f"{name}_interval")
    reason = row.absent.get(f"{name}_interval", "")
    return number(format.duration(value), row.absent.get(name, "")), interval(held, reason)


def _over(row: RuntimeTail) -> Datum:
    """Its bounds, where two repeats or more give any."""
    none = "a p99 falls among the failed"
    return interval(row.over_repeats, row.absent.get("over_repeats", none))


def _ratio(ratio: Interval) -> str:
    if ratio.low is None or ratio.high is None:
        return format.times(ratio.estimate)
    low, high = format.significant(ratio.low), format.significant(ratio.high)
    return f"{format.times(ratio.estimate)} ({low} to {high})"


def meetings(view: View) -> Table | None:
    """Return how many slow copies met a collection, and how many others."""
    found = runtimes_of(view.analysis)
    if found is None:
        return None
    several = len({row.cell for row in found.meetings}) > 1
    columns = (
        *(["cell"] if several else []), "workload", "slow is beyond", "collection at",
        "slow copies", "met one", "share", "by chance", "others", "met one", "share",
        "ratio of the shares",
    )  # fmt: skip
    body = [
        [*([text(row.cell)] if several else []), *_meeting(row, met)]
        for row in found.meetings
        for met in row.ends
    ]
    note = (
        "Slow is what took longer than the p99 of its workload and cell. A copy meets a collection "
        "when the two overlap; only copies with a JVM at that end are counted. “By chance”: the "
        "share of the slow ones that would have met one had they been due at any other time, as "
        "long as they took: who is slow for another reason meets more collections too. "
    )
    return _cut(columns, body, "Slow copies that met a collection of garbage", note)


def _meeting(row: CollectorMeetings, met: Meeting) -> list[Datum]:
    many = "each workload has its own" if row.op == ANYBODY else "its p99 is among the failed"
    return [
        text(op_name(row.op)),
        number(format.duration(row.limit_ns), many),
        text(ENDS[met.end].replace(" ", format.NBSP)),
        number(format.count(met.slow)),
        number(format.count(met.slow_met)),
        _share(met, "slow_share"),
        number(format.share(met.by_chance), met.absent.get("by_chance", "")),
        number(format.count(met.others)),
        number(format.count(met.others_met)),
        _share(met, "others_share"),
        _lift(met),
    ]


def _share(met: Meeting, name: str) -> Datum:
    held: Interval | None = getattr(met, name)
    if held is None:
        return Datum(format.DASH, reason=met.absent.get(name, ""))
    low, high = format.share(held.low), format.share(held.high)
    return Datum(f"{format.share(held.estimate)} ({low} to {high})")


def _lift(met: Meeting) -> Datum:
    if met.lift is None:
        return Datum(format.DASH, reason=met.absent.get("lift", ""))
    if met.lift.estimate is None:
        least = format.times(met.lift.low)
        return Datum(f"at least {least}" if met.lift.low else format.DASH)
    return Datum(_ratio(met.lift), strong=met.raised is not None)


def collecting(view: View) -> Table | None:
    """Return how much the JVMs of each cell collected."""
    found = runtimes_of(view.analysis)
    if found is None:
        return None
    columns = (
        "cell", "JVM agents", "collections", "a second", "share of the time", "of the most busy",
        "longest",
    )  # fmt: skip
    body = [
        [
            text(row.cell),
            number(format.count(row.agents)),
            number(format.count(row.collections)),
            number(format.significant(row.hz)),
            number(format.share(row.share)),
            number(format.share(row.share_most)),
            number(format.duration(row.longest_ns)),
        ]
        for row in found.collecting
    ]
    note = (
        "“A second” and the share of the time in collections are means over the agents of the "
        "cell, while it was measured. "
    )
    return _cut(columns, body, "What the JVMs collected", note)


def _cut(columns: tuple[str, ...], body: list[list[Datum]], caption: str, note: str) -> Table:
    return table(columns, body[:MOST_ROWS], caption, note + cut(body, "rows"))
