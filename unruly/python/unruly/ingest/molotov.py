"""Molotov as Taurus runs it: JSON lines (named .csv); start and duration in seconds.

Requests count; scenarios hold them and would count them twice, so that they are read only where no
request is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeGuard

from unruly.ingest.model import Format, Options, Requests, failure
from unruly.ingest.objects import first_objects, objects
from unruly.ingest.rows import Row, batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

KINDS: Final = {"workers", "request", "scenario_success", "scenario_failure"}
SCENARIOS: Final = ("scenario_success", "scenario_failure")
US: Final = 1_000_000
SECONDS_MAX: Final = 2**32
"""No NaN either: it compares as false."""


def _recognises(sample: Sample) -> bool:
    found = first_objects(sample, 5)
    return bool(found) and all(it.get("type") in KINDS and "ts" in it for it in found)


def _read(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "s"
    single = any(it.get("type") == "request" for it in first_objects(source.sample, 10_000))
    if not single:
        source.lacks("no requests, only whole scenarios")
    yield from batches(source, _rows(source, single=single))


def _rows(source: Source, *, single: bool) -> Iterator[Row]:
    for line, item in objects(source):
        kind = item.get("type")
        if kind not in (("request",) if single else SCENARIOS):
            continue
        at, taken = item.get("ts"), item.get("elapsed" if single else "duration")
        if not _is_seconds(at) or not _is_seconds(taken):
            source.complaints.refuse(line, f"ts is {at!r}, duration {taken!r}: no numbers")
            continue
        if single:
            code = str(item.get("responseCode") or "")
            bad = not code.isdecimal() or int(code) >= 400
            status = failure(code, str(item.get("responseMessage") or "")) if bad else "ok"
            op = str(item.get("label") or "request")
        else:
            status = "ok" if kind == SCENARIOS[0] else failure("", str(item.get("errorMessage")))
            op = str(item.get("name") or "scenario")
        # a float of seconds since 1970 is true to a quarter of a microsecond
        yield Row(line, round(at * US) * 1_000, round(taken * US) * 1_000, op, status)


def _is_seconds(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and abs(value) < SECONDS_MAX


FORMAT: Final = Format(
    "molotov",
    "Molotov's report as Taurus writes it",
    "latencies",
    ('"ts"', '"type"', '"elapsed"', '"responseCode"', "scenario_"),
    _recognises,
    _read,
)
