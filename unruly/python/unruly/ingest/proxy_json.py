"""Access logs of Caddy and Traefik as JSON, an object a line.

Caddy's is read as Caddy 2.6 and 2.11 wrote it, Traefik's in the form that its documentation gives.
Caddy writes a line when a request has ended, and its time is that of the line; Traefik notes when a
request began. Paths and addresses are not kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unruly.ingest.access_log import OTHER
from unruly.ingest.model import Format, Options, Requests, failure
from unruly.ingest.objects import first_objects, objects
from unruly.ingest.rows import Row, batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from unruly.ingest.source import Sample, Source

S: Final = 1_000_000_000
UNREADABLE: Final = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
OTHERS_LEFT_OUT: Final = "lines that are no access of a client were left out"


def _rows(
    source: Source, is_access: Callable[[dict[str, Any]], bool], row: Callable[[int, Any], Row]
) -> Iterator[Row]:
    for number, it in objects(source):
        if not is_access(it):
            source.complaints.lines -= 1
            source.lacks(OTHERS_LEFT_OUT)
            continue
        try:
            yield row(number, it)
        except UNREADABLE:
            source.complaints.refuse(number, "no time, duration or status in the form of this file")


def _ended(code: int) -> str:
    return "ok" if 100 <= code < 400 else failure(str(code))


def _method(method: object) -> str:
    return method if isinstance(method, str) and method.isalpha() and len(method) <= 20 else OTHER


def _is_access_of_caddy(it: dict[str, Any]) -> bool:
    return "duration" in it and "status" in it and isinstance(it.get("request"), dict)


def _is_caddy(sample: Sample) -> bool:
    return any(
        _is_access_of_caddy(it) and "ts" in it and "logger" in it
        for it in first_objects(sample, 20)
    )


def _caddy_row(number: int, it: Any) -> Row:
    at, taken = it["ts"], it["duration"]
    if isinstance(taken, str):
        raise TypeError("a duration with its unit, which Caddy writes when it is asked to")
    # the whole seconds apart: their product with the nanoseconds is no exact double
    when = at if isinstance(at, str) else int(at) * S + round(float(at) % 1 * S)
    return Row(
        number, when, round(float(taken) * S), _method(it["request"].get("method")),
        _ended(int(it["status"])), sent_bytes=int(it.get("bytes_read") or 0),
        received_bytes=int(it.get("size") or 0),
    )  # fmt: skip


def _caddy(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "s"
    yield from batches(source, _rows(source, _is_access_of_caddy, _caddy_row), ended=True)


def _is_access_of_traefik(it: dict[str, Any]) -> bool:
    return "Duration" in it and "RequestMethod" in it


def _is_traefik(sample: Sample) -> bool:
    return any(
        _is_access_of_traefik(it) and ("StartUTC" in it or "StartLocal" in it)
        for it in first_objects(sample, 20)
    )


def _traefik_row(number: int, it: Any) -> Row:
    # what the client saw, before what the service answered
    code = it.get("DownstreamStatus") or it.get("OriginStatus") or 0
    return Row(
        number, str(it.get("StartUTC") or it["StartLocal"]), int(it["Duration"]),
        _method(it["RequestMethod"]), _ended(int(code)),
        sent_bytes=int(it.get("RequestContentSize") or 0),
        received_bytes=int(it.get("DownstreamContentSize") or 0),
    )  # fmt: skip


def _traefik(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "ns"
    yield from batches(source, _rows(source, _is_access_of_traefik, _traefik_row))


CADDY: Final = Format(
    "caddy",
    "an access log of Caddy, JSON",
    "latencies",
    ('"logger":"http.log.access', '"duration":', '"resp_headers"'),
    _is_caddy,
    _caddy,
)
TRAEFIK: Final = Format(
    "traefik",
    "an access log of Traefik as JSON",
    "latencies",
    ('"StartUTC":', '"DownstreamStatus":', '"RequestMethod":'),
    _is_traefik,
    _traefik,
)
