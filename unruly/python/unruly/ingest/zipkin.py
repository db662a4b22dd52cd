"""Zipkin v2 JSON: spans, arrays of spans (a trace), arrays of traces, or one span a line.

A CLIENT span is a request: who asked is its own service, who answered its remote one. The SERVER
span of the same call, which shares its id or is its child, adds the server's stamps, on the
server's clock. A SERVER span that nobody's CLIENT span belongs to is a request from outside, with
the server's own duration. Everything else becomes rows of ``spans``, tied to the nearest request
above it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from unruly.ingest.model import BATCH_ROWS, Format, Options, Spans, failure
from unruly.ingest.objects import first_objects, objects
from unruly.ingest.rows import Row, batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.model import Batch
    from unruly.ingest.source import Sample, Source

US: Final = 1_000
HELD_MAX: Final = 100_000
"""Spans that wait for others of their trace; beyond, the oldest traces are taken as whole."""
OUTSIDE: Final = "outside"
LIMIT_US: Final = 2**52
UNMET: Final = (
    "some requests have no client span: theirs is the server's own time, without the network"
)
ORPHANS: Final = "some spans belong to no request and are left out"


class _Span(NamedTuple):
    line: int
    id: str
    parent: str
    kind: str
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


def _recognises(sample: Sample) -> bool:
    found = first_objects(sample, 5)
    return bool(found) and all("traceId" in it and "id" in it for it in found)


def _read(source: Source, options: Options) -> Iterator[Batch]:
    del options
    source.unit = "us"
    rows: list[Row] = []
    parts: list[_Part] = []
    number = 0
    for trace in _traces(source):
        number = _requests(source, trace, number, rows, parts)
        if len(rows) + len(parts) >= BATCH_ROWS:
            yield from _flush(source, rows, parts)
    yield from _flush(source, rows, parts)


def _flush(source: Source, rows: list[Row], parts: list[_Part]) -> Iterator[Batch]:
    yield from batches(source, rows)
    if parts:
        request, client, server, layer, started, ended = zip(*parts, strict=True)
        yield Spans(
            request=list(request),
            client=list(client),
            server=list(server),
            layer=list(layer),
            started_ns=list(started),
            ended_ns=list(ended),
        )
    rows.clear()
    parts.clear()


def _traces(source: Source) -> Iterator[list[_Span]]:
    """Spans by trace, in the order in which traces begin."""
    held: dict[str, list[_Span]] = {}
    waiting = 0
    for line, item in objects(source):
        span = _span(source, line, item)
        if span is None:
            continue
        held.setdefault(str(item.get("traceId")), []).append(span)
        waiting += 1
        while waiting > HELD_MAX:
            oldest = held.pop(next(iter(held)))
            waiting -= len(oldest)
            yield oldest
    yield from held.values()


def _span(source: Source, line: int, item: dict[str, Any]) -> _Span | None:
    started, duration = _micros(item.get("timestamp")), _micros(item.get("duration"))
    if started is None or duration is None:
        started, duration = item.get("timestamp"), item.get("duration")
        source.complaints.refuse(line, f"timestamp is {started!r}, duration {duration!r}")
        return None
    tags = item.get("tags") or {}
    return _Span(
        line,
        str(item.get("id")),
        str(item.get("parentId") or ""),
        str(item.get("kind") or ""),
        str(item.get("name") or "request"),
        started * US,
        duration * US,
        _service(item.get("localEndpoint")),
        _service(item.get("remoteEndpoint")),
        str(tags["error"]) if "error" in tags else "",
        str(tags.get("http.status_code") or ""),
    )


def _micros(value: Any) -> int | None:
    # what a tracer does not know it leaves out or writes as 0
    known = isinstance(value, int | float) and 0 < value < LIMIT_US
    return int(value) if known else None


def _service(endpoint: Any) -> str:
    return str(endpoint.get("serviceName") or "") if isinstance(endpoint, dict) else ""


def _requests(
    source: Source, trace: list[_Span], number: int, rows: list[Row], parts: list[_Part]
) -> int:
    """Add the requests of a trace and its other spans; return the next request's number."""
    halves, alone = _halves(trace)
    owner: dict[str, tuple[int, str, str]] = {}
    for span in trace:
        half = halves.get(span.id) if span.kind == "CLIENT" else None
        if span.kind == "CLIENT":
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
    _others(source, trace, alone, owner, parts)
    return number


def _halves(trace: list[_Span]) -> tuple[dict[str, _Span], set[_Span]]:
    """The server's half of each client span, and servers' spans that are nobody's half."""
    asked = {span.id for span in trace if span.kind == "CLIENT"}
    halves: dict[str, _Span] = {}
    alone: set[_Span] = set()
    for span in trace:
        if span.kind != "SERVER":
            continue
        half_of = span.id if span.id in asked else span.parent
        if half_of in asked and half_of not in halves:
            halves[half_of] = span
        else:
            alone.add(span)
    return halves, alone


def _row(span: _Span, half: _Span | None, client: str, server: str, number: int) -> Row:
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


def _others(
    source: Source,
    trace: list[_Span],
    alone: set[_Span],
    owner: dict[str, tuple[int, str, str]],
    parts: list[_Part],
) -> None:
    """Spans that are no request: those of servers for a client's, and those inside a service."""
    above = {span.id: span.parent for span in trace if span.id not in owner}
    for span in trace:
        if span.kind == "CLIENT" or span in alone:
            continue
        at, seen = span.id, set()
        while at not in owner and at not in seen:
            seen.add(at)
            at = above.get(at, "")
        if at not in owner:
            source.lacks(ORPHANS)
            continue
        layer = f"{span.service} {span.name}".strip()
        parts.append(_Part(*owner[at], layer, span.started_ns, span.started_ns + span.duration_ns))


FORMAT: Final = Format(
    "zipkin",
    "Zipkin v2 JSON traces",
    "latencies",
    ('"traceId"', '"id"', '"timestamp"', '"duration"', '"localEndpoint"'),
    _recognises,
    _read,
)
