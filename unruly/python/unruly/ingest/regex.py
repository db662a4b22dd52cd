"""Lines of any text by a regular expression: its named groups are the columns.

Arrow matches with RE2, whose time is linear in the length of a line whatever the pattern. RE2 has
neither references to earlier groups nor lookaround.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unruly.errors import IngestError, ParameterError
from unruly.ingest.delimited import Rows
from unruly.ingest.model import UNITS_NS, Format, Options, Requests
from unruly.ingest.outcomes import Outcomes
from unruly.ingest.sniff import NUMERIC
from unruly.ingest.table import FLAGS, NONE, known
from unruly.ingest.tabular import Plan, check_times, named_columns, outcomes_of, requests_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from unruly.ingest.source import Source

FLAG: Final = "--regex"
EXAMPLE: Final = rf"{FLAG} 'took (?P<value>[0-9.]+) ms'"
BLOCK_CHARACTERS: Final = 4_000_000
BLOCK_LINES: Final = 50_000
VALUE, TIME, OP, STATUS = "value", "time", "op", "status"


def groups_of(pattern: str) -> tuple[str, ...]:
    """Return the names of the groups of a pattern.

    Raises
    ------
    ParameterError
        When it is no regular expression, or has a group without a name.
    """
    try:
        kind = pc.extract_regex(pa.array([""]), pattern).type
    except pa.ArrowInvalid as error:
        said = str(error).split("\n")[0].removeprefix("Invalid regular expression: ")
        if "unnamed" in said:
            hint = "(?:...) groups without a name"
            raise ParameterError(FLAG, "has groups without names", "(?P<name>...)", hint) from error
        raise ParameterError(FLAG, f"is not read: {said}", "a pattern of RE2", EXAMPLE) from error
    return tuple(kind.field(place).name for place in range(kind.num_fields))


def _read(source: Source, options: Options) -> Iterator[Requests]:
    pattern = options.regex
    if pattern is None:
        raise IngestError(source.where, "needs a pattern", f"{FLAG} PATTERN", EXAMPLE)
    names = groups_of(pattern)
    plan: Plan | None = None
    for numbers, lines in _blocks(source):
        texts = pa.array(lines, pa.string())
        found = pc.extract_regex(texts, pattern)
        fits = np.asarray(pc.is_valid(found)).astype(bool)
        source.complaints.lines += len(lines)
        # the text of a line is not repeated: it may hold addresses and secrets
        for place in np.flatnonzero(~fits):
            source.complaints.refuse(int(numbers[place]), f"does not match {FLAG}")
        if not fits.any():
            continue
        kept = found.filter(pa.array(fits))
        columns = {name: pc.fill_null(pc.struct_field(kept, name), "") for name in names}
        rows = Rows(columns, numbers[fits])
        if plan is None:
            plan = _plan(source, options, names, rows)
        yield from requests_of(source, plan, rows)


def _plan(source: Source, options: Options, names: Sequence[str], rows: Rows) -> Plan:
    value = options.value or VALUE
    if value not in names:
        raise IngestError(
            source.where, f"{FLAG} has no group {value!r}", "(?P<value>...) around the latency",
            EXAMPLE,
        )  # fmt: skip
    outcomes = outcomes_of(options)
    for flag, name in named_columns(options, outcomes):
        known(source, names, name, flag)
    if not outcomes.columns and STATUS in names:
        outcomes = Outcomes(STATUS)
    unit = UNITS_NS[options.unit] if options.unit else options.unit_ns(source.where)
    source.unit = options.unit
    time = options.time or (TIME if TIME in names else None)
    time = None if time == NONE else time
    if time is not None:
        known(source, names, time, "--time")
    check_times(source, options, time)
    time_ns = UNITS_NS[options.time_unit] if options.time_unit else None
    if time is not None and time_ns is None and NUMERIC.match(rows[time][0].as_py()):
        raise IngestError(
            source.where,
            f"group {time!r} holds numbers and does not say their unit",
            "--time-unit ns, us, ms or s",
            f"--time-unit s, or --time {NONE} to do without times",
        )
    op = options.op or (OP if OP in names else None)
    return Plan(
        value, unit, time, time_ns, op, options.factors, comma=False, called="request",
        ends=options.time_is == "end", outcomes=outcomes,
    )  # fmt: skip


def _blocks(source: Source) -> Iterator[tuple[np.ndarray, list[str]]]:
    """Yield the numbers and the texts of some lines at a time."""
    numbers: list[int] = []
    lines: list[str] = []
    size = 0
    for number, line in source.lines():
        numbers.append(number)
        lines.append(line)
        size += len(line)
        if size >= BLOCK_CHARACTERS or len(lines) >= BLOCK_LINES:
            yield np.array(numbers, np.int64), lines
            numbers, lines, size = [], [], 0
    if lines:
        yield np.array(numbers, np.int64), lines


FORMAT: Final = Format(
    "regex",
    "lines of any text; the groups of --regex name the columns",
    "latencies",
    ("took",),
    # a pattern asks for this format
    lambda _: False,
    _read,
    FLAGS | {FLAG},
)
