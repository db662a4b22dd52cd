"""Results by runtime: the tail by sender and receiver, and slow copies that met a collection."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, get_args

from unruly.shown import Shown

if TYPE_CHECKING:
    from unruly.base.analysis import Analysis
    from unruly.contract import Absent, Count
    from unruly.stats import Interval

JVM: Final = "jvm"
NATIVE: Final = "native"
ANYBODY: Final = "*"
FAILED: Final = sys.float_info.max
"""The limit beyond which there are only copies that failed."""
Runtime = Literal["native", "jvm"]
EndName = Literal["either", "asking", "answering"]
ENDS: Final[tuple[EndName, ...]] = get_args(EndName)


@dataclass(frozen=True)
class RuntimeTail:
    """Response times of the copies between two runtimes, of all ops of a cell together (ns).

    ``asks`` is "native", "jvm" or "*" for both, ``answers`` one of the first two. Intervals are
    those of blocks of time; ``over_repeats`` is that of the p99 over the repeats.
    """

    cell: str
    asks: Literal[Runtime, "*"]
    answers: Runtime
    n: Count
    failed: Count
    p50: float | None
    p50_interval: Interval | None
    p99: float | None
    p99_interval: Interval | None
    p99_9: float | None
    p99_9_interval: Interval | None
    over_repeats: Interval | None
    absent: Absent = field(default_factory=dict)


@dataclass(frozen=True)
class RuntimeRatio:
    """The p99 of replies of JVMs over that of replies of native agents, in one cell."""

    cell: str
    jvm_p99: float
    native_p99: float
    ratio: Interval


@dataclass(frozen=True)
class Meeting:
    """How many copies met a collection at one end, of those that had a JVM there.

    ``end`` is "asking", "answering" or "either". ``lift`` is the share of the slow ones over that
    of the others; without an estimate where no other copy met one. ``by_chance`` is the share of
    the slow ones that would have met one if collections came at any time, as long as they took.
    """

    end: EndName
    slow: Count
    slow_met: Count
    others: Count
    others_met: Count
    slow_share: Interval | None
    others_share: Interval | None
    lift: Interval | None
    by_chance: float | None
    absent: Absent = field(default_factory=dict)

    @property
    def raised(self) -> float | None:
        """The least that the lift may be, where slow copies met more than chance explains."""
        beyond = self.slow_share is not None and self.slow_share.low is not None
        if self.lift is None or self.lift.low is None or not beyond:
            return None
        assert self.slow_share is not None
        least = self.slow_share.low or 0.0
        return self.lift.low if self.lift.low > 1 and least > (self.by_chance or 0.0) else None


@dataclass(frozen=True)
class CollectorMeetings:
    """The meetings of one (cell, op); ``op`` is "*" for all, each copy held to its own op's limit.

    Slow is what took longer than ``limit_ns``, the p99 of the (cell, op); where that falls among
    the failed, or of all ops, it is None, and in the first case slow is what failed.
    """

    cell: str
    op: str
    limit_ns: float | None
    ends: tuple[Meeting, ...]

    def at(self, end: str) -> Meeting:
        """Return that of one end."""
        return next(it for it in self.ends if it.end == end)


@dataclass(frozen=True)
class Collecting:
    """What the JVM agents of a cell collected, over its measured time.

    ``hz`` is the collections of one agent a second, ``share`` its time in them; both are means over
    the agents, and ``share_most`` is that of the one that collected longest.
    """

    cell: str
    agents: Count
    collections: Count
    hz: float
    share: float
    share_most: float
    longest_ns: float


@dataclass(frozen=True, repr=False)
class Runtimes(Shown):
    """The tail by runtime of sender and receiver, and whether slow copies met a GC pause.

    None where no agent is a JVM. Times in ns.
    """

    tails: tuple[RuntimeTail, ...]
    ratios: tuple[RuntimeRatio, ...]
    meetings: tuple[CollectorMeetings, ...]
    collecting: tuple[Collecting, ...]


def runtimes_of(analysis: Analysis) -> Runtimes | None:
    """Return what this topic says of a run; None where it does not apply."""
    return analysis.topic("runtimes", Runtimes)
