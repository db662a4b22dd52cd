"""The table of the systems of a matrix, the most predictable first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.drawing import format
from unruly.drawing.document import Datum, Table, number, table, text
from unruly.drawing.format import DASH
from unruly.topics.factors.statistics import factors_of
from unruly.topics.factors.systems import predictable_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from unruly.drawing.view import View
    from unruly.stats import Interval, Line
    from unruly.topics.factors.systems import SystemRow

CALLED: Final = "drive.system"
FAILED: Final = "every cell has failed requests"
NOTE: Final = (
    "A pair is the least and the most of the cells of a system, with the 95 % interval of the cell "
    "with the most. p50, outliers, their size and the haircut are medians over its cells, whose "
    "intervals need six cells; max / mean is the largest. A cell is unruly if its maximum exceeds "
    "ten means. Outliers exceed mean + 3 sd, and their size is in means. The haircut is the share "
    "to cut off until a cell is not unruly, the smallest haircut until no cell is. "
    "The line has 95 % intervals. A cell with failed requests has no mean and is in no ratio; "
    "systems with such cells are last. A maximum grows with the number of requests, so a cell of "
    "few requests looks calmer."
)
CALLS: Final = (
    " A call of a closed loop counts from the stamp that its caller takes right before it: the "
    "time until the caller takes that stamp, such as a pause of its garbage collector, is in no "
    "response. The systems tcp and udp are called by the load generator itself."
)


def systems(view: View) -> Table | None:
    """Return a row for each system, the most predictable first; None for a single one."""
    magical = factors_of(view.analysis)
    if magical is None or len(magical.by_system) < 2:
        return None
    rows = sorted(magical.by_system, key=predictable_first)
    columns = (
        "system", "cells", "failing", "p50", "p99 / mean", "max / mean", "unruly cells",
        "over 10 × mean", "outliers", "their size", "haircut", "smallest haircut",
        "p99 = a × mean + b: a", "b",
    )  # fmt: skip
    body = [[text(it.system), *_numbers(it)] for it in rows]
    note = NOTE + (CALLS if CALLED in magical.factors else "")
    return table(columns, body, "The systems side by side, the most predictable first", note)


def _numbers(row: SystemRow) -> list[Datum]:
    line = row.line
    return [
        number(format.count(row.cells)),
        number(format.count(row.failing_cells)),
        number(_known(row.median, format.duration), "no cell has a median"),
        number(_ratio(row), FAILED, strong=True),
        number(format.times(row.maximum_over_mean), FAILED),
        number(_cells(row)),
        number(_pair(row.over_10x_share, format.share), FAILED),
        number(_known(row.median_outlier_share, format.share), FAILED),
        number(_known(row.outlier_size, format.times), "no cell has outliers"),
        number(_known(row.median_haircut, format.share), FAILED),
        number(format.share(row.smallest_haircut), "a request failed"),
        number(_between(line.slope if line else None, format.significant), _reason(line)),
        number(_between(line.intercept if line else None, format.duration), _reason(line)),
    ]


def _cells(row: SystemRow) -> str:
    shown = f"{row.unruly_cells} of {row.cells - row.failing_cells}"
    found = row.unruly_share
    if found.estimate is None:
        return shown
    return f"{shown} [{format.share(found.low)}, {format.share(found.high)}]"


def _known(found: Interval, shown: Callable[[float | None], str]) -> str:
    if found.estimate is None or (found.low is not None and found.high is not None):
        return _between(found, shown)
    return shown(found.estimate)


def _reason(line: Line | None) -> str:
    return line.reason if line is not None else "too few cells"


def _ratio(row: SystemRow) -> str:
    shown = _pair(row.p99_over_mean, format.times)
    most = row.most_p99_over_mean
    if most is None or most.low is None or most.high is None:
        return shown
    return f"{shown} [{format.times(most.low)}, {format.times(most.high)}]"


def _pair(pair: tuple[float, float] | None, shown: Callable[[float], str]) -> str:
    if pair is None:
        return DASH
    low, high = shown(pair[0]), shown(pair[1])
    return low if low == high else f"{low} to {high}"


def _between(found: Interval | None, shown: Callable[[float | None], str]) -> str:
    if found is None or found.estimate is None:
        return DASH
    return f"{shown(found.estimate)} [{shown(found.low)}, {shown(found.high)}]"
