"""What is said of the slow requests of one (cell, op): which causes, and how much is unknown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from unruly.shown import Shown

if TYPE_CHECKING:
    import pandas as pd

    from unruly.base.analysis import Analysis
    from unruly.stats import Interval

UNKNOWN = "unknown"
SLOW_LEAST = 5
"""Of fewer slow requests nothing is said."""
ABBREVIATIONS: Final = {"cpu": "CPU", "gc": "GC"}
"""Words of causes that are letters."""


@dataclass(frozen=True)
class Cause:
    """One mechanism at one process, and what it explains.

    ``explained`` is the share of the slow requests that is put down to it and to no other, with an
    interval that survives bursts; ``requests`` their number. ``lift`` is P(slow | present) over
    P(slow | absent). ``times`` and ``lasted_ns`` count what of it overlapped them.
    """

    cause: str
    process: str
    explained: Interval
    requests: int
    lift: float
    p_value: float
    q_value: float
    times: int
    lasted_ns: float
    words: str

    @property
    def label(self) -> str:
        """Its name, and whose it is."""
        words = [ABBREVIATIONS.get(word, word) for word in self.cause.split(" ")]
        return f"{' '.join(words)}, {self.process}"


@dataclass(frozen=True, repr=False)
class Slowness(Shown):
    """The slow requests of one (cell, op).

    ``looked_at`` of the ``slow`` beyond ``limit_ns`` were read, as chance chose; every share is of
    these. ``limit_ns`` is None where nothing came back well. ``parts`` says of what share each part
    took most of the excess. What is None has its reason in ``absent``.
    """

    cell: str
    op: str
    limit_ns: float | None
    slow: int
    looked_at: int
    unknown: Interval | None
    causes: tuple[Cause, ...]
    parts: dict[str, float]
    absent: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Causes(Shown):
    """All of them; ``note`` says why there are none, ``left_out`` what was not looked at.

    ``points`` is for the picture: cell, op, intended_ns, response (ns, NaN where nothing came back
    well) and cause (a label, or "unknown").
    """

    rows: tuple[Slowness, ...]
    points: pd.DataFrame
    note: str = ""
    left_out: tuple[str, ...] = ()


def causes_of(analysis: Analysis) -> Causes | None:
    """Return what this topic says of a run; None where it does not apply."""
    return analysis.topic("causes", Causes)
