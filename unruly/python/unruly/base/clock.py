"""Moments of a run: seconds since the first measured request, and the time of day beside them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from unruly.quantity import duration

if TYPE_CHECKING:
    from unruly.run import Run

NS_PER_S: Final = 1_000_000_000
OLDEST_NS: Final = 1_000_000_000 * NS_PER_S
"""Stamps before 2001 count from the start of a source, not from the epoch."""


@dataclass(frozen=True)
class Clock:
    """Write moments of one run.

    Parameters
    ----------
    origin_ns : int
        When the first measured request was scheduled: 0 s in every picture of the report.
    is_wall : bool
        Stamps are times of day. False for an import whose source kept none.
    """

    origin_ns: int
    is_wall: bool

    @classmethod
    def of(cls, run: Run, started_ns: int | None) -> Clock:
        """Return the clock of a run whose first measured request was scheduled at `started_ns`."""
        origin = started_ns or 0
        return cls(origin, origin >= OLDEST_NS and not run.timeless)

    def since_start(self, at_ns: float) -> str:
        """Return how long after the start a moment is: ``5.6 s``."""
        return duration(max(0, int(at_ns) - self.origin_ns))

    def of_day(self, at_ns: float) -> str | None:
        """Return the time of day, ``17:03:12 UTC``; None where the run has none."""
        if not self.is_wall:
            return None
        at = datetime.fromtimestamp(int(at_ns) // NS_PER_S, tz=UTC)
        return at.strftime("%H:%M:%S UTC")

    def moment(self, at_ns: float) -> str:
        """Return both: ``5.6 s (17:03:12 UTC)``.

        Examples
        --------
        >>> Clock(1_790_000_000 * NS_PER_S, is_wall=True).moment(1_790_000_005.6 * NS_PER_S)
        '5.6 s (14:13:25 UTC)'
        """
        of_day = self.of_day(at_ns)
        return self.since_start(at_ns) + (f" ({of_day})" if of_day else "")
