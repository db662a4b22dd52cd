"""Exports spans at a rate, as services would: ``spans_feeder.py PORT KEY RATE SECONDS``.

Run by the Python that has OpenTelemetry. Prints a line when it begins, and how many spans it sent.
"""

from __future__ import annotations

import http.client
import sys
import time

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

PORT, KEY, RATE_HZ, SECONDS = (
    int(sys.argv[1]), int(sys.argv[2], 16), int(sys.argv[3]), int(sys.argv[4]),
)  # fmt: skip
BATCH = 512
SPANS = 4
MASK = (1 << 64) - 1


def finalise(value: int) -> int:
    """One round of splitmix64."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def attribute(key: str, value: str) -> KeyValue:
    """An attribute of a text."""
    return KeyValue(key=key, value=AnyValue(string_value=value))


ATTRIBUTES = [
    attribute(f"http.attribute.{number}", "a value as long as those of others")
    for number in range(8)
]


def body(first: int, now_ns: int) -> bytes:
    """A batch of spans, four to a trace."""
    message = ExportTraceServiceRequest()
    resource = message.resource_spans.add()
    resource.resource.attributes.append(attribute("service.name", "shop"))
    spans = resource.scope_spans.add().spans
    for number in range(first, first + BATCH):
        request, place = divmod(number, SPANS)
        half = finalise((finalise(KEY) + request) & MASK)
        span = spans.add(
            trace_id=(KEY << 64 | half).to_bytes(16, "big"),
            span_id=(number + 1).to_bytes(8, "big"),
            name=f"step {place}",
            kind=1,
            start_time_unix_nano=now_ns + place,
            end_time_unix_nano=now_ns + 1_000_000 + request % 977 * 1_000,
        )
        if place:
            span.parent_span_id = (number - place + 1).to_bytes(8, "big")
        span.attributes.extend(ATTRIBUTES)
    return bytes(message.SerializeToString())


batches = [body(at * BATCH, time.time_ns()) for at in range(RATE_HZ * SECONDS // BATCH)]
link = http.client.HTTPConnection("127.0.0.1", PORT)
print("begin", flush=True)
began = time.monotonic()
for place, batch in enumerate(batches):
    time.sleep(max(0.0, began + place * BATCH / RATE_HZ - time.monotonic()))
    link.request("POST", "/v1/traces", batch, {"Content-Type": "application/x-protobuf"})
    answer = link.getresponse()
    answer.read()
    if answer.status != 200:
        raise SystemExit(f"the receiver answered {answer.status}")
print(len(batches) * BATCH)
