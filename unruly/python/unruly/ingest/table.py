"""Any table of values: CSV, TSV, semicolons, blanks; a named column in a named unit.

A column's unit stands in its name (``latency_ms``, ``rtt [us]``) or in ``--unit``; it is never
guessed. A time is the start of its row, unless ``--time-is end``.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from unruly.errors import IngestError
from unruly.ingest.delimited import rows_of
from unruly.ingest.model import UNITS_NS, Format, Options, Requests
from unruly.ingest.sniff import NUMERIC, sniff
from unruly.ingest.tabular import Plan, check_times, named_columns, outcomes_of, requests_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from unruly.ingest.sniff import Sniffed
    from unruly.ingest.source import Sample, Source

FLAGS: Final = frozenset({
    "--value", "--unit", "--time", "--time-unit", "--time-is", "--op", "--factor", "--status",
    "--failed-if",
})  # fmt: skip
NONE: Final = "none"
VALUES: Final = (
    "latency", "response_time", "responsetime", "response time", "elapsed", "duration", "rtt",
    "value", "service_time", "time_taken",
)  # fmt: skip
TIMES: Final = (
    "timestamp", "time", "ts", "date", "datetime", "start", "started", "start_time", "starttime",
)  # fmt: skip
UNIT_IN_NAME: Final = re.compile(
    r"(?:_(ns|us|ms)|\s*[\[(]\s*(ns|us|µs|μs|ms|s|sec|seconds)\s*[\])])$", re.IGNORECASE
)
LONE_COMMA: Final = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?$")
GROUPED: Final = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}$")
"""A number whose comma may group thousands."""
UNIT_WORDS: Final = {"µs": "us", "μs": "us", "sec": "s", "seconds": "s"}


def _recognises(sample: Sample) -> bool:
    found = sniff(sample)
    if found is None or sample.text.lstrip().startswith(("{", "[", "<")):
        return False
    return len(found.layout.names) > 1 or _numeric(found, found.layout.names[0])


def _read(source: Source, options: Options) -> Iterator[Requests]:
    found = sniff(source.sample, options.value)
    if found is None:
        raise IngestError(source.where, "is no table", "rows of columns", "look at it")
    plan = _plan(source, found, options)
    for rows in rows_of(source, found.layout, plan.columns()):
        yield from requests_of(source, plan, rows)


def _plan(source: Source, found: Sniffed, options: Options) -> Plan:
    names = found.layout.names
    outcomes = outcomes_of(options)
    for flag, name in named_columns(options, outcomes):
        known(source, names, name, flag)
    value = _value(source, found, options)
    unit = options.unit or unit_of(value)
    if unit is None:
        raise IngestError(
            source.where,
            f"column {value!r} does not say its unit",
            "--unit ns, us, ms or s",
            "look at how it was made; a unit is never guessed",
        )
    source.unit = unit
    stated = unit_of(value)
    if stated not in (None, unit):
        source.lacks(f"column {value} is named as {stated} and was read as {unit}, as asked")
    time, time_ns = _time(source, found, options, value)
    check_times(source, options, time)
    comma = _decimal_comma(source, found, value)
    if comma:
        source.lacks("commas in numbers were read as decimal signs")
    called = value if found.named else "request"
    return Plan(
        value, UNITS_NS[unit], time, time_ns, options.op, options.factors, comma, called,
        ends=options.time_is == "end", outcomes=outcomes,
    )  # fmt: skip


def known(source: Source, names: Sequence[str], name: str, flag: str) -> str:
    """Return the name of a column.

    Raises
    ------
    IngestError
        When no column has this name; with the nearest one.
    """
    if name in names:
        return name
    near = get_close_matches(name, names, 1, 0.0)
    raise IngestError(
        source.where,
        f"has no column {name!r} for {flag}",
        f"one of {', '.join(names)}",
        f"{flag} {near[0] if near else names[0]!r}",
    )


def _value(source: Source, found: Sniffed, options: Options) -> str:
    names = found.layout.names
    if options.value is not None:
        return known(source, names, options.value, "--value")
    if len(names) == 1:
        return names[0]
    likely = [name for name in names if _plain(name) in VALUES and _numeric(found, name)]
    if len(likely) == 1:
        return likely[0]
    what = f"several could be: {', '.join(likely)}" if likely else "none is called so"
    raise IngestError(
        source.where,
        f"does not say which column holds latencies ({what})",
        f"--value with one of {', '.join(names)}",
        "a file of arrivals or counters alone has no latency and cannot be imported",
    )


def _plain(name: str) -> str:
    bare = name.strip().lower().removesuffix("_s")
    return bare if bare in (*VALUES, *TIMES) else UNIT_IN_NAME.sub("", name).strip().lower()


def unit_of(name: str) -> str | None:
    """Return the unit that stands in the name of a column, such as ``ms`` of ``latency_ms``."""
    found = UNIT_IN_NAME.search(name)
    if found is None:
        # requests_s are a second, and latency_s are seconds
        in_seconds = name.strip().lower().endswith("_s") and _plain(name) in (*VALUES, *TIMES)
        return "s" if in_seconds else None
    unit = (found.group(1) or found.group(2)).lower()
    return UNIT_WORDS.get(unit, unit)


def _time(
    source: Source, found: Sniffed, options: Options, value: str
) -> tuple[str | None, int | None]:
    """The column of times and its unit; the unit None for dates, the column None without times."""
    names = found.layout.names
    if options.time == NONE and NONE not in names:
        return None, None
    if options.time is not None:
        time = known(source, names, options.time, "--time")
    else:
        likely = [name for name in names if _plain(name) in TIMES and name != value]
        if len(likely) > 1:
            raise IngestError(
                source.where,
                f"several columns could be the time: {', '.join(likely)}",
                "one of them",
                f"--time {likely[0]}, or --time {NONE}",
            )
        if not likely:
            return None, None
        time = likely[0]
    unit = options.time_unit or unit_of(time)
    if unit is not None:
        return time, UNITS_NS[unit]
    if not _numeric(found, time):
        return time, None
    raise IngestError(
        source.where,
        f"column {time!r} holds numbers and does not say their unit",
        "--time-unit ns, us, ms or s",
        f"--time-unit s, or --time {NONE} to do without times",
    )


def _numeric(found: Sniffed, name: str) -> bool:
    """Most of the first values are numbers."""
    place = found.layout.names.index(name)
    cells = [row[place] for row in found.rows if place < len(row) and row[place].strip()]
    return bool(cells) and sum(bool(NUMERIC.match(cell)) for cell in cells) > len(cells) / 2


def _decimal_comma(source: Source, found: Sniffed, name: str) -> bool:
    """Return whether a comma is a decimal sign in the numbers of a column.

    Raises
    ------
    IngestError
        When commas also separate the columns, and each comma may group thousands.
    """
    place = found.layout.names.index(name)
    cells = [row[place].strip() for row in found.rows if place < len(row)]
    with_comma = [cell for cell in cells if "," in cell]
    if not with_comma or found.layout.delimiter != ",":
        return bool(with_comma)
    if not all(LONE_COMMA.match(cell) for cell in with_comma):
        return False
    if all(GROUPED.match(cell) for cell in with_comma):
        raise IngestError(
            source.where,
            f"column {name!r} has {with_comma[0]!r}, whose comma can be a decimal sign or group "
            "thousands",
            "numbers with a decimal point",
            "write them with a point, or separate the columns by semicolons",
        )
    return True


FORMAT: Final = Format(
    "csv",
    "a table (comma, semicolon, tab, blanks) with a column of latencies",
    "latencies",
    (",",),
    _recognises,
    _read,
    FLAGS,
    fallback=True,
)
