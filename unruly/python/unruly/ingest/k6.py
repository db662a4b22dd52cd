"""k6: ``--out csv`` and ``--out json``: points of metrics; the durations of requests count.

The time of a point is when the request *ended*; durations are in ms. ``http_req_duration`` begins
with the sending: looking up names and connecting are in other metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unruly.errors import IngestError
from unruly.ingest.delimited import dates_ns, numbers_ns, refuse, rows_of
from unruly.ingest.model import Format, Options, Requests, failure
from unruly.ingest.objects import first_objects, objects
from unruly.ingest.rows import Row, batches
from unruly.ingest.sniff import sniff

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.delimited import Rows
    from unruly.ingest.source import Sample, Source

GRPC: Final = "grpc_req_duration"
REQUESTS: Final = ("http_req_duration", GRPC)
DEADLINE: Final = "4"
"""The code of gRPC for a request that took too long; 0 is a success."""
ITERATIONS: Final = ("iteration_duration",)
NEEDED: Final = {"metric_name", "timestamp", "metric_value"}
TAGS: Final = ("error", "error_code", "expected_response", "method", "name", "status", "url")
MS: Final = 1_000_000
DIGITS_NS: Final = ((11, 1_000_000_000), (14, 1_000_000), (17, 1_000), (20, 1))
"""``timeFormat`` has four units; in this century each has its own number of digits."""
PARTIAL: Final = "looking up names and connecting are not in these latencies"
WHOLE_SECONDS: Final = (
    "times are whole seconds: K6_CSV_TIME_FORMAT=unix_nano would record when a request ended"
)


def _recognises_csv(sample: Sample) -> bool:
    found = sniff(sample)
    return found is not None and set(found.layout.names) >= NEEDED


def _recognises_json(sample: Sample) -> bool:
    found = first_objects(sample, 3)
    return bool(found) and all(
        it.get("type") in ("Metric", "Point") and "metric" in it and "data" in it for it in found
    )


def _metrics(source: Source) -> tuple[str, ...]:
    """Requests where there are any; else the iterations of a script that sends none."""
    head = source.sample.text
    if any(metric in head for metric in REQUESTS) or ITERATIONS[0] not in head:
        source.lacks(PARTIAL)
        return REQUESTS
    source.lacks("no requests, only whole iterations of the script")
    return ITERATIONS


def _read_csv(source: Source, options: Options) -> Iterator[Requests]:
    del options
    found = sniff(source.sample)
    if found is None or not set(found.layout.names) >= NEEDED:
        raise IngestError(source.where, "has no columns of k6", f"{', '.join(sorted(NEEDED))}")
    source.unit, wanted = "ms", pa.array(_metrics(source))
    present = [name for name in TAGS if name in found.layout.names]
    for batch in rows_of(source, found.layout, [*sorted(NEEDED), *present]):
        rows = batch.where(np.asarray(pc.is_in(batch["metric_name"], wanted)).astype(bool))
        rows = refuse(
            source, rows, numbers_ns(rows["metric_value"], MS)[1], "metric_value", "no number"
        )
        if not len(rows):
            continue
        ended, bad = _times(source, rows["timestamp"])
        rows = refuse(source, rows, bad, "timestamp", "no time")
        taken = numbers_ns(rows["metric_value"], MS)[0]
        if len(rows):
            yield _requests(rows, taken, ended[~bad])


def _times(source: Source, texts: pa.Array) -> tuple[Any, Any]:
    first = texts[0].as_py().strip()
    if not first.isdecimal():
        ended, bad, _ = dates_ns(texts)
        return ended, bad
    unit = next((size for digits, size in DIGITS_NS if len(first) < digits), 1)
    if unit == DIGITS_NS[0][1]:
        source.lacks(WHOLE_SECONDS)
    return numbers_ns(texts, unit)


def _requests(rows: Rows, taken: Any, ended: Any) -> Requests:
    tags = {
        name: rows[name].to_pylist() if name in rows.columns else [""] * len(rows) for name in TAGS
    }
    told = [dict(zip(tags, values, strict=True)) for values in zip(*tags.values(), strict=True)]
    both = list(zip(rows["metric_name"].to_pylist(), told, strict=True))
    status = [_status(*it) for it in both]
    reply = np.array([_is_answered(*it) for it in both])
    return Requests(
        duration_ns=pa.array(taken, mask=~reply),
        started_ns=ended - taken,
        op=[_op(it) for it in told],
        status=status,
        line=rows.line,
    )


def _op(tags: dict[str, str]) -> str:
    name = tags.get("name") or tags.get("url") or tags.get("scenario") or "request"
    method = tags.get("method")
    return f"{method} {name}" if method else name


def _is_answered(metric: str, tags: dict[str, str]) -> bool:
    """Whether a reply came: 0 is no status of HTTP, and the success of gRPC."""
    return metric == GRPC or tags.get("status") != "0"


def _status(metric: str, tags: dict[str, str]) -> str:
    """As the script's own expectation says; without one, as the status and error say."""
    if metric == GRPC:
        code = tags.get("status", "")
        return "ok" if code in ("", "0") else failure("", "timeout" if code == DEADLINE else "")
    expected, code = tags.get("expected_response", ""), tags.get("status", "")
    error = tags.get("error", "") or tags.get("error_code", "")
    if expected == "true" or (not expected and not error and not _is_http_error(code)):
        return "ok"
    return failure("" if code == "0" else code, error)


def _is_http_error(code: str) -> bool:
    return code.isdecimal() and (int(code) >= 400 or code == "0") and len(code) in (1, 3)


def _read_json(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "ms"
    yield from batches(source, _points(source, _metrics(source)), ended=True)


def _points(source: Source, wanted: tuple[str, ...]) -> Iterator[Row]:
    for line, point in objects(source):
        if point.get("type") != "Point" or point.get("metric") not in wanted:
            continue
        data = point.get("data")
        if not isinstance(data, dict):
            source.complaints.refuse(line, "a point without data")
            continue
        value = data.get("value")
        if not isinstance(value, int | float) or not abs(value) < 2**42:
            source.complaints.refuse(line, f"a point whose value is {value!r}")
            continue
        tags = {str(k): str(v) for k, v in (data.get("tags") or {}).items()}
        metric = str(point["metric"])
        taken = round(value * MS) if _is_answered(metric, tags) else None
        yield Row(line, str(data.get("time")), taken, _op(tags), _status(metric, tags))


CSV: Final = Format(
    "k6-csv",
    "k6 --out csv",
    "latencies",
    ("metric_name", "timestamp", "metric_value", "http_req_duration"),
    _recognises_csv,
    _read_csv,
)
JSON: Final = Format(
    "k6-json",
    "k6 --out json",
    "latencies",
    ('"metric"', '"Point"', '"data"', "http_req_duration"),
    _recognises_json,
    _read_json,
)
