"""What a tap saw of each service: plain frozen values; ``absent`` has why one is None."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pandas as pd

if TYPE_CHECKING:
    from unruly.base.analysis import Analysis
    from unruly.contract import Absent, Count
    from unruly.stats import Interval


CHECK_SLACK: Final = 0.01


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
class Pool:
    """The connections over which a tier asks the only tier behind it, ``to``.

    ``full_share`` is the share of the windows in which more requests were in the tier than there
    are ``connections``, while half of their time or more had a request in flight. ``waited`` is the
    share of the tier's own time that was spent in these windows; ``own_when_full`` and
    ``own_otherwise`` are its mean own requests in flight in these windows and in the others (0
    where there are no others).
    """

    to: str
    connections: Count
    full_share: float
    waited: Interval | None
    own_when_full: float
    own_otherwise: float


@dataclass(frozen=True)
class Chain:
    """The place of a tier among the others.

    ``asked_by`` are the tiers that ask it, and ``front`` is true if the load generator does.
    ``own_in_flight`` is the mean number of requests that were in the tier and in none behind it,
    and ``own_share`` their share of the time of all requests of the load. ``cpu_cores`` is the CPU
    time that its processes used each second, ``cpu_share`` the share of what they may use: of the
    cores that the plan keeps them on, less what other watched processes use there, or of their
    quota. Both are None where nothing watched them. The own requests, the pool and ``slow_share``
    are None where nobody knows who asked for more than a few of the requests.

    ``slow_share`` is a lower bound of the share of the time of slow requests that was spent in the
    tier and in none behind it. A request that no tier asked for is slow beyond the p99; with fewer
    than 600 the limit is the p95, with fewer than 120 the p90. It is None with fewer than 60
    requests, with slow requests in fewer than 5 windows, and if more than 1 % had no reply.
    """

    asked_by: tuple[str, ...]
    front: bool
    own_in_flight: Interval | None
    own_share: Interval | None
    cpu_cores: float | None
    cpu_share: float | None
    pool: Pool | None
    slow_share: Interval | None = None


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
    chain: Chain | None = None
    absent: Absent = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """What the tap counted beside what the load generator knows.

    ``seen`` are the requests that the tap saw at the tiers that the load generator asks, and
    ``answered`` and ``sent`` those of the load generator.
    """

    cell: str
    seen: Count
    answered: Count
    sent: Count

    @property
    def agrees(self) -> bool:
        """True if the tap saw the answered requests, to one in a hundred."""
        slack = max(CHECK_SLACK * self.sent, 10.0)
        return self.answered - slack <= self.seen <= self.sent + slack


@dataclass(frozen=True)
class Tiers:
    """What a tap saw."""

    rows: tuple[Tier, ...]
    checks: tuple[Check, ...]
    windows: pd.DataFrame
    """Windows of 100 ms: cell, repeat, tier, window_ns, in_flight, n, slow, sum_ns, longest_ns."""


NO_TIERS: Final = Tiers((), (), pd.DataFrame())
"""A run without a tap."""


def tiers_of(analysis: Analysis) -> Tiers | None:
    """Return what an analysis says of tiers; None where there was no tap."""
    return analysis.topic("tiers", Tiers)
