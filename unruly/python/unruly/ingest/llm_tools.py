"""Load generators of language models: guidellm, vLLM's `bench serve` and aiperf, a row a request.

The first token of a reply is a part of its request (`Spans`), counted from the scheduled time where
the tool has one; where the tool kept them, the other tokens are parts too. Prompts and replies are
not kept.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import ijson
import numpy as np
import pyarrow as pa

from unruly.errors import IngestError
from unruly.ingest.documents import document
from unruly.ingest.model import Batch, Format, Options, Requests, Spans, failure
from unruly.ingest.objects import PARTS_MAX, first_objects, objects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from unruly.ingest.source import Sample, Source

S, MS = 1_000_000_000, 1_000_000
BATCH: Final = 1_000
"""Requests of a batch: each may have some hundred tokens."""
FIRST, TOKEN, OP = "first token", "token", "request"
UNREADABLE: Final = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
NO_TOKENS: Final = "the source has the time of the first token of a reply, and of no other"
UNFINISHED: Final = "requests that the end of the benchmark cut off are unfinished"


class Reply(NamedTuple):
    """A request, and the tokens of its reply. Times are ns since 1970 or since any moment."""

    line: int
    sent_ns: int | None
    """None: the source has no times."""
    duration_ns: int | None
    status: str
    first_ns: int | None = None
    """From the start to the first token."""
    gaps_ns: tuple[int, ...] = ()
    """From each token to the next."""
    intended_ns: int | None = None
    cell: str | None = None


def _batches(source: Source, replies: Iterable[Reply], factor: str) -> Iterator[Batch]:
    left, number = iter(replies), 0
    while held := list(islice(left, BATCH)):
        numbers = np.arange(number, number + len(held))
        number += len(held)
        factors = {factor: [it.cell for it in held]} if held[0].cell is not None else {}
        timed = held[0].sent_ns is not None
        planned = held[0].intended_ns is not None
        yield Requests(
            duration_ns=pa.array([it.duration_ns for it in held], pa.int64()),
            started_ns=pa.array([it.sent_ns for it in held], pa.int64()) if timed else None,
            intended_ns=pa.array([it.intended_ns for it in held], pa.int64()) if planned else None,
            op=OP,
            status=[it.status for it in held],
            request=numbers,
            factors=factors,
            line=np.array([it.line for it in held]),
        )
        if timed:
            yield from _tokens(source, held, numbers.tolist(), factor)


def _tokens(source: Source, held: list[Reply], numbers: list[int], factor: str) -> Iterator[Spans]:
    """Yield the parts of the replies that came."""
    rows: list[tuple[int, str, int, int, str | None]] = []
    for number, it in zip(numbers, held, strict=True):
        if it.first_ns is None or it.sent_ns is None or it.status != "ok":
            continue
        at = it.sent_ns + it.first_ns
        began = it.sent_ns if it.intended_ns is None else min(it.intended_ns, at)
        rows.append((number, FIRST, began, at, it.cell))
        for gap in it.gaps_ns:
            rows.append((number, TOKEN, at, at + gap, it.cell))
            at += gap
    if rows and not any(it.gaps_ns for it in held):
        source.lacks(NO_TOKENS)
    if rows:
        request, layer, started, ended, cells = (list(it) for it in zip(*rows, strict=True))
        factors = {factor: cells} if cells[0] is not None else {}
        yield Spans(request, layer, started, ended, factors=factors)


def _ns(seconds: Any) -> int:
    """Return seconds in ns; the whole seconds apart, since a double cannot hold their product.

    Raises
    ------
    ValueError
        When they are no finite number.
    """
    number = float(seconds)
    if isinstance(seconds, bool) or not math.isfinite(number):
        raise ValueError("no number")
    return math.floor(number) * S + round(number % 1 * S)


# guidellm

SECTIONS: Final = {
    f"benchmarks.item.requests.{section}.item": section
    for section in ("successful", "errored", "incomplete")
}
STRATEGY: Final = "benchmarks.item.config.strategy.type_"
OLD_STRATEGY: Final = "benchmarks.item.args.strategy.type_"
CLOSED: Final = frozenset({"concurrent", "synchronous", "throughput"})
"""Strategies without a schedule."""


def _is_guidellm(sample: Sample) -> bool:
    head = sample.head
    return head.lstrip().startswith(b"{") and (
        b'"guidellm_version"' in head or b'"generative_benchmark"' in head
    )


def _guidellm(source: Source, options: Options) -> Iterator[Batch]:
    del options
    source.unit = "s"
    yield from _batches(source, _guidellm_replies(source), "benchmark")


def _guidellm_replies(source: Source) -> Iterator[Reply]:
    number = 0
    for benchmark, strategy, section, it in _guidellm_requests(source):
        number += 1
        source.complaints.lines += 1
        try:
            yield _guidellm_reply(number, f"{benchmark} {strategy}".strip(), section, it)
        except UNREADABLE:
            source.complaints.refuse(number, f"request {number:,} has no times")
        if section == "incomplete":
            source.lacks(UNFINISHED)
    if not number:
        raise IngestError(
            source.where, "has no requests", "guidellm's JSON with each request",
            "guidellm run --output kind=json",
        )  # fmt: skip


def _guidellm_requests(source: Source) -> Iterator[tuple[int, str, str, dict[str, Any]]]:
    """Yield the number and the strategy of a benchmark, the section of a request, and it."""
    benchmark, strategy, parts = 0, "", 0
    builder: Any = None
    within = ""
    try:
        for prefix, event, value in ijson.parse(source.stream(), use_float=True):
            if builder is None:
                if prefix == "benchmarks.item" and event == "start_map":
                    benchmark, strategy = benchmark + 1, ""
                elif prefix in (STRATEGY, OLD_STRATEGY):
                    strategy = str(value)
                elif prefix in SECTIONS and event == "start_map":
                    builder, within, parts = ijson.ObjectBuilder(), prefix, 0
            if builder is None:
                continue
            parts += 1
            builder.event(event, value)
            if parts > PARTS_MAX:
                raise IngestError(
                    source.where, f"a request has more than {PARTS_MAX:,} values",
                    "guidellm's JSON", "look at it: it is not one that this tool writes",
                )  # fmt: skip
            if prefix == within and event == "end_map":
                yield benchmark, strategy, SECTIONS[within], builder.value
                builder = None
    except ijson.JSONError as error:
        raise IngestError(
            source.where, "is broken or cut off", "whole JSON", "copy it again"
        ) from error


def _guidellm_reply(number: int, cell: str, section: str, it: dict[str, Any]) -> Reply:
    info = it.get("info") or {}
    timings = info.get("timings") or {}
    sent = timings.get("request_start") or it.get("request_start_time") or it["start_time"]
    ended = timings.get("request_end") or it.get("request_end_time") or it.get("end_time")
    first = timings.get("first_token_iteration") or it.get("first_token_time")
    planned = timings.get("targeted_start")
    sent_ns = _ns(sent)
    is_planned = planned is not None and cell.rsplit(maxsplit=1)[-1] not in CLOSED
    status = {"successful": "ok", "incomplete": "unfinished"}.get(section) or failure(
        "", str(info.get("error") or it.get("error") or "")[:1_000]
    )
    return Reply(
        number,
        sent_ns,
        None if ended is None or section == "incomplete" else _ns(ended) - sent_ns,
        status,
        None if first is None else _ns(first) - sent_ns,
        intended_ns=_ns(planned) if is_planned else None,
        cell=cell,
    )


# vLLM

NO_START: Final = "the source has no start times: its times to the first token were left out"
MONOTONIC: Final = "the times of the source are those of a clock that began at an unknown moment"
DETAILED: Final = "vllm bench serve --save-result --save-detailed writes each request"


def _is_vllm(sample: Sample) -> bool:
    head = sample.head
    return head.lstrip().startswith(b"{") and (
        b'"total_input_tokens"' in head and b'"request_throughput"' in head
    )


def _vllm(source: Source, options: Options) -> Iterator[Batch]:
    del options
    source.unit = "s"
    told = document(source)
    first, gaps = told.get("ttfts"), told.get("itls")
    if not isinstance(first, list) or not isinstance(gaps, list) or len(first) != len(gaps):
        what = "has the percentiles of vLLM's benchmark alone"
        raise IngestError(source.where, what, "the times of each request", DETAILED)
    timed = isinstance(told.get("start_times"), list)
    source.lacks(MONOTONIC if timed else NO_START)
    yield from _batches(source, _vllm_replies(source, told, timed=timed), "benchmark")


def _vllm_replies(source: Source, told: dict[str, Any], *, timed: bool) -> Iterator[Reply]:
    # with a finite rate a request has an arrival, and may have waited for its turn in the client
    rate = told.get("request_rate")
    planned = timed and isinstance(rate, int | float) and math.isfinite(rate)
    waited = told.get("queue_times") if planned else None
    errors, whole = told.get("errors") or [], told.get("latencies")
    for place, (first, gaps) in enumerate(zip(told["ttfts"], told["itls"], strict=True)):
        source.complaints.lines += 1
        try:
            error = str(errors[place] or "") if place < len(errors) else ""
            tokens = tuple(_ns(it) for it in gaps)
            taken = _ns(whole[place]) if isinstance(whole, list) else _ns(first) + sum(tokens)
            sent = _ns(told["start_times"][place]) if timed else None
            failed = bool(error) or not taken
            intended = None
            if sent is not None and isinstance(waited, list):
                intended = sent - max(_ns(waited[place]), 0)
            yield Reply(
                place + 1, sent, None if failed else taken,
                failure("", error[:1_000]) if failed else "ok",
                _ns(first) if first else None, tokens, intended,
            )  # fmt: skip
        except (IndexError, *UNREADABLE):
            source.complaints.refuse(place + 1, f"request {place + 1:,} has no times")


# aiperf

WARM: Final = "requests of the warm-up were left out"
METRIC_UNITS: Final = {"ns": 1, "us": 1_000, "ms": MS, "sec": S, "s": S, "seconds": S}


def _is_aiperf(sample: Sample) -> bool:
    about = next((it.get("metadata") for it in first_objects(sample, 1) if "metrics" in it), None)
    return isinstance(about, dict) and "request_start_ns" in about


def _aiperf(source: Source, options: Options) -> Iterator[Batch]:
    del options
    source.unit = "ns"
    yield from _batches(source, _aiperf_replies(source), "benchmark")


def _aiperf_replies(source: Source) -> Iterator[Reply]:
    for number, it in objects(source):
        try:
            reply = _aiperf_reply(number, it)
        except UNREADABLE:
            source.complaints.refuse(number, "no request in the form of aiperf")
            continue
        if it["metadata"].get("benchmark_phase") == "warmup":
            source.complaints.lines -= 1
            source.lacks(WARM)
            continue
        yield reply


def _metric(metrics: dict[str, Any], name: str) -> tuple[int, ...]:
    """Return the values of a metric in ns; () where the request has none."""
    found = metrics.get(name)
    if not isinstance(found, dict):
        return ()
    unit, value = METRIC_UNITS[found["unit"]], found["value"]
    return tuple(round(float(it) * unit) for it in (value if isinstance(value, list) else [value]))


def _aiperf_reply(number: int, it: dict[str, Any]) -> Reply:
    about, metrics, error = it["metadata"], it.get("metrics") or {}, it.get("error")
    sent = int(about["request_start_ns"])
    taken = _metric(metrics, "request_latency")
    # a request that got no stream ends when it began: then nobody knows how long it took
    duration = taken[0] if taken else int(about["request_end_ns"]) - sent or None
    status = "ok"
    if error or about.get("was_cancelled"):
        told = error if isinstance(error, dict) else {}
        said = f"{told.get('type', '')} {told.get('message', '')}"
        status = failure(str(told.get("code") or ""), said[:1_000])
    first = _metric(metrics, "time_to_first_token")
    return Reply(
        number, sent, duration, status, first[0] if first else None,
        _metric(metrics, "inter_chunk_latency"),
    )  # fmt: skip


GUIDELLM: Final = Format(
    "guidellm",
    "guidellm's JSON with each request",
    "latencies",
    ("guidellm_version", "generative_benchmark", "first_token_iteration"),
    _is_guidellm,
    _guidellm,
)
VLLM: Final = Format(
    "vllm",
    "vllm bench serve --save-result --save-detailed",
    "latencies",
    ("total_input_tokens", "request_throughput", "ttfts"),
    _is_vllm,
    _vllm,
)
AIPERF: Final = Format(
    "aiperf",
    "aiperf's profile_export.jsonl",
    "latencies",
    ("request_start_ns", "benchmark_phase", "time_to_first_token"),
    _is_aiperf,
    _aiperf,
)
