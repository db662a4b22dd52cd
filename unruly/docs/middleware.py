"""Write the tables of the page middleware.md from the numbers of a run that are kept.

Run ``make pages``.

The run is one of the plan ``middleware``. The parts of its ``summary.json`` about the matrix, about
trust and the findings are kept, so that nobody types the numbers of a table.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import kept
from kept import number, table
from stores import doubts

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT = "2026-11-29-amd-2core/side-by-side/middleware.summary.json"
PAGE = Path(__file__).with_name("middleware.md")
US = 1e3
MEASURES = {"mean": "mean", "p99": "p99", "maximum": "maximum", "outliers": "share of outliers"}


def written(page: str) -> str:
    """Return the page with its tables as the kept numbers have them."""
    found = kept.read(KEPT)
    matrix = found["magical"]
    parts = {
        "middleware trust": doubts(found),
        "middleware systems": systems(matrix),
        "middleware factors": factors(matrix),
    }
    return kept.filled(page, parts)


def us(value: float | None) -> str:
    """Nanoseconds as microseconds of three digits."""
    return "-" if value is None else number(value / US)


def percent(value: float | None) -> str:
    """A share in per cent."""
    return "-" if value is None else f"{number(100 * value)} %"


def plain(value: float | None) -> str:
    """A number of three digits, or nothing."""
    return "-" if value is None else number(value)


def pair(values: list[float] | None, shown: Callable[[float | None], str]) -> str:
    """The least and the most of the cells of a system."""
    if values is None:
        return "-"
    low, high = (shown(it) for it in values)
    return low if low == high else f"{low} to {high}"


def interval(value: dict[str, Any] | None, shown: Callable[[float | None], str]) -> str:
    """An estimate with its interval."""
    if value is None or value["estimate"] is None:
        return "-"
    if value["low"] is None or value["high"] is None:
        return shown(value["estimate"])
    return f"{shown(value['estimate'])} [{shown(value['low'])}, {shown(value['high'])}]"


def systems(matrix: dict[str, Any]) -> str:
    """A row for each system, the most predictable first."""
    rows = sorted(matrix["by_system"], key=predictable_first)
    head = [
        "system", "failing cells", "p50, us", "p99 / mean", "max / mean", "unruly cells",
        "over 10 x mean", "outliers", "their size", "haircut", "smallest haircut", "a", "b, us",
    ]  # fmt: skip
    return table(head, [row_of(it) for it in rows])


def predictable_first(row: dict[str, Any]) -> tuple[bool, float]:
    """Order systems as the report does: those that fail last, then by their worst ratio."""
    worst = row["p99_over_mean"]
    return row["failing_cells"] > 0, worst[1] if worst else float("inf")


def ratio(row: dict[str, Any]) -> str:
    """The least and the most p99 over mean, with the interval of the most."""
    most = row["most_p99_over_mean"]
    known = most is not None and most["low"] is not None and most["high"] is not None
    bounds = f" [{plain(most['low'])}, {plain(most['high'])}]" if known else ""
    return pair(row["p99_over_mean"], plain) + bounds


def bounds(row: dict[str, Any]) -> str:
    """The interval of the share of unruly cells."""
    found = row["unruly_share"]
    if found["estimate"] is None:
        return ""
    return f" [{percent(found['low'])}, {percent(found['high'])}]"


def row_of(row: dict[str, Any]) -> list[str]:
    """The numbers of a system."""
    line = row["line"] or {"slope": None, "intercept": None}
    return [
        f"`{row['system']}`",
        str(row["failing_cells"]),
        interval(row["median"], us),
        ratio(row),
        plain(row["maximum_over_mean"]),
        f"{row['unruly_cells']} of {row['cells'] - row['failing_cells']}{bounds(row)}",
        pair(row["over_10x_share"], percent),
        interval(row["median_outlier_share"], percent),
        interval(row["outlier_size"], plain),
        interval(row["median_haircut"], percent),
        percent(row["smallest_haircut"]),
        interval(line["slope"], plain),
        interval(line["intercept"], us),
    ]


def factors(matrix: dict[str, Any]) -> str:
    """How much of each measure a factor explains, of what the other factors leave."""
    names = list(dict.fromkeys(it["factor"] for row in matrix["explained"]
                               for it in row["effects"] if it["partial"]))  # fmt: skip
    lines = []
    for row in matrix["explained"]:
        held = {it["factor"]: it["partial"] for it in row["effects"]}
        shown = [interval(held.get(name), percent) for name in names]
        lines.append([MEASURES[row["measure"]], *shown])
    return table(["explained", *(f"`{it}`" for it in names)], lines)
