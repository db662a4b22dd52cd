"""What judges read of a run of three-tier applications: recoveries, and the layers of requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from unruly.stats import Interval  # noqa: TC001 - `restored` reads the types of the fields
from unruly.topics.layers.model import layers_of
from unruly.topics.over_time.statistics import over_time_of

if TYPE_CHECKING:
    from unruly.base.analysis import Analysis

NAME: Final = "three-tier applications"
"""What all applications together are called where a claim is about several systems."""
APPLICATION, PLATFORM, REPLICATION = (
    "service.application", "service.platform", "service.replication",
)  # fmt: skip
MEASURED: Final = (APPLICATION, PLATFORM, REPLICATION)
"""The factors that select the measured software: none of them is workload or configuration."""


@dataclass(frozen=True)
class Recovered:
    """The crashes of one process in one repeat of a cell.

    ``totals_ns`` has the recovery from each crash, None where the next crash came first.
    ``fault_free_max_ns`` is the longest latency of a request that no crash touched; None if such a
    request failed or there was none. ``longer`` of these took longer than the median recovery.
    """

    cell: str
    repeat: int
    process: str
    factors: dict[str, str] = field(default_factory=dict)
    totals_ns: tuple[float | None, ...] = ()
    fault_free_max_ns: float | None = None
    longer: int | None = None


@dataclass(frozen=True)
class Layer:
    """A layer, and the share of slow requests that had most of their extra time in it."""

    service: str
    name: str
    role: str
    share: Interval


@dataclass(frozen=True)
class SlowRequests:
    """The slow requests of one (cell, op), by layer.

    ``covered`` is the share of them that the layers' shares stand for: 1 where chance chose which
    ones have spans.
    """

    cell: str
    op: str
    looked_at: int
    covered: float
    layers: tuple[Layer, ...] = ()


def recovered(analysis: Analysis) -> tuple[Recovered, ...]:
    """Return the recoveries of each process that the plan crashed; empty without one."""
    over_time = over_time_of(analysis)
    rows = []
    for it in over_time.recoveries if over_time else ():
        found, factors = it.recoveries, dict(analysis.run.factors.get(it.cell, {}))
        if found is None:
            rows.append(Recovered(it.cell, it.repeat, it.process, factors))
            continue
        totals = tuple(one.total_ns for one in found.faults)
        rows.append(
            Recovered(
                it.cell, it.repeat, it.process, factors, totals, found.fault_free_max_ns,
                found.longer,
            )
        )  # fmt: skip
    return tuple(rows)


def slow_requests(analysis: Analysis) -> tuple[SlowRequests, ...]:
    """Return the layers of the slow requests of each (cell, op); empty without spans."""
    found = layers_of(analysis)
    if found is None:
        return ()
    by_chance = found.received is not None and found.received.level > 0
    return tuple(
        SlowRequests(
            it.cell,
            it.op,
            it.looked_at,
            1.0 if by_chance else it.traced / it.slow,
            tuple(Layer(one.service, one.name, one.role, one.share) for one in it.layers),
        )
        for it in found.rows
        if it.layers and it.slow
    )
