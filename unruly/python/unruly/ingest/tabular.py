"""Columns of text made requests: what tables, JSON rows and lines of a log have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unruly.errors import IngestError
from unruly.ingest.by_line import MONTHS
from unruly.ingest.delimited import dates_ns, numbers_ns, refuse
from unruly.ingest.model import Options, Requests
from unruly.ingest.outcomes import OK, Outcomes, condition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unruly.ingest.delimited import Rows
    from unruly.ingest.source import Source

ZONELESS: Final = "its times name no time zone and were taken as UTC"
CLF: Final = (
    r"^\s*\[?(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d:\d\d:\d\d(?:\.\d{1,9})?)\s?([+-]\d{4})?\]?\s*$"
)
"""A date as web servers log it: ``29/Nov/2026:04:10:35 +0000``."""
COMMA_PART: Final = r"(\d\d:\d\d:\d\d),(\d{1,9})"
"""Some loggers write a comma before the part of a second."""


@dataclass(frozen=True)
class Plan:
    """Which columns are read, and how."""

    value: str
    unit_ns: int
    time: str | None
    time_ns: int | None
    """None: dates."""
    op: str | None
    factors: tuple[str, ...]
    comma: bool
    """A comma is a decimal sign."""
    called: str
    """The op where no column says it."""
    ends: bool = False
    """True if a time is the end of its row."""
    outcomes: Outcomes = field(default_factory=lambda: Outcomes(None))

    def columns(self) -> list[str]:
        """Every column that is read."""
        wanted = [self.value, self.time, self.op, *self.factors, *self.outcomes.columns]
        return [name for name in wanted if name is not None]


def outcomes_of(options: Options) -> Outcomes:
    """Return how the user says which rows failed.

    Raises
    ------
    ParameterError
        When a condition is none.
    """
    return Outcomes(options.status, tuple(condition(text) for text in options.failed_if))


def named_columns(options: Options, outcomes: Outcomes) -> list[tuple[str, str]]:
    """Return each column that a flag names beside value and time, with its flag."""
    found = [("--op", options.op), *(("--factor", name) for name in options.factors)]
    found += [("--status", options.status)]
    found += [("--failed-if", it.column) for it in outcomes.conditions]
    return [(flag, name) for flag, name in found if name is not None]


def check_times(source: Source, options: Options, time: str | None) -> None:
    """Refuse ``--time-is`` for rows without times.

    Raises
    ------
    IngestError
        When the flag was given and no column has the times.
    """
    if options.time_is is not None and time is None:
        raise IngestError(
            source.where,
            f"has no times for --time-is {options.time_is}",
            "a column of times",
            "name it: --time COLUMN, or leave --time-is out",
        )


def requests_of(source: Source, plan: Plan, rows: Rows) -> Iterator[Requests]:
    """Yield the requests of some rows; a row that cannot be read is a complaint."""
    status, unclear = plan.outcomes.of(source.where, rows.columns, len(rows))
    bad = np.zeros(len(rows), bool)
    for mask, column, reason in unclear:
        refuse(source, rows, mask & ~bad, column, reason)
        bad |= mask
    rows, status = rows.where(~bad), status.filter(pa.array(~bad))
    texts = decimal(rows[plan.value], comma=plan.comma)
    duration, bad = numbers_ns(texts, plan.unit_ns)
    # a request that failed may have no duration: no reply came
    silent = np.asarray(pc.not_equal(status, OK)).astype(bool)
    silent &= np.asarray(pc.equal(pc.utf8_trim_whitespace(texts), "")).astype(bool)
    bad &= ~silent
    kept = refuse(source, rows, bad, plan.value, "no number")
    duration, silent, status = duration[~bad], silent[~bad], status.filter(pa.array(~bad))
    started, late = _times(source, plan, kept)
    if started is not None:
        kept = refuse(source, kept, late, str(plan.time), "no time")
        duration, started, silent = duration[~late], started[~late], silent[~late]
        status = status.filter(pa.array(~late))
        if plan.ends:
            started = started - duration
    if len(kept):
        yield Requests(
            duration_ns=pa.array(duration, mask=silent) if silent.any() else duration,
            started_ns=started,
            op=kept[plan.op] if plan.op else plan.called,
            status=status,
            factors={name: kept[name] for name in plan.factors},
            line=kept.line,
        )


def decimal(texts: pa.Array, *, comma: bool) -> pa.Array:
    """Return numbers with a point where a lone comma is the decimal sign."""
    if not comma:
        return texts
    # with a point beside it, or twice, the comma groups thousands: that is then no number here
    lone = pc.match_substring_regex(texts, r"^[^.,]*,[^.,]*$")
    return pc.if_else(lone, pc.replace_substring(texts, ",", "."), texts)


def _times(
    source: Source, plan: Plan, rows: Rows
) -> tuple[NDArray[np.int64] | None, NDArray[np.bool_]]:
    if plan.time is None:
        return None, np.zeros(len(rows), bool)
    if plan.time_ns is not None:
        return numbers_ns(decimal(rows[plan.time], comma=plan.comma), plan.time_ns)
    started, bad, zoned = moments_ns(rows[plan.time])
    if not zoned and not bad.all():
        source.lacks(ZONELESS)
    return started, bad


def moments_ns(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_], bool]:
    """Return dates as `dates_ns` does, also those that web servers and loggers write."""
    found, bad, zoned = dates_ns(texts)
    if not bad.any():
        return found, bad, zoned
    others = texts.filter(pa.array(bad))
    plain = pc.replace_substring_regex(others, CLF, r"\3-\2-\1T\4\5")
    for name, number in MONTHS.items():
        plain = pc.replace_substring(plain, f"-{name}-", f"-{number:02d}-")
    plain = pc.replace_substring_regex(plain, COMMA_PART, r"\1.\2")
    more, still, named = dates_ns(plain)
    found[bad] = more
    wrong = bad.copy()
    wrong[bad] = still
    return found, wrong, zoned or named
