"""HdrHistogram logs (``.hlog``, format 1.0 to 1.3; histograms of version 0 to 2).

A line is an interval: its start and length in seconds, its maximum, and its histogram, perhaps
behind a tag. Starts count from ``BaseTime``, else, where they are smaller than a year before it,
from ``StartTime``. The log does not say its unit; jHiccup always records nanoseconds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from unruly.errors import IngestError
from unruly.ingest.hdr import decode
from unruly.ingest.model import BATCH_ROWS, Batch, Format, Options
from unruly.ingest.percentiles import Bins

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

LINE: Final = re.compile(
    r"^(?:Tag=(?P<tag>[^, ]+),)?\s*(?P<start>[0-9.eE+-]+),\s*(?P<length>[0-9.eE+-]+),"
    r"\s*(?P<most>[0-9.eE+-]+),\s*(?P<data>[A-Za-z0-9+/=]{12,})\s*$"
)
TIME: Final = re.compile(r"^#\[(?P<kind>StartTime|BaseTime): *(?P<seconds>[0-9.eE+]+)")
NANOSECONDS: Final = re.compile(r"jHiccup|^#\[TimeUnit: *NANOSECONDS\]")
YEAR_S: Final = 365 * 86_400.0
SECOND_NS: Final = 1e9
COMMENTS: Final = ("#", '"StartTimestamp"')


def _recognises(sample: Sample) -> bool:
    return any(
        (found := LINE.match(line)) is not None and found["data"].startswith("HIST")
        for line in sample.lines
    )


def _read(source: Source, options: Options) -> Iterator[Batch]:
    times: dict[str, float] = {}
    unit_ns: int | None = None
    held = Bins()
    for number, line in source.lines():
        if line.startswith(COMMENTS):
            if found := TIME.match(line):
                times[found["kind"]] = float(found["seconds"])
            if NANOSECONDS.search(line) and options.unit is None:
                unit_ns, source.unit = 1, "ns"
            continue
        source.complaints.lines += 1
        row = LINE.match(line)
        if row is None:
            source.complaints.refuse(number, "no interval with a histogram")
            continue
        if unit_ns is None:
            unit_ns, source.unit = options.unit_ns(source.where), options.unit
        try:
            start, length = float(row["start"]), float(row["length"])
            histogram = decode(row["data"])
        except (IngestError, ValueError) as error:
            said = error.what if isinstance(error, IngestError) else str(error)
            source.complaints.refuse(number, said)
            continue
        begin = round((start + _origin_s(times, start)) * SECOND_NS)
        span = (begin, begin + round(length * SECOND_NS))
        edges = (histogram.low * unit_ns).tolist(), (histogram.high * unit_ns).tolist()
        bins = zip(*edges, histogram.count.astype(float).tolist(), strict=True)
        held.add(row["tag"] or "request", span, bins)
        if len(held.op) >= BATCH_ROWS:
            yield held.batch()
            held = Bins()
    source.lacks("the source kept histograms, no single values")
    if held.op:
        yield held.batch()


def _origin_s(times: dict[str, float], start: float) -> float:
    """What starts count from, in seconds since 1970."""
    if "BaseTime" in times:
        return times["BaseTime"]
    zero = times.get("StartTime", 0.0)
    return zero if start < zero - YEAR_S else 0.0


FORMAT: Final = Format(
    "hlog",
    "HdrHistogram log, jHiccup",
    "latencies",
    ("Histogram log format", "StartTime", "Interval_Compressed_Histogram"),
    _recognises,
    _read,
    frozenset({"--unit"}),
)
