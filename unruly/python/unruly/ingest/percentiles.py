"""Bins from the percentiles that a source gave of each stretch of time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unruly.ingest.model import Histograms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


@dataclass
class Bins:
    """Bins of several ops and stretches of time, until there are enough for a batch."""

    op: list[str] = field(default_factory=list)
    started_ns: list[int] = field(default_factory=list)
    ended_ns: list[int] = field(default_factory=list)
    low_ns: list[float] = field(default_factory=list)
    high_ns: list[float] = field(default_factory=list)
    count: list[float] = field(default_factory=list)

    def add(
        self, op: str, span: tuple[int, int], bins: Iterable[tuple[float, float, float]]
    ) -> None:
        """Append the (low, high, count) of one op in one stretch of time (ns)."""
        for low, high, count in bins:
            self.op.append(op)
            self.started_ns.append(span[0])
            self.ended_ns.append(max(span[1], span[0] + 1))
            self.low_ns.append(low)
            self.high_ns.append(high)
            self.count.append(count)

    def drop(self, op: str) -> None:
        """Leave out the bins of one op."""
        kept = [place for place, name in enumerate(self.op) if name != op]
        for column in vars(self).values():
            column[:] = [column[place] for place in kept]

    def batch(self) -> Histograms:
        """Return the bins collected so far as one batch."""
        return Histograms(
            op=self.op,
            started_ns=self.started_ns,
            ended_ns=self.ended_ns,
            low_ns=self.low_ns,
            high_ns=self.high_ns,
            count=self.count,
        )


def bins_between(
    n: float, percentiles: Sequence[tuple[float, float]], least: float, most: float
) -> Iterator[tuple[float, float, float]]:
    """Yield (low, high, count): between two neighbouring percentiles lies their share of n.

    Parameters
    ----------
    n : float
        Values that the percentiles are of.
    percentiles : sequence of (share, value)
        Such as ``(0.99, 5.1)``, in any order; a value below a lower percentile's (sources round)
        counts as equal to it.
    least, most : float
        The minimum and the maximum; 0 where a source does not give its minimum.

    Examples
    --------
    >>> list(bins_between(100, [(0.5, 10.0), (0.99, 30.0)], 5.0, 80.0))
    [(5.0, 10.0, 50.0), (10.0, 30.0, 49.0), (30.0, 80.0, 1.0)]
    """
    share, low = 0.0, least
    for upto, value in [*sorted(percentiles), (1.0, most)]:
        high = max(low, value)
        count = round(n * (upto - share), 9)
        if count > 0:
            yield low, high, count
        share, low = upto, high
