"""What the pictures of advice share: whose rows are drawn, and lines over a timeout or a delay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

import altair as alt

from unruly.drawing import chart, format
from unruly.drawing.document import Key, Panel, Spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from unruly.drawing.view import View

HEIGHT = 270
Row = TypeVar("Row", bound=Any)


def drawn(view: View, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the first cell that has any, in palette order."""
    if not rows:
        return []
    order = {op: place for place, op in enumerate(view.ops)}
    first = next((row.cell for row in rows if row.op in order), None)
    own = [row for row in rows if row.cell == first and row.op in order]
    return sorted(own, key=lambda row: order[row.op])


def of_cell(view: View, rows: Sequence[Any]) -> str:
    """Return words about the cells that are not drawn."""
    cells = list(dict.fromkeys(row.cell for row in rows))
    if len(cells) < 2:
        return ""
    name = drawn(view, rows)
    shown = format.quoted(name[0].cell) if name else ""
    return f" Drawn: cell {shown}; the other {len(cells) - 1} are in the JSON."


def legend(view: View, rows: Sequence[Any]) -> tuple[Key, ...]:
    """Return the colours of the ops that are drawn."""
    if len(view.ops) < 2:
        return ()
    have = {row.op for row in rows}
    return tuple(key for key in chart.legend(view.ops) if key.label in have)


def time_axis(
    name: str, frame: pd.DataFrame, column: str, *, most: int = 7, title: bool = True
) -> dict[str, Any]:
    """Return a log axis over all times of a column."""
    return chart.latency_axis(name, *chart.span_of(frame[column]), most=most, title=title)


def lines(
    view: View,
    frame: pd.DataFrame,
    *,
    x: tuple[str, str],
    y: tuple[str, str],
    scale: dict[str, Any],
    value: alt.Tooltip,
    band: tuple[str, str] | None = None,
    bound: str = "",
    beside: Sequence[alt.Chart] = (),
    step: bool = False,
) -> Spec:
    """Return a line for each op over a time, with a band of its interval where one is named.

    `x` and `y` are a column and what it is called, `scale` the scale and axis of the latter. Rows
    without an estimate still have their band. `bound` is a column that is drawn as a dashed line,
    `beside` what else is drawn.
    """
    (column, name), (estimate, title) = x, y
    columns = list(
        dict.fromkeys(["op", column, estimate, *(band or ()), *([bound] if bound else [])])
    )
    base = alt.Chart(chart.records(frame, columns)).encode(
        x=alt.X(f"{column}:Q", **time_axis(name, frame, column)),
        color=chart.colour(view.ops),
    )
    shape: Literal["step-after", "linear"] = "step-after" if step else "linear"
    marks = []
    if band:
        low, high = band
        marks.append(
            base.mark_area(opacity=0.13, interpolate=shape, clip=True)
            .encode(y=alt.Y(f"{low}:Q", title=title, **scale), y2=f"{high}:Q")
            .transform_filter(f"isValid(datum.{low}) && isValid(datum.{high})")
        )
    if bound:
        marks.append(
            base.mark_line(
                strokeWidth=1.2, strokeDash=[3, 3], opacity=0.7, interpolate=shape, clip=True
            ).encode(y=alt.Y(f"{bound}:Q", title=title, **scale))
        )
    vertical = alt.Y(f"{estimate}:Q", title=title, **scale)
    marks += [
        base.mark_line(strokeWidth=1.8, interpolate=shape, clip=True)
        .encode(y=vertical)
        .transform_filter(f"isValid(datum.{estimate})"),
        base.mark_point(filled=True, size=22, opacity=1, clip=True)
        .encode(
            y=vertical,
            tooltip=[
                alt.Tooltip("op:N", title="workload"),
                chart.latency_tooltip(column, name),
                value,
            ],
        )
        .transform_filter(f"isValid(datum.{estimate})"),
    ]
    return chart.finish(alt.layer(*beside, *marks), HEIGHT)


def panel(spec: Spec, words: str, title: str) -> Panel:
    """Return a panel of the usual height."""
    return Panel(spec, words, title, HEIGHT)
