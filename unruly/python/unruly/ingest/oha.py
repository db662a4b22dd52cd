"""oha: ``--output-format csv``; times in seconds since the run began.

The file has only requests that got a response. Refused requests and timeouts are missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.compute as pc

from unruly.errors import IngestError
from unruly.ingest.delimited import Rows, numbers_ns, refuse, rows_of
from unruly.ingest.model import Format, Options, Requests, failure
from unruly.ingest.sniff import sniff

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

NEEDED: Final = ("request-start", "request-duration", "bytes", "status")
S: Final = 1_000_000_000
ANSWERED_ONLY: Final = (
    "requests that got no response (refused, timed out) are not in oha's CSV: the tail is cut"
)
RELATIVE: Final = "times count from the beginning of the run, not from 1970"


def _recognises(sample: Sample) -> bool:
    found = sniff(sample)
    return found is not None and set(found.layout.names) >= set(NEEDED)


def _read(source: Source, options: Options) -> Iterator[Requests]:
    del options
    found = sniff(source.sample)
    if found is None or not set(found.layout.names) >= set(NEEDED):
        raise IngestError(source.where, "has no columns of oha", ", ".join(NEEDED))
    source.unit = "s"
    source.lacks(ANSWERED_ONLY)
    source.lacks(RELATIVE)
    for batch in rows_of(source, found.layout, NEEDED):
        rows: Rows = batch
        for name in NEEDED[:3]:
            rows = refuse(source, rows, numbers_ns(rows[name], S)[1], name, "no number")
        status = pc.match_substring_regex(rows["status"], r"^[1-5]\d\d$")
        no_code = ~np.asarray(pc.fill_null(status, False)).astype(bool)
        rows = refuse(source, rows, no_code, "status", "no status code")
        codes = rows["status"].to_pylist()
        if codes:
            yield Requests(
                duration_ns=numbers_ns(rows["request-duration"], S)[0],
                started_ns=numbers_ns(rows["request-start"], S)[0],
                status=["ok" if code < "400" else failure(code) for code in codes],
                received_bytes=numbers_ns(rows["bytes"], 1)[0],
                line=rows.line,
            )


FORMAT: Final = Format(
    "oha",
    "oha --output-format csv",
    "latencies",
    ("request-start", "DNS", "request-duration", "status"),
    _recognises,
    _read,
)
