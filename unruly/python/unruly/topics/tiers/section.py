"""Tiers: the table of what a tap saw of each service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.drawing import format
from unruly.drawing.document import Datum, Table, number, table, text
from unruly.drawing.tables import MOST_ROWS, cut, interval
from unruly.topics.tiers.model import tiers_of

if TYPE_CHECKING:
    from unruly.drawing.view import View
    from unruly.stats import Interval
    from unruly.topics.tiers.model import Tier

NOTE: Final = (
    "A request counts from its first byte to the last byte of its reply, as seen at the service. "
)


def services(view: View) -> Table | None:
    """Return what a tap saw of each service; None where there was none."""
    found = tiers_of(view.analysis)
    if found is None:
        return None
    several = len({it.cell for it in found.rows}) > 1
    columns = (
        *(["cell"] if several else []), "service", "requests", "a second", "mean response",
        "its interval", "in flight", "its interval", "fullest 100 ms", "not measured",
        "without reply", "connections", "asked by",
    )  # fmt: skip
    body = [[*([text(it.cell)] if several else []), *_row(it)] for it in found.rows]
    return table(
        columns, body[:MOST_ROWS], "Services as the tap saw them", NOTE + cut(body, "rows")
    )


def _row(it: Tier) -> list[Datum]:
    response, flight = it.response_ns, it.in_flight
    return [
        text(it.tier),
        number(format.count(it.n)),
        number(format.significant(it.rate_hz)),
        number(
            format.duration(response.estimate if response else None),
            it.absent.get("response_ns", ""),
        ),
        interval(response, it.absent.get("response_ns", "")),
        number(
            format.significant(flight.estimate if flight else None), it.absent.get("in_flight", "")
        ),
        _ends(flight, it.absent.get("in_flight", "")),
        number(format.significant(it.in_flight_most)),
        number(format.count(it.unmeasured)),
        number(format.count(it.cut)),
        number(format.count(it.connections)),
        text(", ".join(it.asked_by) or format.DASH),
    ]


def _ends(value: Interval | None, reason: str) -> Datum:
    if value is None or value.low is None or value.high is None:
        return Datum(format.DASH, reason=reason)
    return Datum(f"{format.significant(max(0.0, value.low))} to {format.significant(value.high)}")
