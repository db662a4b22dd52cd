"""ghz: its JSON has each call with the time at which it ended, its CSV has no times."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import ijson

from unruly.errors import IngestError
from unruly.ingest.by_line import exact_ns
from unruly.ingest.model import BATCH_ROWS, Format, Options, Requests
from unruly.ingest.rows import Row, batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

STATUS: Final = {"OK": "ok", "DeadlineExceeded": "timeout"} | {
    word: f"error:{word.upper()}"
    for word in (
        "Canceled", "Unknown", "InvalidArgument", "NotFound", "AlreadyExists", "PermissionDenied",
        "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented",
        "Internal", "Unavailable", "DataLoss", "Unauthenticated",
    )
}  # fmt: skip


def _recognises(sample: Sample) -> bool:
    head = sample.head
    return b'"statusCodeDistribution"' in head and b'"latencyDistribution"' in head


def _read(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "ns"
    yield from batches(source, _rows(source), ended=True)


def _rows(source: Source) -> Iterator[Row]:
    number = 0
    try:
        for number, call in enumerate(
            ijson.items(source.stream(), "details.item", use_float=True), 1
        ):
            source.complaints.lines += 1
            try:
                at, taken, word = str(call["timestamp"]), int(call["latency"]), str(call["status"])
            except (KeyError, TypeError, ValueError):
                source.complaints.refuse(number, f"call {number:,} has no time or no status")
                continue
            yield Row(number, at, taken, "call", _status(word))
    except ijson.JSONError as error:
        raise IngestError(
            source.where,
            f"is broken or cut off after call {number:,}",
            "whole JSON",
            "copy it again",
        ) from error
    if not number:
        raise IngestError(
            source.where, "has no details of calls", "ghz's JSON with details", "ghz -O json"
        )


CSV_HEAD: Final = "duration (ms),status,error"
CSV_LINE: Final = re.compile(r"(?P<took>\d+(?:\.\d+)?),(?P<status>\w+),")
NO_TIMES: Final = "the source has no times of requests: its rows are laid end to end"


def _is_csv(sample: Sample) -> bool:
    first = next((it for it in sample.lines if it.strip()), "")
    return first.startswith(CSV_HEAD)


def _read_csv(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "ms"
    source.lacks(NO_TIMES)
    taken: list[int] = []
    status: list[str] = []
    for number, line in source.lines():
        if not line.strip() or line.startswith(CSV_HEAD):
            continue
        source.complaints.lines += 1
        match = CSV_LINE.match(line)
        if match is None:
            source.complaints.refuse(number, "no call in the form of this file")
            continue
        taken.append(exact_ns(match["took"], 1_000_000))
        status.append(_status(match["status"]))
        if len(taken) == BATCH_ROWS:
            yield Requests(duration_ns=taken, op="call", status=status)
            taken, status = [], []
    if taken:
        yield Requests(duration_ns=taken, op="call", status=status)


def _status(word: str) -> str:
    return STATUS.get(word, "error:failed")


CSV: Final = Format(
    "ghz-csv",
    "ghz -O csv",
    "latencies",
    ("duration (ms)", "status,error"),
    _is_csv,
    _read_csv,
)
FORMAT: Final = Format(
    "ghz",
    "ghz -O json",
    "latencies",
    ("statusCodeDistribution", "latencyDistribution", "details"),
    _recognises,
    _read,
)
