"""The far tails side by side: from the mean to the maximum, with whiskers where they are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel
from unruly.topics.stores.section import FAR, sorted_tails

if TYPE_CHECKING:
    from unruly.base.tails import Tail
    from unruly.drawing.document import Spec
    from unruly.drawing.view import View

MOST_ROWS: Final = 24
ROW: Final = 54
FIELDS: Final = ("mean", "p99", *(name for _, name in FAR), "maximum")


def tails(view: View) -> Figure | None:
    """Return mean, percentiles and maximum of each (cell, op), a row each."""
    found = sorted_tails(view)[:MOST_ROWS]
    several = len(view.cells) > 1
    rows = [point for row in found for point in _points(row, several=several)]
    if not rows:
        return None
    frame = pd.DataFrame(rows)
    order = list(dict.fromkeys(frame["row"]))
    height = 24 + ROW * len(order)
    words = "; ".join(f"{it['row']} {format.duration(it['value'])}" for it in _maxima(rows))
    return Figure(
        view.key("tails"),
        _title(found),
        "A row for each, the longest tail above. Marks that stand far apart are a tail that a mean "
        "says nothing of. Lines: intervals (95 %) that survive stalls; one that ends at its "
        "mark has no upper bound yet.",
        (Panel(_chart(frame, order, height), f"Maximum of each: {words}.", height=height),),
        legend=tuple(
            Key(name, place, "cross" if name == "maximum" else "dot")
            for place, name in enumerate(FIELDS)
            if name in set(frame["field"])
        ),
    )


def _points(row: Tail, *, several: bool) -> list[dict[str, Any]]:
    name = f"{row.cell} {row.op}" if several else row.op
    known: list[tuple[str, float | None, float | None, float | None]] = [
        ("mean", row.mean_ok, None, None),
        ("p99", row.p99, None, None),
    ]
    for key, shown in FAR:
        interval, least = getattr(row, key), row.least[key]
        high = interval.high if interval else None
        known.append((shown, row.estimates[key], least, high))
    known.append(("maximum", row.max_ok, None, None))
    return [
        {"row": name, "field": field, "value": value, "low": low, "high": high or value}
        for field, value, low, high in known
        if value is not None
    ]


def _maxima(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["field"] == "maximum"]


def _chart(frame: pd.DataFrame, order: list[str], height: int) -> Spec:
    ends = chart.span_of(
        pd.concat([frame[name].astype(float) for name in ("value", "low", "high")])
    )
    axis = chart.latency_axis("response time", *ends, most=9)
    base = alt.Chart(chart.records(frame, ["row", "field", "value", "low", "high"])).encode(
        y=alt.Y("row:N", sort=order, title=None, axis=alt.Axis(labelLimit=180)),
        yOffset=alt.YOffset("field:N", sort=list(FIELDS)),
        color=chart.colour(FIELDS, "field"),
    )
    tips: list[Any] = [
        "row:N",
        "field:N",
        *(chart.latency_tooltip(c, c) for c in ("value", "low", "high")),
    ]
    marks = base.encode(x=alt.X("value:Q", **axis), tooltip=tips)
    return chart.finish(
        alt.layer(
            base.mark_rule(strokeWidth=3, opacity=0.35)
            .encode(x=alt.X("low:Q", **axis), x2="high:Q")
            .transform_filter("isValid(datum.low)"),
            marks.mark_point(filled=True, size=46, opacity=1).transform_filter(
                "datum.field != 'maximum'"
            ),
            marks.mark_point(filled=True, size=46, opacity=1, shape="cross", angle=45)
            .transform_filter("datum.field == 'maximum'"),
        ),
        height,
    )  # fmt: skip


def _title(found: list[Tail]) -> str:
    known = [it for it in found if it.p99_999_over_mean and it.p99_999_over_mean.estimate]
    if known:
        ratios = [it.p99_999_over_mean.estimate or 0.0 for it in known if it.p99_999_over_mean]
        return f"The p99.999 reaches {format.times(max(ratios))} the mean"
    largest = [it.max_ok / it.mean_ok for it in found if it.max_ok and it.mean_ok]
    if not largest:
        return "No request was answered well"
    return f"The slowest reply took {format.times(max(largest))} the mean"
