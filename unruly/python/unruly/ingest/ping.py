"""ping of iputils; with ``-D`` each line has the time at which the reply came.

An echo whose number is missing at the end had no reply.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final

from unruly.ingest.by_line import LINE_MOST, exact_ns
from unruly.ingest.model import BATCH_ROWS, Format, Options, Requests
from unruly.ingest.rows import Row, batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

MS, S = 1_000_000, 1_000_000_000
HEAD: Final = re.compile(r"PING .{1,300}?(?:bytes of data|data bytes)")
REPLY: Final = re.compile(
    r"(?:\[(?P<at>\d+\.\d+)\] )?\d+ bytes from [^=]{1,300}icmp_seq=(?P<seq>\d{1,9}) "
    r"[^=]{0,100}=\d+ time=(?P<took>\d+(?:\.\d+)?) ms(?P<again> \(DUP!\))?"
)
SENT: Final = re.compile(r"(?P<sent>\d{1,12}) packets transmitted")
SEQUENCES: Final = 65_536
GAP_MOST: Final = 10_000
"""A larger step is another run of ping, or a file that is damaged."""
LOST: Final = "an echo without a reply has no time: it was given one between its neighbours"
NO_TIMES: Final = "the source has no times of requests: its rows are laid end to end"


def _recognises(sample: Sample) -> bool:
    lines = sample.lines
    return bool(lines) and HEAD.match(lines[0][:LINE_MOST]) is not None


def _read(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "ms"
    timed = any((it := REPLY.match(line[:LINE_MOST])) and it["at"] for line in source.sample.lines)
    rows = _Echoes(source).rows()
    if timed:
        yield from batches(source, rows)
        return
    source.lacks(NO_TIMES)
    while held := list(islice(rows, BATCH_ROWS)):
        yield Requests(
            duration_ns=[it.duration_ns for it in held],
            op="echo",
            status=[it.status for it in held],
            line=[it.line for it in held],
        )


class _Echoes:
    """The echoes of a file: replies as they came, and at the end those that never came."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.missing: dict[int, tuple[int, int]] = {}
        """The time and the line of each number that has not come yet."""
        self.last = 0
        self.last_at = 0

    def rows(self) -> Iterator[Row]:
        """Yield each echo once."""
        sent = number = 0
        for number, whole in self.source.lines():
            line = whole[:LINE_MOST]
            match = REPLY.match(line)
            if match is None:
                total = SENT.match(line)
                sent = int(total["sent"]) if total else sent
                continue
            self.source.complaints.lines += 1
            if match["again"]:
                continue
            taken = exact_ns(match["took"], MS)
            began = exact_ns(match["at"], S) - taken if match["at"] else 0
            self._arrived(int(match["seq"]), began, number)
            yield Row(number, began, taken, "echo")
        if 0 < sent - self.last <= GAP_MOST:
            self._skip(sent + 1, self.last_at, number)
        if self.missing:
            self.source.lacks(LOST)
        for at, line_number in self.missing.values():
            yield Row(line_number, at, None, "echo", "timeout")

    def _arrived(self, sequence: int, began: int, line: int) -> None:
        # the numbers of the wire begin again after 65,535
        place = sequence + (self.last - sequence + SEQUENCES // 2) // SEQUENCES * SEQUENCES
        if place <= self.last:
            self.missing.pop(place, None)
            return
        if place - self.last <= GAP_MOST:
            self._skip(place, began, line)
        self.last, self.last_at = place, began

    def _skip(self, place: int, began: int, line: int) -> None:
        """Note the numbers between the last one and this one, evenly between their times."""
        first = self.last_at or began
        steps = place - self.last
        for step in range(1, steps):
            at = first + (began - first) * step // steps
            self.missing[self.last + step] = (at, line)


FORMAT: Final = Format(
    "ping",
    "ping of iputils, better with -D",
    "latencies",
    ("PING ", "icmp_seq=", "time="),
    _recognises,
    _read,
)
