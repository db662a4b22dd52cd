"""pgbench: the log of each transaction (``--log``), not the aggregated one.

A line is client, transaction, elapsed us, script, end as seconds and us, and then with ``--rate``
the schedule lag (us), with ``--max-tries`` the retries. With a rate the elapsed time counts from
the schedule: the log has intended times. ``failed`` and ``skipped`` stand where the time would.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from unruly.ingest.model import Format, Options, Requests
from unruly.ingest.rows import Row, batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

LINE: Final = re.compile(
    r"^(\d+) (\d+) (\d+|skipped|failed|serialization|deadlock) (\d+) (\d{9,11}) (\d{1,6})"
    r"(?: (\d+))?(?: (\d+))?$",
    re.ASCII,
)
US: Final = 1_000
RETRIES_AT_MOST: Final = 9
"""A seventh field that is never larger counts retries: no schedule is kept to 9 us every time."""


def _recognises(sample: Sample) -> bool:
    lines = [line for line in sample.lines if line.strip()]
    return bool(lines) and all(LINE.match(line.rstrip()) for line in lines[:100])


def _read(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "us"
    yield from batches(source, _rows(source, lagged=_has_lag(source)))


def _has_lag(source: Source) -> bool:
    """Whether there is a schedule lag: alone, a seventh field may also count retries."""
    found = [match for line in source.sample.lines if (match := LINE.match(line.rstrip()))]
    if any(match.group(8) for match in found):
        return True
    seventh = [int(match.group(7)) for match in found if match.group(7)]
    if not seventh:
        return False
    lagged = max(seventh) > RETRIES_AT_MOST
    what = "schedule lag" if lagged else "number of retries"
    source.lacks(f"the seventh field is not named; it was read as the {what}")
    return lagged


def _rows(source: Source, *, lagged: bool) -> Iterator[Row]:
    for number, line in source.lines():
        source.complaints.lines += 1
        match = LINE.match(line.rstrip())
        if match is None:
            source.complaints.refuse(number, f"{line[:40]!r} is no transaction")
            continue
        client, _, taken, script, seconds, micros, seventh, eighth = match.groups()
        ended = (int(seconds) * 1_000_000 + int(micros)) * US
        retries = eighth or (None if lagged else seventh)
        connection, op = int(client), f"script {script}"
        attempt = min(int(retries or 0), 255)
        if not taken.isdecimal():
            status = "shed" if taken == "skipped" else f"error:{taken}"
            yield Row(
                number, ended, None, op, status, connection=connection, attempt=attempt,
                intended_ns=ended if lagged else None,
            )  # fmt: skip
            continue
        lag = int(seventh) * US if lagged and seventh else 0
        intended = ended - int(taken) * US
        yield Row(
            number, intended + lag, int(taken) * US - lag, op, connection=connection,
            attempt=attempt, intended_ns=intended if lagged else None,
        )  # fmt: skip


FORMAT: Final = Format(
    "pgbench",
    "pgbench --log",
    "latencies",
    ("0 1 ", " 0 1"),
    _recognises,
    _read,
)
