"""The results of streams, as values: each trial, each cell, and the hypotheses about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, get_args

from unruly.shown import Shown

if TYPE_CHECKING:
    import pandas as pd

    from unruly.base.analysis import Analysis
    from unruly.contract import Absent, Count, Share
    from unruly.stats import Interval

Verdict = Literal["failed", "unstable", "link saturated", "bound by one core", "slow", "stable"]
VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
"""From the gravest; "slow" is stable but slow."""
Outcome = Literal["held", "not held", "undecided"]
NONE: Final = "none"
CPU: Final = "cpu"
GC: Final = "gc"
HELD: Final = "held"
NOT_HELD: Final = "not held"
OPEN: Final[Outcome] = get_args(Outcome)[2]


@dataclass(frozen=True)
class Leg:
    """One trial (a repeat of a cell): its measured time, and the account of its messages.

    ``written`` to ``reordered`` count all messages of the trial, in every phase. ``unaccounted`` is
    the number of messages that were written, but neither read nor known to be lost. ``failed`` and
    ``broken`` are the events, in words, that kept it from beginning, or ended it early. ``faults``
    are those of the plan. ``silent_seconds`` is the longest stretch of whole measured seconds
    without a message. ``settled`` says that it ended as planned, so that every message must be
    accounted for.
    """

    cell: str
    repeat: int
    first_ns: int
    last_ns: int
    written: int
    read: int
    lost: int
    duplicated: int
    reordered: int
    unaccounted: int
    silent_seconds: int
    settled: bool
    failed: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def unstable(self) -> bool:
        """Whether it began, but ended before its time."""
        return bool(self.broken) and not self.failed


@dataclass(frozen=True)
class End:
    """One end of a stream and its cost; of several readers, the one nearest to its limits.

    ``room_cores`` is how much of one core it could have used: less than 1 if the competing load is
    kept on the same cores. ``grown_bytes_hz`` is the growth of its memory a second, in the trial in
    which it grew most.
    """

    process: str
    cpu_cores: Interval | None
    cpu_per_message_ns: Interval | None
    room_cores: Share
    bound: bool
    rss_bytes_max: int | None
    grown_bytes: float | None
    grown_bytes_hz: Interval | None
    grows: bool
    absent: Absent = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its process; of the first, or only, of its side the side alone."""
        return self.process.removesuffix("-0")


@dataclass(frozen=True)
class Held:
    """The share of its cores that the competing load used on one host, and what it was to use.

    ``farthest`` is that of the repeat that was farthest from the target.
    """

    host: str
    cores: float
    target: float
    occupancy: float
    farthest: float

    @property
    def off(self) -> float:
        """How far it was from its target, at most."""
        return self.farthest - self.target


class Named:
    """What is of one protocol and one series of cells."""

    protocol: str
    series: str

    @property
    def name(self) -> str:
        """Its protocol, and by which other factors it differs."""
        return f"{self.protocol} {self.series}".strip()


@dataclass(frozen=True)
class Stream(Named):
    """One cell: what its protocol gave beside its load.

    Bandwidth in bit/s at the reader, each second of the measured time of all repeats: of several
    readers at the one to which least came. ``loss_share`` of all messages. ``of_unloaded`` is held
    against the cell ``unloaded_cell``.
    ``reasons`` say what the verdict rests on; ``in_doubt`` that its load did not hold its target,
    or that nobody knows.
    """

    cell: str
    factors: dict[str, str]
    protocol: str
    load: str
    series: str
    repeats: Count
    link_bps: float | None
    bandwidth_bps: Interval | None
    variation: Interval | None
    quantiles_bps: dict[float, float]
    stalled_share: float | None
    of_unloaded: Interval | None
    unloaded_cell: str | None
    p99_ns: float | None
    p99_interval: Interval | None
    loss_share: float | None
    duplicated: int
    reordered: int
    writer: End
    reader: End
    held: tuple[Held, ...]
    verdict: Verdict
    reasons: tuple[str, ...]
    in_doubt: bool
    absent: Absent = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Its protocol, and its load where there is one."""
        beside = "" if self.load == NONE else f" beside {self.load}"
        return f"{self.protocol}{beside}{f' ({self.series})' if self.series else ''}"


@dataclass(frozen=True)
class Comparison(Named):
    """One protocol in a hypothesis: the share that it keeps, over that of ``reference``.

    ``state`` is the outcome for it; intervals are simultaneous over the rows.
    ``in_doubt``: its competing load, or that of the reference, was not what it was to be.
    """

    protocol: str
    reference: str | None
    series: str
    keeps: Interval | None
    relative: Interval | None
    state: Outcome
    in_doubt: bool = False

    @property
    def said(self) -> str:
        """The state, with a mark where it is in doubt."""
        return f"{self.state}{'?' if self.in_doubt else ''}"


@dataclass(frozen=True)
class Hypothesis:
    """One of the study's hypotheses: its claim, the outcome in this run, and the study's result."""

    key: str
    load: str
    claim: str
    outcome: Outcome
    text: str
    paper: str
    rows: tuple[Comparison, ...]


@dataclass(frozen=True, repr=False)
class Streams(Shown):
    """The results of a run of streams.

    Frames: ``seconds`` (cell, repeat, second, bps: at the reader, 0 if nothing came), ``usage``
    (cell, repeat, host, process, side, second, cpu_cores, rss_bytes), ``events`` (cell, repeat,
    process, kind, detail, started_ns, ended_ns; with GC pauses). ``note`` says which setting of the
    plan is not known.
    """

    rows: tuple[Stream, ...]
    legs: tuple[Leg, ...]
    hypotheses: tuple[Hypothesis, ...]
    seconds: pd.DataFrame
    usage: pd.DataFrame
    events: pd.DataFrame
    note: str = ""

    def of(self, cell: str) -> list[Leg]:
        """Return the legs of one cell."""
        return [leg for leg in self.legs if leg.cell == cell]


def streams_of(analysis: Analysis) -> Streams | None:
    """Return what this topic says of a run; None where it does not apply."""
    return analysis.topic("streams", Streams)
