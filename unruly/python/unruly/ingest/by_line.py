"""Formats with a request a line, each read by one regular expression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.ingest.rows import batches

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator

    from unruly.ingest.model import Requests
    from unruly.ingest.rows import Row
    from unruly.ingest.source import Sample, Source

LOOKED_AT: Final = 100
MOST: Final = 0.9
LINE_MOST: Final = 4_096
"""Characters of a line that are looked at where a statement may follow what matters."""
REQUEST_MOST: Final = 1 << 16
"""Characters of a line with a request; servers take no longer paths."""
MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}


def matching(sample: Sample, line: re.Pattern[str]) -> list[re.Match[str]]:
    """Return the matches of the lines at the beginning of a file, and none if few match."""
    lines = [it[:REQUEST_MOST] for it in sample.lines if it.strip()][:LOOKED_AT]
    found = [it for it in map(line.match, lines) if it is not None]
    return found if len(found) >= MOST * len(lines) else []


def read_lines(
    source: Source,
    line: re.Pattern[str],
    row: Callable[[int, re.Match[str]], Row],
    *,
    ended: bool = False,
    others: re.Pattern[str] | None = None,
) -> Iterator[Requests]:
    """Yield the requests of a file with one a line.

    Parameters
    ----------
    source : Source
        The file.
    line : Pattern
        What a line with a request matches.
    row : callable
        Makes a row of the number of the line and its match; a ValueError refuses the line.
    ended : bool
        The times are those at which requests ended.
    others : Pattern, optional
        Lines that are no requests and no errors either.

    Notes
    -----
    The text of a line that is refused is not repeated: it may hold addresses and secrets.
    """
    yield from batches(source, _rows(source, line, row, others), ended=ended)


def _rows(
    source: Source,
    line: re.Pattern[str],
    row: Callable[[int, re.Match[str]], Row],
    others: re.Pattern[str] | None,
) -> Iterator[Row]:
    for number, whole in source.lines():
        text = whole[:REQUEST_MOST].rstrip()
        if not text or (others is not None and others.match(text)):
            continue
        source.complaints.lines += 1
        # the duration may be in the part that is cut off
        match = line.match(text) if len(whole) <= REQUEST_MOST else None
        if match is None:
            source.complaints.refuse(number, "no request in the form of this file")
            continue
        try:
            yield row(number, match)
        except ValueError as error:
            source.complaints.refuse(number, str(error))


def exact_ns(text: str, unit_ns: int) -> int:
    """Return a decimal number of units in ns, exactly.

    Examples
    --------
    >>> exact_ns("0.031", 1_000_000_000), exact_ns("3275", 1_000)
    (31000000, 3275000)
    """
    whole, _, part = text.partition(".")
    scaled = int(part or 0) * unit_ns // 10 ** len(part) if part else 0
    return int(whole or 0) * unit_ns + scaled


def iso(date: str) -> str:
    """Return the date of a web server's log, ``23/Nov/2026:18:11:26.117 +0000``, as ISO 8601.

    Raises
    ------
    ValueError
        When it is none.
    """
    try:
        day, rest = date.split(":", 1)
        number, month, year = day.split("/")
        time, _, zone = rest.partition(" ")
        return f"{year}-{MONTHS[month]:02d}-{number}T{time}{zone}"
    except (KeyError, ValueError):
        raise ValueError("its time is no date") from None
