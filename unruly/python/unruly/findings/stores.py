"""The view of a store under load: its target, its far tail, its faults, its flow, its loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from unruly.findings import faults, flow, loads
from unruly.findings.tails import tails
from unruly.findings.target import Target
from unruly.shown import Shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from unruly.findings.context import Context
    from unruly.findings.faults import FaultEffect
    from unruly.findings.flow import Flow
    from unruly.findings.loads import Load, Ramp, Scaling
    from unruly.findings.operation import CellSummary
    from unruly.findings.tails import Far, Tail

OPS: Final = frozenset({"read", "write"})


@dataclass(frozen=True)
class Timed:
    """The half of the view that needs no summary of a cell."""

    legs: pd.DataFrame
    spans: pd.DataFrame
    faults: tuple[FaultEffect, ...]
    flow: Flow | None


@dataclass(frozen=True, repr=False)
class Stores(Shown):
    """What is said of a run that drives a store.

    Frames: ``legs`` (cell, repeat, first_ns, last_ns: a repeat of a cell, when it was measured),
    ``spans`` (what went on in processes: cell, repeat, process, kind, detail, started_ns,
    ended_ns). ``flow`` is None where it is not drawn.
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


def wanted(context: Context, target: Target | None) -> Target | None:
    """Return the target to hold the run to; None where there is no store, and nobody asked."""
    if context.empty or context.run.timeless:
        return None
    if target is not None:
        return target
    drives = {str(it.get("kind")) for it in context.processes} & {"drive"}
    return Target(asked=False) if drives and set(context.extents["op"]) <= OPS else None


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
