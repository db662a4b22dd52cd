"""CSV of dstat and its heir dool: groups of columns, a row for each interval.

Without the ``epoch`` or ``time`` column rows count from the date in the head, a second each.
"""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from unruly.errors import IngestError
from unruly.ingest.activity import SECOND_NS, Samples
from unruly.ingest.model import Batch, Format, Options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

TITLE: Final = re.compile(r'^"(?:Dstat|pcp-dstat|Dool) [0-9.]+ CSV output"', re.IGNORECASE)
HEAD_LINES: Final = 8
PAGE_BYTES: Final = 4096.0
CPU: Final = "total cpu usage"
COLUMNS: Final = {
    (CPU, "usr"): ("cpu_user_share", 0.01),
    (CPU, "sys"): ("cpu_system_share", 0.01),
    (CPU, "wai"): ("cpu_iowait_share", 0.01),
    (CPU, "stl"): ("cpu_steal_share", 0.01),
    (CPU, "siq"): ("cpu_softirq_share", 0.01),
    ("memory usage", "used"): ("memory_used_bytes", 1.0),
    ("swap", "used"): ("swap_used_bytes", 1.0),
    ("procs", "run"): ("run_queue_length", 1.0),
}
RATES: Final = {
    ("dsk/total", "read"): ("disk_read_bytes", 1.0),
    ("dsk/total", "writ"): ("disk_written_bytes", 1.0),
    ("io/total", "read"): ("disk_reads", 1.0),
    ("io/total", "writ"): ("disk_writes", 1.0),
    ("net/total", "recv"): ("network_received_bytes", 1.0),
    ("net/total", "send"): ("network_sent_bytes", 1.0),
    ("paging", "in"): ("swap_in_pages", 1 / PAGE_BYTES),
    ("paging", "out"): ("swap_out_pages", 1 / PAGE_BYTES),
    ("system", "csw"): ("context_switches", 1.0),
}
KNOWN: Final = {name for _, name in (*COLUMNS, *RATES)}
DATE: Final = re.compile(r"(\d{1,2} \w{3} \d{4} \d\d:\d\d:\d\d)(?: (\w+))?", re.ASCII)


def _recognises(sample: Sample) -> bool:
    return any(TITLE.match(line) for line in sample.lines[:HEAD_LINES])


def _fields(line: str) -> list[str]:
    try:
        return next(csv.reader([line]))
    except csv.Error:
        return []


def _read(source: Source, options: Options) -> Iterator[Batch]:
    del options
    groups: list[str] = []
    names: list[tuple[str, str]] = []
    began_ns, before_ns = 0, None
    samples = Samples()
    for number, line in source.lines():
        fields = _fields(line)
        if line.startswith('"') and not names:
            began_ns = _date_ns(source, line) or began_ns
            if len(fields) == len(groups) and KNOWN & set(fields):
                names = list(zip(groups, fields, strict=True))
            groups = _filled(fields)
            continue
        if line.startswith('"'):
            continue
        source.complaints.lines += 1
        try:
            ended = _stamp_ns(source, dict(zip(names, fields, strict=True)), began_ns, before_ns)
            if before_ns is not None and ended <= before_ns:
                raise ValueError("time does not rise")
            began = before_ns if before_ns is not None else ended - SECOND_NS
            _add(samples, (began, ended), dict(zip(names, fields, strict=True)))
        except ValueError as error:
            source.complaints.refuse(number, str(error))
            continue
        before_ns = ended
    if not samples.held:
        raise IngestError(
            source.where, "has no sample that is kept", "CPU, memory, disk, network", "dstat -Tcmnd"
        )
    yield from samples.batches()


def _filled(fields: list[str]) -> list[str]:
    """Names of groups for every column: an empty one belongs to the group before it."""
    found: list[str] = []
    for name in fields:
        found.append(name.strip().lower() or (found[-1] if found else ""))
    return found


def _date_ns(source: Source, line: str) -> int | None:
    found = DATE.search(line) if '"Date:"' in line else None
    if found is None:
        return None
    if found[2] not in ("UTC", "GMT"):
        source.lacks(f"dstat's times are in the zone {found[2] or '?'} and are taken as UTC")
    instant = datetime.strptime(found[1], "%d %b %Y %H:%M:%S").replace(tzinfo=UTC)
    return int(instant.timestamp()) * SECOND_NS


def _stamp_ns(
    source: Source, row: dict[tuple[str, str], str], began_ns: int, before_ns: int | None
) -> int:
    for (_, name), text in row.items():
        if name == "epoch":
            return round(float(text) * 1_000) * 1_000_000
        if name == "time":
            year = datetime.fromtimestamp(began_ns / SECOND_NS, UTC).year
            instant = datetime.strptime(f"{year} {text}", "%Y %d-%m %H:%M:%S").replace(tzinfo=UTC)
            source.lacks("dstat's times name no zone and are taken as UTC")
            return int(instant.timestamp()) * SECOND_NS
    source.lacks("dstat's rows have no times: they count from its start, a second each")
    return (before_ns if before_ns is not None else began_ns) + SECOND_NS


def _add(samples: Samples, span: tuple[int, int], row: dict[tuple[str, str], str]) -> None:
    seconds = (span[1] - span[0]) / SECOND_NS
    for key, text in row.items():
        if key in COLUMNS:
            column, scale = COLUMNS[key]
            samples.add(span, column, float(text) * scale)
        elif key in RATES:
            column, scale = RATES[key]
            samples.add(span, column, float(text) * scale * seconds)


FORMAT: Final = Format(
    "dstat",
    "CSV of dstat or dool",
    "context",
    ("CSV output", "total cpu usage", "Cmdline:"),
    _recognises,
    _read,
)
