"""When the JVMs of a run collected: spans that do not overlap, and how likely one is met."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from unruly.tables import fetch, inline
from unruly.topics.runtimes import tables as runtime_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    import ibis
    from numpy.typing import NDArray

    from unruly.topics.runtimes.part import RuntimePart

NEAR: Final = "runtime_spans"
NEVER_NS: Final = 1 << 62
AGENT: Final = ["place", "node"]


@dataclass(frozen=True)
class Spans:
    """The collections of some cells.

    ``told`` are the events (place, node, started_ns, ended_ns), ``merged`` the same without
    overlaps and with ``next_ns``; ``near`` are these in the engine, laid into bins.
    """

    told: pd.DataFrame
    merged: pd.DataFrame
    near: ibis.Table

    @classmethod
    @contextmanager
    def kept(cls, part: RuntimePart) -> Iterator[Spans]:
        """Read the events of a part's JVMs; their bins are kept until the end of the block."""
        engine = part.context.run.engine
        columns = ["cell", "repeat", "process", "place", "node"]
        agents = part.agents.loc[part.agents["jvm"] == 1, columns]
        if agents.empty:
            told = pd.DataFrame(columns=[*AGENT, "started_ns", "ended_ns"], dtype="int64")
        else:
            told = fetch(runtime_tables.collections(part.context.run.events, inline(agents)))
        spans = merged(told)
        try:
            near = runtime_tables.in_bins(inline(spans))
            yield cls(told, spans, engine.materialise(NEAR, near))
        finally:
            engine.forget(NEAR)


def merged(told: pd.DataFrame) -> pd.DataFrame:
    """Join the spans of each agent that overlap or touch: with when its next one starts.

    Examples
    --------
    >>> told = pd.DataFrame({"place": 0, "node": 1, "started_ns": [0, 1, 9], "ended_ns": [2, 4, 9]})
    >>> merged(told)[["started_ns", "ended_ns", "next_ns"]].values.tolist()
    [[0, 4, 9], [9, 9, 4611686018427387904]]
    """
    frame = told.astype("int64").sort_values([*AGENT, "started_ns"], ignore_index=True)
    frame["ended_ns"] = frame[["started_ns", "ended_ns"]].max(axis=1)
    reached = frame.groupby(AGENT)["ended_ns"].cummax()
    before = reached.groupby([frame[name] for name in AGENT]).shift(fill_value=-1)
    frame["span"] = (frame["started_ns"] > before).cumsum()
    found = frame.groupby([*AGENT, "span"], as_index=False).agg(
        started_ns=("started_ns", "min"), ended_ns=("ended_ns", "max")
    )
    after = found.groupby(AGENT)["started_ns"].shift(-1, fill_value=NEVER_NS)
    return found.drop(columns="span").assign(next_ns=after.astype("int64"))


@dataclass(frozen=True)
class Odds:
    """How likely a copy meets a span of one agent, were it due at any time of a leg."""

    gaps: NDArray[np.float64]
    """Time without a span before each of them, ascending; ns."""
    inside_ns: float
    """In spans, of the leg."""
    length_ns: float

    @classmethod
    def of(cls, spans: pd.DataFrame, first_ns: int, last_ns: int) -> Odds:
        """Take the spans of one agent, as `merged` gives them, within its leg."""
        starts = spans["started_ns"].clip(first_ns, last_ns).to_numpy() - first_ns
        ends = spans["ended_ns"].clip(first_ns, last_ns).to_numpy() - first_ns
        # after the leg a span is in no copy's way, but where it lasts into it, it is
        held = (spans["started_ns"] <= last_ns).to_numpy() & (ends >= starts)
        starts, ends = starts[held].astype(float), ends[held].astype(float)
        before = np.concatenate([[0.0], ends[:-1]]) if len(ends) else ends
        gaps = np.sort(np.maximum(starts - before, 0.0))
        return cls(gaps, float((ends - starts).sum()), float(max(1, last_ns - first_ns)))

    def met(self, took_ns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability for copies that took so long.

        Examples
        --------
        >>> Odds(np.array([10.0, 30.0]), 20.0, 100.0).met(np.array([0.0, 10.0, 20.0])).tolist()
        [0.2, 0.4, 0.5]
        """
        shorter = np.searchsorted(self.gaps, took_ns)
        upto = np.concatenate([[0.0], np.cumsum(self.gaps)])
        reached = upto[shorter] + took_ns * (len(self.gaps) - shorter)
        return np.asarray(np.minimum(1.0, (self.inside_ns + reached) / self.length_ns))
