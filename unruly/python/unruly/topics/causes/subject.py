"""The data for a search of causes: slow requests of one (cell, op), and others to compare."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from unruly.base.suspects import inside
from unruly.tables import causes as cause_tables
from unruly.tables import fetch, inline
from unruly.topics.causes.parts import Usual

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from unruly.base.context import Context
    from unruly.base.suspects import Suspect

SLOW_MOST: Final = 10_000
ORDINARY_MOST: Final = 20_000
"""Both over all (cell, op) together."""
ORDINARY_LEAST: Final = 4_000
"""Least for each (cell, op), however many there are: a smaller sample misses a rare episode."""
HALF: Final = 0.5
"""The share of a request's time that a cause must cover."""
SPANS_MOST: Final = 400
"""Most spans of a suspect in one (cell, op): the test moves each span thousands of times."""


@dataclass(frozen=True)
class Subject:
    """One (cell, op): its slow requests, a sample of its others, and its own time."""

    cell: str
    op: str
    limit_ns: float
    n: int
    windows: pd.DataFrame
    """repeat, first_ns, end_ns."""
    rows: pd.DataFrame
    """The slow ones that were read, then the others."""
    read: int
    """How many of the rows are slow."""
    total: int
    """How many slow ones there are."""

    @property
    def key(self) -> tuple[str, str]:
        """Which it is."""
        return self.cell, self.op

    @property
    def has_others(self) -> bool:
        """Whether there are requests that were not slow, to compare the slow ones with."""
        return self.total < self.n

    @property
    def slow(self) -> pd.DataFrame:
        """The slow ones."""
        return self.rows.iloc[: self.read]

    @cached_property
    def length(self) -> float:
        """The length of its time in ns, the repeats end to end."""
        return float((self.windows["end_ns"] - self.windows["first_ns"]).sum())

    @cached_property
    def usual(self) -> Usual:
        """What its parts usually take."""
        return Usual.of(self.rows.iloc[self.read :])

    @cached_property
    def where(self) -> NDArray[np.object_]:
        """The part that took most of the excess of each request, or nothing."""
        return self.usual.where(self.rows)

    @cached_property
    def times(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Begin and end of each request in its time.

        A request without a reply counts as long as the limit; it lasted at least that long.
        """
        begin = self.rows["intended_ns"].to_numpy(dtype=np.int64)
        took = self.rows["took_ns"].fillna(self.limit_ns).to_numpy(dtype=np.float64)
        laid = self.laid(begin)
        end = self.laid(begin + np.maximum(took, 1.0).astype(np.int64))
        return laid, np.maximum(end, laid + 1.0)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """The weight of each request as evidence of when requests were slow.

        A slow request weighs 1, a late one in proportion to its excess, a usual one 0. Each is
        multiplied by the number of requests that a sampled one stands for. Late requests count,
        because the slowest may all belong to one episode, and so be a single witness.
        """
        took = self.rows["took_ns"].to_numpy(dtype=np.float64, na_value=self.limit_ns)
        excess = took - self.usual.took_ns
        late = np.where(excess > self.usual.took_spread_ns, excess, 0.0)
        told = np.clip(late / max(self.limit_ns - self.usual.took_ns, 1.0), 0.0, 1.0)
        others = max(1, len(self.rows) - self.read)
        told[: self.read] = self.total / max(1, self.read)
        told[self.read :] *= (self.n - self.total) / others
        return np.asarray(told)

    def laid(self, stamps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Convert wall clock to own time; a stamp between two repeats is the end of the first."""
        place, before = np.zeros(len(stamps)), 0.0
        for first, end in zip(self.windows["first_ns"], self.windows["end_ns"], strict=True):
            since = np.clip(stamps, int(first), int(end)) - int(first)
            place = np.where(stamps >= first, before + since, place)
            before += float(end - first)
        return place

    def within(self, who: Suspect) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the spans of a suspect in its time; at most the `SPANS_MOST` longest."""
        starts, ends = self.laid(who.starts), self.laid(who.ends)
        longest = np.argsort(starts - ends, kind="stable")[:SPANS_MOST]
        kept = np.sort(longest[(ends > starts)[longest]])
        return starts[kept], ends[kept]

    def covered(self, spans: tuple[NDArray[np.float64], NDArray[np.float64]]) -> NDArray[np.bool_]:
        """Return which requests have half of their time in the spans."""
        begins, ends = self.times
        shared = inside(spans, ends) - inside(spans, begins)
        return np.asarray(shared >= HALF * (ends - begins))


def subjects_of(context: Context, limits: dict[tuple[str, str], float]) -> list[Subject]:
    """Return the slow requests and a sample of others of each (cell, op), in one bounded pass."""
    extents = context.extents
    sizes = extents.groupby(["cell", "op"])["n"].sum()
    wanted = max(ORDINARY_LEAST, ORDINARY_MOST / len(limits))
    table = [
        {
            "cell": cell,
            "op": op,
            "limit_ns": limit,
            "cut": cause_tables.cut(wanted, sizes[cell, op]),
        }
        for (cell, op), limit in limits.items()
    ]
    rows = cause_tables.with_parts(context.rows)
    most = max(1, SLOW_MOST // len(limits))
    frame = fetch(cause_tables.sampled(rows, inline(table), most))
    by_key = dict(iter(frame.groupby(["cell", "op"])))
    found = []
    for (cell, op), limit in limits.items():
        own = extents[(extents["cell"] == cell) & (extents["op"] == op)]
        windows = own[["repeat", "first_ns", "end_ns"]].sort_values("first_ns")
        read = by_key.get((cell, op), frame.iloc[:0])
        slow = int(read["slow"].sum())
        # the slow ones come first
        total = int(read["total"].iloc[0]) if slow else 0
        rows_of_it = read.drop(columns=["slow", "total"]).reset_index(drop=True)
        size = int(sizes[cell, op])
        found.append(Subject(cell, op, limit, size, windows, rows_of_it, slow, total))
    return found
