"""Access logs of Envoy, AWS application load balancers and Traefik, one request a line of text.

Envoy's is read as Envoy 1.40 wrote it, the others in the form that their documentation gives. Envoy
and Traefik note when a request began, a load balancer of AWS when it answered. Paths and addresses
are not kept.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from unruly.ingest.access_log import COMMON, OTHER, SECONDS
from unruly.ingest.by_line import exact_ns, iso, matching, read_lines
from unruly.ingest.model import Format, Options, Requests, failure
from unruly.ingest.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

MS, S = 1_000_000, 1_000_000_000
ENVOY: Final = re.compile(
    r"\[(?P<date>\d{4}-\d\d-\d\dT[^\]]{1,40})\] "
    r'"(?P<method>[A-Z]{1,20}|-) (?:[^"\\]|\\.)*" (?P<status>\d{1,3}) (?P<flags>\S{1,100}) '
    r'(?:\S{1,400} \S{1,400} "[^"]{0,1000}" )?'
    r"(?P<sent>\d{1,18}) (?P<got>\d{1,18}) (?P<took>\d{1,15}|-) (?:\d{1,15}|-) "
)
"""Also the default of Istio, which has details between the flags and the bytes."""
ENVOY_FLAGS: Final = {
    "UT": "timeout", "DT": "timeout", "SI": "timeout", "UF": "refused", "UC": "error:disconnected",
    "DC": "error:disconnected", "UR": "error:reset", "LR": "error:reset", "DPE": "error:failed",
}  # fmt: skip
"""Why Envoy ended a request, where it was no reply of the service."""
ALB: Final = re.compile(
    r"(?:https?|h2|grpcs|wss?) (?P<date>\d{4}-\d\d-\d\dT\S{1,30}) \S{1,200} \S{1,80} \S{1,80} "
    r"(?P<request>-?\d+(?:\.\d+)?) (?P<target>-?\d+(?:\.\d+)?) (?P<response>-?\d+(?:\.\d+)?) "
    r"(?P<status>\d{3}|-) (?:\d{3}|-) (?P<got>\d{1,18}) (?P<sent>\d{1,18}) "
    r'"(?P<method>[A-Z]{1,20}|-) '
)
ALB_OWN: Final = re.compile(r"\w{2,5} \S{1,40} \S{1,200} \S{1,80} - \S{1,20} -1 -1 [123]\d\d ")
"""A redirect or a fixed reply."""
TRAEFIK: Final = re.compile(
    COMMON + r'(?: "(?:[^"\\]|\\.)*"){2} \d{1,18} "(?:[^"\\]|\\.)*" "(?:[^"\\]|\\.)*" '
    r"(?P<took>\d{1,15})ms$"
)
NOT_ALL: Final = (
    "redirects and fixed replies of the load balancer itself have no duration, and are left out"
)


def _ended(code: str) -> str:
    return "ok" if "100" <= code.zfill(3) < "400" else failure(code)


def _method(match: re.Match[str]) -> str:
    method = match["method"]
    return method if method and method != "-" else OTHER


def _is_envoy(sample: Sample) -> bool:
    return bool(matching(sample, ENVOY))


def _envoy(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "ms"

    def row(number: int, match: re.Match[str]) -> Row:
        if match["took"] == "-":
            raise ValueError("no duration")
        flags = match["flags"].split(",")
        kind = next((ENVOY_FLAGS[it] for it in flags if it in ENVOY_FLAGS), None)
        return Row(
            number, match["date"], int(match["took"]) * MS, _method(match),
            kind or _ended(match["status"]), sent_bytes=int(match["sent"]),
            received_bytes=int(match["got"]),
        )  # fmt: skip

    yield from read_lines(source, ENVOY, row)


def _is_alb(sample: Sample) -> bool:
    return bool(matching(sample, ALB))


def _alb(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "s"
    source.lacks(NOT_ALL)

    def row(number: int, match: re.Match[str]) -> Row:
        parts = [match[it] for it in ("request", "target", "response")]
        silent = any(it.startswith("-") for it in parts)
        code = match["status"]
        # -1: the load balancer got no reply from a target, or could not send it on
        status = "ok" if not silent and "100" <= code < "400" else failure(code)
        taken = None if silent else sum(exact_ns(it, S) for it in parts)
        return Row(
            number, match["date"], taken, _method(match), status, sent_bytes=int(match["got"]),
            received_bytes=int(match["sent"]),
        )  # fmt: skip

    yield from read_lines(source, ALB, row, ended=True, others=ALB_OWN)


def _is_traefik(sample: Sample) -> bool:
    return bool(matching(sample, TRAEFIK))


def _traefik(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "ms"
    source.lacks(SECONDS)

    def row(number: int, match: re.Match[str]) -> Row:
        size = 0 if match["bytes"] == "-" else int(match["bytes"])
        return Row(
            number, iso(match["date"]), int(match["took"]) * MS, _method(match),
            _ended(match["status"]), received_bytes=size,
        )  # fmt: skip

    yield from read_lines(source, TRAEFIK, row)


ENVOY_LOG: Final = Format(
    "envoy-log",
    "an access log of Envoy in its default form, also Istio's",
    "latencies",
    ('] "', " HTTP/1.1", '" 200 - '),
    _is_envoy,
    _envoy,
)
ALB_LOG: Final = Format(
    "alb-log",
    "an access log of an AWS application load balancer",
    "latencies",
    ("app/", "targetgroup/", "Root="),
    _is_alb,
    _alb,
)
TRAEFIK_LOG: Final = Format(
    "traefik-log",
    "an access log of Traefik in its common form, which ends with ms",
    "latencies",
    ('" 200 ', "HTTP/1", "ms\n", '@docker"'),
    _is_traefik,
    _traefik,
)
