"""Logs of the JVM's collectors: unified logging (JDK 9 and later) and the form of JDK 8.

Pauses and safepoints become events; what a second had of them becomes a resource sample, so that
it can be held against latency. A unified line is written when the pause ends, one of JDK 8 carries
the time at which it began.
"""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import datetime
from typing import TYPE_CHECKING, Final

from unruly.errors import IngestError
from unruly.ingest.model import BATCH_ROWS, Batch, Events, Format, Options, Resources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

SECOND_NS: Final = 1_000_000_000
UNIT_NS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": SECOND_NS}
UNIFIED: Final = re.compile(r"^(?P<decorations>(?:\[[^\]]*\])+)\s*(?P<text>.*)$")
UPTIME: Final = re.compile(r"^(?P<number>\d+(?:[.,]\d+)?)(?P<unit>ns|ms|s)$", re.ASCII)
DATE: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,]\d+[+-]\d{4}"
PAUSE: Final = re.compile(
    r"^GC\(\d+\) (?P<what>Pause .*?)(?: \d+[KMGB]->\d+[KMGB]\(\d+[KMGB]\))?"
    r" (?P<length>\d+[.,]\d+)ms$",
    re.ASCII,
)
CONCURRENT: Final = re.compile(
    r"^GC\(\d+\) (?P<what>Concurrent .*?) (?P<length>\d+[.,]\d+)ms$", re.ASCII
)
SAFEPOINT: Final = re.compile(
    r'^Safepoint "(?P<what>[^"]*)".*Total:\s+(?P<length>\d+) ns', re.ASCII
)
STOPPED: Final = re.compile(
    r"(?P<what>Total time for which application threads were stopped): (?P<length>\d+[.,]\d+) sec",
    re.ASCII,
)
OLD: Final = re.compile(
    rf"^(?:(?P<date>{DATE}): )?(?:(?P<uptime>\d+[.,]\d+): )?\[(?P<what>(?:Full )?GC\b[^\[\]]*?)"
    r"[,\s]*(?:\d+[.,]\d+: \[|\[|\d+[KMG]->|, \d|(?=\d+[.,]\d+ secs)|$)",
    re.ASCII,
)
OLD_CONCURRENT: Final = re.compile(
    rf"^(?:(?P<date>{DATE}): )?(?:(?P<uptime>\d+[.,]\d+): )?\[GC (?P<what>concurrent-[a-z-]+)-"
    r"(?P<point>start|end|abort)(?:, (?P<length>\d+[.,]\d+)(?: secs)?)?\]",
    re.ASCII,
)
"""G1 beside the program: a line where a phase begins, and one with its length where it ends."""
OLD_STOPPED: Final = re.compile(
    rf"^(?:(?P<date>{DATE}): )?(?:(?P<uptime>\d+[.,]\d+): )?Total time for which application",
    re.ASCII,
)
SECS: Final = re.compile(r"(?P<length>\d+[.,]\d+) secs\]", re.ASCII)
TIMES: Final = re.compile(r"\[Times: .*$")
KINDS: Final = {"pause": "gc", "concurrent": "gc-concurrent", "safepoint": "safepoint"}
SECONDS_MAX: Final = 40_000_000
"""A log of more than a year is one whose clock jumped."""


def _recognises(sample: Sample) -> bool:
    return any(_event(line, [None]) is not None for line in sample.lines)


def _number(text: str) -> float:
    return float(text.replace(",", "."))


def _date_ns(text: str) -> int:
    instant = datetime.fromisoformat(text.replace(",", "."))
    return int(instant.timestamp()) * SECOND_NS + instant.microsecond * 1_000


_Event = tuple[str, str, int, int, bool]
"""Kind, what, start, end (ns), and whether that is a time of day."""


def _event(line: str, pending: list[tuple[int, str, bool] | None]) -> _Event | None:
    """Return the pause of a line; ``pending`` holds a JDK 8 pause whose end is on a later one."""
    unified = UNIFIED.match(line)
    if unified is not None:
        return _unified(unified["decorations"], unified["text"])
    beside = OLD_CONCURRENT.match(line)
    return _old(line, pending) if beside is None else _old_concurrent(beside)


def _unified(decorations: str, text: str) -> _Event | None:
    for kind, pattern, scale in (
        ("pause", PAUSE, 1e6),
        ("concurrent", CONCURRENT, 1e6),
        ("safepoint", SAFEPOINT, 1.0),
        ("safepoint", STOPPED, 1e9),
    ):
        found = pattern.match(text)
        if found is None:
            continue
        ended = _stamp(decorations)
        if ended is None:
            return None
        length = round(_number(found["length"]) * scale)
        what = " ".join(found["what"].split())
        return KINDS[kind], what, ended[0] - length, ended[0], ended[1]
    return None


