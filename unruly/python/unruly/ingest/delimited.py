"""Columns of text from delimited files, in bounded batches, with the line that each row stood in.

Arrow parses; this adds what it lacks: numbers of lines, rows of a wrong width as complaints, and
numbers that are read exactly or not at all.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from unruly.errors import IngestError
from unruly.ingest.quotes import Closed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from unruly.ingest.source import Source

BLOCK_BYTES: Final = 2 << 20
EXACT: Final = 2.0**52
"""Below this many ns a float64 is exact to the nanosecond."""
BLANK: Final = " "
NUMBER: Final = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
PARTS: Final = r"^\s*(?P<sign>[+-]?)0*(?P<whole>\d{1,19})(?:\.(?P<part>\d*))?\s*$"
ISO: Final = r"^\s*\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?\s*(Z|[+-]\d\d:?\d\d)?\s*$"


@dataclass(frozen=True)
class Layout:
    """How a delimited file is laid out."""

    delimiter: str
    """`BLANK`: any number of blanks and tabs."""
    names: tuple[str, ...]
    """Of all columns, in order."""
    skip: int = 0
    """Lines before the first row of data."""
    quote: str | bool = '"'
    spanning: bool = False
    """Whether a quoted value may span lines."""


@dataclass(frozen=True)
class Rows:
    """Rows of a file: chosen columns as text, and the line of each row."""

    columns: dict[str, pa.Array]
    line: NDArray[np.int64]

    def __len__(self) -> int:
        """Rows."""
        return len(self.line)

    def __getitem__(self, name: str) -> pa.Array:
        """Return a column."""
        return self.columns[name]

    def where(self, kept: NDArray[np.bool_]) -> Rows:
        """Only some of the rows."""
        if kept.all():
            return self
        mask = pa.array(kept)
        return Rows({n: c.filter(mask) for n, c in self.columns.items()}, self.line[kept])


def rows_of(source: Source, layout: Layout, columns: Sequence[str]) -> Iterator[Rows]:
    """Read the chosen columns of a file; rows of a wrong width are refused, blank ones skipped."""
    wrong: list[int] = []

    def narrow(row: Any) -> str:
        wrong.append(row.number)
        if row.text.strip():
            source.complaints.lines += 1
            wanted = f"{row.actual_columns} fields where {row.expected_columns} are wanted"
            line = _physical(np.array([row.number]), source.left_out)[0]
            source.complaints.refuse(int(line), wanted)
        return "skip"

    # the outer columns distinguish a blank row, as spreadsheets leave them, from a missing value
    chosen = list(dict.fromkeys([*columns, layout.names[0], layout.names[-1]]))
    width = len(layout.names)
    closed = Closed(source, layout.delimiter, width, skip=layout.skip, spanning=layout.spanning)
    blocks = iter(closed) if layout.quote else (block for _, block in source.blocks())
    if layout.delimiter == BLANK:
        blocks = map(squeezed, blocks)
    stream = io.BufferedReader(_Blocks(blocks), BLOCK_BYTES)
    try:
        reader = pa.csv.open_csv(
            stream,
            pa.csv.ReadOptions(
                use_threads=False,
                block_size=BLOCK_BYTES,
                column_names=list(layout.names),
                skip_rows=layout.skip,
            ),
            pa.csv.ParseOptions(
                delimiter=layout.delimiter,
                quote_char=layout.quote,
                newlines_in_values=False,
                ignore_empty_lines=False,
                invalid_row_handler=narrow,
            ),
            pa.csv.ConvertOptions(
                column_types=dict.fromkeys(layout.names, pa.string()),
                strings_can_be_null=False,
                include_columns=chosen,
            ),
        )
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error) or "skip initial" in str(error):
            return  # nothing after the header
        raise _broken(source, error) from error
    number = layout.skip + 1
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except pa.ArrowInvalid as error:
            raise _broken(source, error) from error
        lines, number = _numbers(number, batch.num_rows, wrong)
        lines = _physical(lines, source.left_out)
        rows = Rows(dict(zip(chosen, batch.columns, strict=True)), lines)
        blank = np.ones(len(rows), bool)
        for column in rows.columns.values():
            blank &= np.asarray(pc.equal(column, ""))
        rows = rows.where(~blank)
        source.complaints.lines += len(rows)
        if len(rows):
            yield rows


def squeezed(lines: bytes) -> bytes:
    r"""Return lines with one blank between two fields, and none at either end.

    Examples
    --------
    >>> squeezed(b"  a \t b\n c  d \n")
    b'a b\nc d\n'
    """
    return re.sub(rb"(?m)^ | $", b"", re.sub(rb"[ \t]+", b" ", lines))


class _Blocks(io.RawIOBase):
    """Blocks of bytes as a stream."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.blocks, self.held = blocks, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self.held:
            found = next(self.blocks, None)
            if found is None:
                return 0
            self.held = found
        part, self.held = self.held[: len(buffer)], self.held[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def _numbers(first: int, count: int, wrong: list[int]) -> tuple[NDArray[np.int64], int]:
    """Numbers of the next ``count`` rows from ``first`` on, past those of a wrong width."""
    skipped = sorted(number for number in wrong if number >= first)
    number, found = first, np.empty(count, np.int64)
    place = 0
    for bad in [*skipped, None]:
        size = count - place if bad is None else min(count - place, bad - number)
        found[place : place + size] = np.arange(number, number + size)
        place, number = place + size, number + size
        if place == count:
            break
        number += 1
    wrong[:] = [bad for bad in skipped if bad >= number]
    return found, number


def _physical(numbers: NDArray[np.int64], left_out: set[int]) -> NDArray[np.int64]:
    """Lines in the file of lines that were counted after some had been left out."""
    gone = np.array(sorted(left_out), np.int64)
    return numbers + np.searchsorted(gone - np.arange(gone.size), numbers, side="right")


def _broken(source: Source, error: Exception) -> IngestError:
    text = str(error).split("\n")[0]
    return IngestError(source.where, f"is no table: {text}", "rows and columns", "look at it")


def refuse(source: Source, rows: Rows, bad: NDArray[np.bool_], column: str, reason: str) -> Rows:
    """Return the rows without the ``bad`` ones; complain about the text of each in ``column``."""
    if not bad.any():
        return rows
    for place in np.flatnonzero(bad):
        text = rows[column][int(place)].as_py()
        shown = text if len(text) <= 40 else text[:37] + "..."
        source.complaints.refuse(int(rows.line[place]), f"{column} is {shown!r}: {reason}")
    return rows.where(~bad)


def numbers_ns(texts: pa.Array, unit_ns: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return numbers of a unit in ns, to the nearest; and which texts are no numbers (0 there).

    Beyond 52 days the digits are read one by one, since a float would lose nanoseconds. NaN,
    infinities and values beyond 64 bits of nanoseconds are no numbers.
    """
    good = np.asarray(pc.match_substring_regex(texts, NUMBER)).astype(bool)
    safe = pc.if_else(pa.array(good), pc.utf8_trim_whitespace(texts), "0")
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.asarray(pc.cast(pc.ascii_ltrim(safe, "+"), pa.float64())) * unit_ns
        good &= np.abs(values) < 2.0**62
        found = np.where(good, np.rint(values), 0).astype(np.int64)
    large = good & (np.abs(values) >= EXACT)
    if large.any():
        found[large] = _exact(texts.filter(pa.array(large)), unit_ns, found[large])
    return found, ~good


def _exact(texts: pa.Array, unit_ns: int, otherwise: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return plain decimals read as whole and fraction; others keep their value of `otherwise`."""
    parts = pc.extract_regex(texts, PARTS)
    plain = np.asarray(pc.is_valid(parts)).astype(bool)

    def digits(name: str) -> pa.Array:
        return pc.fill_null(pc.struct_field(parts, name), "")

    whole = np.asarray(
        pc.cast(pc.if_else(pc.equal(digits("whole"), ""), "0", digits("whole")), pa.int64())
    )
    part = pc.utf8_slice_codeunits(pc.utf8_rpad(digits("part"), 9, "0"), 0, 9)
    billionths = np.asarray(pc.cast(part, pa.int64()))
    sign = np.where(np.asarray(pc.equal(digits("sign"), "-")).astype(bool), -1, 1)
    scaled = np.rint(billionths * (unit_ns / 1e9)).astype(np.int64)
    return np.where(plain, sign * (whole * unit_ns + scaled), otherwise)


def dates_ns(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_], bool]:
    """Dates and times in ns since 1970, which are none, and whether a zone was named.

    Written as ISO 8601, also with a space for the T and slashes for the dashes. Without a zone
    they are UTC.
    """
    texts = pc.replace_substring(pc.utf8_trim_whitespace(texts), "/", "-")
    good = np.asarray(pc.match_substring_regex(texts, ISO)).astype(bool)
    zoned = np.asarray(pc.match_substring_regex(texts, r"(Z|:\d\d(\.\d+)?\s*[+-]\d\d:?\d\d)$"))
    found = np.zeros(len(texts), np.int64)
    for zone, mask in ((True, good & zoned.astype(bool)), (False, good & ~zoned.astype(bool))):
        if mask.any():
            kind = pa.timestamp("ns", "UTC") if zone else pa.timestamp("ns")
            part = (
                pc.replace_substring_regex(texts.filter(pa.array(mask)), r"\s+([Z+-])", r"\1")
                if zone
                else texts.filter(pa.array(mask))
            )
            found[mask], bad = _cast(part, kind)
            good[np.flatnonzero(mask)[bad]] = False
    return found, ~good, bool((good & zoned.astype(bool)).any())


def _cast(texts: pa.Array, kind: pa.DataType) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Cast all at once; if one of them is no date after all, one by one."""
    try:
        return np.asarray(pc.cast(texts, kind).cast(pa.int64())), np.zeros(len(texts), bool)
    except pa.ArrowInvalid:
        found, bad = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
        for place in range(len(texts)):
            try:
                found[place] = pc.cast(texts.slice(place, 1), kind).cast(pa.int64())[0].as_py()
            except pa.ArrowInvalid:
                bad[place] = True
        return found, bad


def text_stream(source: Source) -> BinaryIO:
    """The clean blocks of a source as a file."""
    blocks = (block for _, block in source.blocks())
    return cast("BinaryIO", io.BufferedReader(_Blocks(blocks), BLOCK_BYTES))
