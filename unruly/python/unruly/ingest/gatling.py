"""Gatling: ``simulation.log`` as text, versions 2 and 3 (3.11 and later write a binary file).

Lines of tabs. A ``REQUEST`` line ends with name, start, end (ms since 1970), ``OK`` or ``KO`` and a
message; up to 2.1 there are four times, and scenario and user come first. What stands before the
name differs between versions, so that a line is read from its status backwards.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from unruly.ingest.model import Format, Options, Requests, failure
from unruly.ingest.rows import Row, batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

RUN: Final = re.compile(r"^(RUN\t|[^\t]+\t[^\t]*\tRUN\t)")
STATUSES: Final = ("OK", "KO")
TIME: Final = re.compile(r"^-?\d{10,19}$", re.ASCII)
FOUND: Final = re.compile(r"found (\d{3})\b", re.ASCII)
MS: Final = 1_000_000


def _recognises(sample: Sample) -> bool:
    lines = sample.lines
    return any(RUN.match(line) for line in lines[:20]) and any("\t" in line for line in lines)


def _read(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "ms"
    yield from batches(source, _rows(source))


def _rows(source: Source) -> Iterator[Row]:
    for number, line in source.lines():
        fields = line.split("\t")
        if "REQUEST" not in (fields[0], fields[2] if len(fields) > 2 else ""):
            continue
        source.complaints.lines += 1
        row = _row(number, fields)
        if row is None:
            source.complaints.refuse(number, "a REQUEST without name, start, end and status")
        else:
            yield row


def _row(number: int, fields: list[str]) -> Row | None:
    for place in range(4, len(fields)):
        if fields[place].strip() in STATUSES and TIME.match(fields[place - 1]):
            break
    else:
        return None
    first = place
    while first > 1 and TIME.match(fields[first - 1]) and place - first < 4:
        first -= 1
    if place - first not in (2, 4) or first < 2:
        return None
    groups = fields[first - 2] if fields[first - 2] not in ("REQUEST", "") else ""
    # a user's number stands there where there is no group
    op = (
        f"{groups} / {fields[first - 1]}"
        if groups and not groups.isdecimal()
        else fields[first - 1]
    )
    message = fields[place + 1] if len(fields) > place + 1 else ""
    started, ended = int(fields[first]), int(fields[place - 1])
    if fields[place].strip() == "OK":
        return Row(number, started * MS, (ended - started) * MS, op)
    code = FOUND.search(message)
    status = failure(code.group(1) if code else "", message)
    return Row(number, started * MS, (ended - started) * MS, op, status)


FORMAT: Final = Format(
    "gatling",
    "Gatling's simulation.log, text",
    "latencies",
    ("RUN\t", "USER\t", "REQUEST\t", "\tOK"),
    _recognises,
    _read,
)
