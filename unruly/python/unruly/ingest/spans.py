"""The spans of traces, whichever tool wrote them: which are requests, and what belongs to them.

A CLIENT span is a request: who asked is its own service, who answered its remote one. The SERVER
span of the same call, which shares its id or is its child, adds the server's stamps, on the
server's clock. A SERVER span that nobody's CLIENT span belongs to is a request from outside, with
the server's own duration. Every span becomes a row of ``spans``, tied to the nearest request at or
above it. The two halves of a call within another request are rows of that one too, so that the
share of the call in it is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from unruly.ingest.model import BATCH_ROWS, Spans, failure
from unruly.ingest.rows import Row, batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from unruly.ingest.model import Batch
    from unruly.ingest.source import Source

HELD_MAX: Final = 100_000
"""Spans that wait for others of their trace; beyond, the oldest traces are taken as whole."""
OUTSIDE: Final = "outside"
UNMET: Final = (
    "some requests have no client span: theirs is the server's own time, without the network"
)
ORPHANS: Final = "some spans belong to no request and are left out"
CLIENT: Final = "client"
SERVER: Final = "server"
ID_DIGITS: Final = 16


class TraceSpan(NamedTuple):
    """A span as its file has it. Ids are hexadecimal digits; times are ns."""

    line: int
    trace: str
    id: str
    parent: str
    kind: str
    """``client``, ``server``, ``internal``, ``producer``, ``consumer`` or nothing."""
    name: str
    started_ns: int
    duration_ns: int
    service: str
    remote: str
    error: str
    code: str


class _Part(NamedTuple):
    """A row of ``spans``."""

    request: int
    client: str
    server: str
    layer: str
    started_ns: int
    ended_ns: int
    span_id: int | None
    parent_id: int | None
    service: str
    kind: str | None
    failed: bool


def requests(source: Source, spans: Iterable[TraceSpan]) -> Iterator[Batch]:
    """Yield the requests of traces and their spans.

    Parameters
    ----------
    spans : iterable of TraceSpan
        In any order. Those of one trace are taken together unless `HELD_MAX` others came between.
    """
    rows: list[Row] = []
    parts: list[_Part] = []
    number = 0
    for trace in _traces(spans):
        number = _requests(source, trace, number, rows, parts)
        if len(rows) + len(parts) >= BATCH_ROWS:
            yield from _flush(source, rows, parts)
    yield from _flush(source, rows, parts)


def _flush(source: Source, rows: list[Row], parts: list[_Part]) -> Iterator[Batch]:
    yield from batches(source, rows)
    if parts:
        values = map(list, zip(*parts, strict=True))
        columns: dict[str, Any] = dict(zip(_Part._fields, values, strict=True))
        yield Spans(**columns)
    rows.clear()
    parts.clear()


def _traces(spans: Iterable[TraceSpan]) -> Iterator[list[TraceSpan]]:
    """Spans by trace, in the order in which traces begin."""
    held: dict[str, list[TraceSpan]] = {}
    waiting = 0
    for span in spans:
        held.setdefault(span.trace, []).append(span)
        waiting += 1
        while waiting > HELD_MAX:
            oldest = held.pop(next(iter(held)))
            waiting -= len(oldest)
            yield oldest
    yield from held.values()


def _requests(
    source: Source, trace: list[TraceSpan], number: int, rows: list[Row], parts: list[_Part]
) -> int:
    """Add the requests of a trace and its other spans; return the next request's number."""
    # an exporter that sends a batch again sends its spans twice
    trace = list({(it.id, it.kind, it.service): it for it in reversed(trace)}.values())[::-1]
    halves, alone = _halves(trace)
    owner: dict[str, tuple[int, str, str]] = {}
    for span in trace:
        half = halves.get(span.id) if span.kind == CLIENT else None
        if span.kind == CLIENT:
            client = span.service or OUTSIDE
            server = span.remote or (half.service if half else "") or "unknown"
        elif span in alone:
            client, server = span.remote or OUTSIDE, span.service or "unknown"
            source.lacks(UNMET)
        else:
            continue
        rows.append(_row(span, half, client, server, number))
        owner[span.id] = (number, client, server)
        if half:
            owner[half.id] = owner[span.id]
        number += 1
    _spans(source, trace, halves, owner, parts)
    return number


def _halves(trace: list[TraceSpan]) -> tuple[dict[str, TraceSpan], set[TraceSpan]]:
    """The server's half of each client span, and servers' spans that are nobody's half."""
    asked = {span.id for span in trace if span.kind == CLIENT}
    halves: dict[str, TraceSpan] = {}
    alone: set[TraceSpan] = set()
    for span in trace:
        if span.kind != SERVER:
            continue
        half_of = span.id if span.id in asked else span.parent
        if half_of in asked and half_of not in halves:
            halves[half_of] = span
        else:
            alone.add(span)
    return halves, alone


def _row(span: TraceSpan, half: TraceSpan | None, client: str, server: str, number: int) -> Row:
    failed = span.error or (half.error if half else "")
    bad = bool(failed) or (span.code.isdecimal() and int(span.code) >= 400)
    return Row(
        line=span.line,
        at=span.started_ns,
        duration_ns=span.duration_ns,
        op=f"{server} {span.name}",
        status=failure(span.code, failed) if bad else "ok",
        client=client,
        server=server,
        request=number,
        server_received_ns=half.started_ns if half else None,
        server_sent_ns=half.started_ns + half.duration_ns if half else None,
    )


def _spans(
    source: Source,
    trace: list[TraceSpan],
    halves: dict[str, TraceSpan],
    owner: dict[str, tuple[int, str, str]],
    parts: list[_Part],
) -> None:
    """Add the spans of requests: their own, those of their servers, and the calls they make."""
    above = {span.id: span.parent for span in trace if span.id not in owner}
    known = dict(owner)
    for span in trace:
        if span.kind != CLIENT:
            whose = _owner(span.id, above, known)
            if whose is None:
                source.lacks(ORPHANS)
            else:
                parts.append(_part(span, whose))
            continue
        whose = _owner(span.parent, above, known)
        if whose is not None:
            parts.append(_part(span, whose))
            half = halves.get(span.id)
            if half is not None:
                part = _part(half, whose)
                if half.id == span.id:
                    # both halves have one id: that of the server's is made, below the call
                    made = None if part.span_id is None else ~part.span_id
                    part = part._replace(span_id=made, parent_id=part.span_id)
                parts.append(part)


def _owner(
    at: str, above: dict[str, str], known: dict[str, tuple[int, str, str]]
) -> tuple[int, str, str] | None:
    """The request at or above a span, which is noted for all on the way to it."""
    way = []
    seen = set[str]()
    while at not in known and at in above and at not in seen:
        seen.add(at)
        way.append(at)
        at = above[at]
    found = known.get(at)
    if found is not None:
        known.update(dict.fromkeys(way, found))
    return found


def _part(span: TraceSpan, whose: tuple[int, str, str]) -> _Part:
    return _Part(
        *whose,
        span.name,
        span.started_ns,
        span.started_ns + span.duration_ns,
        _number(span.id),
        _number(span.parent),
        span.service,
        span.kind or None,
        bool(span.error),
    )


def _number(digits: str) -> int | None:
    """Return an id as the signed number of its last 64 bits; None for one that is none."""
    try:
        number = int(digits[-ID_DIGITS:], 16)
    except ValueError:
        return None
    return number - (1 << 64) if number >> 63 else number
