"""NoSQLBench's histostat CSV: of each tag and interval its count and some percentiles.

The header names the unit and the columns; ``p999`` is the 99.9th percentile.
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Final

from unruly.errors import IngestError
from unruly.ingest.model import Batch, Figures, Format, Options
from unruly.ingest.percentiles import Bins, bins_between

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

COLUMNS: Final = "#Tag,Interval_Start,Interval_Length,count,min,"
TIME: Final = re.compile(r"^#\[StartTime: *(?P<seconds>[0-9.eE+]+)")
UNIT: Final = re.compile(r"^#\[TimeUnit: *(?P<unit>[A-Z]+)\]")
UNITS: Final = {"NANOSECONDS": "ns", "MICROSECONDS": "us", "MILLISECONDS": "ms", "SECONDS": "s"}
SCALE: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
SECOND_NS: Final = 1e9
NANOSECONDS_MAX: Final = float(1 << 62)
COUNT_MAX: Final = 10**15
"""More requests than any interval has."""


def _recognises(sample: Sample) -> bool:
    return any(line.startswith(COLUMNS) for line in sample.lines)


def _share(name: str) -> float:
    """The share of a column's name: p25 is 0.25, p999 is 0.999.

    Examples
    --------
    >>> _share("p99"), _share("p9999")
    (0.99, 0.9999)
    """
    return float(f"0.{name[1:]}")


def _read(source: Source, options: Options) -> Iterator[Batch]:
    start_s, unit, names = 0.0, options.unit, []
    held, known = Bins(), dict[str, tuple[float, float, float]]()
    for number, line in source.lines():
        if found := TIME.match(line):
            start_s = float(found["seconds"])
        elif (told := UNIT.match(line)) and unit is None:
            unit = UNITS.get(told["unit"])
        elif line.startswith(COLUMNS):
            names = line.strip().lstrip("#").split(",")
        elif not line.startswith("#"):
            source.complaints.lines += 1
            if unit is None:
                options.unit_ns(source.where)
            try:
                fields = next(csv.reader([line]))
                row = dict(zip(names, fields, strict=True))
                _add(held, known, row, (start_s, SCALE[unit or "ns"]))
            except (ValueError, KeyError, ArithmeticError, csv.Error) as error:
                source.complaints.refuse(number, str(error))
    source.unit = unit
    source.lacks("the source kept percentiles of each interval, no single values")
    if not held.op:
        raise IngestError(
            source.where, "counts nothing in any interval", "intervals with values", "run it longer"
        )
    yield held.batch()
    for op, (n, low, high) in known.items():
        yield Figures(op, {"n": n, "min_ns": low, "max_ns": high})


def _add(
    held: Bins,
    known: dict[str, tuple[float, float, float]],
    row: dict[str, str],
    units: tuple[float, int],
) -> None:
    start_s, ns = units
    n = int(row["count"])
    began = round((start_s + float(row["Interval_Start"])) * SECOND_NS)
    ended = began + round(float(row["Interval_Length"]) * SECOND_NS)
    percentiles = [
        (_share(name), float(value) * ns)
        for name, value in row.items()
        if re.fullmatch(r"p[0-9]+", name)
    ]
    least, most = float(row["min"]) * ns, float(row["max"]) * ns
    for value in (least, most, *(value for _, value in percentiles)):
        if not 0 <= value <= NANOSECONDS_MAX:
            raise ValueError(f"a value is {value / SECOND_NS:g} s")
    op = row["Tag"].removeprefix("Tag=")
    if n < 0 or n > COUNT_MAX:
        raise ValueError(f"a count is {n}")
    if n == 0:
        return
    held.add(op, (began, ended), bins_between(n, percentiles, least, most))
    before, low, high = known.get(op, (0, least, most))
    known[op] = (before + n, min(low, least), max(high, most))


FORMAT: Final = Format(
    "histostat",
    "NoSQLBench histostat CSV",
    "latencies",
    ("#Tag,Interval_Start", "TimeUnit", "p9999"),
    _recognises,
    _read,
    frozenset({"--unit"}),
)
