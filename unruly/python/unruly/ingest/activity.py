"""Samples of a host collected by time, from tools that write a line for each kind of activity."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unruly.ingest.model import Resources

if TYPE_CHECKING:
    from collections.abc import Iterator

SECOND_NS = 1_000_000_000
SAMPLES = 50_000


@dataclass
class Samples:
    """What is known of each stretch of time: (start, end) in ns to columns of ``resources``."""

    held: dict[tuple[int, int], dict[str, float]] = field(default_factory=dict)

    def add(self, span: tuple[int, int], column: str, value: float) -> None:
        """Add to a column: several disks or interfaces sum up."""
        row = self.held.setdefault(span, {})
        row[column] = row.get(column, 0.0) + value

    def largest(self, span: tuple[int, int], column: str, value: float) -> None:
        """Keep the largest value of a column."""
        row = self.held.setdefault(span, {})
        row[column] = max(row.get(column, value), value)

    def batches(self) -> Iterator[Resources]:
        """Return the samples in time order; what a sample lacks is null."""
        spans = sorted(self.held)
        for first in range(0, len(spans), SAMPLES):
            part = spans[first : first + SAMPLES]
            names = dict.fromkeys(name for span in part for name in self.held[span])
            columns = {name: [self._value(span, name) for span in part] for name in names}
            yield Resources([span[0] for span in part], [span[1] for span in part], columns)

    def _value(self, span: tuple[int, int], name: str) -> float | int | None:
        value = self.held[span].get(name)
        whole = not name.endswith(("_share", "_hz", "_length"))
        return None if value is None else round(value) if whole else value
