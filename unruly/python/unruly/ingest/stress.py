"""cassandra-stress: a row each second with the count, some percentiles and the collector's work.

Latencies are in milliseconds, in the table that it prints and in CSV made of it. The row says no
time of day: ``time`` counts from the start. Rows of type ``total`` are the sum of those by
operation, and are left out where there are such.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from unruly.errors import IngestError
from unruly.ingest.model import Batch, Events, Figures, Format, Options
from unruly.ingest.percentiles import Bins, bins_between

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

MILLISECOND_NS: Final = 1_000_000
SECOND_NS: Final = 1_000_000_000
ALIASES: Final = {
    "type": "type",
    "total_ops": "total",
    "mean": "mean",
    "med": "p50",
    "95": "p95",
    "p95": "p95",
    "99": "p99",
    "p99": "p99",
    "999": "p999",
    "p999": "p999",
    "max": "max",
    "time": "time",
    "errors": "errors",
    "gc_n": "gc_n",
    "gc": "gc_n",
    "gc_max_ms": "gc_max",
    "max_ms": "gc_max",
}
WANTED: Final = {"type", "total", "mean", "p50", "p95", "p99", "p999", "max", "time"}
SUM: Final = "total"
FAILED: Final = (
    "cassandra-stress counts failed operations among its latencies and does not say which they "
    "are: each bin loses the same share"
)
SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}


def _names(line: str) -> list[str]:
    """Columns of a header line under the names used here; others keep theirs."""
    parts = [
        re.sub(r"[^a-z0-9]+", "_", part.strip().lower()).strip("_") for part in line.split(",")
    ]
    return [ALIASES.get(part, part) for part in parts]


def _recognises(sample: Sample) -> bool:
    return any(set(_names(line)) >= WANTED for line in sample.lines)


def _read(source: Source, options: Options) -> Iterator[Batch]:
    del options
    names: list[str] = []
    reader = _Rows()
    for number, line in source.lines():
        found = _names(line)
        if set(found) >= WANTED:
            names = found
        elif names and "," in line:
            source.complaints.lines += 1
            fields = [part.strip() for part in line.split(",")]
            try:
                reader.add(dict(zip(names, fields, strict=True)))
            except ValueError as error:
                source.complaints.refuse(number, str(error))
    if not reader.held.op:
        raise IngestError(
            source.where, "has a header and no rows", "a row each second", "run it longer"
        )
    source.unit = "ms"
    source.lacks("the source kept percentiles of each second, no single values")
    source.lacks("the source says no time of day: its time counts from the start of the run")
    source.lacks("the source gives no minimum: the lowest half reaches down to 0")
    if reader.failed:
        source.lacks(FAILED)
    if len(reader.sums) > 1 and SUM in reader.sums:
        reader.held.drop(SUM)
        del reader.sums[SUM]
    yield reader.held.batch()
    for op, (n, total, most) in reader.sums.items():
        yield Figures(op, {"n": n, "mean_ns": total / n, "max_ns": most})
    if reader.pauses:
        yield Events(
            "gc",
            [began for began, _ in reader.pauses],
            [ended for _, ended in reader.pauses],
            "longest of its second; when in it is not known",
        )


class _Rows:
    """Rows made bins, and what they add up to."""

    def __init__(self) -> None:
        self.held = Bins()
        self.sums: dict[str, tuple[float, float, float]] = {}
        self.before: dict[str, tuple[float, float]] = {}
        self.pauses: list[tuple[int, int]] = []
        self.failed = False

    def add(self, row: dict[str, str]) -> None:
        """Add a row: the requests since the previous row of the same type."""
        op = row["type"].strip()
        number = {name: float(row[name]) for name in WANTED - {"type"}}
        errors = float(row.get("errors") or 0)
        total, time = self.before.get(op, (0.0, 0.0))
        n = number["total"] - total
        if n < 0 or number["time"] < time:
            raise ValueError("total or time falls: rows of two runs in one file?")
        self.before[op] = (number["total"], number["time"])
        began, ended = round(time * SECOND_NS), round(number["time"] * SECOND_NS)
        values = {name: number[name] * MILLISECOND_NS for name in (*SHARES, "mean", "max")}
        bad = min(errors, n)
        self.failed |= bad > 0
        if n > bad:
            pairs = [(share, values[name]) for name, share in SHARES.items()]
            self.held.add(op, (began, ended), bins_between(n - bad, pairs, 0.0, values["max"]))
        if n:
            held = self.sums.get(op, (0.0, 0.0, 0.0))
            self.sums[op] = (
                held[0] + n,
                held[1] + n * values["mean"],
                max(held[2], values["max"]),
            )
        if bad:
            # unlike the total, the errors of a row are those of its second
            infinity = float("inf")
            self.held.add(op, (began, ended), [(infinity, infinity, bad)])
        if float(row.get("gc_n") or 0) > 0:
            pause = round(float(row.get("gc_max") or 0) * MILLISECOND_NS)
            self.pauses.append((max(began, ended - pause), ended))


FORMAT: Final = Format(
    "cassandra-stress",
    "table of cassandra-stress",
    "latencies",
    ("total", "row", "mean", "med", "stderr"),
    _recognises,
    _read,
)
