"""How many requests were good: plain frozen values; ``absent`` has why one is None."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from unruly.base.analysis import Analysis
    from unruly.contract import Absent, Count
    from unruly.stats import Interval

MeasureName = Literal["ttft", "tpot", "gap", "e2e"]


@dataclass(frozen=True)
class Missed:
    """A limit (ns), and the answered requests that were beyond it.

    ``measure`` is "ttft" (time to the first token or message, from the scheduled time), "tpot" (the
    mean time of the other ones of a reply), "gap" (the longest of these) or "e2e" (response time).
    """

    measure: MeasureName
    limit_ns: float
    missed: Count


@dataclass(frozen=True)
class Good:
    """The good requests of a cell.

    ``n`` requests were measured; of these ``good`` were answered within all limits, and ``failed``
    were not answered well. ``rate_hz`` is a second of the measured time.
    """

    cell: str
    n: Count
    good: Count
    failed: Count
    share: Interval | None
    rate_hz: Interval | None
    limits: tuple[Missed, ...]
    absent: Absent = field(default_factory=dict)


@dataclass(frozen=True)
class Goodput:
    """The limits of the plan, and what each cell made of them."""

    asked: str
    rows: tuple[Good, ...]


def goodput_of(analysis: Analysis) -> Goodput | None:
    """Return what an analysis says of goodput; None where the plan asks for none."""
    return analysis.topic("goodput", Goodput)
