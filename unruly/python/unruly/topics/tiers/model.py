"""What a tap saw of each service: plain frozen values; ``absent`` has why one is None."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from unruly.base.analysis import Analysis
    from unruly.contract import Absent, Count
    from unruly.stats import Interval


@dataclass(frozen=True)
class Jam:
    """The windows of 100 ms in which far more requests were in flight than usual, or just before.

    ``windows`` is their number and ``time_share`` their share of the time. ``request_share`` is the
    share of all requests that began in them, ``slow_share`` that of the slowest 1 %.
    """

    windows: Count
    time_share: float
    request_share: float
    slow_share: Interval


@dataclass(frozen=True)
class Tier:
    """What a tap saw of a service in a cell.

    ``n`` requests were measured; ``cut`` of them had no reply. ``unmeasured`` ones cannot be
    measured: ``overlapped`` of these because bytes of several requests crossed on their connection,
    ``gap`` because the tap missed packets, ``ends`` because they were open when the tap began or
    ended, and the others because their connection carried requests that overlapped. ``asked_by``
    has the programs that asked most, as far as they are known.
    ``response_ns`` is the mean time from the first byte of a request to the last byte of its reply,
    ``in_flight`` the mean number of requests in flight, and ``in_flight_most`` that of the fullest
    window of 100 ms.
    """

    cell: str
    tier: str
    n: Count
    cut: Count
    unmeasured: Count
    overlapped: Count
    gap: Count
    ends: Count
    connections: Count
    asked_by: tuple[str, ...]
    rate_hz: float
    response_ns: Interval | None
    in_flight: Interval | None
    in_flight_most: float
    jam: Jam | None
    absent: Absent = field(default_factory=dict)


@dataclass(frozen=True)
class Tiers:
    """What a tap saw."""

    rows: tuple[Tier, ...]
    windows: pd.DataFrame
    """Windows of 100 ms: cell, repeat, tier, window_ns, in_flight, n, slow, sum_ns, longest_ns."""


def tiers_of(analysis: Analysis) -> Tiers | None:
    """Return what an analysis says of tiers; None where there was no tap."""
    return analysis.topic("tiers", Tiers)
