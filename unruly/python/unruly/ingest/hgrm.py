"""Percentile distributions as HdrHistogram prints them (``.hgrm``), also inside wrk2's output.

Each line gives a value and how many values lie at or below it: two neighbouring lines make a bin.
wrk2 prints milliseconds; a bare ``.hgrm`` does not say its unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from unruly.errors import IngestError
from unruly.ingest.model import Batch, Figures, Format, Histograms, Options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from unruly.ingest.source import Sample, Source

HEADER: Final = re.compile(r"^\s*Value\s+Percentile\s+TotalCount\s+1/\(1-Percentile\)\s*$")
CSV_HEADER: Final = re.compile(r'^"?Value"?,"?Percentile"?,"?TotalCount"?,"?1/\(1-Percentile\)"?')
ROW: Final = re.compile(
    r"^\s*(?P<value>[0-9.eE+-]+)[\s,]+(?P<share>[0-9.]+)[\s,]+(?P<count>[0-9]+)"
    r"(?:[\s,]+(?:[0-9.]+|inf|Infinity))?\s*$"
)
FOOTER: Final = re.compile(r"(?P<name>Mean|StdDeviation|Max|Total count)\s*=\s*(?P<value>[0-9.]+)")
WRK2: Final = "Detailed Percentile spectrum"
WRK_COUNT: Final = re.compile(r"\s+(?P<n>\d+) requests in ")
WRK_FAILED: Final = re.compile(r"\s+(?P<kind>Non-2xx or 3xx responses|Socket errors): (?P<rest>.*)")
WRK2_FAILED: Final = (
    "wrk2 counts replies that failed among its latencies and does not say which they are: each bin "
    "loses the same share"
)
WRK2_TIMEOUTS: Final = (
    "wrk2 reports timeouts, and counts them by time and not by request: they are in no number here"
)
SOCKET: Final = re.compile(r"(connect|read|write|timeout) (\d+)")
INFINITY: Final = float("inf")
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
    failures = _Failures()
    lines = source.lines()
    for number, line in lines:
        wrk2 |= WRK2 in line
        if _is_header(line):
            inside = True
        elif inside and line.lstrip().startswith("#["):
            known |= {it["name"]: float(it["value"]) for it in FOOTER.finditer(line)}
        elif inside and rows and wrk2 and line.lstrip().startswith("---"):
            failures = _failures(line for _, line in lines)
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
    if failures.share:
        source.lacks(WRK2_FAILED)
        # they are of failed replies too
        known = {}
    if failures.timeouts:
        source.lacks(WRK2_TIMEOUTS)
    yield _bins(source, rows, unit_ns, failures)
    figures = {
        "n": rows[-1][1] * (1.0 + failures.unanswered),
        **{NAMES[k]: v * unit_ns for k, v in known.items() if k in NAMES},
    }
    yield Figures("request", figures)


@dataclass(frozen=True)
class _Failures:
    """What wrk2 says below its spectrum, as shares of the requests that it counted."""

    share: float = 0.0
    """Replies with a status of failure, which the spectrum includes."""
    unanswered: float = 0.0
    """Connections that failed with a request on them, which it does not."""
    timeouts: bool = False


def _failures(lines: Iterable[str]) -> _Failures:
    """Read the rest of a report. The spectrum leaves out the calibration, and this does not."""
    n = bad = unanswered = 0.0
    timeouts = False
    for line in lines:
        if match := WRK_COUNT.match(line):
            n = float(match["n"])
        elif match := WRK_FAILED.match(line):
            rest = match["rest"][:200]
            if match["kind"].startswith("Socket"):
                told = {name: float(number) for name, number in SOCKET.findall(rest)}
                # counted every two seconds for each connection, also for one that waits
                timeouts |= bool(told.pop("timeout", 0.0))
                unanswered += sum(told.values())
            else:
                bad += sum(map(float, re.findall(r"\d+", rest)))
    return _Failures(min(1.0, bad / n), unanswered / n, timeouts) if n else _Failures()


def _bins(
    source: Source, rows: list[tuple[float, int]], unit_ns: int, failures: _Failures
) -> Histograms:
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
            count.append((upto - before) * (1.0 - failures.share))
        before, below = upto, value
    if failed := before * (failures.share + failures.unanswered):
        low.append(INFINITY)
        high.append(INFINITY)
        count.append(failed)
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
