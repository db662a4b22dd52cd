"""Fortio's JSON (also Nighthawk's in that form): one histogram of the whole run, in seconds."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from unruly.errors import IngestError
from unruly.ingest.documents import document
from unruly.ingest.model import Batch, Figures, Format, Histograms, Options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

SECOND_NS: Final = 1e9
NAMES: Final = {"Min": "min_ns", "Max": "max_ns", "Avg": "mean_ns", "StdDev": "sd_ns"}


def _recognises(sample: Sample) -> bool:
    return b'"DurationHistogram"' in sample.head and b'"Percent"' in sample.head


def _read(source: Source, options: Options) -> Iterator[Batch]:
    del options
    told = document(source)
    histogram = told.get("DurationHistogram")
    if not isinstance(histogram, dict) or not isinstance(histogram.get("Data"), list):
        raise IngestError(
            source.where, "has no DurationHistogram with Data", "fortio's result", "fortio -json"
        )
    source.unit = "s"
    source.lacks("the source kept one histogram of the whole run: nothing is known over time")
    began, ended = _span(told)
    low, high, count = _bins(source, histogram)
    failed = told.get("ErrorsDurationHistogram")
    wrong = float(failed.get("Count") or 0) if isinstance(failed, dict) else 0.0
    if wrong:
        # in fortio the errors are among the durations
        count = [held * (1 - wrong / sum(count)) for held in count]
        low, high, count = [*low, float("inf")], [*high, float("inf")], [*count, wrong]
    yield Histograms("request", began, ended, low, high, count)
    figures = {NAMES[k]: float(histogram[k]) * SECOND_NS for k in NAMES if k in histogram}
    yield Figures("request", {"n": float(histogram["Count"]), **figures})


def _bins(
    source: Source, histogram: dict[str, Any]
) -> tuple[list[float], list[float], list[float]]:
    low: list[float] = []
    high: list[float] = []
    count: list[float] = []
    for place, part in enumerate(histogram["Data"], 1):
        source.complaints.lines += 1
        try:
            edges = float(part["Start"]) * SECOND_NS, float(part["End"]) * SECOND_NS
            held = float(part["Count"])
        except (KeyError, TypeError, ValueError) as error:
            source.complaints.refuse(place, f"bin {place}: {error}")
            continue
        low.append(min(edges))
        high.append(max(edges))
        count.append(held)
    if not sum(count):
        raise IngestError(source.where, "counts nothing", "a run with requests", "run it longer")
    return low, high, count


def _span(run: dict[str, Any]) -> tuple[int, int]:
    text = str(run.get("StartTime") or "")
    began = 0
    if text:
        # fortio writes more decimals of a second than Python reads
        head, _, rest = text.partition(".")
        zone = rest.lstrip("0123456789") or ("Z" if text.endswith("Z") else "")
        whole = head.removesuffix("Z") + zone.replace("Z", "+00:00")
        try:
            began = round(datetime.fromisoformat(whole).timestamp() * SECOND_NS)
        except ValueError:
            began = 0
    length = run.get("ActualDuration") or run.get("RequestedDuration") or 1
    return began, began + (int(length) if isinstance(length, int | float) else 1)


FORMAT: Final = Format(
    "fortio",
    "fortio JSON",
    "latencies",
    ("DurationHistogram", "ActualQPS", "RetCodes"),
    _recognises,
    _read,
)
