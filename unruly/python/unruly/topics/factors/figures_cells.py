"""The cells of a matrix: how far p99 and maximum stand from the mean, sorted by mean."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel, Spec
from unruly.drawing.view import LATENCIES, View

MOST_CELLS = 400
FIELDS = ("mean", "p99", "maximum")
SHAPES = ("circle", "triangle-up", "cross")


def cells(view: View) -> Figure | None:
    """Return mean, p99 and maximum of every cell; None when there is one cell only."""
    if len(view.cells) < 2:
        return None
    frame = pd.DataFrame([row for latency in LATENCIES for row in _rows(view, latency)])
    if frame.empty:
        return None
    ends = chart.span_of(frame["value"])
    panels = tuple(
        Panel(
            _chart(own, f"{latency} time", ends),
            f"Mean, p99 and maximum {latency} time of {own['cell'].nunique()} cells, sorted "
            "by mean.",
            f"{str(latency).capitalize()} time",
        )
        for latency, own in frame.groupby("latency", sort=False)
    )
    return Figure(
        view.key("cells"),
        _title(frame),
        "Each column of marks is one configuration of the plan, sorted by its mean. When the "
        "p99 keeps close to the mean and the maximum does not, it is 1 % of the replies that "
        "make the system unpredictable.",
        panels,
        legend=(Key("mean", 0, "circle"), Key("p99", 1, "triangle"), Key("maximum", 2, "cross")),
        narrow=True,
    )


def _rows(view: View, latency: str) -> list[dict[str, Any]]:
    found = [(c.mean if c.mean is not None else c.mean_ok, c) for c in view.overall(latency)]
    known = sorted(((m, c) for m, c in found if m is not None), key=lambda pair: pair[0])
    rows: list[dict[str, Any]] = []
    for place, (mean, c) in enumerate(known[:MOST_CELLS], start=1):
        maximum = c.max if c.max is not None else c.max_ok
        for field, value in zip(FIELDS, (mean, c.p99, maximum), strict=True):
            if value is not None:
                rows.append(
                    {
                        "latency": latency,
                        "cell": c.cell,
                        "place": place,
                        "field": field,
                        "value": value,
                    }
                )
    return rows


def _chart(own: pd.DataFrame, name: str, ends: tuple[float, float]) -> Spec:
    mark = (
        alt.Chart(chart.records(own, ["cell", "place", "field", "value"]))
        .mark_point(filled=True, size=34, opacity=0.85)
        .encode(
            x=alt.X(
                "place:Q",
                title="cells, by their mean (rank)",
                scale=alt.Scale(nice=False, padding=8),
                axis=alt.Axis(tickMinStep=1, format="d"),
            ),
            y=alt.Y("value:Q", **chart.latency_axis(name, *ends, most=8)),
            color=chart.colour(FIELDS, "field"),
            shape=alt.Shape(
                "field:N", legend=None, scale=alt.Scale(domain=list(FIELDS), range=list(SHAPES))
            ),
            tooltip=["cell:N", "field:N", chart.latency_tooltip("value", name)],
        )
    )
    return chart.finish(mark, 280)


def _title(frame: pd.DataFrame) -> str:
    wide = frame[frame["latency"] == "response"].pivot_table(
        index="cell", columns="field", values="value"
    )
    if not set(FIELDS) <= set(wide.columns):
        return f"Mean and tail of {format.plural(len(wide), 'cell')}"
    tail, worst = (wide["p99"] / wide["mean"]).max(), (wide["maximum"] / wide["mean"]).max()
    return (
        f"Over {format.plural(len(wide), 'cell')} the p99 stays within {format.times(tail)} "
        f"the mean; the maximum reaches {format.times(worst)}"
    )
