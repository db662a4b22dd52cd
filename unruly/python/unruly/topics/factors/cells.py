"""A cell of a matrix, and what its slowest requests are to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unruly.contract import Absent
    from unruly.stats import Interval


@dataclass(frozen=True)
class MatrixCell:
    """One configuration: what the slowest 1 % does to it.

    Haircut values are None where a request failed. ``dip_q`` is the dip's p-value adjusted over all
    cells.
    """

    cell: str
    factors: dict[str, str]
    system: str
    n: int
    failed: int
    mean: float | None
    median: float | None
    p99: float | None
    largest: float | None
    over_10x_mean: int | None
    over_3_sigma: int | None
    p99_over_mean: Interval | None
    mean_after: float | None = None
    p99_after: float | None = None
    largest_after: float | None = None
    smallest_haircut: float | None = None
    outlier_share: float | None = None
    outlier_size: float | None = None
    """Mean of the outliers (beyond mean + 3 sd) over the mean."""
    streak: Interval | None = None
    dip: float | None = None
    dip_p: float | None = None
    dip_q: float | None = None
    absent: Absent = field(default_factory=dict)
