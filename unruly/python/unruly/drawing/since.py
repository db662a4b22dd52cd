"""The axis of time: since the start, and below it the time of day, for a look at other records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import altair as alt

from unruly.base.clock import Clock
from unruly.drawing import format

if TYPE_CHECKING:
    from unruly.drawing.view import View

SCALES: Final = ((86_400e9, "days"), (3_600e9, "hours"), (60e9, "minutes"))
NS_PER_MS: Final = 1e6
TICKS: Final = 8
LEAST: Final = 1e-9
"""An axis is not empty, even of a run of one instant."""


@dataclass(frozen=True)
class Since:
    """Time since the start of a picture, in the unit that is easiest to read.

    Parameters
    ----------
    start_ns, end_ns : float
        The ends of the axis; the first is 0.
    scale : float
        Nanoseconds of one unit.
    unit : str
        ``s``, ``minutes``, ``hours`` or ``days``.
    clock : Clock
        Whether the stamps of the run are times of day.
    """

    start_ns: float
    end_ns: float
    scale: float
    unit: str
    clock: Clock

    @classmethod
    def of(cls, view: View, first_ns: float, last_ns: float) -> Since:
        """Return the axis of a picture from one instant to another."""
        scale, unit = time_unit(last_ns - first_ns)
        return cls(first_ns, last_ns, scale, unit, Clock.of(view.analysis.run, int(first_ns)))

    def place(self, ns: Any) -> Any:
        """Return where an instant stands, or a column of instants."""
        return (ns - self.start_ns) / self.scale

    def when(self, place: float) -> str:
        """Return an instant in words: ``12.8 s after the start (14:13:32 UTC)``."""
        of_day = self.clock.of_day(self.start_ns + place * self.scale)
        told = f"{format.significant(place)} {self.unit} after the start"
        return f"{told} ({of_day})" if of_day else told

    @property
    def title(self) -> str:
        """The title of the axis."""
        since = f"time since the start ({self.unit})"
        return f"{since}, and of day (UTC)" if self.clock.is_wall else since

    @property
    def tooltip(self) -> alt.Tooltip:
        """The instant of a mark."""
        return alt.Tooltip("time:Q", title=f"since the start ({self.unit})", format=".5~g")

    def x(self, *, labels: bool = True, **scale: Any) -> alt.X:
        """Return the encoding of ``time``; without labels where a picture below has them."""
        # the ends are given: a layer that shows no mark would have none
        ends = [0, max(float(self.place(self.end_ns)), LEAST)]
        return alt.X(
            "time:Q",
            title=self.title if labels else None,
            scale=alt.Scale(domain=ends, nice=False, **scale),
            axis=self._axis() if labels else alt.Axis(tickCount=TICKS, labels=False, ticks=False),
        )

    def _axis(self) -> alt.Axis:
        if not self.clock.is_wall:
            return alt.Axis(tickCount=TICKS)
        at = f"{self.start_ns / NS_PER_MS:.0f} + datum.value * {self.scale / NS_PER_MS:.10g}"
        words = "%d %b %H:%M" if self.unit == "days" else "%H:%M:%S"
        return alt.Axis(
            tickCount=TICKS, labelExpr=f"[datum.label, utcFormat({at}, '{words}')]", labelFlush=True
        )


def time_unit(span_ns: float) -> tuple[float, str]:
    """Return the unit in which a time of this length is easiest to read, in ns, and its name."""
    for scale, unit in SCALES:
        if span_ns >= 2 * scale:
            return scale, unit
    return 1e9, "s"
