"""Tables of load generators for HTTP with a request a row: hey, h2load and ab."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from unruly.errors import IngestError
from unruly.ingest.by_line import exact_ns, matching, read_lines
from unruly.ingest.model import Format, Options, Requests, failure
from unruly.ingest.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

US, MS, S = 1_000, 1_000_000, 1_000_000_000
DECIMAL: Final = r"\d+\.\d+"
HEY_HEAD: Final = "response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read,"
HEY: Final = re.compile(
    rf"(?P<took>{DECIMAL})(?:,{DECIMAL}){{5}},(?P<status>\d{{3}}),(?P<at>{DECIMAL})$"
)
HEY_HEADER: Final = re.compile("response-time,")
H2LOAD: Final = re.compile(r"(?P<at>\d{15,17})\t(?P<status>-1|[1-5]\d\d)\t(?P<took>\d+)$")
AB_HEAD: Final = "starttime\tseconds\tctime\tdtime\tttime\twait"
AB: Final = re.compile(r"[^\t]+\t(?P<at>\d{9,11})\t\d+\t\d+\t(?P<took>\d+)\t\d+$")
AB_HEADER: Final = re.compile("starttime\t")
HEY_MOST: Final = 1_000_000
RELATIVE: Final = "times count from the beginning of the run, not from 1970"


def _begins(sample: Sample, head: str) -> bool:
    return bool(sample.lines) and sample.lines[0].startswith(head)


def _hey(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "s"
    source.lacks(RELATIVE)
    source.lacks("requests that got no response are not in hey's CSV: the tail is cut")

    def row(number: int, match: re.Match[str]) -> Row:
        code = match["status"]
        status = "ok" if code < "400" else failure(code)
        return Row(number, exact_ns(match["at"], S), exact_ns(match["took"], S), "request", status)

    yield from read_lines(source, HEY, row, others=HEY_HEADER)
    if source.complaints.lines >= HEY_MOST:
        source.lacks(f"hey keeps {HEY_MOST:,} requests at most: later ones are missing")


def _h2load(source: Source, options: Options) -> Iterator[Requests]:
    del options
    source.unit = "us"

    def row(number: int, match: re.Match[str]) -> Row:
        code = match["status"]
        at, taken = int(match["at"]) * US, int(match["took"]) * US
        if code.startswith("-"):
            return Row(number, at, None, "request", "error:failed")
        return Row(number, at, taken, "request", "ok" if code < "400" else failure(code))

    yield from read_lines(source, H2LOAD, row)


def _ab(source: Source, options: Options) -> Iterator[Requests]:
    del options
    if not _begins(source.sample, AB_HEAD):
        raise IngestError(source.where, "has no columns of ab", AB_HEAD, "ab -g FILE")
    source.unit = "ms"
    source.lacks("ab writes whole milliseconds, and whole seconds as times, sorted by duration")
    source.lacks("ab's file has no status codes: a reply with an error is in it like any other")

    def row(number: int, match: re.Match[str]) -> Row:
        return Row(number, int(match["at"]) * S, int(match["took"]) * MS, "request")

    yield from read_lines(source, AB, row, others=AB_HEADER)


HEY_CSV: Final = Format(
    "hey",
    "hey -o csv",
    "latencies",
    ("response-time", "DNS+dialup", "Response-delay"),
    lambda sample: _begins(sample, HEY_HEAD),
    _hey,
)
H2LOAD_LOG: Final = Format(
    "h2load",
    "h2load --log-file",
    "latencies",
    ("\t200\t",),
    lambda sample: bool(matching(sample, H2LOAD)),
    _h2load,
)
AB_TSV: Final = Format(
    "ab",
    "ab -g",
    "latencies",
    ("starttime\t", "ctime\t", "ttime\t"),
    lambda sample: _begins(sample, AB_HEAD),
    _ab,
)
