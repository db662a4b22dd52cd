"""The slowest requests and their traces: plain frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unruly.base.analysis import Analysis


@dataclass(frozen=True)
class SlowTrace:
    """One of the slowest answered requests of a run (response time in ns).

    ``trace_id`` is that of W3C Trace Context: 32 hexadecimal digits. ``url`` is where the plan says
    that the trace can be looked at; None where it says nothing.
    """

    cell: str
    op: str
    client: int
    request: int
    response: float
    started_ns: int
    trace_id: str
    url: str | None


@dataclass(frozen=True)
class Traces:
    """The slowest requests of a run whose requests named their traces, the slowest first."""

    slowest: tuple[SlowTrace, ...]


def traces_of(analysis: Analysis) -> Traces | None:
    """Return what an analysis says of traces; None where requests named none."""
    return analysis.topic("traces", Traces)
