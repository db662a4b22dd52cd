"""Stores side by side: the far tail, what faults did, what each load gave; as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.drawing import format
from unruly.drawing.document import Datum, Table, number, table, text
from unruly.drawing.tables import MOST_ROWS, UNSAID, cut, op_name
from unruly.quantity import about, percent
from unruly.topics.stores.statistics import stores_of

if TYPE_CHECKING:
    from unruly.base.tails import Tail
    from unruly.drawing.view import View
    from unruly.stats import Interval
    from unruly.topics.stores.faults import FaultEffect
    from unruly.topics.stores.loads import Load

FAR = (("p99_9", "p99.9"), ("p99_99", "p99.99"), ("p99_999", "p99.999"))
OUTCOMES = {"met": "met", "missed": "not met", "open": "not decided yet"}


def sorted_tails(view: View) -> list[Tail]:
    """Return the (cell, op) from the longest far tail to the shortest."""
    found = held.tails if (held := stores_of(view.analysis)) else ()

    def far(row: Tail) -> float:
        estimate = row.estimates["p99_999"]
        if estimate is not None or not row.failed:
            return estimate or row.max_ok or 0.0
        # the rank falls among the failed, or there is no number: what never came was the slowest
        return float("inf")

    def least(row: Tail) -> tuple[float, float, str, str]:
        return -far(row), -(row.p99 or float("inf")), row.cell, row.op

    return sorted(found, key=least)


def targets(view: View) -> Table | None:
    """Return what became of the target in each (cell, op), where somebody asked for one."""
    stores = stores_of(view.analysis)
    if stores is None or not stores.tails or not stores.target.asked:
        return None
    several = len(view.cells) > 1
    limit = stores.target.words.split(" within ")[1]
    columns = [
        *(["cell"] if several else []), "workload", "requests", f"within {limit}", "interval",
        "the target is", "requests that would decide",
    ]  # fmt: skip
    order = {"missed": 0, "open": 1, "met": 2}
    rows = sorted(
        stores.tails, key=lambda it: (order[it.target.outcome], it.target.within.estimate or 0.0)
    )
    body = [[*_names(row, several=several), *_target(row)] for row in rows[:MOST_ROWS]]
    note = (
        "A request that failed, or was open at the end, is not within. The interval (95 %) allows "
        "for requests that are late together."
    )
    return table(columns, body, f"{stores.target.words}?", f"{note} {cut(rows, 'rows')}")


def _names(row: Tail, *, several: bool) -> list[Datum]:
    return [*([text(row.cell)] if several else []), text(op_name(row.op))]


def _target(row: Tail) -> list[Datum]:
    found, within = row.target, row.target.within
    low, high = (format.DASH if end is None else percent(end) for end in (within.low, within.high))
    needed = "enough" if found.outcome != "open" else format.DASH
    return [
        number(format.count(row.n)),
        number(format.DASH if within.estimate is None else percent(within.estimate), UNSAID),
        number(f"{low} to {high}"),
        Datum(OUTCOMES[found.outcome], number=False, strong=True),
        number(
            f"about {about(found.needed)}" if found.needed else needed,
            "the share is too close to the target",
        ),
    ]


def tails(view: View) -> Table | None:
    """Return the far tail of each (cell, op), the longest first."""
    rows = sorted_tails(view)
    if not rows:
        return None
    several = len(view.cells) > 1
    columns = [
        *(["cell"] if several else []), "workload", "requests", "failed", "mean",
        *(name for _, name in FAR), "max", "p99.999 / mean", f"over 10 {format.TIMES} mean",
        "over 100 ms",
    ]  # fmt: skip
    body = [[*_names(row, several=several), *_tail(row)] for row in rows[:MOST_ROWS]]
    note = (
        "Intervals (95 %) survive stalls. If there is not enough data, or latency drifted, a field "
        "has the measured value and the least that it can be (97.5 %). Mean and maximum leave out "
        "failed requests; the requests over 100 ms include them."
    )
    return table(columns, body, "The far tail, side by side", f"{note} {cut(rows, 'rows')}")


def _tail(row: Tail) -> list[Datum]:
    return [
        number(format.count(row.n)),
        number(format.count(row.failed)),
        number(format.duration(row.mean_ok), row.absent.get("mean_ok", UNSAID)),
        *(_far(row, name) for name, _ in FAR),
        number(format.duration(row.max_ok), row.absent.get("max_ok", UNSAID)),
        _ratio(row.p99_999_over_mean, row.absent.get("p99_999_over_mean", UNSAID)),
        number(format.count(row.over_10x_mean), row.absent.get("over_10x_mean", UNSAID)),
        number(format.count(row.over_100ms)),
    ]


def _far(row: Tail, name: str) -> Datum:
    estimate, interval, least = row.estimates[name], getattr(row, name), row.least[name]
    if estimate is None:
        return number(format.DASH, row.absent.get(name, UNSAID))
    if interval is None:
        aside = f"at least {format.duration(least)}" if least is not None else ""
        return Datum(format.duration(estimate), aside=aside)
    low, high = (
        "…" if end is None else format.duration(end) for end in (interval.low, interval.high)
    )
    return Datum(format.duration(estimate), aside=f"{low} to {high}")


def _ratio(interval: Interval | None, reason: str) -> Datum:
    if interval is None:
        return number(format.DASH, reason)
    low = "…" if interval.low is None else format.times(interval.low)
    high = "…" if interval.high is None else format.times(interval.high)
    return Datum(format.times(interval.estimate), aside=f"{low} to {high}")


def faults(view: View) -> Table | None:
    """Return what each fault did to each cell, beside its fault-free time."""
    found = held.faults if (held := stores_of(view.analysis)) else ()
    several = len(view.cells) > 1
    columns = [
        *(["cell"] if several else []), "fault", "of", "times", "lasted", "due in it", "failed",
        "p50", "p99", "max", "fault-free p99", "ratio", "good reply again after",
        "longest silence", "replies without a write",
    ]  # fmt: skip
    rows = sorted(sorted(found, key=lambda it: it.cell), key=lambda it: it.rank, reverse=True)
    body = [[*([text(it.cell)] if several else []), *_fault(it)] for it in rows[:MOST_ROWS]]
    note = (
        "Response time of the requests scheduled during the fault, all workloads together. The "
        "ratio is that of the p99 to the fault-free one of the same cell. The silence is the "
        "longest time without a good reply, until 5 s after the first good reply that follows "
        "the fault (after a kill until the trial's end), and to the next fault at most. The last "
        "column counts replies until then that lack an acknowledged write: no value, or one from "
        "before it."
    )
    return table(columns, body, "The faults compared", f"{note} {cut(rows, 'rows')}")


def _fault(it: FaultEffect) -> list[Datum]:
    known = it.back_ns or ()
    never = sum(ns is None for ns in known)
    told = [format.duration(ns) for ns in known if ns]
    told += [f"never, {never} of {it.times}"] if never else []
    back = format.listing(told, 3) or "none took twice the slowest fault-free one"
    beside = f"{format.count(it.beside)} beside another" if it.beside else ""
    return [
        text(it.kind.removeprefix("fault ")),
        text(it.process),
        Datum(format.count(it.times), aside=beside),
        number(format.duration(it.lasted_ns)),
        number(format.count(it.due)),
        number(format.count(it.failed)),
        number(format.duration(it.p50), it.absent.get("p50", UNSAID)),
        number(format.duration(it.p99), it.absent.get("p99", UNSAID), strong=True),
        number(format.duration(it.max_ok), it.absent.get("max_ok", UNSAID)),
        number(format.duration(it.free_p99), it.absent.get("free_p99", UNSAID)),
        number(format.times(it.p99_ratio), it.absent.get("p99_ratio", UNSAID)),
        text(back) if it.back_ns is not None else number(format.DASH, it.absent["back_ns"]),
        number(format.duration(it.gap_ns), UNSAID, strong=True),
        number(format.count(it.lost), strong=it.lost > 0),
    ]


def loads(view: View) -> Table | None:
    """Return the scheduled load and the results of each cell."""
    stores = stores_of(view.analysis)
    if stores is None or not (stores.ramps or stores.scalings):
        return None
    states = {
        load.cell: (step.state, step.ratio)
        for ramp in stores.ramps
        for load, step in zip(ramp.loads, ramp.knee.steps, strict=True)
    }
    words = {"holds": "holds", "breaks": "breaks", "open": "not decided"}
    body = []
    for load in stores.loads[:MOST_ROWS]:
        state, ratio = states.get(load.cell, ("", None))
        body.append(
            [
                text(load.cell),
                number(format.count(load.repeats)),
                number(f"{format.significant(load.asked_hz)}/s"),
                _rate(load),
                _latency(load.p99),
                number(
                    format.times(ratio.estimate if ratio else None),
                    "more than 1 % failed, or no load to compare it with",
                ),
                text(words.get(state, "")),
                text("late itself" if load.own else ""),
            ]
        )
    columns = (
        "cell", "repeats", "asked for", "good replies", "p99", "over that at the lowest load",
        "the p99", "the generator was",
    )  # fmt: skip
    note = (
        "Means over repeats with their intervals (95 %; the p99 on logarithms; of one repeat, the "
        "interval of the p99 from its blocks, and none of the rate). The p99 breaks "
        f"where it is more than 3 {format.TIMES} that at the lowest load, or less than 95 % of the "
        "load is answered, both beyond the intervals, or where it falls among the failed in all "
        "of several repeats. A load that the load generator sent late is not decided."
    )
    return table(columns, body, "Loads", f"{note} {cut(stores.loads, 'cells')}")


def _rate(load: Load) -> Datum:
    found = load.achieved_hz
    between = ""
    if found.low is not None and found.high is not None and found.high > found.low:
        low, high = (format.significant(max(0.0, end)) for end in (found.low, found.high))
        between = f" ({low} to {high})"
    return number(f"{format.significant(found.estimate)}/s{between}")


def _latency(found: Interval) -> Datum:
    between = ""
    if found.low is not None and found.high is not None:
        between = f" ({format.duration(found.low)} to {format.duration(found.high)})"
    return number(format.duration(found.estimate) + between, "its rank falls among the failed")
