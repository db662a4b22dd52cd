"""latte's JSON report: an HdrHistogram of the cycles, of each function and of the requests, in ns.

latte starts its clock when a call is executed: what waited before that is not in these latencies.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from unruly.errors import IngestError
from unruly.ingest.documents import document
from unruly.ingest.hdr import decode
from unruly.ingest.model import Batch, Figures, Format, Histograms, Options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

SECOND_NS: Final = 1e9


def _recognises(sample: Sample) -> bool:
    return b'"cycle_latency"' in sample.head or (
        b'"cycle_count"' in sample.head and b'"result"' in sample.head
    )


def _read(source: Source, options: Options) -> Iterator[Batch]:
    del options
    result = document(source).get("result")
    if not isinstance(result, dict):
        raise IngestError(source.where, "has no result", "latte's report", "latte run -o FILE")
    source.unit = "ns"
    source.lacks("the source kept one histogram of the whole run: nothing is known over time")
    source.lacks("latte starts its clock at execution: waiting before it is not in these latencies")
    parts = _parts(source, result)
    span, some = _span(result), False
    for op, part in parts.items():
        text = part.get("histogram") if isinstance(part, dict) else None
        if not isinstance(text, str):
            continue
        source.complaints.lines += 1
        try:
            found = decode(text)
        except IngestError as error:
            source.complaints.refuse(source.complaints.lines, f"{op}: {error.what}")
            continue
        some |= bool(found.n)
        count = found.count.astype(float).tolist()
        yield Histograms(op, *span, found.low.tolist(), found.high.tolist(), count)
        yield Figures(op, {"n": float(found.n)})
    if not some:
        raise IngestError(
            source.where,
            "holds no histogram",
            "cycle_latency with its histogram",
            "a report of latte 0.27 or newer",
        )


def _parts(source: Source, result: dict[str, Any]) -> dict[str, Any]:
    """Return the latencies that together have each thing once: by function, of cycles, of requests.

    A cycle calls one function, which sends one request or more.
    """
    by_function, cycle = result.get("cycle_latency_by_fn"), result.get("cycle_latency")
    left_out = ["request_latency"]
    if isinstance(by_function, dict) and by_function:
        found = by_function
        left_out.append("cycle_latency")
    elif cycle is not None:
        found = {"cycle": cycle}
    else:
        return {"request": result.get("request_latency")}
    for name in left_out:
        if result.get(name) is not None:
            source.lacks(f"{name} has the same time in other pieces, and was left out")
    return found


def _span(result: dict[str, Any]) -> tuple[int, int]:
    try:
        began = round(datetime.fromisoformat(str(result["start_time"])).timestamp() * SECOND_NS)
    except (KeyError, ValueError):
        began = 0
    length = result.get("elapsed_time_s")
    seconds = float(length) if isinstance(length, int | float) else 0.0
    return began, began + max(1, round(seconds * SECOND_NS))


FORMAT: Final = Format(
    "latte",
    "latte JSON report",
    "latencies",
    ("cycle_latency", "cycle_count", "elapsed_time_s"),
    _recognises,
    _read,
)
