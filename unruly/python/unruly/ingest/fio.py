"""fio: the log of latencies (``--write_lat_log``), and the bins of ``--output-format=json+``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from unruly.errors import IngestError
from unruly.ingest.by_line import matching, read_lines
from unruly.ingest.documents import document
from unruly.ingest.model import Batch, Figures, Format, Histograms, Options, Requests
from unruly.ingest.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

MS: Final = 1_000_000
LINE: Final = re.compile(
    r"(?P<at>\d+), (?P<took>\d+), (?P<way>[012]), (?P<size>\d+), \d+(?:, \S+){0,2}$"
)
WAYS: Final = ("read", "write", "trim")
PARTS: Final = ("lat_ns", "clat_ns")
FIGURES: Final = {"min": "min_ns", "max": "max_ns", "mean": "mean_ns", "stddev": "sd_ns"}
EXACT_BITS: Final = 7
"""Below 2^7 ns a bin of fio holds one value; above, each power of two has 64 bins."""


def _is_log(sample: Sample) -> bool:
    times = [int(it["at"]) for it in matching(sample, LINE)]
    return bool(times) and times == sorted(times)


def _log(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "ns"
    source.lacks("times count from the beginning of the run, not from 1970")
    source.lacks(
        "fio's logs of bandwidth and of IOPS look alike: nothing in the file names its values"
    )

    def row(number: int, match: re.Match[str]) -> Row:
        if match["size"] == "0":
            raise ValueError("a mean of several requests; fio --log_avg_msec=0 writes each")
        return Row(number, int(match["at"]) * MS, int(match["took"]), WAYS[int(match["way"])])

    yield from read_lines(source, LINE, row, ended=True)


def _is_json(sample: Sample) -> bool:
    return b'"fio version"' in sample.head


def _json(source: Source, options: Options) -> Iterator[Batch]:
    del options
    told = document(source)
    source.unit = "ns"
    source.lacks("the source kept one histogram of the whole run: nothing is known over time")
    ended = int(told.get("timestamp_ms") or 0) * MS
    jobs = [it for it in told.get("jobs") or [] if isinstance(it, dict)]
    some = False
    for place, job in enumerate(jobs, 1):
        for way in (*WAYS, "sync"):
            held = job.get(way)
            named = {name: held.get(name) for name in PARTS} if isinstance(held, dict) else {}
            name = next((it for it in PARTS if _bins(named.get(it))), None)
            if name is None:
                continue
            some = True
            if name == "clat_ns":
                source.lacks(
                    "only completion latencies (clat) have bins: submission is not included"
                )
            op = way if len(jobs) == 1 else f"{job.get('jobname')} {place} {way}"
            began = ended - int(job.get("job_runtime") or 1) * MS
            part = named[name] or {}
            yield _histogram(source, op, (began, max(ended, began + 1)), part)
            yield Figures(op, _figures(part))
    if not some:
        raise IngestError(
            source.where, "has no bins of latencies", "fio's bins", "fio --output-format=json+"
        )


def _bins(part: Any) -> dict[str, Any]:
    return part.get("bins") or {} if isinstance(part, dict) else {}


def _histogram(source: Source, op: str, span: tuple[int, int], part: dict[str, Any]) -> Histograms:
    low: list[float] = []
    high: list[float] = []
    count: list[float] = []
    for text, held in _bins(part).items():
        source.complaints.lines += 1
        middle = int(text)
        # fio prints the middle of each bin
        width = 1 << max(middle.bit_length() - EXACT_BITS, 0)
        half = width / 2 if width > 1 else 0.0
        low.append(middle - half)
        high.append(middle + half)
        count.append(float(held))
    return Histograms(op, *span, low, high, count)


def _figures(part: dict[str, Any]) -> dict[str, float]:
    known = {new: float(part[old]) for old, new in FIGURES.items() if old in part}
    return {"n": float(sum(map(float, _bins(part).values()))), **known}


LOG: Final = Format(
    "fio-log",
    "fio --write_lat_log with --log_avg_msec=0",
    "latencies",
    (", 0, 4096, ", ", 1, 4096, "),
    _is_log,
    _log,
)
JSON: Final = Format(
    "fio-json",
    "fio --output-format=json+",
    "latencies",
    ("fio version", "clat_ns", "bins"),
    _is_json,
    _json,
)
