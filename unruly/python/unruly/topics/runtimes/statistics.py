"""Latency by runtime of sender and receiver (native or JVM); slow copies that met a collection.

A run without a JVM among its agents is not analysed.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pandas as pd

from unruly.stats.blocks import BLOCKS
from unruly.tables import inline
from unruly.topics.runtimes import tables as runtime_tables
from unruly.topics.runtimes.meetings import collecting_of, meetings_of
from unruly.topics.runtimes.model import FAILED, JVM, RuntimeRatio, Runtimes, RuntimeTail
from unruly.topics.runtimes.part import RuntimePart
from unruly.topics.runtimes.spans import Spans
from unruly.topics.runtimes.tails import tails_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from unruly.base.context import Context
    from unruly.base.operation import CellSummary
    from unruly.topics.runtimes.model import Collecting, CollectorMeetings

KIND: Final = "mesh"
TIMEOUT_NS: Final = 1e9
"""What a plan that does not say waits for a reply."""
KEPT: Final = "runtime_rows"
_PLACES: Final = [
    "cell", "repeat", "op", "number", "whole", "place", "limit_ns", "timeout_ns", "first_ns",
    "before_ns", "block_ns",
]  # fmt: skip


def has_jvm(context: Context) -> bool:
    """Return whether an agent of a run that measured something is a JVM."""
    return not context.empty and bool(_agents(context)["jvm"].any())


def runtimes(context: Context, summaries: Sequence[CellSummary]) -> Runtimes | None:
    """Look at a run by runtime.

    Parameters
    ----------
    context : Context
        The run.
    summaries : sequence of CellSummary
        Each (cell, op): its p99 is from where on a copy is slow.

    Returns
    -------
    Runtimes or None
        None when no agent is a JVM.
    """
    if not has_jvm(context):
        return None
    agents = _agents(context)
    context.progress("by runtime")
    tails: list[RuntimeTail] = []
    ratios: list[RuntimeRatio] = []
    meetings: list[CollectorMeetings] = []
    collecting: list[Collecting] = []
    for part in context.parts():
        with _kept(part, agents, summaries) as held:
            own, compared = tails_of(held)
            tails += own
            ratios += compared
            with Spans.kept(held) as spans:
                meetings += meetings_of(held, spans)
                collecting += collecting_of(held, spans)
    return Runtimes(
        tuple(sorted(tails, key=lambda it: (it.cell, it.asks, it.answers))),
        tuple(sorted(ratios, key=lambda it: it.cell)),
        tuple(sorted(meetings, key=lambda it: (it.cell, it.op))),
        tuple(sorted(collecting, key=lambda it: it.cell)),
    )


def _agents(context: Context) -> pd.DataFrame:
    """Each agent of each (cell, repeat) once, however often it was started."""
    known = [
        {
            "cell": str(it["cell"]),
            "repeat": int(it["repeat"]),
            "node": int(it["id"]),
            "process": str(it["name"]),
            "jvm": int(it.get("runtime") == JVM),
        }
        for it in context.processes
        if it.get("kind") == KIND and it.get("id") is not None and it.get("cell") is not None
    ]
    columns = ["cell", "repeat", "node", "process", "jvm"]
    return pd.DataFrame(known, columns=columns).drop_duplicates(["cell", "repeat", "node"])


@contextmanager
def _kept(
    context: Context, agents: pd.DataFrame, summaries: Sequence[CellSummary]
) -> Iterator[RuntimePart]:
    """Number the copies of some cells, and keep them until the end of the block."""
    engine = context.run.engine
    places = _places(context, summaries)
    legs = places[["cell", "repeat", "place"]].drop_duplicates()
    own = agents.merge(legs, on=["cell", "repeat"])
    rows = runtime_tables.placed(
        context.rows, inline(places[_PLACES]), inline(own[["cell", "repeat", "node", "jvm"]]),
        BLOCKS,
    )  # fmt: skip
    part = RuntimePart(context, rows, places, own)
    try:
        yield replace(part, rows=engine.materialise(KEPT, rows))
    finally:
        engine.forget(KEPT)


def _places(context: Context, summaries: Sequence[CellSummary]) -> pd.DataFrame:
    """Each (cell, repeat, op) with its limit, its timeout, and its cell's blocks of time.

    One that has too few copies for a p99 has none that are slow, and is left out.
    """
    known = [it for it in summaries if it.latency == "response"]
    p99 = {(it.cell, it.op): it.p99 for it in known}
    few = {(it.cell, it.op) for it in known if it.p99 is None and not it.failed}
    plan = context.run.plan
    own = ["first_ns", "last_ns", "before_ns", "block_ns"]
    places = context.places(BLOCKS).drop(columns=own)
    places = places.rename(columns={f"cell_{name}": name for name in own})
    keys = list(zip(places["cell"], places["op"], strict=True))
    places = places[[key not in few for key in keys]].reset_index(drop=True)
    limits = [p99.get(key) for key in keys if key not in few]
    places["limit_ns"] = [FAILED if it is None else it for it in limits]
    waits = {
        cell: plan.cell(cell).reply_timeout_ns or TIMEOUT_NS for cell in places["cell"].unique()
    }
    places["timeout_ns"] = places["cell"].map(waits).astype("int64")
    return places
