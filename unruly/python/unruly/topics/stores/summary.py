"""What this topic says in ``summary.json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unruly.stats.knee import Knee

if TYPE_CHECKING:
    from unruly.base.tails import Tail
    from unruly.base.target import Target
    from unruly.topics.stores.faults import FaultEffect
    from unruly.topics.stores.loads import Load, Ramp, Scaling
    from unruly.topics.stores.statistics import Stores


@dataclass(frozen=True)
class RampSummary(Knee):
    """Cells of rising load, and the knee.

    ``holds`` is the highest load at which the p99 holds by the estimates, ``surely`` the highest up
    to which every load holds beyond its uncertainty, and ``breaks`` the lowest at which it surely
    breaks. Null where there is none.
    """

    series: str = field(kw_only=True)
    """What the cells share."""
    cells: tuple[str, ...] = field(kw_only=True)


@dataclass(frozen=True)
class ScalingSummary:
    """Cells that differ by one factor alone."""

    factor: str
    series: str
    cells: tuple[str, ...]
    levels: tuple[str, ...]


@dataclass(frozen=True)
class StoresSummary:
    """Target, far tail, faults and loads of a run that drives a store; null for others.

    Response time, in ns.
    """

    target: Target
    tails: tuple[Tail, ...]
    faults: tuple[FaultEffect, ...]
    loads: tuple[Load, ...]
    ramps: tuple[RampSummary, ...]
    scalings: tuple[ScalingSummary, ...]


def summary(view: Stores) -> StoresSummary:
    """Return what the topic says."""
    return StoresSummary(
        view.target,
        view.tails,
        view.faults,
        view.loads,
        tuple(_ramp(it) for it in view.ramps),
        tuple(_scaling(it) for it in view.scalings),
    )


def _ramp(ramp: Ramp) -> RampSummary:
    knee, cells = ramp.knee, tuple(load.cell for load in ramp.loads)
    return RampSummary(
        knee.steps, knee.holds, knee.surely, knee.breaks, series=ramp.series, cells=cells
    )


def _scaling(scaling: Scaling) -> ScalingSummary:
    cells = tuple(load.cell for load in scaling.loads)
    return ScalingSummary(scaling.factor, scaling.series, cells, tuple(scaling.levels))
