"""The rules of layers: which one made requests slow, and spans that did not come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.quantity import count, duration, percent, significant
from unruly.topics.layers.model import layers_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis
    from unruly.topics.layers.model import Blame, Received, RoleName, ServiceLayer

SHARE_LEAST: Final = 0.5
EXTRA_LEAST: Final = 0.5
"""Of the usual response time: what adds less makes no request slow that anybody would ask about."""
UNTRACED_LEAST: Final = 0.2
LOST_LEAST: Final = 0.01
CALLS_FACTOR: Final = 3.0
CALLS_LEAST: Final = 2.0
PLACES: Final[dict[RoleName, str]] = {
    "own": "in {label}",
    "call": "in what {service} called by {name}",
    "between": "between {service} and the service that it called by {name}",
    "outside": "outside of all spans",
}
NEXT: Final[dict[RoleName, str]] = {
    "own": "Look at what this layer does or waits for.",
    "call": "Look at the system behind this call, or have it export spans too.",
    "between": "Look at the network, and at how long the called service lets requests wait.",
    "outside": "Look at the network, at queues before the service, and at `trust`.",
}


def slow_layers(analysis: Analysis) -> Iterator[Finding]:
    """Most slow requests spent their extra time in one layer of the services.

    Example: 78 % [70 %, 85 %] of the slow “view” requests spent most of their extra time in shop:
    pool.getConnection (31 ms instead of 0.1 ms)

    Raised: The share counts requests of an operation that are slower than its p99 and have spans.
    With fewer than 600 requests the limit is the p95, with fewer than 120 the p90. The lower end of
    its interval is {SHARE_LEAST:percent} or more. The extra time in the layer is
    {EXTRA_LEAST:percent} or more of the usual response time, and there is more than one layer.

    Means: The own time of a span is its length without the time of the spans below it. The extra
    time of a layer is its own time in a slow request, less its median in usual requests. A call to
    a system without spans has the time of that system. The time between a call and the span of the
    service that answers is the network and the queue of that service.

    Next: Look at this layer. The report shows the spans of the slowest request.

    Numbers: `layers.rows[].layers[]` in `summary.json`.
    """
    found = layers_of(analysis)
    for row in found.rows if found else ():
        if len(row.layers) < 2 or row.usual_ns is None:
            continue
        layer = row.layers[0]
        extra = layer.slow_ns - layer.usual_ns
        if (layer.share.low or 0.0) < SHARE_LEAST or extra < EXTRA_LEAST * row.usual_ns:
            continue
        several = len({it.cell for it in analysis.cells}) > 1
        yield _slow_layer(row, layer, f" ({row.cell})" if several else "")


def _slow_layer(row: Blame, layer: ServiceLayer, where: str) -> Finding:
    share = layer.share
    place = PLACES[layer.role].format(label=layer.label, service=layer.service, name=layer.name)
    times = f"{duration(layer.slow_ns)} instead of {duration(layer.usual_ns)}"
    return Finding(
        "slow-layer",
        "why",
        "informs",
        70,
        f"{percent(share.estimate or 0.0)} [{percent(share.low or 0.0)}, "
        f"{percent(share.high or 1.0)}] of the slow “{row.op}” requests{where} spent most of "
        f"their extra time {place} ({times})",
        f"{count(layer.requests)} of {count(row.looked_at)} slow requests with spans, compared "
        f"with {count(row.usual)} usual ones.",
        {
            "cell": row.cell,
            "op": row.op,
            "service": layer.service,
            "layer": layer.name,
            "role": layer.role,
            "share": share.estimate,
            "low": share.low,
            "high": share.high,
            "slow_ns": layer.slow_ns,
            "usual_ns": layer.usual_ns,
        },
        NEXT[layer.role],
    )


def repeated_calls(analysis: Analysis) -> Iterator[Finding]:
    """Slow requests make the same call many times.

    Example: slow “view” requests have 30 “SELECT item” spans of shop, usual ones 1.2

    Raised: In the slow requests of an operation, a layer has {CALLS_FACTOR:number} times as many
    spans as in usual requests, and at least {CALLS_LEAST:number} more. With the spans below them,
    these take longer than in usual requests, by {EXTRA_LEAST:percent} of a usual response time or
    more.

    Means: The service asks again for each item of a list, tries a failed call again, or answers a
    larger request. Each call may be fast.

    Next: Ask for all items at once, or look at why the call is repeated.

    Numbers: `layers.rows[].layers[]` in `summary.json`.
    """
    found = layers_of(analysis)
    for row in found.rows if found else ():
        often = [it for it in row.layers if _is_repeated(it)]
        if not often or row.usual_ns is None:
            continue
        extra = sum(it.slow_ns - it.usual_ns for it in often)
        if extra < EXTRA_LEAST * row.usual_ns:
            continue
        # a call stands above the spans of the service that answers it
        layer = max(often, key=lambda it: (it.role in ("call", "between"), it.slow_calls))
        times = significant(layer.slow_calls)
        usual = significant(layer.usual_calls)
        yield Finding(
            "repeated-calls",
            "why",
            "informs",
            65,
            f"slow “{row.op}” requests have {times} “{layer.name}” spans of {layer.service}, "
            f"usual ones {usual}",
            f"With the spans below they took {duration(extra)} more, in {count(row.looked_at)} "
            "slow requests.",
            {
                "cell": row.cell,
                "op": row.op,
                "service": layer.service,
                "layer": layer.name,
                "slow_calls": layer.slow_calls,
                "usual_calls": layer.usual_calls,
                "extra_ns": extra,
            },
            "Ask for all items at once, or look at why the call is repeated.",
        )


def _is_repeated(it: ServiceLayer) -> bool:
    more = it.slow_calls - it.usual_calls
    return it.slow_calls >= CALLS_FACTOR * it.usual_calls and more >= CALLS_LEAST


def untraced(analysis: Analysis) -> Iterator[Finding]:
    """Spans of the slow requests are missing.

    Example: 40 % of the slow “view” requests have no spans

    Raised: The run was to receive spans, and none of its requests has any. Or batches were refused,
    or {LOST_LEAST:percent} or more of the spans were damaged or came too late. Or
    {UNTRACED_LEAST:percent} or more of the slow requests of an operation have none, and the
    receiver kept every trace.

    Means: No layer can be named for these requests. A service exports spans if an OpenTelemetry
    library or agent is in it, and passes on the `traceparent` of its requests. The sampler of a
    service may drop traces. A request that ended before it reached a service has no spans.

    Next: Start each service with the address of the run in `OTEL_EXPORTER_OTLP_ENDPOINT`, such as
    `http://127.0.0.1:4318`, and with `OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf` and
    `OTEL_TRACES_SAMPLER=parentbased_always_on`.

    Numbers: `layers.received` and `layers.rows[]` in `summary.json`.
    """
    found = layers_of(analysis)
    if found is None or found.received is None:
        return
    received = found.received
    if not received.kept:
        told = "No span came to the run."
        if received.received or received.refused:
            told = (
                f"{count(received.received)} spans came to the run; {count(received.foreign)} were "
                f"of other traces. {count(received.refused)} batches were refused."
            )
        evidence = {
            "received": received.received,
            "foreign": received.foreign,
            "refused": received.refused,
        }
        yield _missing("no service exported spans of these requests", told, evidence, received)
        return
    lost = received.late + received.damaged
    if received.refused or lost >= LOST_LEAST * received.received:
        yield _missing(
            "some spans that services exported were not taken",
            f"{count(lost)} of {count(received.received)} spans were damaged or came too late, and "
            f"{count(received.refused)} batches were refused. The time of a missing span counts "
            "for the span above it.",
            {"lost": lost, "received": received.received, "refused": received.refused},
            received,
        )
    for row in found.rows if not received.level else ():
        without = row.slow - row.traced
        share = without / row.slow if row.slow else 0.0
        if share < UNTRACED_LEAST:
            continue
        yield _missing(
            f"{percent(share)} of the slow “{row.op}” requests have no spans",
            f"{count(without)} of {count(row.slow)}: the services did not export them, or these "
            "requests were slow before they reached a service.",
            {"cell": row.cell, "op": row.op, "without": without, "slow": row.slow, "share": share},
            received,
        )


def _missing(title: str, told: str, evidence: dict[str, Any], received: Received) -> Finding:
    address = received.address or "127.0.0.1:4318"
    host, _, port = address.rpartition(":")
    if host in ("0.0.0.0", "[::]"):
        address = f"ADDRESS_OF_THIS_HOST:{port}"
    return Finding(
        "spans-missing",
        "trust",
        "informs",
        30,
        title,
        told,
        evidence,
        f"Start each service with OTEL_EXPORTER_OTLP_ENDPOINT=http://{address} and "
        "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf.",
    )


RULES: Final = (
    Rule("slow-layer", "why", ("informs",), slow_layers),
    Rule("repeated-calls", "why", ("informs",), repeated_calls),
    Rule("spans-missing", "trust", ("informs",), untraced),
)
