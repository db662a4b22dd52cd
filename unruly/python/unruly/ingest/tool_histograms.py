"""Tools that keep counts of values or percentiles alone: wrk, autocannon, bombardier, ...

None of them says when a value was measured.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import TYPE_CHECKING, Final

from unruly.errors import IngestError
from unruly.ingest.documents import document, parsed
from unruly.ingest.model import Batch, Figures, Format, Options
from unruly.ingest.percentiles import Bins, bins_between

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

MS, S = 1_000_000.0, 1_000_000_000.0
WHOLE: Final = "the source kept one summary of the whole run: nothing is known over time"
CLOSED: Final = (
    "each client waits for a reply before it sends again: a stall hides the requests that users "
    "would have sent meanwhile"
)
UNITS: Final = {"us": MS / 1_000, "ms": MS, "s": S, "m": 60 * S}
WRK_LATENCY: Final = re.compile(r"\s+Latency\s+\S+\s+\S+\s+(?P<most>[\d.]+)(?P<unit>us|ms|s|m)\s")
WRK_STEP: Final = re.compile(
    r"\s+(?P<share>\d+(?:\.\d+)?)%\s+(?P<value>[\d.]+)(?P<unit>us|ms|s|m)$"
)
WRK_COUNT: Final = re.compile(r"\s+(?P<n>\d+) requests in (?P<length>[\d.]+)(?P<unit>us|ms|s|m),")
WRK_CORRECTED: Final = (
    "wrk adds values for the requests that it could not send while it waited: its percentiles are "
    "of requests and of these"
)
WRK_FAILED: Final = re.compile(r"\s+(?:Non-2xx or 3xx responses: |Socket errors: )(?P<rest>.*)")
AUTOCANNON: Final = re.compile(r"p(\d+)(?:_(\d+))?$")
BOMBARDIER_COUNTS: Final = ("req1xx", "req2xx", "req3xx", "req4xx", "req5xx", "others")
BOMBARDIER_FAILED: Final = (
    "bombardier counts failed requests among its latencies and does not say which they are: each "
    "bin loses the same share"
)
SYSBENCH: Final = re.compile(r"\s*(?P<value>\d+\.\d+) \|\**\s+(?P<count>\d+)$")
SYSBENCH_HALF: Final = math.exp(math.log(1e8) / 1_023 / 2)
"""A bar of sysbench stands in the middle of its bin; 1,023 steps lie between 1 us and 100 s."""


def _is_wrk(sample: Sample) -> bool:
    return (
        b" test @ " in sample.head
        and b"Thread Stats" in sample.head
        and (b"Latency Distribution\n" in sample.head.replace(b"\r", b""))
    )


def _wrk(source: Source, options: Options) -> Iterator[Batch]:
    del options
    source.lacks(WHOLE)
    source.lacks(WRK_CORRECTED)
    source.unit = "ms"
    steps: list[tuple[float, float]] = []
    most = length = n = failed = 0.0
    for _, line in source.lines():
        text = line.rstrip()
        if match := WRK_STEP.match(text):
            source.complaints.lines += 1
            steps.append(
                (float(match["share"]) / 100, float(match["value"]) * UNITS[match["unit"]])
            )
        elif match := WRK_LATENCY.match(line):
            most = float(match["most"]) * UNITS[match["unit"]]
        elif match := WRK_COUNT.match(text):
            n, length = float(match["n"]), float(match["length"]) * UNITS[match["unit"]]
        elif match := WRK_FAILED.match(text):
            failed += sum(map(float, re.findall(r"\d+", match["rest"][:200])))
    if not (steps and most and n):
        raise IngestError(source.where, "has no percentiles", "wrk's output", "wrk --latency URL")
    yield from _of_percentiles((0, max(1, round(length))), steps, (0.0, most), n, failed)


def _of_percentiles(
    span: tuple[int, int],
    steps: list[tuple[float, float]],
    ends: tuple[float, float],
    n: float,
    failed: float,
) -> Iterator[Batch]:
    bins = Bins()
    bins.add("request", span, bins_between(max(n - failed, 0.0), steps, *ends))
    if failed:
        bins.add("request", span, [(float("inf"), float("inf"), failed)])
    yield bins.batch()
    yield Figures("request", {"n": n})


def _is_autocannon(sample: Sample) -> bool:
    head = sample.head
    return b'"sampleInt"' in head and b'"pipelining"' in head and b'"p97_5"' in head


def _autocannon(source: Source, options: Options) -> Iterator[Batch]:
    del options
    told = document(source)
    latency, requests = told.get("latency"), told.get("requests")
    if not isinstance(latency, dict) or not isinstance(requests, dict):
        raise IngestError(
            source.where, "has no latency", "autocannon's result", "autocannon --json"
        )
    source.unit = "ms"
    source.lacks(WHOLE)
    source.lacks(CLOSED)
    source.lacks("autocannon cuts its times to whole milliseconds")
    steps = []
    for name, value in latency.items():
        if match := AUTOCANNON.match(name):
            source.complaints.lines += 1
            # whole milliseconds, cut off: 0 is anything below 1 ms
            share = float(f"{match[1]}.{match[2] or 0}") / 100
            steps.append((share, (float(value) + 1.0) * MS))
    # timeouts are among the errors, and answers of 1xx and 3xx among those that are not 2xx
    known = {
        it: float(told.get(it) or 0) for it in ("errors", "non2xx", "1xx", "3xx", "mismatches")
    }
    failed = known["non2xx"] - known["1xx"] - known["3xx"] + known["mismatches"]
    wrong = known["errors"] + max(failed, 0.0)
    ends = 0.0, (float(latency["max"]) + 1.0) * MS
    n = float(requests["total"]) + known["errors"]
    yield from _of_percentiles(_span(told.get("start"), told.get("finish")), steps, ends, n, wrong)


def _span(began: object, ended: object) -> tuple[int, int]:
    try:
        first, last = (
            round(datetime.fromisoformat(str(it).replace("Z", "+00:00")).timestamp() * S)
            for it in (began, ended)
        )
    except ValueError:
        return 0, 1
    return first, max(last, first + 1)


def _is_bombardier(sample: Sample) -> bool:
    head = sample.head
    return b'"timeTakenSeconds"' in head and b'"numberOfConnections"' in head


def _bombardier(source: Source, options: Options) -> Iterator[Batch]:
    del options
    told = document(source)["result"]
    latency = told.get("latency") or {}
    percentiles = latency.get("percentiles") or {}
    if not percentiles:
        raise IngestError(
            source.where,
            "has no percentiles of bombardier",
            "its latencies",
            "bombardier -l -o json -p r prints them; no flag of it writes each request",
        )
    source.unit = "us"
    source.lacks(WHOLE)
    source.lacks(CLOSED)
    us = UNITS["us"]
    source.complaints.lines += len(percentiles)
    steps = [(float(share) / 100, float(value) * us) for share, value in percentiles.items()]
    counted = {it: float(told.get(it) or 0) for it in BOMBARDIER_COUNTS}
    failed = counted["req4xx"] + counted["req5xx"] + counted["others"]
    if failed:
        source.lacks(BOMBARDIER_FAILED)
    length = max(1, round(float(told["timeTakenSeconds"]) * S))
    ends = (0.0, float(latency["max"]) * us)
    yield from _of_percentiles((0, length), steps, ends, sum(counted.values()), failed)


def _is_locust(sample: Sample) -> bool:
    head = sample.head
    return (
        head.lstrip().startswith(b"[")
        and b'"response_times"' in head
        and (b'"last_request_timestamp"' in head)
    )


def _locust(source: Source, options: Options) -> Iterator[Batch]:
    del options
    entries = parsed(source)
    if not isinstance(entries, list):
        raise IngestError(source.where, "is no list", "locust's JSON", "locust --json")
    source.unit = "ms"
    source.lacks(WHOLE)
    source.lacks(
        "locust rounds: to 1 ms below 100 ms, 10 ms below 1 s, 100 ms below 10 s, else 1 s"
    )
    source.lacks(CLOSED)
    bins = Bins()
    for entry in entries:
        source.complaints.lines += 1
        op = f"{entry.get('method') or 'request'} {entry['name']}"
        span = (
            round(float(entry["start_time"]) * S),
            round(float(entry.get("last_request_timestamp") or 0) * S),
        )
        counted = {float(ms): float(count) for ms, count in entry["response_times"].items()}
        failed, whole = float(entry.get("num_failures") or 0), sum(counted.values())
        # failed requests are among the response times, nobody knows which
        left = max(1 - failed / whole, 0.0) if whole else 0.0
        bins.add(op, span, (_rounded(ms, n * left) for ms, n in sorted(counted.items())))
        if failed:
            bins.add(op, span, [(float("inf"), float("inf"), failed)])
    if not bins.count:
        raise IngestError(source.where, "counts nothing", "a run with requests", "run it longer")
    yield bins.batch()


def _rounded(ms: float, count: float) -> tuple[float, float, float]:
    """The bin of values that locust rounds to this one."""
    steps = ((100, 0.5), (1_000, 5.0), (10_000, 50.0), (math.inf, 500.0))
    above = next(half for most, half in steps if ms < most)
    below = next(half for most, half in steps if ms <= most)
    return max(ms - below, 0.0) * MS, (ms + above) * MS, count


def _is_sysbench(sample: Sample) -> bool:
    # a report each second may stand before the histogram
    return sample.head.startswith(b"sysbench ")


def _sysbench(source: Source, options: Options) -> Iterator[Batch]:
    del options
    source.unit = "ms"
    source.lacks(WHOLE)
    source.lacks(CLOSED)
    held: list[tuple[float, float, float]] = []
    for _, line in source.lines():
        if match := SYSBENCH.match(line.rstrip()):
            source.complaints.lines += 1
            value = float(match["value"]) * MS
            held.append((value / SYSBENCH_HALF, value * SYSBENCH_HALF, float(match["count"])))
    if not held:
        raise IngestError(source.where, "counts nothing", "its histogram", "sysbench --histogram")
    bins = Bins()
    bins.add("event", (0, 1), held)
    yield bins.batch()


WRK: Final = Format(
    "wrk",
    "wrk --latency",
    "latencies",
    (" test @ ", "Thread Stats", "Latency Distribution"),
    _is_wrk,
    _wrk,
)
AUTOCANNON_JSON: Final = Format(
    "autocannon",
    "autocannon --json",
    "latencies",
    ("sampleInt", "pipelining", "p97_5"),
    _is_autocannon,
    _autocannon,
)
BOMBARDIER: Final = Format(
    "bombardier",
    "bombardier -l -o json -p r",
    "latencies",
    ("numberOfConnections", "timeTakenSeconds", "req2xx"),
    _is_bombardier,
    _bombardier,
)
LOCUST: Final = Format(
    "locust",
    "locust --json",
    "latencies",
    ("response_times", "last_request_timestamp"),
    _is_locust,
    _locust,
)
SYSBENCH_TEXT: Final = Format(
    "sysbench",
    "sysbench --histogram",
    "latencies",
    ("sysbench ", "Latency histogram"),
    _is_sysbench,
    _sysbench,
)
