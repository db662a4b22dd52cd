"""What this topic says in ``summary.json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unruly.stats.changes import ChangePoint

if TYPE_CHECKING:
    from unruly.contract import Absent
    from unruly.stats import Dispersion, Throughput
    from unruly.topics.over_time.recoveries import FaultRecovery
    from unruly.topics.over_time.statistics import OverTime, Steadiness
    from unruly.topics.over_time.warmup import WarmUp


@dataclass(frozen=True)
class Change(ChangePoint):
    """One change of the p99: the new level begins with block ``block``.

    ``place`` is the interval of that block. ``before_ns`` and ``after_ns`` are the geometric means
    of the finite levels on either side up to the next change, ``ratio`` after over before.
    """

    at_ns: int = field(kw_only=True)
    """When the new level began."""


@dataclass(frozen=True)
class SteadinessSummary:
    """One (cell, op) over time."""

    cell: str
    op: str
    throughput_hz: Throughput | None
    """Good replies each second."""
    dispersion: Dispersion | None
    """Index of dispersion of the scheduled times."""
    changes: tuple[Change, ...] | None
    """Change points of the p99 by block."""
    absent: Absent


@dataclass(frozen=True)
class OverTimeSummary:
    """Measured time of each (cell, op), repeats end to end; null when nothing was measured.

    ``note`` says why there are no rows.
    """

    note: str
    rows: tuple[SteadinessSummary, ...]
    recoveries: tuple[FaultRecovery, ...]
    """What followed the faults of each process."""
    warm_ups: tuple[WarmUp, ...]
    """When each (cell, repeat, op) had settled."""


def summary(view: OverTime) -> OverTimeSummary:
    """Return what the topic says."""
    rows = tuple(
        SteadinessSummary(
            row.cell, row.op, row.throughput, row.dispersion, _changes(row), row.absent
        )
        for row in view.rows
    )
    return OverTimeSummary(view.note, rows, view.recoveries, view.warm_ups)


def _changes(row: Steadiness) -> tuple[Change, ...] | None:
    if row.changes is None or row.changes.abstained:
        return None
    pairs = zip(row.changes.points, row.changed_ns, strict=True)
    return tuple(
        Change(it.block, it.place, it.before_ns, it.after_ns, it.ratio, it.p_value, at_ns=at)
        for it, at in pairs
    )
