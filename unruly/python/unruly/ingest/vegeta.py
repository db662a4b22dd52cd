"""vegeta: ``vegeta encode -to csv`` and ``-to json``.

The CSV has no header: start (ns since 1970), HTTP status, latency (ns), bytes out, bytes in, error,
body, attack, sequence number, and in newer versions method, URL and headers. A status from 200 to
399 is a success, as vegeta itself counts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from unruly.errors import IngestError
from unruly.ingest.delimited import Layout, numbers_ns, refuse, rows_of
from unruly.ingest.model import Format, Options, Requests, failure
from unruly.ingest.objects import first_objects, objects
from unruly.ingest.rows import Row, batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

NAMES: Final = (
    "timestamp", "code", "latency", "bytes_out", "bytes_in", "error", "body", "attack", "seq",
    "method", "url", "headers",
)  # fmt: skip
OPS: Final = ("attack", "method", "url")
LINE: Final = re.compile(r"^\d{18,19},\d{1,3},\d+,\d+,\d+,", re.ASCII)
KEYS: Final = {"attack", "seq", "code", "timestamp", "latency", "bytes_out", "bytes_in"}


def _recognises_csv(sample: Sample) -> bool:
    lines = sample.lines
    return bool(lines) and LINE.match(lines[0]) is not None and lines[0].count(",") >= 8


def _recognises_json(sample: Sample) -> bool:
    found = first_objects(sample, 1)
    return bool(found) and found[0].keys() >= KEYS


def _op(source: Source, options: Options) -> str:
    if options.op not in (None, *OPS):
        wanted = f"one of {', '.join(OPS)}"
        raise IngestError(
            source.where, f"has no column {options.op!r} for --op", wanted, "--op url"
        )
    return options.op or "attack"


def _status(code: str, error: str) -> str:
    fine = code.isdecimal() and 200 <= int(code) < 400
    return "ok" if fine else failure(code, error)


def _read_csv(source: Source, options: Options) -> Iterator[Requests]:
    op, source.unit = _op(source, options), "ns"
    names = NAMES[: max(9, source.sample.lines[0].count(",") + 1)]
    wanted = ["timestamp", "code", "latency", "bytes_out", "bytes_in", "error", op]
    if op not in names:
        raise IngestError(source.where, f"has no column {op!r}", "a newer vegeta", "leave out --op")
    for rows in rows_of(source, Layout(",", names, spanning=True), wanted):
        batch = rows
        for name in ("timestamp", "latency"):
            batch = refuse(source, batch, numbers_ns(batch[name], 1)[1], name, "no whole number")
        codes, errors = batch["code"].to_pylist(), batch["error"].to_pylist()
        reply = np.array([code != "0" for code in codes], bool)
        yield Requests(
            duration_ns=pa.array(numbers_ns(batch["latency"], 1)[0], mask=~reply),
            started_ns=numbers_ns(batch["timestamp"], 1)[0],
            op=[name or "attack" for name in batch[op].to_pylist()],
            status=[_status(code, error) for code, error in zip(codes, errors, strict=True)],
            sent_bytes=numbers_ns(batch["bytes_out"], 1)[0],
            received_bytes=numbers_ns(batch["bytes_in"], 1)[0],
            line=batch.line,
        )


def _read_json(source: Source, options: Options) -> Iterator[Requests]:
    op, source.unit = _op(source, options), "ns"
    yield from batches(source, _hits(source, op))


def _hits(source: Source, op: str) -> Iterator[Row]:
    for line, value in objects(source):
        taken, code = value.get("latency"), value.get("code")
        if not isinstance(taken, int) or not isinstance(code, int):
            source.complaints.refuse(line, "no latency or no code")
            continue
        sent, received = (value.get(name) for name in ("bytes_out", "bytes_in"))
        yield Row(
            line=line,
            at=str(value.get("timestamp")),
            duration_ns=taken if code else None,
            op=str(value.get(op) or "attack"),
            status=_status(str(code), str(value.get("error") or "")),
            sent_bytes=sent if isinstance(sent, int) else 0,
            received_bytes=received if isinstance(received, int) else 0,
        )


CSV: Final = Format(
    "vegeta-csv",
    "vegeta encode -to csv",
    "latencies",
    (",200,", ",GET,http"),
    _recognises_csv,
    _read_csv,
    frozenset({"--op"}),
)
JSON: Final = Format(
    "vegeta-json",
    "vegeta encode -to json",
    "latencies",
    tuple(f'"{key}"' for key in sorted(KEYS)),
    _recognises_json,
    _read_json,
    frozenset({"--op"}),
)
