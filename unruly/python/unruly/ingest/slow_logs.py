"""Logs of statements with their durations: PostgreSQL, and the slow log of MySQL and MariaDB.

The operation is the first word of a statement. Statements hold data, and none is kept.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from unruly.ingest.by_line import LINE_MOST, exact_ns
from unruly.ingest.model import Format, Options, Requests
from unruly.ingest.rows import Row, batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

MS, S = 1_000_000, 1_000_000_000
POSTGRES: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)"
    r"(?: ?(?P<zone>[A-Z]{1,5}|[+-]\d\d(?::?\d\d)?)(?![\w/]))?"
)
TOOK: Final = re.compile(
    r"LOG:  duration: (?P<took>\d+\.\d+) ms"
    r"(?:  (?P<kind>statement|execute|parse|bind|fastpath)(?: [^:]{0,200})?: (?P<word>\w{1,40})?)?"
)
STEPS: Final = frozenset({"parse", "bind"})
UTC: Final = frozenset({"UTC", "GMT", "Z"})
NO_STEPS: Final = "parse and bind are steps of a statement, and are left out"
FAILED: Final = "a statement that failed or was cancelled is not in the log"
TIMED: Final = re.compile(r"# Query_time: (?P<took>\d+\.\d+)\s+Lock_time: ")
STAMP: Final = re.compile(r"SET (?:\w+=\d+,)*timestamp=(?P<at>\d{9,11}(?:\.\d+)?);$")
WORD: Final = re.compile(r"\s*(?P<word>[A-Za-z]{1,40})")
ADMIN: Final = "# administrator command:"
BANNER: Final = re.compile(r".{0,200}Version: (?P<version>\d+\.\d+\.\d+)(?P<mariadb>\S*MariaDB)?")
STARTS_FROM: Final = (8, 0, 14)
"""MySQL notes the time at which a statement began from this version on, before its end."""


def _is_postgres(sample: Sample) -> bool:
    return any(
        POSTGRES.match(line) and TOOK.search(line)
        for line in (it[:LINE_MOST] for it in sample.lines)
    )


def _postgres(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "ms"
    source.lacks("only the statements that log_min_duration_statement lets pass are in the log")
    source.lacks(FAILED)
    yield from batches(source, _statements(source), ended=True)


def _statements(source: Source) -> Iterator[Row]:
    for number, whole in source.lines():
        line = whole[:LINE_MOST]
        head = POSTGRES.match(line)
        match = TOOK.search(line) if head is not None else None
        if head is None or match is None:
            # other messages, and the further lines of a statement
            continue
        if match["kind"] in STEPS:
            source.lacks(NO_STEPS)
            continue
        source.complaints.lines += 1
        zone = head["zone"] or ""
        if zone and zone not in UTC and zone[0] not in "+-":
            source.lacks("its times are in a zone with a name, and were taken as UTC")
        offset = "Z" if zone in UTC else zone if zone[:1] in ("+", "-") else ""
        if len(offset) == len("+00"):
            offset += ":00"
        date = head["date"].replace(" ", "T") + offset
        op = match["word"] or match["kind"] or "statement"
        yield Row(number, date, exact_ns(match["took"], MS), op.lower())


def _is_slow_log(sample: Sample) -> bool:
    return any(TIMED.match(line) for line in sample.lines)


def _slow_log(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "s"
    source.lacks("only the statements that long_query_time lets pass are in the log")
    source.lacks("the log has whole seconds: times of statements are known to the second")
    yield from batches(source, _queries(source), ended=not _notes_starts(source))


def _notes_starts(source: Source) -> bool:
    """Whether the log has the times at which statements began."""
    found = [it for line in source.sample.lines if (it := BANNER.match(line))]
    if not found:
        source.lacks("the log does not name its server: its times were taken as those of the ends")
        return False
    version = tuple(map(int, found[0]["version"].split(".")))
    return not found[0]["mariadb"] and version >= STARTS_FROM


def _queries(source: Source) -> Iterator[Row]:
    taken = at = None
    began = 0
    for number, whole in source.lines():
        line = whole[:LINE_MOST].rstrip()
        timed, stamp = TIMED.match(line), STAMP.match(line)
        if timed is not None:
            if taken is not None:
                source.complaints.refuse(began, "an entry without a time or a statement")
            source.complaints.lines += 1
            taken, at, began = exact_ns(timed["took"], S), None, number
        elif stamp is not None:
            at = exact_ns(stamp["at"], S)
        elif taken is not None and at is not None:
            if line.startswith("#") and not line.startswith(ADMIN):
                continue
            word = WORD.match(line)
            op = "admin" if line.startswith(ADMIN) else "statement"
            yield Row(number, at, taken, word["word"].lower() if word else op)
            taken = None
    if taken is not None:
        source.complaints.refuse(began, "an entry without a time or a statement")


POSTGRES_LOG: Final = Format(
    "postgres-log",
    "PostgreSQL's log with log_min_duration_statement",
    "latencies",
    ("LOG:  duration: ", " ms  statement: "),
    _is_postgres,
    _postgres,
)
SLOW_LOG: Final = Format(
    "mysql-slow-log",
    "the slow log of MySQL and MariaDB",
    "latencies",
    ("# Query_time: ", "# User@Host: ", "SET timestamp="),
    _is_slow_log,
    _slow_log,
)
