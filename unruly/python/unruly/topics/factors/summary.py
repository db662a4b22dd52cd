"""What this topic says in ``summary.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unruly.stats import Line
    from unruly.topics.factors.cells import MatrixCell
    from unruly.topics.factors.statistics import Explained, Magical, RankCorrelation
    from unruly.topics.factors.systems import SystemRow


@dataclass(frozen=True)
class MatrixSummary:
    """The unruly 1 % over a matrix; null for a run of one cell. Response times in ns."""

    cells: tuple[MatrixCell, ...]
    systems: tuple[str, ...]
    by_system: tuple[SystemRow, ...]
    factors: dict[str, tuple[str, ...]]
    explained: tuple[Explained, ...]
    p99_on_mean: dict[str, Line]
    """The line of each system, and under ``*`` that of all of them."""
    count_against_size: RankCorrelation | None
    resources: tuple[RankCorrelation, ...]
    notes: tuple[str, ...]


def summary(view: Magical) -> MatrixSummary:
    """Return what the topic says."""
    return MatrixSummary(
        cells=view.cells,
        systems=view.systems,
        by_system=view.by_system,
        factors=view.factors,
        explained=view.explained,
        p99_on_mean=view.lines,
        count_against_size=view.count_against_size,
        resources=view.resources,
        notes=view.notes,
    )
