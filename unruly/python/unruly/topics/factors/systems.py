"""The systems of a matrix side by side: how predictable each of them is over its cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from unruly.stats import independent_share, quantile_interval_iid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unruly.stats import Interval, Line
    from unruly.topics.factors.cells import MatrixCell

UNRULY: Final = 10.0
"""A maximum above this many means is unruly."""


@dataclass(frozen=True)
class SystemRow:
    """What the cells of one system have in common. Times in ns.

    A pair is the least and the most of its cells. A cell with failed requests has no mean, and so
    no ratio to it: ``failing_cells`` counts such cells, and the numbers are of the others; None
    where there is no other. A median over cells has an order-statistics interval, which needs six
    of them: the cells are the cases, so it says what another configuration may have. The intervals
    of each cell are in `MatrixCell`, those of the line in `Line`.
    """

    system: str
    cells: int
    failing_cells: int
    median: Interval
    """Median of the medians of its cells."""
    p99_over_mean: tuple[float, float] | None
    most_p99_over_mean: Interval | None
    """The interval of the cell with the most."""
    maximum_over_mean: float | None
    """The largest of its cells."""
    unruly_cells: int
    """Cells whose maximum exceeds ten means."""
    unruly_share: Interval
    """Their share, of the cells that may be judged."""
    over_10x_share: tuple[float, float] | None
    """Share of requests that exceed ten means."""
    outlier_share: tuple[float, float] | None
    """Share of requests that exceed mean + 3 sd."""
    median_outlier_share: Interval
    """Median of it over its cells."""
    outlier_size: Interval
    """Median over its cells of the mean size of outliers, in means."""
    smallest_haircut: float | None
    """The share to cut off until the maximum of every cell is within ten means. None where a cell
    has failed requests: no cut helps there."""
    median_haircut: Interval
    """Median over its cells of the share that each needs cut off."""
    line: Line | None
    """p99 on mean over its cells."""


def by_system(cells: Iterable[MatrixCell], lines: dict[str, Line]) -> tuple[SystemRow, ...]:
    """Return a row for each system, in the order of its first cell."""
    held: dict[str, list[MatrixCell]] = {}
    for cell in cells:
        held.setdefault(cell.system, []).append(cell)
    alone = lines.get("*") if len(held) == 1 else None
    return tuple(_row(name, of, lines.get(name, alone)) for name, of in held.items())


def _row(system: str, cells: list[MatrixCell], line: Line | None) -> SystemRow:
    ratios = [it.largest / it.mean for it in cells if it.largest is not None and it.mean]
    known = [it.p99_over_mean for it in cells if it.p99_over_mean is not None]
    cuts = [it.smallest_haircut for it in cells if it.smallest_haircut is not None]
    unruly = sum(it > UNRULY for it in ratios)
    return SystemRow(
        system=system,
        cells=len(cells),
        failing_cells=sum(it.failed > 0 for it in cells),
        median=_median(it.median for it in cells),
        p99_over_mean=_span(it.estimate for it in known),
        most_p99_over_mean=max(known, key=lambda it: it.estimate or 0.0, default=None),
        maximum_over_mean=max(ratios, default=None),
        unruly_cells=unruly,
        unruly_share=independent_share(unruly, len(ratios)),
        over_10x_share=_span(_share(it.over_10x_mean, it.n) for it in cells),
        outlier_share=_span(_share(it.over_3_sigma, it.n) for it in cells),
        median_outlier_share=_median(_share(it.over_3_sigma, it.n) for it in cells),
        outlier_size=_median(it.outlier_size for it in cells),
        smallest_haircut=max(cuts) if len(cuts) == len(cells) else None,
        median_haircut=_median(cuts),
        line=line,
    )


def predictable_first(row: SystemRow) -> tuple[bool, float]:
    """Order systems: those that fail last, the others by the worst p99 over mean of their cells."""
    worst = row.p99_over_mean[1] if row.p99_over_mean is not None else float("inf")
    return row.failing_cells > 0, worst


def _share(count: int | None, n: int) -> float | None:
    return count / n if count is not None and n else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [it for it in values if it is not None]


def _median(values: Iterable[float | None]) -> Interval:
    return quantile_interval_iid(_known(values), 0.5)


def _span(values: Iterable[float | None]) -> tuple[float, float] | None:
    known = _known(values)
    return (min(known), max(known)) if known else None
