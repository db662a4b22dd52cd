"""Percentile distributions as HdrHistogram prints them (``.hgrm``), also inside wrk2's output.

Each line gives a value and how many values lie at or below it: two neighbouring lines make a bin.
wrk2 prints milliseconds; a bare ``.hgrm`` does not say its unit.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from unruly.errors import IngestError
from unruly.ingest.model import Batch, Figures, Format, Histograms, Options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

HEADER: Final = re.compile(r"^\s*Value\s+Percentile\s+TotalCount\s+1/\(1-Percentile\)\s*$")
CSV_HEADER: Final = re.compile(r'^"?Value"?,"?Percentile"?,"?TotalCount"?,"?1/\(1-Percentile\)"?')
ROW: Final = re.compile(
    r"^\s*(?P<value>[0-9.eE+-]+)[\s,]+(?P<share>[0-9.]+)[\s,]+(?P<count>[0-9]+)"
    r"(?:[\s,]+(?:[0-9.]+|inf|Infinity))?\s*$"
)
FOOTER: Final = re.compile(r"(?P<name>Mean|StdDeviation|Max|Total count)\s*=\s*(?P<value>[0-9.]+)")
WRK2: Final = "Detailed Percentile spectrum"
MILLISECOND_NS: Final = 1_000_000
NAMES: Final = {"Mean": "mean_ns", "StdDeviation": "sd_ns", "Max": "max_ns"}


def _is_header(line: str) -> bool:
    return HEADER.match(line) is not None or CSV_HEADER.match(line) is not None


def _recognises(sample: Sample) -> bool:
    return any(_is_header(line) for line in sample.lines)


def _read(source: Source, options: Options) -> Iterator[Batch]:
    known: dict[str, float] = {}
    rows: list[tuple[float, int]] = []
    inside, wrk2 = False, False
    for number, line in source.lines():
        wrk2 |= WRK2 in line
        if _is_header(line):
            inside = True
        elif inside and line.lstrip().startswith("#["):
            known |= {it["name"]: float(it["value"]) for it in FOOTER.finditer(line)}
        elif inside and rows and wrk2 and line.lstrip().startswith("---"):
            break
        elif inside and (row := ROW.match(line)):
            source.complaints.lines += 1
            rows.append((float(row["value"]), int(row["count"])))
        elif inside and not known:
            source.complaints.lines += 1
            source.complaints.refuse(number, "no value with its percentile and count")
    if not rows:
        raise IngestError(
            source.where, "has a header and no rows", "values and percentiles", "write it again"
        )
    unit_ns = MILLISECOND_NS if wrk2 and options.unit is None else options.unit_ns(source.where)
    source.unit = options.unit or "ms"
    source.lacks("the source kept one distribution of the whole run: nothing is known over time")
    yield _bins(source, rows, unit_ns)
    figures = {
        "n": float(rows[-1][1]),
        **{NAMES[k]: v * unit_ns for k, v in known.items() if k in NAMES},
    }
    yield Figures("request", figures)


def _bins(source: Source, rows: list[tuple[float, int]], unit_ns: int) -> Histograms:
    low: list[float] = []
    high: list[float] = []
    count: list[float] = []
    before, below = 0, 0.0
    for value, upto in rows:
        if upto < before or value < below:
            raise IngestError(
                source.where,
                f"falls from {before} values below {below} to {upto} below {value}",
                "rising values and counts",
                "one distribution a file",
            )
        if upto > before:
            # the first line is the minimum: everything it counts has that value
            low.append((value if before == 0 else below) * unit_ns)
            high.append(value * unit_ns)
            count.append(float(upto - before))
        before, below = upto, value
    return Histograms("request", 0, 1, low, high, count)


FORMAT: Final = Format(
    "hgrm",
    "percentile distribution of HdrHistogram, wrk2",
    "latencies",
    ("Percentile", "TotalCount", "1/(1-Percentile)"),
    _recognises,
    _read,
    frozenset({"--unit"}),
)
