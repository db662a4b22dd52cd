"""The table of the systems of a matrix, the most predictable first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.drawing import format
from unruly.drawing.document import Datum, Table, number, table, text
from unruly.drawing.format import DASH
from unruly.topics.factors.statistics import factors_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from unruly.drawing.view import View
    from unruly.stats import Interval, Line
    from unruly.topics.factors.systems import SystemRow


def systems(view: View) -> Table | None:
    """Return a row for each system, the most predictable first; None for a single one."""
    magical = factors_of(view.analysis)
    if magical is None:
        return None
    rows = [it for it in magical.by_system if it.p99_over_mean is not None]
    if len(rows) < 2:
        return None
    rows.sort(key=lambda it: it.p99_over_mean[1] if it.p99_over_mean else 0.0)
    columns = (
        "system", "cells", "p50", "p99 / mean", "max / mean", "unruly cells", "outliers",
        "their size", "smallest haircut", "p99 = a × mean + b: a", "b",
    )  # fmt: skip
    body = [[text(it.system), *_numbers(it)] for it in rows]
    return table(
        columns,
        body,
        "The systems side by side, the most predictable first",
        "A pair is the least and the most of the cells of a system. A cell is unruly if its "
        "maximum exceeds ten means; outliers exceed mean + 3 sd, and their size is in means. "
        "The smallest haircut is the share to cut off until no cell is unruly. The line has 95 % "
        "intervals.",
    )


def _numbers(row: SystemRow) -> list[Datum]:
    line = row.line
    return [
        number(format.count(row.cells)),
        number(format.duration(row.median), "no cell has a median"),
        number(_pair(row.p99_over_mean, format.times), "", strong=True),
        number(format.times(row.maximum_over_mean), "every cell has failed requests"),
        number(format.count(row.unruly_cells)),
        number(_pair(row.outlier_share, format.share), "no cell has outliers"),
        number(format.times(row.outlier_size), "no cell has outliers"),
        number(format.share(row.smallest_haircut), "a request failed"),
        number(_between(line.slope if line else None, format.significant), _reason(line)),
        number(_between(line.intercept if line else None, format.duration), _reason(line)),
    ]


def _reason(line: Line | None) -> str:
    return line.reason if line is not None else "too few cells"


def _pair(pair: tuple[float, float] | None, shown: Callable[[float], str]) -> str:
    if pair is None:
        return DASH
    low, high = shown(pair[0]), shown(pair[1])
    return low if low == high else f"{low} to {high}"


def _between(found: Interval | None, shown: Callable[[float | None], str]) -> str:
    if found is None or found.estimate is None:
        return DASH
    return f"{shown(found.estimate)} [{shown(found.low)}, {shown(found.high)}]"
