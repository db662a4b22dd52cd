"""Single rows, as readers of lines and objects find them, made batches."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from unruly.ingest.columns import REACH_NS
from unruly.ingest.delimited import dates_ns
from unruly.ingest.model import BATCH_ROWS, Requests

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from unruly.ingest.source import Source


class Row(NamedTuple):
    """One request. ``at`` is its start: ns since 1970, or a date as text."""

    line: int
    at: int | str
    duration_ns: int | None
    """None: no reply came."""
    op: str
    status: str = "ok"
    client: str | None = None
    server: str = "service"
    sent_bytes: int = 0
    received_bytes: int = 0
    intended_ns: int | None = None
    connection: int = 0
    attempt: int = 0
    request: int | None = None
    server_received_ns: int | None = None
    server_sent_ns: int | None = None


def batches(source: Source, rows: Iterable[Row], *, ended: bool = False) -> Iterator[Requests]:
    """Gather rows into batches; with ``ended``, ``at`` is when each request ended.

    A date that is none is a complaint.
    """
    left = iter(rows)
    while held := list(islice(left, BATCH_ROWS)):
        held = [row for row in held if _fits(source, row)]
        kept, at = _times(source, held)
        if not kept:
            continue
        columns = dict(zip(Row._fields, zip(*kept, strict=True), strict=True))
        duration = pa.array(columns["duration_ns"], pa.int64())
        if ended:
            at -= np.asarray(duration.fill_null(0))
        yield Requests(
            duration_ns=duration,
            started_ns=at,
            op=list(columns["op"]),
            status=list(columns["status"]),
            client=_column(columns["client"]),
            server=list(columns["server"]),
            sent_bytes=list(columns["sent_bytes"]),
            received_bytes=list(columns["received_bytes"]),
            intended_ns=_column(columns["intended_ns"]),
            connection=list(columns["connection"]),
            attempt=list(columns["attempt"]),
            request=_column(columns["request"]),
            server_received_ns=_column(columns["server_received_ns"]),
            server_sent_ns=_column(columns["server_sent_ns"]),
            line=np.array(columns["line"]),
        )


def _fits(source: Source, row: Row) -> bool:
    """Whether 64 bits of nanoseconds can hold its numbers."""
    known = (row.duration_ns, row.intended_ns, None if isinstance(row.at, str) else row.at)
    fine = all(value is None or abs(value) < REACH_NS for value in known)
    if not fine:
        source.complaints.refuse(row.line, "a time or duration of more than 146 years")
    return fine


def _times(source: Source, held: list[Row]) -> tuple[list[Row], np.ndarray]:
    if not held or not isinstance(held[0].at, str):
        return held, np.array([row.at for row in held], np.int64)
    found, bad, zoned = dates_ns(pa.array([str(row.at) for row in held]))
    if not zoned and not bad.all():
        source.lacks("its times name no time zone and were taken as UTC")
    for place in np.flatnonzero(bad):
        source.complaints.refuse(held[place].line, f"{held[place].at!r} is no date")
    return [row for row, wrong in zip(held, bad, strict=True) if not wrong], found[~bad]


def _column(values: tuple[object, ...]) -> list[object] | None:
    """None where no row has a value."""
    return None if all(value is None for value in values) else list(values)
