"""Traces: the table of the slowest requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.drawing import format
from unruly.drawing.document import link, number, table, text
from unruly.topics.traces.model import traces_of

if TYPE_CHECKING:
    from unruly.drawing.document import Table
    from unruly.drawing.view import View


def slowest(view: View) -> Table | None:
    """Return the slowest requests with their traces; None where requests named none."""
    found = traces_of(view.analysis)
    if found is None:
        return None
    several = len({it.cell for it in found.slowest}) > 1
    columns = (*(["cell"] if several else []), "operation", "response time", "trace")
    rows = [
        [
            *([text(it.cell)] if several else []),
            text(it.op),
            number(format.duration(it.response)),
            link(it.trace_id, it.url),
        ]
        for it in found.slowest
    ]
    note = "Answered requests only. Each named its trace to the server in the header traceparent."
    return table(columns, rows, "The slowest requests and their traces", note)