def _stamp(decorations: str) -> tuple[int, bool] | None:
    """The instant in the brackets before a line: a time of day where there is one."""
    since: int | None = None
    for part in decorations[1:-1].split("]["):
        word = part.strip()
        if re.fullmatch(DATE, word, re.ASCII):
            return _date_ns(word), True
        found = UPTIME.match(word)
        if found is not None and since is None:
            since = round(_number(found["number"]) * UNIT_NS[found["unit"]])
    return None if since is None else (since, False)


def _old(line: str, pending: list[tuple[int, str, bool] | None]) -> _Event | None:
    bare = TIMES.sub("", line)
    stopped = OLD_STOPPED.match(line)
    if stopped is not None:
        ended, length = _old_stamp(stopped), STOPPED.search(line)
        if ended is None or length is None:
            return None
        lasted = round(_number(length["length"]) * SECOND_NS)
        return "safepoint", "threads stopped", ended[0] - lasted, ended[0], ended[1]
    head = OLD.match(bare)
    if head is not None:
        started = _old_stamp(head)
        if started is None:
            return None
        what = " ".join(head["what"].rstrip(", ").split())
        pending[0] = (started[0], what, started[1])
    if pending[0] is None or (head is None and not bare.lstrip().startswith(("[", ","))):
        return None
    # the whole pause is the last one named: parts of it come before
    lengths = SECS.findall(bare)
    if not lengths or (head is None and not bare.startswith((",", "]"))):
        return None
    start, what, dated = pending[0]
    pending[0] = None
    return "gc", what, start, start + round(_number(lengths[-1]) * SECOND_NS), dated


def _old_concurrent(found: re.Match[str]) -> _Event | None:
    """Return a phase where it ends: its line has the time of its end, and its length."""
    ended = _old_stamp(found)
    if found["point"] != "end" or not found["length"] or ended is None:
        return None
    lasted = round(_number(found["length"]) * SECOND_NS)
    return KINDS["concurrent"], found["what"], ended[0] - lasted, ended[0], ended[1]


def _old_stamp(found: re.Match[str]) -> tuple[int, bool] | None:
    if found["date"]:
        return _date_ns(found["date"]), True
    if found["uptime"]:
        return round(_number(found["uptime"]) * SECOND_NS), False
    return None


def _read(source: Source, options: Options) -> Iterator[Batch]:
    del options
    source.unit = "ms"
    pending: list[tuple[int, str, bool] | None] = [None]
    held: list[_Event] = []
    seconds: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    dated = 0
    count = 0
    for number, line in source.lines():
        try:
            event = _event(line, pending)
        except ValueError as error:
            source.complaints.lines += 1
            source.complaints.refuse(number, str(error))
            continue
        if event is None:
            continue
        source.complaints.lines += 1
        count += 1
        dated += event[4]
        held.append(event)
        if event[0] == "gc":
            _add(seconds, event[2], event[3])
        if len(held) >= BATCH_ROWS:
            yield from _events(held)
            held = []
    if dated not in (0, count):
        raise IngestError(
            source.where,
            f"{dated} of {count} lines have a time of day",
            "all of them or none",
            "-Xlog:gc*:file=gc.log:time,uptime,level,tags",
        )
    if not dated:
        source.lacks(
            "the collector's log says only the time since the JVM began: it is laid from there, "
            "and joins other data only by a time of day (-Xlog:gc*:file:time)"
        )
    yield from _events(held)
    if seconds:
        yield _samples(source, seconds)


def _events(held: list[_Event]) -> Iterator[Events]:
    """Pauses, and what ran beside the program, apart: only the first made anybody wait."""
    for pauses in (True, False):
        part = [it for it in held if (it[0] != KINDS["concurrent"]) is pauses]
        if part:
            kinds, whats, starts, ends, _ = zip(*part, strict=True)
            yield Events(list(kinds), list(starts), list(ends), list(whats), pauses=pauses)


def _add(seconds: dict[int, list[int]], start: int, end: int) -> None:
    """Count a pause in its first second, and its length in each that it touches."""
    seconds[start // SECOND_NS][0] += 1
    for second in range(start // SECOND_NS, end // SECOND_NS + 1):
        inside = min(end, (second + 1) * SECOND_NS) - max(start, second * SECOND_NS)
        seconds[second][1] += max(0, inside)


def _samples(source: Source, seconds: dict[int, list[int]]) -> Resources:
    first, last = min(seconds), max(seconds)
    if last - first > SECONDS_MAX:
        raise IngestError(
            source.where,
            f"its times span {(last - first) / 86_400:.0f} days",
            "one run of a JVM",
            "split the log where its clock jumps",
        )
    every = range(first, last + 1)
    found = [seconds.get(second, [0, 0]) for second in every]
    return Resources(
        [second * SECOND_NS for second in every],
        [(second + 1) * SECOND_NS for second in every],
        {"gc_count": [it[0] for it in found], "gc_ns": [it[1] for it in found]},
    )


FORMAT: Final = Format(
    "jvm-gc",
    "JVM collector log, unified or of JDK 8",
    "context",
    ("Pause", "GC(", "ms"),
    _recognises,
    _read,
)
