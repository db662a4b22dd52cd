"""The run at a glance: all replies in one curve, with the median, the p99 and the promise on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.distribution import SHARES
from unruly.drawing.document import Figure, Key, Panel
from unruly.drawing.frames import exceedances, named_ops
from unruly.drawing.view import LATENCIES

if TYPE_CHECKING:
    from unruly.drawing.view import View

HEIGHT = 190
ROW = 16
SIDES: tuple[tuple[str, Literal["left", "right"], int], ...] = (
    ("median", "left", 3),
    ("p99", "right", 2),
    ("promise", "right", 1),
)
"""How the words of each mark are aligned, and in which row from below.

The curve falls from the upper left to the lower right, so the corner below it is free, also where
the marks stand close together on a narrow screen.
"""


def glance(view: View) -> Figure | None:
    """Return the distribution of all replies together; None when nothing was measured."""
    frame = named_ops(view.analysis.distribution)
    if frame.empty:
        return None
    curves = exceedances(frame, ["latency"])
    if curves.empty:
        return None
    marks = _marks(view)
    ends = chart.span_of(pd.concat([curves["latency_ns"], marks["at"].astype(float)]))
    words = "; ".join(f"{r['name']} {format.duration(r['at'])}" for r in marks.to_dict("records"))
    alt_text = f"Share of all replies above each latency. {words}."
    caption = (
        "All replies in one curve: its height at a latency is the share that takes longer. The "
        " further it runs to the right, the more unruly."
    )
    panel = Panel(_curves(curves, marks, ends), alt_text, height=HEIGHT)
    keys = (Key("response time", 0), Key("service time", 1))[: curves["latency"].nunique()]
    return Figure(view.key("glance"), _title(view, marks), caption, (panel,), legend=keys)


def _title(view: View, marks: pd.DataFrame) -> str:
    at = dict(zip(marks["name"], marks["at"], strict=True))
    if "median" not in at or "p99" not in at:
        if view.failed > 0.01 * view.rows:
            return f"{format.share(view.failed / view.rows)} failed: the curve ends at that share"
        return "From the fastest reply to the slowest"
    return f"From the median to the p99, latency grows {format.times(at['p99'] / at['median'])}"


def _marks(view: View) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    overall = view.first_of_all("response")
    if len(view.cells) == 1 and overall is not None:
        best = overall.ladder.highest
        promise = best.promise.high if best and best.promise else None
        found = {"median": overall.p50, "p99": overall.p99}
        if view.analysis.trustworthy:
            found["promise"] = promise
        rows = [
            {"name": name, "at": at, "label": f"{name} {format.duration(at)}", "place": place}
            for place, (name, at) in enumerate(found.items())
            if at is not None
        ]
    return pd.DataFrame(rows, columns=["name", "at", "label", "place"])


def _curves(curves: pd.DataFrame, marks: pd.DataFrame, ends: tuple[float, float]) -> dict[str, Any]:
    axis = chart.latency_axis("latency", *ends, most=9)
    least = min(0.3, float(curves["share"].min()))
    values = [share for share in SHARES if share >= least]
    labels = " : ".join(f"datum.value == {share} ? '{SHARES[share]}'" for share in values)
    y = alt.Y(
        "share:Q",
        title="share above (log scale)",
        scale=alt.Scale(type="log", domain=[least, 1], nice=False, clamp=True),
        axis=alt.Axis(values=values, labelExpr=f"{labels} : ''"),
    )
    x = alt.X("latency_ns:Q", **axis)
    data = chart.records(curves, ["latency_ns", "share", "latency"])
    lines = (
        alt.Chart(data)
        .mark_line(clip=True)
        .encode(
            x=x,
            y=y,
            color=chart.colour(LATENCIES, "latency"),
            # Where the two agree, the thick line shows on both sides of the thin one.
            strokeWidth=alt.condition("datum.latency == 'response'", alt.value(5), alt.value(1.8)),
        )
    )
    base = alt.Chart(chart.records(marks, ["at", "label", "name"])).encode(
        x=alt.X("at:Q", **axis), tooltip=["name:N", chart.latency_tooltip("at", "latency")]
    )
    rules = base.mark_rule(style="zero", strokeWidth=1.2)
    layers: list[Any] = [lines, rules]
    for name, side, row in SIDES:
        words = base.transform_filter(f"datum.name == '{name}'").mark_text(
            align=side, dx=-5 if side == "right" else 5, fontSize=12, style="ink"
        )
        layers.append(words.encode(text="label:N", y=alt.value(HEIGHT - (row - 0.5) * ROW)))
    return chart.finish(alt.layer(*layers), HEIGHT)
