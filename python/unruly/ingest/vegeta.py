"""vegeta: ``vegeta encode -to csv`` and ``-to json``.

The CSV has no header: start (ns since 1970), HTTP status, latency (ns), bytes out, bytes in, error,
body, attack, sequence number, and in newer versions method, URL and headers. A status from 200 to
399 is a success, as vegeta itself counts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from unruly.errors import IngestError
from unruly.ingest.delimited import Layout, dates_ns, numbers_ns, refuse, rows_of
from unruly.ingest.model import BATCH_ROWS, Format, Options, Requests, failure
from unruly.ingest.objects import first_objects, objects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

NAMES: Final = (
    "timestamp", "code", "latency", "bytes_out", "bytes_in", "error", "body", "attack", "seq",
    "method", "url", "headers",
)  # fmt: skip
OPS: Final = ("attack", "method", "url")
LINE: Final = re.compile(r"^\d{18,19},\d{1,3},\d+,\d+,\d+,")
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
    fine = code.isdigit() and 200 <= int(code) < 400
    return "ok" if fine else failure(code, error)


def _read_csv(source: Source, options: Options) -> Iterator[Requests]:
    op, source.unit = _op(source, options), "ns"
    names = NAMES[: max(9, source.sample.lines[0].count(",") + 1)]
    wanted = ["timestamp", "code", "latency", "bytes_out", "bytes_in", "error", op]
    if op not in names:
        raise IngestError(source.where, f"has no column {op!r}", "a newer vegeta", "leave out --op")
    for rows in rows_of(source, Layout(",", names), wanted):
        batch = rows
        for name in ("timestamp", "latency"):
            batch = refuse(source, batch, numbers_ns(batch[name], 1)[1], name, "no whole number")
        codes, errors = batch["code"].to_pylist(), batch["error"].to_pylist()
        yield _requests(
            started=numbers_ns(batch["timestamp"], 1)[0],
            taken=numbers_ns(batch["latency"], 1)[0],
            status=[_status(code, error) for code, error in zip(codes, errors, strict=True)],
            reply=[code != "0" for code in codes],
            op=[name or "attack" for name in batch[op].to_pylist()],
            sent=numbers_ns(batch["bytes_out"], 1)[0],
            received=numbers_ns(batch["bytes_in"], 1)[0],
            line=batch.line,
        )


def _read_json(source: Source, options: Options) -> Iterator[Requests]:
    op, source.unit = _op(source, options), "ns"
    held: list[tuple[Any, ...]] = []
    for line, value in objects(source):
        taken, code = value.get("latency"), value.get("code")
        if not isinstance(taken, int) or not isinstance(code, int):
            source.complaints.refuse(line, "no latency or no code")
            continue
        status = _status(str(code), str(value.get("error") or ""))
        sizes = [int(value.get(name) or 0) for name in ("bytes_out", "bytes_in")]
        name = str(value.get(op) or "attack")
        held.append((str(value.get("timestamp")), taken, status, code != 0, name, *sizes, line))
        if len(held) == BATCH_ROWS:
            yield from _batch(source, held)
            held = []
    if held:
        yield from _batch(source, held)


def _batch(source: Source, held: list[tuple[Any, ...]]) -> Iterator[Requests]:
    started, bad, _ = dates_ns(pa.array([row[0] for row in held]))
    for place in np.flatnonzero(bad):
        source.complaints.refuse(held[place][-1], f"timestamp is {held[place][0]!r}")
    kept = [row for row, wrong in zip(held, bad, strict=True) if not wrong]
    if kept:
        _, taken, status, reply, op, sent, received, line = zip(*kept, strict=True)
        yield _requests(
            started=started[~bad], taken=np.array(taken), status=list(status), reply=list(reply),
            op=list(op), sent=list(sent), received=list(received), line=np.array(line),
        )  # fmt: skip


def _requests(
    *, started: Any, taken: Any, status: Any, reply: Any, op: Any, sent: Any, received: Any,
    line: Any,
) -> Requests:  # fmt: skip
    return Requests(
        duration_ns=pa.array(taken, mask=~np.asarray(reply)),
        started_ns=started,
        op=op,
        status=status,
        sent_bytes=sent,
        received_bytes=received,
        line=line,
    )


CSV: Final = Format(
    "vegeta-csv",
    "vegeta encode -to csv",
    "latencies",
    ("200", "GET", "http"),
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
