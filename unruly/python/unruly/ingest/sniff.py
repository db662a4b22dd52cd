"""How a table is laid out: delimiter, comments and titles above, header rows, trailing separators.

Everything is read off the beginning of the file. Where it could mean two things, nothing is
chosen: the user is asked.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from unruly.ingest.delimited import BLANK, NUMBER, Layout, squeezed
from unruly.ingest.quotes import spans

if TYPE_CHECKING:
    from unruly.ingest.source import Sample

DELIMITERS: Final = ("\t", ";", "|", ",")
"""A comma last: beside another delimiter it is a decimal sign."""
LOOKED_AT: Final = 200
HEADERS_WITHIN: Final = 30
CONSISTENT: Final = 0.9
NUMERIC: Final = re.compile(NUMBER.replace(r"\.", "[.,]"))
WORDLESS: Final = re.compile(r"^\s*([+-]?\d[\d.,:/ T+Z-]*|[+-]?(nan|inf|null|none)|)\s*$", re.I)


@dataclass(frozen=True)
class Sniffed:
    """A layout, and whether the columns have names of their own."""

    layout: Layout
    named: bool
    rows: tuple[tuple[str, ...], ...]
    """The first rows of data."""


def sniff(sample: Sample, value: str | None = None) -> Sniffed | None:
    """Return the layout of a table, None when it is none.

    The header is the first row that holds the column ``value``, where one is named; otherwise the
    first row as wide as the data, unless it has a number in it: then columns are named 1, 2, ...
    """
    lines = sample.lines[:LOOKED_AT]
    plain = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not plain or sample.binary:
        return None
    delimiter = _delimiter(plain)
    if delimiter == BLANK:
        lines = [squeezed(line.encode()).decode() for line in lines]
    rows = _rows(lines, delimiter)
    width = _width([row for _, row in rows])
    if width == 0:
        return None
    named = _header(rows, width, value)
    if named is None:
        first = next(place for place, (_, row) in enumerate(rows) if len(row) >= width)
        names = [str(number + 1) for number in range(width)]
        above = lines[: rows[first][0] - 1]
        comment = _names_in_comment(above, delimiter, width)
        names, has_names = (comment, True) if comment else (names, False)
    else:
        names, has_names = [cell.strip() for cell in rows[named][1]], True
        names += [""] * (width - len(names))
        first = named + 1
        while first < len(rows) and first - named < HEADERS_WITHIN and _wordy(rows[first][1]):
            first += 1
    start = rows[first][0] if first < len(rows) else (rows[-1][0] + 1)
    spanning = delimiter != BLANK and spans(lines[start - 1 :], delimiter, width)
    layout = Layout(delimiter, _unique(names[:width]), start - 1, spanning=spanning)
    return Sniffed(layout, has_names, tuple(tuple(row) for _, row in rows[first:]))


def _delimiter(lines: list[str]) -> str:
    """The one that cuts the lines into equally many fields, two or more; else the likeliest."""
    shares = {}
    for delimiter in DELIMITERS:
        widths = [len(row) for row in _read(lines, delimiter)]
        width, times = Counter(widths).most_common(1)[0]
        shares[delimiter] = times / len(widths) if width > 1 else 0.0
    for delimiter in DELIMITERS:
        if shares[delimiter] >= CONSISTENT and shares[delimiter] >= shares[","] - 0.05:
            return delimiter
    best = max(DELIMITERS, key=lambda it: shares[it])
    if shares[best] < CONSISTENT and _blanks_separate(lines):
        return BLANK
    return best if shares[best] > 0 else ","


def _blanks_separate(lines: list[str]) -> bool:
    """Whether blanks cut the lines into equally many fields, one of which holds numbers.

    Prose has as many blanks, but neither columns nor numbers.
    """
    rows = _read([squeezed(line.encode()).decode() for line in lines], BLANK)
    width, times = Counter(map(len, rows)).most_common(1)[0] if rows else (0, 0)
    if width < 2 or times < CONSISTENT * len(rows):
        return False
    data = [row for row in rows[1:] or rows if len(row) == width]
    numeric = [sum(bool(NUMERIC.match(row[place])) for row in data) for place in range(width)]
    return bool(data) and max(numeric) >= CONSISTENT * len(data)


def _read(lines: list[str], delimiter: str) -> list[list[str]]:
    return [row for row in csv.reader(lines, delimiter=delimiter) if row]


def _rows(lines: list[str], delimiter: str) -> list[tuple[int, list[str]]]:
    """Rows with the number of their first line, without comments and blank lines."""
    found, last = [], 0
    reader = csv.reader([f"{line}\n" for line in lines], delimiter=delimiter)
    for row in reader:
        first, last = last + 1, reader.line_num
        if row and any(cell.strip() for cell in row) and not row[0].lstrip().startswith("#"):
            found.append((first, row))
    return found


def _width(rows: list[list[str]]) -> int:
    """Fields of most rows of the second half, where no titles are left."""
    tail = rows[len(rows) // 2 :] or rows
    return Counter(len(row) for row in tail).most_common(1)[0][0] if tail else 0


def _header(rows: list[tuple[int, list[str]]], width: int, value: str | None) -> int | None:
    """Which row names the columns; None when none does."""
    near = rows[:HEADERS_WITHIN]
    if value is not None:
        for place, (_, row) in enumerate(near):
            if value in [cell.strip() for cell in row] and not NUMERIC.match(value):
                return place
    for place, (_, row) in enumerate(near):
        # a trailing separator may stand in the rows and not in the header
        if len(row) in (width, width - 1) and (width == 1 or len(row) > 1):
            return place if _wordy(row) else None
    return None


def _wordy(row: list[str]) -> bool:
    """A row of names or units: no cell is a number or a date, and one is a word."""
    filled = [cell for cell in row if cell.strip()]
    return bool(filled) and not any(WORDLESS.match(cell) or NUMERIC.match(cell) for cell in filled)


def _names_in_comment(above: list[str], delimiter: str, width: int) -> list[str] | None:
    for line in reversed(above):
        if line.lstrip().startswith("#"):
            found = (
                [cell.strip() for cell in _read([line.lstrip("# ")], delimiter)[0:1][0]]
                if line.strip("# ")
                else []
            )
            if len(found) == width and _wordy(found):
                return found
    return None


def _unique(names: list[str]) -> tuple[str, ...]:
    """Names that differ: two columns ``x`` are ``x.1`` and ``x.2``, one without a name its number.

    Nobody takes one of two columns without a word this way.
    """
    plain = [name or str(place) for place, name in enumerate(names, 1)]
    often, seen = Counter(plain), Counter[str]()
    found = []
    for name in plain:
        seen[name] += 1
        found.append(name if often[name] == 1 else f"{name}.{seen[name]}")
    return tuple(found)
