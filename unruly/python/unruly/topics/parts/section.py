"""Parts of requests: the table of how long each took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.drawing import format
from unruly.drawing.document import Table, number, table, text
from unruly.drawing.tables import MOST_ROWS, cut, interval
from unruly.tables.spans import STREAMED
from unruly.topics.parts.model import parts_of

if TYPE_CHECKING:
    from unruly.drawing.document import Datum
    from unruly.drawing.view import View
    from unruly.topics.parts.model import Layer

WORDS: Final = {
    "connect": "TCP connect",
    "tls": "TLS handshake",
    "first token": "time to first token",
    "token": "gap between tokens",
    "first message": "time to first message",
    "message": "gap between messages",
}


def layers(view: View) -> Table | None:
    """Return how long each part took in each cell; None where none was recorded."""
    found = parts_of(view.analysis)
    if found is None:
        return None
    several = len({it.cell for it in found.layers}) > 1
    columns = (
        *(["cell"] if several else []), "part", "count", "p50", "interval of the p50",
        "p99", "interval of the p99", "max",
    )  # fmt: skip
    body = [[*([text(it.cell)] if several else []), *_row(it)] for it in found.layers]
    shares = ", ".join(
        f"{format.count(it.opened)} of {format.count(it.n)} {format.quoted(it.op)} requests"
        + (f" of {format.quoted(it.cell)}" if several else "")
        for it in found.openings[:MOST_ROWS]
        if it.opened
    )
    note = "Connections are all that carried a request, those of the warm-up included. "
    note += "The TLS handshake includes the work of the load generator. "
    if shares:
        note += f"Measured requests that waited for their connection: {shares}. "
    if any(it.layer in STREAMED for it in found.layers):
        note += "The first token or message counts from the scheduled time of its request. "
    return table(columns, body[:MOST_ROWS], "Parts of requests", note + cut(body, "rows"))


def _row(it: Layer) -> list[Datum]:
    return [
        text(WORDS[it.layer]),
        number(format.count(it.n)),
        number(format.duration(it.p50), it.absent.get("p50", "")),
        interval(it.p50_interval, it.absent.get("p50_interval", "")),
        number(format.duration(it.p99), it.absent.get("p99", "")),
        interval(it.p99_interval, it.absent.get("p99_interval", "")),
        number(format.duration(it.max)),
    ]
