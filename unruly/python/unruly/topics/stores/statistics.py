"""The view of a store under load: its target, its far tail, its faults, its flow, its loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unruly.base.tails import tails
from unruly.shown import Shown
from unruly.topics.stores import faults, flow, loads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from unruly.base.analysis import Analysis
    from unruly.base.context import Context
    from unruly.base.operation import CellSummary
    from unruly.base.tails import Far, Tail
    from unruly.base.target import Target
    from unruly.topics.stores.faults import FaultEffect
    from unruly.topics.stores.flow import Flow
    from unruly.topics.stores.loads import Load, Ramp, Scaling


@dataclass(frozen=True)
class Timed:
    """The half of the view that needs no summary of a cell."""

    legs: pd.DataFrame
    spans: pd.DataFrame
    faults: tuple[FaultEffect, ...]
    flow: Flow | None


@dataclass(frozen=True, repr=False)
class Stores(Shown):
    """The results of a run that drives a store.

    Frames: ``legs`` (cell, repeat, first_ns, last_ns: the measured time of each trial), ``spans``
    (events of processes: cell, repeat, process, kind, detail, started_ns, ended_ns). ``flow`` is
    None if it is not drawn.
    """

    target: Target
    tails: tuple[Tail, ...]
    faults: tuple[FaultEffect, ...]
    loads: tuple[Load, ...]
    ramps: tuple[Ramp, ...]
    scalings: tuple[Scaling, ...]
    legs: pd.DataFrame
    spans: pd.DataFrame
    flow: Flow | None


def timed(context: Context, *, pictures: bool) -> Timed:
    """Look at the run over its time."""
    extents = context.extents.groupby(["cell", "repeat"], as_index=False)
    legs = extents.agg(first_ns=("first_ns", "min"), last_ns=("last_ns", "max"))
    struck = faults.struck(context, legs)
    effects = faults.effects(context, struck, legs)
    return Timed(
        legs, faults.spans(context, struck), effects, flow.flow(context, legs) if pictures else None
    )


def stores(
    context: Context,
    target: Target,
    summaries: Sequence[CellSummary],
    far: Mapping[tuple[str, str], Far],
    seen: Timed,
) -> Stores:
    """Put the view together."""
    found = loads.loads(context, summaries, seen.legs)
    return Stores(
        target,
        tails(summaries, far, target),
        seen.faults,
        found,
        loads.ramps(found),
        loads.scalings(found),
        seen.legs,
        seen.spans,
        seen.flow,
    )


def stores_of(analysis: Analysis) -> Stores | None:
    """Return what this topic says of a run; None where it does not apply."""
    return analysis.topic("stores", Stores)
