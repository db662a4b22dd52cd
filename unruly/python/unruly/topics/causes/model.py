"""The slow requests of one (cell, op): their causes, and the share that is unexplained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from unruly.shown import Shown

if TYPE_CHECKING:
    import pandas as pd

    from unruly.base.analysis import Analysis
    from unruly.base.mechanisms import MechanismName
    from unruly.contract import Absent, Count, NotBelowZero, Share
    from unruly.stats import Interval

UNKNOWN = "unknown"
SLOW_LEAST = 5
"""Fewer slow requests are not enough data to name a cause."""
ABBREVIATIONS: Final = {"cpu": "CPU", "gc": "GC"}
"""Words of causes that are letters."""


@dataclass(frozen=True)
class Cause:
    """One mechanism at one process, and the slow requests that it explains.

    ``explained`` is the share of the slow requests that is attributed to it and to no other, with
    an interval that survives bursts; ``requests`` is their number. ``lift`` is P(slow | present)
    over P(slow | absent). ``times`` is the number of its spans that overlapped these requests, and
    ``lasted_ns`` their total length.
    """

    cause: MechanismName
    process: str
    explained: Interval
    requests: Count
    lift: NotBelowZero
    p_value: Share
    q_value: Share
    times: Count
    lasted_ns: NotBelowZero
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
    slow: Count
    looked_at: Count
    unknown: Interval | None
    causes: tuple[Cause, ...]
    parts: dict[str, Share]
    absent: Absent = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Causes(Shown):
    """The slow requests of every (cell, op).

    ``note`` says why there are none, and ``left_out`` which data was skipped. ``points`` is for the
    chart: cell, op, intended_ns, response (ns, NaN without a good reply) and cause (a label, or
    "unknown").
    """

    rows: tuple[Slowness, ...]
    points: pd.DataFrame
    note: str = ""
    left_out: tuple[str, ...] = ()


def causes_of(analysis: Analysis) -> Causes | None:
    """Return what this topic says of a run; None where it does not apply."""
    return analysis.topic("causes", Causes)
