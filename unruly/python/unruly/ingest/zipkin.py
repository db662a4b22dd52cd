"""Zipkin v2 JSON: spans, arrays of spans (a trace), arrays of traces, or one span a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unruly.ingest.model import Format, Options
from unruly.ingest.objects import first_objects, objects
from unruly.ingest.spans import TraceSpan, requests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.model import Batch
    from unruly.ingest.source import Sample, Source

US: Final = 1_000
LIMIT_US: Final = 2**52


def _recognises(sample: Sample) -> bool:
    found = first_objects(sample, 5)
    return bool(found) and all("traceId" in it and "id" in it for it in found)


def _read(source: Source, options: Options) -> Iterator[Batch]:
    del options
    source.unit = "us"
    yield from requests(source, _spans(source))


def _spans(source: Source) -> Iterator[TraceSpan]:
    open_spans = 0
    for line, item in objects(source):
        if not item.get("timestamp") or not item.get("duration"):
            # a span that never ended has no duration, and a shared half may have no time
            open_spans += 1
            continue
        span = _span(source, line, item)
        if span is not None:
            yield span
    if open_spans:
        source.lacks(f"{open_spans:,} spans have no time or no duration, and are left out")


def _span(source: Source, line: int, item: dict[str, Any]) -> TraceSpan | None:
    started, duration = micros(item.get("timestamp")), micros(item.get("duration"))
    if started is None or duration is None:
        started, duration = item.get("timestamp"), item.get("duration")
        source.complaints.refuse(line, f"timestamp is {started!r}, duration {duration!r}")
        return None
    tags = item.get("tags") or {}
    return TraceSpan(
        line,
        str(item.get("traceId")),
        str(item.get("id")),
        str(item.get("parentId") or ""),
        str(item.get("kind") or "").lower(),
        str(item.get("name") or "request"),
        started * US,
        duration * US,
        _service(item.get("localEndpoint")),
        _service(item.get("remoteEndpoint")),
        str(tags["error"]) if "error" in tags else "",
        str(tags.get("http.status_code") or ""),
    )


def micros(value: Any) -> int | None:
    """Return a time in us; None for one that its tracer did not know, or that is none."""
    # what a tracer does not know it leaves out or writes as 0
    known = isinstance(value, int | float) and 0 < value < LIMIT_US
    return int(value) if known else None


def _service(endpoint: Any) -> str:
    return str(endpoint.get("serviceName") or "") if isinstance(endpoint, dict) else ""


FORMAT: Final = Format(
    "zipkin",
    "Zipkin v2 JSON traces",
    "latencies",
    ('"traceId"', '"id"', '"timestamp"', '"duration"', '"localEndpoint"'),
    _recognises,
    _read,
)
