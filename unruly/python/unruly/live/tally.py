"""Counts of a run that goes on, in bounded memory: logarithmic buckets by pieces of time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from unruly.stats.blocks import BLOCKS
from unruly.stats.histogram import FAILED_BUCKET, bucket_edges

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

PIECES_MOST: Final = 480
"""Pieces of time that are kept; then two neighbours become one. A multiple of the blocks."""


@dataclass
class Counts:
    """How often each bucket of one operation was met, in each piece of time."""

    by_bucket: dict[int, NDArray[np.int64]] = field(default_factory=dict)

    def add(self, piece: int, bucket: int, count: int) -> None:
        """Count ``count`` requests of a bucket in a piece of time."""
        row = self.by_bucket.get(bucket)
        if row is None:
            row = self.by_bucket[bucket] = np.zeros(PIECES_MOST, np.int64)
        row[piece] += count

    def halve(self) -> None:
        """Make one piece of time of every two neighbours."""
        for row in self.by_bucket.values():
            row[: PIECES_MOST // 2] = row.reshape(-1, 2).sum(axis=1)
            row[PIECES_MOST // 2 :] = 0

    def table(self, pieces: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the buckets that hold anything, ascending, and their counts by piece."""
        buckets = np.array(sorted(self.by_bucket), np.int64)
        rows = [self.by_bucket[bucket][:pieces] for bucket in buckets.tolist()]
        return buckets, np.array(rows, np.int64).reshape(buckets.size, pieces)


@dataclass
class Tally:
    """Counts of all operations of a trial, second by second, from its first measured request.

    The warm-up, in which nothing is counted, is no part.
    """

    heard: Counter[int] = field(default_factory=Counter)
    ops: dict[str, Counts] = field(default_factory=dict)
    width_s: int = 1
    """Seconds in a piece of time."""

    def hear(
        self, process: int, bins: Iterable[tuple[str, int, int]], place: int | None = None
    ) -> int:
        """Take a second of one process; return how many seconds there are by now.

        `place` is the second of the measured time. Without it the process's lines are counted, from
        the first one with a request.
        """
        bins = list(bins)
        second = self.heard[process] if place is None else place
        if bins or self.heard[process]:
            self.heard[process] = max(self.heard[process], second + 1)
        while second // self.width_s >= PIECES_MOST:
            self.width_s *= 2
            for counts in self.ops.values():
                counts.halve()
        for op, bucket, count in bins:
            self.ops.setdefault(op, Counts()).add(second // self.width_s, bucket, count)
        return self.seconds

    @property
    def seconds(self) -> int:
        """How long the process that was heard most often has measured."""
        return max(self.heard.values(), default=0)

    @property
    def pieces(self) -> int:
        """How many pieces of time there are; the last one may be short."""
        return -(-self.seconds // self.width_s)

    def blocks(self, op: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the buckets of an operation and their counts by block, as `block_interval` does.

        With fewer pieces of time than blocks some blocks are empty: ask from `BLOCKS` seconds on.
        """
        buckets, table = self.ops[op].table(self.pieces)
        block = np.arange(self.pieces) * BLOCKS // max(1, self.pieces)
        counts = np.zeros((buckets.size, BLOCKS), np.int64)
        np.add.at(counts.T, block, table.T)
        return buckets, counts

    def over_time(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the buckets of all operations together and their counts by piece of time."""
        together = Counts()
        for counts in self.ops.values():
            for bucket, row in counts.by_bucket.items():
                held = together.by_bucket.get(bucket)
                together.by_bucket[bucket] = row if held is None else held + row
        return together.table(self.pieces)


def percentile(
    buckets: NDArray[np.int64], counts: NDArray[np.int64], p: float
) -> NDArray[np.float64]:
    """Return the p-quantile (ns) of each column of counts, at the middle of its bucket.

    Parameters
    ----------
    buckets : ndarray, shape (m,)
        Ascending buckets of `bucket_index`.
    counts : ndarray, shape (m, k)
        Values in each bucket; a column may be empty.
    p : float
        In (0, 1).

    Returns
    -------
    ndarray, shape (k,)
        NaN for a column without a value, inf where the quantile falls among the failed.
    """
    totals = counts.sum(axis=0)
    if not buckets.size:
        return np.full(totals.shape, np.nan)
    ranks = np.maximum(1, np.ceil(p * totals))
    place = (np.cumsum(counts, axis=0) >= ranks).argmax(axis=0)
    low, high = bucket_edges(buckets)
    middle = np.where(buckets >= FAILED_BUCKET, np.inf, np.sqrt(low) * np.sqrt(high))
    return np.where(totals > 0, middle[place], np.nan)
