"""A square table of round trips: row i, column j is how long i took to reach j and back.

No header, no times, no unit (``--unit``). Zeros on the diagonal are a node to itself and are left
out; anything else that is no positive number is a complaint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from unruly.errors import IngestError
from unruly.ingest.delimited import numbers_ns
from unruly.ingest.model import UNITS_NS, Format, Options, Requests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

LEAST: Final = 3


def _recognises(sample: Sample) -> bool:
    """Equally many numbers a line, more than three, and zeros on the diagonal."""
    rows = [_cells(line) for line in sample.lines[:50] if line.strip()]
    if not rows or len(rows[0]) < LEAST or (sample.whole and len(rows) != min(50, len(rows[0]))):
        return False
    if len(rows) < 2 or any(len(row) != len(rows[0]) for row in rows):
        return False
    try:
        numbers = [[float(cell) for cell in row] for row in rows]
    except ValueError:
        return False
    return all(row[place] == 0 for place, row in enumerate(numbers))


def _cells(line: str) -> list[str]:
    delimiter = "\t" if "\t" in line else ";" if ";" in line else "," if "," in line else None
    cells = line.strip("\n").split(delimiter)
    return cells[:-1] if cells and not cells[-1].strip() else cells


def _read(source: Source, options: Options) -> Iterator[Requests]:
    unit = options.unit_ns(source.where)
    source.unit = next(name for name, size in UNITS_NS.items() if size == unit)
    width, row = 0, -1
    for line, text in source.lines():
        row += 1
        cells = _cells(text)
        width = width or len(cells)
        if len(cells) != width or row >= width:
            raise IngestError(
                source.where,
                f"line {line}: row {row + 1} has {len(cells)} columns",
                f"{width} rows of {width}: from i to j in row i, column j",
                "import it with --format csv",
            )
        yield _node(source, line, row, cells, unit)
    if row + 1 != width:
        raise IngestError(
            source.where,
            f"has {row + 1} rows of {width} columns",
            f"{width} rows: from i to j in row i, column j",
            "is it cut off?",
        )


def _node(source: Source, line: int, row: int, cells: list[str], unit: int) -> Requests:
    places = np.array([place for place in range(len(cells)) if place != row], int)
    texts = pa.array([cells[place] for place in places], pa.string())
    taken, bad = numbers_ns(texts, unit)
    source.complaints.lines += len(places)
    for place in np.flatnonzero(bad):
        source.complaints.refuse(
            line, f"column {places[place] + 1} is {texts[int(place)].as_py()!r}: no number"
        )
    return Requests(
        duration_ns=taken[~bad],
        op="round trip",
        client=f"node-{row}",
        server=[f"node-{place}" for place in places[~bad]],
        line=line,
    )


FORMAT: Final = Format(
    "matrix",
    "a square table of round-trip times",
    "latencies",
    ("\t0\t",),
    _recognises,
    _read,
    frozenset({"--unit"}),
)
