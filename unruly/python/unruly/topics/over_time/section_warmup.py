"""When each workload had settled, beside the warm-up that it was given: a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.drawing import format
from unruly.drawing.document import Datum, Table, number, table, text
from unruly.drawing.tables import op_name
from unruly.topics.over_time.statistics import over_time_of

if TYPE_CHECKING:
    from unruly.drawing.view import View
    from unruly.topics.over_time.warmup import WarmUp

ROWS_MOST = 60


def warm_ups(view: View) -> Table | None:
    """Return when each workload of each repeat had settled."""
    over_time = over_time_of(view.analysis)
    if over_time is None or not over_time.warm_ups:
        return None
    found = over_time.warm_ups
    several = len({it.cell for it in found}) > 1
    repeated = len({it.repeat for it in found}) > 1
    columns = (
        *(["cell"] if several else []),
        *(["repeat"] if repeated else []),
        "workload",
        "settled",
        "measured before that, slower by",
    )
    body = [
        [
            *([text(it.cell)] if several else []),
            *([number(str(it.repeat + 1))] if repeated else []),
            text(op_name(it.op)),
            _settled(it),
            _slower(it),
        ]
        for it in found[:ROWS_MOST]
    ]
    note = (
        "The level of the median and the p99 by block of time, warm-up included, is held against "
        "the second half of the run."
    )
    if len(found) > ROWS_MOST:
        note += f" The first {ROWS_MOST} of {len(found)}."
    return table(columns, body, "Warming up", note)


def _settled(it: WarmUp) -> Datum:
    if it.settled_ns is None:
        return Datum(format.DASH, reason=it.absent.get("settled", ""))
    warmed, took = it.measured_ns - it.began_ns, it.settled_ns - it.began_ns
    if not took:
        return text("from the start on")
    of = f" of {format.span(warmed)} of warm-up" if warmed else ""
    if it.settled_ns <= it.measured_ns:
        return text(f"after {format.span(took)}{of}")
    return text(f"{format.span(it.settled_ns - it.measured_ns)} after measurement began")


def _slower(it: WarmUp) -> Datum:
    if it.settled_ns is None:
        return Datum(format.DASH, reason=it.absent.get("settled", ""))
    if it.slower is None:
        return Datum(format.DASH, reason="no whole measured block came before it settled")
    if not it.short:
        return Datum(format.DASH, reason="not clearly slower than the later blocks")
    return text(f"{format.times(it.slower.estimate)} ({it.level})")
