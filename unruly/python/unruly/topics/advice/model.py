"""What a run advises, as plain frozen values: each part a function of the timeout, or the delay.

All times are in nanoseconds. A part that the run cannot support has no row for its subject, and the
reason in ``absent``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, TypeVar, get_args

from unruly.shown import Sheet, Shown

if TYPE_CHECKING:
    from unruly.contract import Keywords, Level, Positive, Sentence
    from unruly.stats import Interval, Nines, Profit, ProfitPeak, Replicas, SlaTable, Ways

PartName = Literal["detection", "replicas", "xft", "profit", "hedge"]
PARTS: Final[tuple[PartName, ...]] = get_args(PartName)
EVERY = "*"
"""Stands for all cells, or all ops of a cell."""


@dataclass(frozen=True)
class Absent:
    """Why one subject has no row; ``cell`` and ``op`` are "*" where that holds for all."""

    cell: str
    op: str
    reason: Sentence


Row = TypeVar("Row")


@dataclass(frozen=True)
class Part(Generic[Row]):
    """One piece of advice: what it assumes, a row for each subject, and why others have none."""

    name: PartName
    title: str
    assumption: str
    rows: tuple[Row, ...]
    absent: tuple[Absent, ...]


@dataclass(frozen=True)
class DetectionPoint:
    """A failure detector with this timeout.

    ``missed`` is how many members of a group are outside its accuracy set (somebody saw them later
    than T) in the wanted share of windows: Gamma has all but so many. None without groups.
    """

    timeout_ns: float
    false_per_hour: Interval
    detection_mean_ns: float
    detection_max_ns: float
    missed: Interval | None


@dataclass(frozen=True)
class DetectionAdvice:
    """Failure detection by pings of one op; rates are of one observer that watches one peer."""

    cell: str
    op: str
    pings: int
    pairs: int
    period_ns: float
    members: int | None
    """Of the largest group whose accuracy set was looked at."""
    points: tuple[DetectionPoint, ...]
    chosen_ns: float | None
    sentence: Sentence


@dataclass(frozen=True)
class ReplicasPoint:
    """n(T), with the mean number of slow peers in the largest groups asked about."""

    timeout_ns: float
    replicas: Replicas
    mean_slow: Interval


@dataclass(frozen=True)
class ReplicasAdvice:
    """How many replicas survive f crashes when T may be waited for."""

    cell: str
    op: str
    windows: int
    window_ns: int
    sizes: tuple[int, ...]
    """Of the measured groups."""
    points: tuple[ReplicasPoint, ...]
    chosen_ns: float | None
    sentence: Sentence


@dataclass(frozen=True)
class XftPoint:
    """Partitioned members at T, and the nines at the estimate and at its upper bound."""

    timeout_ns: float
    partitioned: Interval
    nines: Nines
    sure: Nines


@dataclass(frozen=True)
class XftAdvice:
    """XFT against CFT and BFT."""

    cell: str
    op: str
    windows: int
    window_ns: int
    points: tuple[XftPoint, ...]
    chosen_ns: float | None
    sentence: Sentence


@dataclass(frozen=True)
class ProfitAdvice:
    """What the requests of a cell earn under the agreement."""

    cell: str
    op: str
    requests: int
    failed: int
    profit: Profit
    sentence: Sentence


@dataclass(frozen=True)
class PeakAdvice:
    """Where profit falls as one factor of the plan grows, all others being as named."""

    factor: str
    others: dict[str, str]
    loads: tuple[float, ...]
    cells: tuple[str, ...]
    per_hour: tuple[Interval, ...]
    peak: ProfitPeak
    sentence: Sentence


@dataclass(frozen=True)
class HedgeAdvice:
    """What another way of asking a group's peers would have cost."""

    cell: str
    op: str
    peers: Annotated[int, Keywords(minimum=2)]
    requests: int
    asked: int
    """Requests that the sample was taken from; the same as `requests` when all were looked at."""
    servers: tuple[int, ...] | None
    """Numbers of the servers, when all requests asked the same ones."""
    ways: Ways
    chosen_ns: float | None
    sentence: Sentence


@dataclass(frozen=True, repr=False)
class Advice(Shown):
    """Everything that a run advises.

    ``confidence`` is the share of windows in which s(T) and the accuracy set must hold, ``level``
    that of the intervals. ``timeouts_ns`` are the T of all parts; ``left_out`` says which asked-for
    ones are not among them, and why.
    """

    run: str
    name: str
    tag: str
    trustworthy: bool | None
    """None when nobody asked whether the run can be trusted."""
    faults: Positive
    confidence: Level
    level: float
    sla: SlaTable
    sla_name: str
    resolution_ns: float
    timeouts_ns: tuple[Annotated[float, Keywords(exclusiveMinimum=0)], ...]
    left_out: dict[str, str]
    detection: Part[DetectionAdvice]
    replicas: Part[ReplicasAdvice]
    xft: Part[XftAdvice]
    profit: Part[ProfitAdvice]
    peaks: tuple[PeakAdvice, ...]
    hedge: Part[HedgeAdvice]

    @property
    def sentences(self) -> list[str]:
        """Every sentence, in the order of the parts."""
        rows: list[Any] = [
            *self.detection.rows, *self.replicas.rows, *self.xft.rows, *self.profit.rows,
            *self.peaks, *self.hedge.rows,
        ]  # fmt: skip
        return [row.sentence for row in rows]

    def _sheet(self) -> Sheet:
        tag = f" [{self.tag}]" if self.tag else ""
        told = self.sentences
        line = f"{self.name}{tag}: {len(told)} sentences of advice"
        return Sheet(line, ("advice",), [(sentence,) for sentence in told])
