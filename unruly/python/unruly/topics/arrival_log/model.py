"""The results of an arrival log: plain frozen values; ``absent`` has the reason of each None."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from unruly.shown import Shown

if TYPE_CHECKING:
    import pandas as pd

    from unruly.base.analysis import Analysis
    from unruly.contract import Absent, Count
    from unruly.stats import Interval

Measure = Literal["first", "quorum", "all", "second", "every"]
HopName = Literal["hop_1", "hop_2"]


@dataclass(frozen=True)
class Wait:
    """How long operations would have taken, or how long a write was on few replicas only.

    ``measure`` is ``"first"``, ``"quorum"`` or ``"all"`` (from the scheduled time of the operation
    to the k-th correct copy). For answered writes it is ``"second"`` or ``"every"`` (from the
    answer to the second correct copy, or to the last). ``censored`` operations never had that copy:
    they rank above all others, and with one of them ``mean`` and ``max`` are absent. ``mean_ok``
    and ``max_ok`` leave censored operations out. ``beyond_max`` is the share of operations that
    take longer than ``max_ok``.
    """

    measure: Measure
    k: Count
    n: Count
    censored: Count
    mean: Interval | None
    max: float | None
    p50: float | None
    p99: float | None
    p99_9: float | None
    p99_interval: Interval | None
    beyond_max: Interval | None
    mean_ok: Interval | None
    max_ok: float | None
    absent: Absent = field(default_factory=dict)


@dataclass(frozen=True)
class Outliers:
    """Operations beyond 10 x the mean of the quorum; ``vanished`` are not so at the first copy."""

    limit_ns: float | None
    n: Count
    vanished: Count
    share: Interval | None
    absent: Absent = field(default_factory=dict)


@dataclass(frozen=True)
class Hop:
    """One hop of every copy that has its two stamps; ``over`` counts those beyond ``limit_ns``."""

    hop: HopName
    n: Count
    copies: Count
    limit_ns: float
    over: int | None
    min: float | None
    p50: float | None
    p99: float | None
    max: float | None
    absent: Absent = field(default_factory=dict)


@dataclass(frozen=True)
class ReplicaCopies:
    """What became of the copies to one replica; ``repeated`` are those of a later attempt."""

    server: Count
    name: str
    n: Count
    repeated: Count
    by_status: dict[str, Count]


@dataclass(frozen=True)
class SlowOperation:
    """One of the slowest operations by quorum; None where not enough correct copies came."""

    repeat: Count
    client: Count
    request: Count
    due_ns: int
    first_ns: float | None
    quorum_ns: float
    all_ns: float | None


@dataclass(frozen=True)
class Operations:
    """One (cell, op): the same operations under every algorithm.

    ``replicas`` is how many most operations of the cell asked. ``other_sizes`` asked another number
    and ``without_level`` waited for no level (a hedge): both are in none of the other numbers but
    ``hops`` and ``copies``.
    """

    cell: str
    op: str
    replicas: Count
    n: Count
    other_sizes: Count
    without_level: Count
    unanswered: Count
    waits: tuple[Wait, ...]
    outliers: Outliers
    exposures: tuple[Wait, ...]
    hops: tuple[Hop, ...]
    copies: tuple[ReplicaCopies, ...]
    slowest: tuple[SlowOperation, ...]

    def wait(self, measure: str) -> Wait:
        """Return one of the waits or exposures.

        Raises
        ------
        KeyError
            When there is none of that name.
        """
        for row in (*self.waits, *self.exposures):
            if row.measure == measure:
                return row
        raise KeyError(measure)


@dataclass(frozen=True, repr=False)
class ArrivalLog(Shown):
    """All of them; ``note`` says why there are none.

    ``distribution``: cell, op, measure, low_ns, high_ns, count, in 2 % buckets; censored operations
    have ``inf`` edges. It is empty without pictures.
    """

    rows: tuple[Operations, ...]
    distribution: pd.DataFrame
    note: str = ""


def arrival_log_of(analysis: Analysis) -> ArrivalLog | None:
    """Return what this topic says of a run; None where it does not apply."""
    return analysis.topic("arrival_log", ArrivalLog)
