"""Quotes that are opened and not closed: each line is a row or a complaint.

A parser that meets a lone quote takes everything up to the next one for a single value, and lines
are gone without a word. So lines are looked at before they are parsed. A value that spans lines is
put on one line where the format or the head of the file shows that values may, and the row then
has all its fields. Any other line with an open quote is refused, alone.
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from unruly.ingest.source import Source

OPEN_QUOTE: Final = "a quote is opened and not closed"
SPANNED_MOST: Final = 200
"""Lines of one row: a message with the trace of a stack."""
SPANNED_BYTES: Final = 64 << 10
QUOTE: Final = b'"'


def opened(delimiter: str) -> re.Pattern[bytes]:
    r"""Return what finds, in lines, one whose last field opens a quote and does not close it.

    A quote opens where a field begins; two of them within are one of the text; elsewhere it is a
    character like others.

    Examples
    --------
    >>> [bool(opened(",").search(it)) for it in (b'1,"GET /p,3', b'1,"a ""b"", c",5" disk')]
    [True, False]
    """
    mark = re.escape(delimiter.encode())
    inside, outside = rb'(?>(?:[^"\n]|"")*)', rb"(?>[^" + mark + rb"\n]*)"
    quoted = rb'"' + inside + rb'"(?!")' + outside
    bare = rb'(?!")' + outside
    return re.compile(
        rb"^(?>(?:(?:" + quoted + rb"|" + bare + rb")" + mark + rb')*)"' + inside + rb"$",
        re.MULTILINE,
    )


def spans(lines: Sequence[str], delimiter: str, width: int) -> bool:
    """Return whether a row of the head needs several lines for all its fields."""
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter)
    last = 0
    for row in reader:
        lines_of_row, last = reader.line_num - last, reader.line_num
        if 1 < lines_of_row <= SPANNED_MOST and len(row) == width:
            return True
    return False


class Closed:
    """The clean blocks of a source in which every quote is closed on its line.

    Parameters
    ----------
    source : Source
        Records each refused line, and the lines that continue a row.
    delimiter, width : str, int
        The separator of fields, and the number of fields in a row.
    skip : int
        Number of lines before the rows; their quotes are ignored.
    spanning : bool
        Whether a value may span lines.
    """

    def __init__(
        self, source: Source, delimiter: str, width: int, *, skip: int, spanning: bool
    ) -> None:
        self.source, self.delimiter, self.width = source, delimiter, width
        self.skip, self.spanning = skip, spanning
        self.pattern = opened(delimiter)

    def __iter__(self) -> Iterator[bytes]:
        """Blocks of whole lines."""
        held, begins = b"", 1
        for first, block in self.source.blocks():
            begins = begins if held else first
            text, held = held + block, b""
            if QUOTE in text and self.pattern.search(text):
                text, held, begins = self._close(text, begins, final=False)
            if text:
                yield text
        if held:
            yield self._close(held, begins, final=True)[0]

    def _close(self, text: bytes, number: int, *, final: bool) -> tuple[bytes, bytes, int]:
        """Return the complete rows, the rest for the next block, and the first line of the rest."""
        ended = text.endswith(b"\n")
        lines = text.removesuffix(b"\n").split(b"\n")
        numbers = self._numbers(number, len(lines))
        kept: list[bytes] = []
        place = 0
        while place < len(lines):
            line = lines[place]
            if QUOTE not in line or numbers[place] <= self.skip or not self.pattern.search(line):
                kept.append(line)
                place += 1
                continue
            count = self._spanned(lines[place : place + SPANNED_MOST])
            if count == 0 and self.spanning and not final and self._may_go_on(lines[place:]):
                whole = b"".join(it + b"\n" for it in kept)
                rest = b"\n".join(lines[place:]) + (b"\n" if ended else b"")
                return whole, rest, numbers[place]
            if count:
                kept.append(b" ".join(lines[place : place + count]))
                self.source.left_out.update(numbers[place + 1 : place + count])
            else:
                self.source.leave_out(numbers[place], OPEN_QUOTE)
            place += max(count, 1)
        whole = b"".join(it + b"\n" for it in kept)
        return (whole if ended else whole.removesuffix(b"\n")), b"", 0

    def _numbers(self, number: int, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count:
            if number not in self.source.left_out:
                found.append(number)
            number += 1
        return found

    def _may_go_on(self, lines: list[bytes]) -> bool:
        return len(lines) < SPANNED_MOST and sum(map(len, lines)) < SPANNED_BYTES

    def _spanned(self, lines: list[bytes]) -> int:
        """Return how many lines make one row with all its fields; 0 if no number does."""
        if not self.spanning:
            return 0
        row = lines[0]
        for count, line in enumerate(lines[1:], 2):
            row += b" " + line
            if len(row) > SPANNED_BYTES:
                break
            if QUOTE in line and not self.pattern.search(row):
                text = row.decode("utf-8", "replace")
                fields = next(csv.reader([text], delimiter=self.delimiter), [])
                return count if len(fields) == self.width else 0
        return 0
