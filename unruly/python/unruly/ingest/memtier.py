"""memtier_benchmark's JSON: an HdrHistogram of each command, in microseconds, over the whole run.

If ``--hide-histogram`` left the histograms out, bins are made from the printed percentiles, in
milliseconds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from unruly.errors import IngestError
from unruly.ingest.documents import document
from unruly.ingest.hdr import decode
from unruly.ingest.model import Batch, Figures, Format, Histograms, Options
from unruly.ingest.percentiles import bins_between

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

MICROSECOND_NS: Final = 1_000
MILLISECOND_NS: Final = 1_000_000
SUMS: Final = ("Totals", "Runtime", "CPU", "Waits")
PERCENTILE: Final = re.compile(r"p?(?P<percent>[0-9]+(?:\.[0-9]+)?)")
NAMES: Final = {
    "Average Latency": "mean_ns",
    "Min Latency": "min_ns",
    "Max Latency": "max_ns",
}


def _recognises(sample: Sample) -> bool:
    return b'"ALL STATS"' in sample.head and b'"Ops/sec"' in sample.head


def _read(source: Source, options: Options) -> Iterator[Batch]:
    del options
    stats = document(source).get("ALL STATS")
    if not isinstance(stats, dict):
        raise IngestError(source.where, "has no ALL STATS", "memtier's JSON", "--json-out-file")
    span = _span(stats.get("Runtime"))
    source.unit = "us"
    source.lacks("the source kept one histogram of the whole run: nothing is known over time")
    some = False
    for name, part in stats.items():
        count = part.get("Count") if isinstance(part, dict) else None
        if name in SUMS or not isinstance(count, int | float) or not count:
            continue
        source.complaints.lines += 1
        try:
            bins = _bins(part, float(count))
        except (IngestError, KeyError, TypeError, ValueError) as error:
            said = error.what if isinstance(error, IngestError) else repr(error)
            source.complaints.refuse(source.complaints.lines, f"{name}: {said}")
            continue
        some = True
        op = name.removesuffix("s").lower() if name in ("Sets", "Gets") else name
        yield Histograms(op, *span, *bins)
        known = {to: float(part[k]) * MILLISECOND_NS for k, to in NAMES.items() if k in part}
        yield Figures(op, {"n": float(count), **known})
    if not some:
        raise IngestError(
            source.where,
            "holds no command with a histogram or percentiles",
            "Sets, Gets or others with Percentile Latencies",
            "a newer memtier, or --print-percentiles",
        )


def _bins(part: dict[str, Any], n: float) -> tuple[list[float], list[float], list[float]]:
    told = part["Percentile Latencies"]
    log = told.get("Histogram log format")
    if isinstance(log, dict) and log.get("Compressed Histogram"):
        found = decode(str(log["Compressed Histogram"]))
        edges = (found.low * MICROSECOND_NS).tolist(), (found.high * MICROSECOND_NS).tolist()
        return *edges, found.count.astype(float).tolist()
    pairs = [
        (float(match["percent"]) / 100, float(value) * MILLISECOND_NS)
        for name, value in told.items()
        if (match := PERCENTILE.fullmatch(name)) and isinstance(value, int | float)
    ]
    pairs = [pair for pair in pairs if 0 < pair[0] < 1]
    least = float(part.get("Min Latency") or 0) * MILLISECOND_NS
    rows = list(bins_between(n, pairs, least, float(part["Max Latency"]) * MILLISECOND_NS))
    low, high, count = (list(column) for column in zip(*rows, strict=True))
    return low, high, count


def _span(runtime: Any) -> tuple[int, int]:
    if not isinstance(runtime, dict):
        return 0, 1
    began = int(runtime.get("Start time") or 0) * MILLISECOND_NS
    ended = int(runtime.get("Finish time") or 0) * MILLISECOND_NS
    return began, max(ended, began + 1)


FORMAT: Final = Format(
    "memtier",
    "memtier_benchmark JSON",
    "latencies",
    ("ALL STATS", "Percentile Latencies", "Ops/sec"),
    _recognises,
    _read,
)
