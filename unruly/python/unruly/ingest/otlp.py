"""OTLP as JSON, as the file exporter of OpenTelemetry's collector writes it: a message a line.

The only attributes that are read are names of services and status codes of HTTP. Others hold
command lines and statements, and so passwords.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unruly.ingest.model import Format, Options
from unruly.ingest.objects import first_objects, objects
from unruly.ingest.spans import TraceSpan, requests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.model import Batch
    from unruly.ingest.source import Sample, Source

KINDS: Final = ("", "internal", "server", "client", "producer", "consumer")
PREFIX: Final = "SPAN_KIND_"
LIMIT_NS: Final = 2**62
CODES: Final = ("http.response.status_code", "http.status_code")
FAILED: Final = (2, "STATUS_CODE_ERROR")


def _recognises(sample: Sample) -> bool:
    found = first_objects(sample, 5)
    if found:
        return all("resourceSpans" in it for it in found)
    # the first message is longer than the sample
    return sample.text.lstrip().startswith("{") and '"resourceSpans"' in sample.text[:200]


def _read(source: Source, options: Options) -> Iterator[Batch]:
    del options
    source.unit = "ns"
    yield from requests(source, _spans(source))


def _spans(source: Source) -> Iterator[TraceSpan]:
    for line, message in objects(source):
        # its spans are counted, and no message
        source.complaints.lines -= 1
        for resource in _dicts(message.get("resourceSpans")):
            about = resource.get("resource")
            known = _attributes(about if isinstance(about, dict) else {}, ("service.name",))
            service = known.get("service.name", "")
            for scope in _dicts(resource.get("scopeSpans")):
                for item in _dicts(scope.get("spans")):
                    source.complaints.lines += 1
                    span = _span(source, line, item, service)
                    if span is not None:
                        yield span


def _span(source: Source, line: int, item: dict[str, Any], service: str) -> TraceSpan | None:
    started, ended = _nanos(item.get("startTimeUnixNano")), _nanos(item.get("endTimeUnixNano"))
    if started is None or ended is None or ended < started:
        told = f"a span from {item.get('startTimeUnixNano')!r} to {item.get('endTimeUnixNano')!r}"
        source.complaints.refuse(line, told)
        return None
    known = _attributes(item, ("peer.service", *CODES))
    status = item.get("status")
    failed = isinstance(status, dict) and status.get("code") in FAILED
    return TraceSpan(
        line,
        str(item.get("traceId")),
        str(item.get("spanId")),
        str(item.get("parentSpanId") or ""),
        _kind(item.get("kind")),
        str(item.get("name") or "request"),
        started,
        ended - started,
        service,
        known.get("peer.service", ""),
        "error" if failed else "",
        next((known[name] for name in CODES if name in known), ""),
    )


def _attributes(item: dict[str, Any], wanted: tuple[str, ...]) -> dict[str, str]:
    """Return the wanted attributes, as texts."""
    found = {}
    for it in _dicts(item.get("attributes")):
        value = it.get("value")
        if it.get("key") in wanted and isinstance(value, dict):
            text = value.get("stringValue", value.get("intValue"))
            if isinstance(text, str | int):
                found[str(it["key"])] = str(text)
    return found


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return value.removeprefix(PREFIX).lower()
    known = isinstance(value, int) and 0 <= value < len(KINDS)
    return KINDS[value] if known else ""


def _nanos(value: Any) -> int | None:
    """Return a time in ns: a number, or a text where its writer knows that doubles are short."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 < number < LIMIT_NS else None


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [it for it in value if isinstance(it, dict)] if isinstance(value, list) else []


FORMAT: Final = Format(
    "otlp",
    "OTLP JSON of traces",
    "latencies",
    ('"resourceSpans"', '"scopeSpans"', '"startTimeUnixNano"'),
    _recognises,
    _read,
)
