"""Tables for a terminal: a narrow one loses columns, no row ever wraps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

GAP: Final = 2


def columns(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    keep: Sequence[str],
    labels: int = 1,
) -> list[str]:
    """Return the lines of a table that fits.

    Parameters
    ----------
    head : sequence of str
        A name for each column.
    rows : sequence of sequence of str
        A cell for each column.
    width : int
        Characters to a line.
    keep : sequence of str
        Columns in the order in which they are given room, the most important first.
    labels : int
        So many columns at the left always stay, and are aligned to the left.

    Examples
    --------
    >>> for line in columns(("op", "n", "p99"), [("read", "12", "3 ms")], 12, keep=("p99", "n")):
    ...     print(line)
    op     p99
    read  3 ms
    """
    wide = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    kept = set(range(labels))
    left = width - sum(wide[place] + GAP for place in kept) + GAP
    for name in keep:
        place = head.index(name)
        left -= wide[place] + GAP
        if left < 0:
            break
        kept.add(place)
    lines = []
    for row in (head, *rows):
        cells = [
            f"{row[place]:<{wide[place]}}" if place < labels else f"{row[place]:>{wide[place]}}"
            for place in sorted(kept)
        ]
        lines.append((" " * GAP).join(cells).rstrip())
    return [_cut(line, width) for line in lines]


def _cut(line: str, width: int) -> str:
    """A label longer than a line is cut: a wrapped row cannot be read."""
    return line if len(line) <= width else line[: width - 1] + "…"
