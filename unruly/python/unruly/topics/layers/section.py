"""Layers: the table of where slow requests spent their time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.drawing import format
from unruly.drawing.document import Datum, number, table, text
from unruly.drawing.tables import MOST_ROWS, cut, op_name
from unruly.topics.layers.model import layers_of

if TYPE_CHECKING:
    from unruly.drawing.document import Table
    from unruly.drawing.view import View
    from unruly.stats import Interval
    from unruly.topics.layers.model import RoleName, ServiceLayer

ROLES: Final[dict[RoleName, str]] = {
    "own": "its own work",
    "call": "what it called, which has no spans",
    "between": "network and queue before the called service",
    "outside": "no span was open",
}
NOTE: Final = (
    "Slow requests are those beyond the p99. With fewer than 600 requests the limit is the p95, "
    "with fewer than 120 the p90. The time of a layer is the length of its spans "
    "without the spans below them: the median over usual requests, and the mean over slow ones. "
)


def layers(view: View) -> Table | None:
    """Return the layers of each operation; None where there are none."""
    found = layers_of(view.analysis)
    rows = [row for row in found.rows if row.layers] if found else []
    if not rows:
        return None
    several = len({it.cell for it in rows}) > 1
    columns = (
        *(["cell"] if several else []), "operation", "layer", "whose time", "usual",
        "in slow requests", "has most of the extra time of", "spans, usual", "spans, slow",
    )  # fmt: skip
    body = [
        [*([text(row.cell)] if several else []), text(op_name(row.op)), *_row(layer)]
        for row in rows
        for layer in row.layers
    ]
    title = "Where slow requests spent their time"
    return table(columns, body[:MOST_ROWS], title, NOTE + cut(body, "layers"))


def _row(it: ServiceLayer) -> list[Datum]:
    return [
        text(it.label),
        text(ROLES[it.role]),
        number(format.duration(it.usual_ns)),
        number(format.duration(it.slow_ns)),
        _share(it.share),
        number(format.significant(it.usual_calls)),
        number(format.significant(it.slow_calls)),
    ]


def _share(found: Interval) -> Datum:
    between = f"{format.share(found.low)} to {format.share(found.high)}"
    return Datum(format.share(found.estimate), aside=between)
