"""What a reader of a foreign format yields: bounded batches, and lines that could not be read.

A reader knows its format and nothing of the trace. Each batch holds at most about `BATCH_ROWS`
rows, as columns: one value for all rows, or a sequence (list, numpy, pyarrow) with a value a row,
where None is null. Times are integers in ns since 1970 (UTC), durations integers in ns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from unruly.errors import IngestError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from unruly.ingest.source import Sample, Source

BATCH_ROWS: Final = 100_000

Column: TypeAlias = Any
"""One value for all rows, or a sequence with a value a row."""


@dataclass(frozen=True)
class Requests:
    """Rows of the table ``requests``: one a request, answered or not.

    ``started_ns`` None: the source has no time, and rows are laid end to end in their order.
    ``intended_ns`` None: the source has no schedule, and a request was intended when it started.
    A null in ``duration_ns`` is a request without a reply; its ``status`` is then not ``ok``.
    ``client`` and ``server`` are names. ``line`` is where each row stood, for complaints.
    """

    duration_ns: Column
    started_ns: Column = None
    op: Column = "request"
    status: Column = "ok"
    client: Column = None
    server: Column = "service"
    factors: Mapping[str, Column] = field(default_factory=dict)
    """What the cell is made of: a name and its value."""
    intended_ns: Column = None
    sent_bytes: Column = 0
    received_bytes: Column = 0
    connection: Column = 0
    key: Column = None
    attempt: Column = 0
    request: Column = None
    """Ties rows of `Spans` to these; None: numbered in order."""
    server_received_ns: Column = None
    """On the server's clock."""
    server_sent_ns: Column = None
    line: Column = None


@dataclass(frozen=True)
class Histograms:
    """Rows of the table ``histograms``: the bins of a source that kept no single values.

    ``count`` values lie uniformly between ``low_ns`` and ``high_ns``; equal edges are one exact
    value, infinite edges are requests that failed.
    """

    op: Column
    started_ns: Column
    ended_ns: Column
    low_ns: Column
    high_ns: Column
    count: Column
    factors: Mapping[str, Column] = field(default_factory=dict)


@dataclass(frozen=True)
class Spans:
    """Rows of the table ``spans``: where the time of a request went."""

    request: Column
    layer: Column
    started_ns: Column
    ended_ns: Column
    client: Column = None
    server: Column = "service"
    attempt: Column = 0
    span_id: Column = None
    parent_id: Column = None
    service: Column = None
    kind: Column = None
    failed: Column = None
    factors: Mapping[str, Column] = field(default_factory=dict)


@dataclass(frozen=True)
class Events:
    """Rows of the table ``events``: events other than requests, such as a GC pause.

    They are added to every cell that the file overlaps in time; ``ended_ns`` may be null.
    """

    kind: Column
    started_ns: Column
    ended_ns: Column = None
    detail: Column = None
    pauses: bool = True
    """True if a process waited: if no file has latencies, these pauses are the measured values."""


@dataclass(frozen=True)
class Resources:
    """Rows of the table ``resources``, by the names of its columns; a missing column is null.

    They are added to every cell that the file overlaps in time.
    """

    started_ns: Column
    ended_ns: Column
    columns: Mapping[str, Column]
    watched: Column = None


@dataclass(frozen=True)
class Figures:
    """Numbers of one op that the source knows exactly (``n``, ``min_ns``, ``mean_ns``, ...)."""

    op: str
    values: Mapping[str, float]
    factors: Mapping[str, str] = field(default_factory=dict)


Batch: TypeAlias = Requests | Histograms | Spans | Events | Resources | Figures


@dataclass(frozen=True)
class Options:
    """What the user said of the files: flags of ``unruly import``, as they were given."""

    value: str | None = None
    unit: str | None = None
    time: str | None = None
    time_unit: str | None = None
    op: str | None = None
    factors: tuple[str, ...] = ()
    format: str | None = None
    tag: str | None = None
    services: tuple[str, ...] = ()
    status: str | None = None
    failed_if: tuple[str, ...] = ()
    time_is: str | None = None
    regex: str | None = None

    def given(self) -> set[str]:
        """Names of the flags that say how to read, without ``--format`` and ``--tag``."""
        flags = {
            "--value": self.value,
            "--unit": self.unit,
            "--time": self.time,
            "--time-unit": self.time_unit,
            "--op": self.op,
            "--factor": self.factors,
            "--service": self.services,
            "--status": self.status,
            "--failed-if": self.failed_if,
            "--time-is": self.time_is,
            "--regex": self.regex,
        }
        return {name for name, value in flags.items() if value}

    def unit_ns(self, where: str) -> int:
        """Nanoseconds in the unit that the user named.

        Raises
        ------
        IngestError
            When none was named: a unit is never guessed.
        """
        if self.unit is None:
            raise IngestError(
                where,
                "does not say in which unit its durations are",
                "--unit ns, us, ms or s",
                "look at how it was made; a unit is never guessed",
            )
        return UNITS_NS[self.unit]

    def __post_init__(self) -> None:
        """Refuse a word that is none of those that a flag takes."""
        for flag, value in (("--unit", self.unit), ("--time-unit", self.time_unit)):
            if value is not None and value not in UNITS_NS:
                wanted = f"one of {', '.join(UNITS_NS)}"
                raise ParameterError(flag, f"is {value!r}", wanted, f"{flag} ms")
        if self.time_is not in (None, "start", "end"):
            flag = "--time-is"
            raise ParameterError(flag, f"is {self.time_is!r}", "start or end", f"{flag} end")


@dataclass(frozen=True)
class Format:
    """A format that can be imported: one file of this package, one line in `formats.FORMATS`.

    ``gives`` is ``latencies`` (requests or histograms; such files make cells) or ``context``
    (events and resources; laid beside cells). ``words`` stand in most files of the format: the
    nearest guess, when nothing is recognised, is the format with the largest share of them.
    ``takes`` are the flags that change how it is read. ``fallback``: asked only when no other
    format recognises the file. ``series``: several files are moments of one
    measurement, and are read together. ``gist`` says in a few words what it is.
    """

    name: str
    gist: str
    gives: str
    words: tuple[str, ...]
    recognises: Callable[[Sample], bool]
    read: Callable[[Source, Options], Iterator[Batch]]
    takes: frozenset[str] = frozenset()
    fallback: bool = False
    series: bool = False


UNITS_NS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def failure(code: str = "", message: str = "") -> str:
    """Return the status of a request that failed, from what a tool says of it.

    Kinds are few whatever the texts: ``timeout``, ``refused``, ``error:<HTTP status>`` and
    ``error:reset``, ``error:disconnected``, ``error:name``, ``error:tls``, ``error:failed``.

    Examples
    --------
    >>> failure("500", "Internal Server Error"), failure("", "read: connection reset by peer")
    ('error:500', 'error:reset')
    """
    number = code.strip()
    if len(number) == 3 and number.isdecimal() and number >= "100":
        return "timeout" if number == "408" else f"error:{number}"
    text = f"{code} {message}".lower()
    for words, status in _FAILURES:
        if any(word in text for word in words):
            return status
    return "error:failed"


_FAILURES: Final = (
    (("timeout", "timed out", "timedout", "deadline exceeded"), "timeout"),
    (("refused",), "refused"),
    (("reset",), "error:reset"),
    (("tls", "ssl", "certificate", "x509"), "error:tls"),
    (("no such host", "unknownhost", "resolve", "dns", "name or service"), "error:name"),
    (("eof", "closed", "disconnect", "broken pipe", "nohttpresponse"), "error:disconnected"),
)
