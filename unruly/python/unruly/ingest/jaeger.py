"""Traces as the API and the page of Jaeger give them: one document of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unruly.ingest.documents import document
from unruly.ingest.model import Format, Options
from unruly.ingest.spans import TraceSpan, requests
from unruly.ingest.zipkin import US, micros

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.model import Batch
    from unruly.ingest.source import Sample, Source

CODES: Final = ("http.response.status_code", "http.status_code")


def _recognises(sample: Sample) -> bool:
    text = sample.text.lstrip()
    words = ('"data"', '"traceID"', '"spanID"', '"operationName"')
    return text.startswith("{") and all(word in text for word in words)


def _read(source: Source, options: Options) -> Iterator[Batch]:
    del options
    source.unit = "us"
    yield from requests(source, _spans(source))


def _spans(source: Source) -> Iterator[TraceSpan]:
    number = 0
    for trace in _list(document(source).get("data")):
        names = {
            key: str(it.get("serviceName") or "")
            for key, it in _dict(_dict(trace).get("processes")).items()
            if isinstance(it, dict)
        }
        for item in _list(_dict(trace).get("spans")):
            number += 1
            source.complaints.lines += 1
            span = _span(source, number, _dict(item), names)
            if span is not None:
                yield span


def _span(
    source: Source, number: int, item: dict[str, Any], names: dict[str, str]
) -> TraceSpan | None:
    started, lasted = micros(item.get("startTime")), item.get("duration")
    # a span may take less than the microsecond in which Jaeger counts
    duration = 0 if lasted == 0 else micros(lasted)
    if started is None or duration is None:
        told = f"startTime is {item.get('startTime')!r}, duration {lasted!r}"
        source.complaints.refuse(number, told)
        return None
    tags = {str(it.get("key")): it.get("value") for it in map(_dict, _list(item.get("tags")))}
    above = (_dict(it) for it in _list(item.get("references")))
    parent = next((it.get("spanID") for it in above if it.get("refType") == "CHILD_OF"), "")
    code = next((tags[name] for name in CODES if name in tags), "")
    return TraceSpan(
        number,
        str(item.get("traceID")),
        str(item.get("spanID")),
        str(parent or ""),
        str(tags.get("span.kind") or ""),
        str(item.get("operationName") or "request"),
        started * US,
        duration * US,
        names.get(str(item.get("processID")), ""),
        str(tags.get("peer.service") or ""),
        "error" if tags.get("error") in (True, "true") else "",
        str(code),
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


FORMAT: Final = Format(
    "jaeger",
    "Jaeger's JSON of traces",
    "latencies",
    ('"traceID"', '"spanID"', '"operationName"', '"startTime"', '"processes"'),
    _recognises,
    _read,
)
