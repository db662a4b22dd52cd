"""sockperf: ``--full-log``: when each packet was sent and its answer received, in seconds.

The fourth column is the round trip or, in the ping-pong and under-load modes, half of it. What
counts here is always the whole round trip, from the two times.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from unruly.ingest.model import Format, Options, Requests
from unruly.ingest.rows import Row, batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

HEADER: Final = re.compile(r"^packet, txTime\(sec\), rxTime\(sec\), (\w+)\(usec\)$")
LINE: Final = re.compile(r"^(\d+), (\d+)\.(\d{1,9}), (\d+)\.(\d{1,9}), -?[\d.]+$", re.ASCII)
HALVED: Final = "sockperf printed half the round trip as latency; here it is the whole"
RELATIVE: Final = "times count from the start of the host's counter, not from 1970"
NS: Final = 1_000_000_000


def _recognises(sample: Sample) -> bool:
    return any(HEADER.match(line.strip()) for line in sample.lines)


def _read(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "s"
    source.lacks(RELATIVE)
    source.lacks("packets without an answer are not in the log: they are only counted by sockperf")
    yield from batches(source, _rows(source))


def _rows(source: Source) -> Iterator[Row]:
    server, inside = -1, False
    for number, raw in source.lines():
        line = raw.strip()
        header = HEADER.match(line)
        if header:
            server, inside = server + 1, True
            if header.group(1) == "latency":
                source.lacks(HALVED)
            continue
        if not inside or line.startswith("---"):
            inside = inside and not line.startswith("---")
            continue
        source.complaints.lines += 1
        match = LINE.match(line)
        if match is None:
            source.complaints.refuse(number, f"{line[:40]!r} is no packet")
            continue
        _, seconds, part, end_seconds, end_part = match.groups()
        sent, received = _ns(seconds, part), _ns(end_seconds, end_part)
        yield Row(number, sent, received - sent, "packet", server=f"server-{server}")


def _ns(seconds: str, part: str) -> int:
    return int(seconds) * NS + int(part.ljust(9, "0"))


FORMAT: Final = Format(
    "sockperf",
    "sockperf --full-log",
    "latencies",
    ("packet, txTime", "rxTime(sec)", "(usec)"),
    _recognises,
    _read,
)
