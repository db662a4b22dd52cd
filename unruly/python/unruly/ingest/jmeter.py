"""JMeter: result files (JTL) as CSV and as XML; ``timeStamp`` is the start, in ms, unless changed.

Only the outermost of nested samples counts, because it includes the time of its parts. XML is read
event by event, and a file that declares entities is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from xml.parsers import expat

import numpy as np
import pyarrow.compute as pc

from unruly.errors import IngestError
from unruly.ingest.delimited import dates_ns, numbers_ns, refuse, rows_of
from unruly.ingest.model import Format, Options, Requests, failure
from unruly.ingest.rows import Row, batches
from unruly.ingest.sniff import sniff

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.delimited import Rows
    from unruly.ingest.source import Sample, Source

NEEDED: Final = {"timeStamp", "elapsed"}
OPTIONAL: Final = (
    "label", "responseCode", "responseMessage", "success", "bytes", "sentBytes", "Hostname",
    "threadName",
)  # fmt: skip
MS: Final = 1_000_000
SAMPLES: Final = ("sample", "httpSample", "sampleResult")
DEPTH_MAX: Final = 100
TOKEN_MAX: Final = 8 << 20
"""Bytes of one start tag with its attributes."""
STARTS: Final = (
    "timeStamp is taken as the start of a sample, as JMeter writes it unless "
    "sampleresult.timestamp.start is false"
)


def _recognises_csv(sample: Sample) -> bool:
    found = sniff(sample)
    return found is not None and set(found.layout.names) >= NEEDED


def _recognises_xml(sample: Sample) -> bool:
    head = sample.text.lstrip()
    return head.startswith("<") and "<testResults" in head


def _read_csv(source: Source, options: Options) -> Iterator[Requests]:
    found = sniff(source.sample, "elapsed")
    if found is None or not set(found.layout.names) >= NEEDED:
        raise IngestError(
            source.where, "has no columns timeStamp and elapsed", "a JTL with a header",
            "jmeter.save.saveservice.print_field_names=true",
        )  # fmt: skip
    source.unit = "ms"
    op = options.op or "label"
    if options.op and options.op not in found.layout.names:
        known = ", ".join(found.layout.names)
        raise IngestError(source.where, f"has no column {op!r} for --op", f"one of {known}")
    present = [name for name in (*OPTIONAL, op) if name in found.layout.names]
    # messages hold whole traces of stacks
    layout = replace(found.layout, spanning=True)
    for batch in rows_of(source, layout, ["timeStamp", "elapsed", *present]):
        rows = refuse(source, batch, numbers_ns(batch["elapsed"], MS)[1], "elapsed", "no number")
        started, bad = _starts(source, rows)
        rows = refuse(source, rows, bad, "timeStamp", "no time")
        if len(rows):
            yield _requests(rows, started[~bad], op)


def _starts(source: Source, rows: Rows) -> tuple[Any, Any]:
    """Milliseconds, or a date where the user set ``timestamp_format``."""
    numbers, wrong = numbers_ns(rows["timeStamp"], MS)
    if not wrong.all() or not len(rows):
        return numbers, wrong
    dates, bad, zoned = dates_ns(rows["timeStamp"])
    if not zoned and not bad.all():
        source.lacks("its times name no time zone and were taken as UTC")
    return dates, bad


def _requests(rows: Rows, started: Any, op: str) -> Requests:
    def texts(name: str) -> list[str]:
        return rows[name].to_pylist() if name in rows.columns else [""] * len(rows)

    def sizes(name: str) -> Any:
        return np.clip(numbers_ns(rows[name], 1)[0], 0, 2**32 - 1) if name in rows.columns else 0

    status: Any = "ok"
    if "success" in rows.columns:
        fine = np.asarray(pc.equal(pc.utf8_lower(rows["success"]), "true")).astype(bool)
        codes, said = texts("responseCode"), texts("responseMessage")
        status = [
            "ok" if good else failure(code, text)
            for good, code, text in zip(fine.tolist(), codes, said, strict=True)
        ]
    return Requests(
        duration_ns=numbers_ns(rows["elapsed"], MS)[0],
        started_ns=started,
        op=rows[op] if op in rows.columns else "sample",
        status=status,
        client=rows["Hostname"] if "Hostname" in rows.columns else None,
        sent_bytes=sizes("sentBytes"),
        received_bytes=sizes("bytes"),
        line=rows.line,
    )


def _read_xml(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "ms"
    yield from batches(source, _samples(source))


def _samples(source: Source) -> Iterator[Row]:
    """Yield the outermost samples in the order of the file."""
    # a file that was re-encoded as UTF-8 still declares its old encoding
    parser = expat.ParserCreate("utf-8" if source.reencoded else None)
    found: list[tuple[int, dict[str, str]]] = []
    depth = 0

    def opened(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > DEPTH_MAX:
            raise IngestError(
                source.where, f"has elements {DEPTH_MAX} deep", "samples with their sub-samples",
                "look at it: JMeter does not write so",
            )  # fmt: skip
        if depth == 2 and name in SAMPLES:
            found.append((parser.CurrentLineNumber, attributes))

    def closed(name: str) -> None:
        nonlocal depth
        del name
        depth -= 1

    def declared(*_: Any) -> None:
        raise IngestError(
            source.where, "declares entities", "a result file, which has none",
            "it was not written by JMeter: do not open it",
        )  # fmt: skip

    parser.StartElementHandler, parser.EndElementHandler = opened, closed
    parser.EntityDeclHandler = declared
    fed = 0
    for chunk in source.chunks():
        _parse(source, parser, chunk)
        fed += len(chunk)
        if fed - max(parser.CurrentByteIndex, 0) > TOKEN_MAX:
            # the parser begins such a one again with each chunk
            raise IngestError(
                source.where, f"has an element of more than {TOKEN_MAX >> 20} MiB",
                "samples with a label and a message", "look at it: JMeter writes no such element",
            )  # fmt: skip
        yield from _rows(source, found)
        found.clear()
    _parse(source, parser, b"", last=True)
    yield from _rows(source, found)


def _parse(source: Source, parser: Any, chunk: bytes, *, last: bool = False) -> None:
    try:
        parser.Parse(chunk, last)
    except (expat.ExpatError, LookupError, ValueError) as error:  # or its encoding is no such
        if last and source.complaints.lines:
            source.lacks("the file is cut off: its last element is not closed")
            return
        raise IngestError(
            source.where, f"is no well-formed XML: {error}", "a whole JTL", "copy it again"
        ) from error


def _rows(source: Source, found: list[tuple[int, dict[str, str]]]) -> Iterator[Row]:
    for line, attributes in found:
        source.complaints.lines += 1
        get = attributes.get
        taken, started = get("t", get("time", "")), get("ts", get("timeStamp", ""))
        if not taken.lstrip("-").isdecimal() or not started.isdecimal():
            source.complaints.refuse(line, f"t is {taken!r}, ts is {started!r}: no whole numbers")
            continue
        fine = get("s", get("success", "true")).lower() == "true"
        code, said = get("rc", get("responseCode", "")), get("rm", get("responseMessage", ""))
        yield Row(
            line=line,
            at=int(started) * MS,
            duration_ns=int(taken) * MS,
            op=get("lb", get("label", "sample")),
            status="ok" if fine else _failure(code, said),
            client=get("hn"),
            sent_bytes=_size(get("sby")),
            received_bytes=_size(get("by")),
        )


def _failure(code: str, said: str) -> str:
    """Return the status of a failed sample.

    Socket samplers write code 500 themselves if the peer does not answer. The exception in the
    message then names the failure.
    """
    named = failure("", said)
    return named if "Exception" in said and named != "error:failed" else failure(code, said)


def _size(text: str | None) -> int:
    return min(int(text), 2**32 - 1) if text and text.isdecimal() else 0


CSV: Final = Format(
    "jmeter-csv",
    "JMeter results (JTL) as CSV",
    "latencies",
    ("timeStamp", "elapsed", "label", "responseCode", "threadName", "success"),
    _recognises_csv,
    _read_csv,
    frozenset({"--op"}),
)
XML: Final = Format(
    "jmeter-xml",
    "JMeter results (JTL) as XML",
    "latencies",
    ("<testResults", "ample ", ' ts="', ' lb="', ' rc="'),
    _recognises_xml,
    _read_xml,
)
