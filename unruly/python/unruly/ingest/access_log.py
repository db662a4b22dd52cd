"""Access logs of nginx, Apache httpd and HAProxy that hold how long each request took.

The time of a line of nginx is the one at which the request ended, Apache's ``%t`` the one at which
it began, HAProxy's the one at which it accepted the request. Paths and addresses are not kept.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from unruly.errors import IngestError
from unruly.ingest.by_line import exact_ns, iso, matching, read_lines
from unruly.ingest.model import Format, Options, Requests, failure
from unruly.ingest.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

MS, S = 1_000_000, 1_000_000_000
COMMON: Final = (
    r"\S+ \S+ \S+ \[(?P<date>[^\]]{1,40})\] "
    r'"(?:(?P<method>[A-Z]{1,20}) )?(?:[^"\\]|\\.)*" (?P<status>\d{3}) (?P<bytes>\d+|-)'
)
NGINX: Final = re.compile(COMMON + r"(?P<rest> .*\b(?:rt|request_time|rq_time)=.*)$")
QUOTED: Final = re.compile(r'(?<!=)"(?:[^"\\]|\\.)*"')
TOOK: Final = re.compile(r'(?:^| )(?:rt|request_time|rq_time)="?(?P<took>\d+\.\d+)\b')
END: Final = re.compile(r'(?:^| )msec="?(?P<end>\d{9,11}\.\d+)\b')
APACHE: Final = re.compile(COMMON + r'(?: "(?:[^"\\]|\\.)*"){0,2} (?P<took>\d+)$')
HAPROXY: Final = re.compile(
    r"(?:[^\[\]]{1,200}(?:\[\d+\])?: )?\S{1,80}:\d+ \[(?P<date>[^\]]{1,40})\] \S{1,200} "
    r"[^\s/]{1,200}/\S{1,200} -?\d+/-?\d+/-?\d+/-?\d+/(?P<early>\+?)(?P<took>\d+) "
    r"(?P<status>\d{3}|-1) \+?(?P<bytes>\d+) \S+ \S+ (?P<end>[A-Za-z-]{4}) "
    r'[^"]{0,2000}"(?P<method>[A-Z]{1,20}|<BADREQ>)'
)
CUT_OFF: Final = {
    "s": "timeout", "c": "timeout", "S": "error:disconnected", "C": "error:disconnected",
}  # fmt: skip
"""HAProxy notes who ended a session, and how: its state at the end begins with one of these."""
SECONDS: Final = "the log has whole seconds: times of requests are known to the second"
OTHER: Final = "other"
"""A request whose method nobody could read."""


def _status(match: re.Match[str]) -> str:
    code = match["status"]
    return "ok" if "100" <= code < "400" else failure(code)


def _bytes(match: re.Match[str]) -> int:
    return 0 if match["bytes"] == "-" else int(match["bytes"])


def _unquoted(match: re.Match[str]) -> str:
    """What follows the status, without a referer or a browser, which may say anything."""
    return QUOTED.sub("", match["rest"])


def _is_nginx(sample: Sample) -> bool:
    found = matching(sample, NGINX)
    return any(TOOK.search(_unquoted(it)) for it in found)


def _nginx(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "s"
    source.lacks(
        "nginx measures from the first byte that it reads; earlier waiting is not included"
    )
    timed = any(END.search(_unquoted(it)) for it in matching(source.sample, NGINX))
    if not timed:
        source.lacks(SECONDS)

    def row(number: int, match: re.Match[str]) -> Row:
        rest = _unquoted(match)
        took, end = TOOK.search(rest), END.search(rest)
        if took is None:
            raise ValueError("no request time")
        if timed and end is None:
            raise ValueError("no msec, which other lines have")
        at: int | str = exact_ns(end["end"], S) if timed and end else iso(match["date"])
        return Row(
            number, at, exact_ns(took["took"], S), match["method"] or OTHER, _status(match),
            received_bytes=_bytes(match),
        )  # fmt: skip

    yield from read_lines(source, NGINX, row, ended=True)


def _is_apache(sample: Sample) -> bool:
    return bool(matching(sample, APACHE))


def _apache(source: Source, options: Options) -> Iterator[Requests]:
    if options.unit is None:
        raise IngestError(
            source.where,
            "does not say in which unit its durations are",
            "--unit us for %D, ms for %{ms}T, s for %T",
            "look at the LogFormat of the server; a unit is never guessed",
        )
    unit = options.unit_ns(source.where)
    source.unit = options.unit
    source.lacks(SECONDS)

    def row(number: int, match: re.Match[str]) -> Row:
        return Row(
            number, iso(match["date"]), int(match["took"]) * unit, match["method"] or OTHER,
            _status(match), received_bytes=_bytes(match),
        )  # fmt: skip

    yield from read_lines(source, APACHE, row)


def _is_haproxy(sample: Sample) -> bool:
    return bool(matching(sample, HAPROXY))


def _haproxy(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "ms"

    def row(number: int, match: re.Match[str]) -> Row:
        if match["early"]:
            raise ValueError("its time is not final (option logasap)")
        status = CUT_OFF.get(match["end"][0]) or _status(match)
        method = match["method"] if match["method"].isalpha() else OTHER
        return Row(
            number, iso(match["date"]), int(match["took"]) * MS, method, status,
            received_bytes=_bytes(match),
        )  # fmt: skip

    yield from read_lines(source, HAPROXY, row)


NGINX_LOG: Final = Format(
    "nginx-log",
    "an access log of nginx with rt=$request_time, better also msec=$msec",
    "latencies",
    ("rt=", '" 200 ', "HTTP/1"),
    _is_nginx,
    _nginx,
)
APACHE_LOG: Final = Format(
    "apache-log",
    "an access log of Apache httpd that ends with %D",
    "latencies",
    ('" 200 ', "HTTP/1", '"-"'),
    _is_apache,
    _apache,
    frozenset({"--unit"}),
)
HAPROXY_LOG: Final = Format(
    "haproxy-log",
    "HAProxy's option httplog",
    "latencies",
    ("/0/0/", " ---- ", "HTTP/1"),
    _is_haproxy,
    _haproxy,
)
