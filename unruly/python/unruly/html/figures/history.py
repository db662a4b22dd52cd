"""A percentile run after run: each run with its interval, and when the level changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel
from unruly.output import history as words
from unruly.quantity import significant

if TYPE_CHECKING:
    from unruly.drawing.document import Spec
    from unruly.history import Series

HEIGHT: Final = 240
NS_PER_MS: Final = 1_000_000
COLUMNS: Final = ["at", "estimate", "low", "high"]


def picture(it: Series, key: str) -> Figure | None:
    """Return the runs of a series over time; None if no run has the percentile.

    Parameters
    ----------
    it : Series
        One percentile of one operation.
    key : str
        The id of the figure, unique on its page.
    """
    frame = _frame(it)
    if frame.empty:
        return None
    spoiled = bool((~frame["trustworthy"]).any())
    legend = (
        Key("a run, with its interval", 0),
        *((Key("not trustworthy", -1, "cross"),) if spoiled else ()),
    )
    caption = (
        f"Each dot is the {it.percentile} of a run, and its bar the interval. A dotted line stands "
        "at the first run of a new level."
        if it.changes
        else f"Each dot is the {it.percentile} of a run, and its bar the interval."
    )
    title = format.capital(words.conclusion(it))
    return Figure(key, title, caption, (Panel(_chart(it, frame), _alt(it), "", HEIGHT),), legend)


def _frame(it: Series) -> pd.DataFrame:
    rows = [
        {
            "at": one.started_ns // NS_PER_MS,
            "estimate": one.estimate,
            "low": one.low,
            "high": one.high,
            "trustworthy": one.trustworthy,
        }
        for one in it.points
        if one.estimate
    ]
    frame = pd.DataFrame(rows, columns=[*COLUMNS, "trustworthy"])
    return frame.astype({"trustworthy": bool})


def _axis(it: Series, frame: pd.DataFrame) -> dict[str, Any]:
    values = frame[["estimate", "low", "high"]].astype(float).to_numpy().ravel()
    low, high = chart.span_of(values)
    if it.unit == "ns":
        return chart.latency_axis(it.percentile, low, high)
    domain = chart.padded(low, high)
    return {
        "scale": alt.Scale(type="log", domain=list(domain), nice=False, clamp=True),
        "title": f"{it.percentile} ({it.unit}, log scale)",
    }


def _chart(it: Series, frame: pd.DataFrame) -> Spec:
    axis = _axis(it, frame)
    x = alt.X("at:T", title="begin of the run (UTC)", scale=alt.Scale(type="utc"))
    show: Any = chart.latency_tooltip if it.unit == "ns" else _plain_tooltip
    tips = [alt.Tooltip("at:T", title="run"), show("estimate", it.percentile)]
    good, spoiled = frame[frame["trustworthy"]], frame[~frame["trustworthy"]]
    bars = alt.Chart(chart.records(good.dropna(subset=["low", "high"]), COLUMNS))
    layers = [
        bars.mark_rule(strokeWidth=2, opacity=0.5, style="plainbar").encode(
            x=x, y=alt.Y("low:Q", **axis), y2="high:Q"
        ),
        alt.Chart(chart.records(good, COLUMNS))
        .mark_point(filled=True, size=55, opacity=1, style="plainbar")
        .encode(x=x, y=alt.Y("estimate:Q", **axis), tooltip=tips),
    ]
    if len(spoiled):
        layers.append(
            alt.Chart(chart.records(spoiled, COLUMNS))
            .mark_point(shape="cross", angle=45, filled=True, size=50, style="failed")
            .encode(x=x, y=alt.Y("estimate:Q", **axis), tooltip=tips)
        )
    if it.changes:
        days = [it.points[one.block].started_ns // NS_PER_MS for one in it.changes]
        lines = alt.Chart(alt.InlineData(values=[{"at": day} for day in days]))
        layers.append(lines.mark_rule(style="zero", strokeWidth=1.4).encode(x=x))
    return chart.finish(alt.layer(*layers), HEIGHT)


def _plain_tooltip(field: str, title: str) -> alt.Tooltip:
    return alt.Tooltip(field=field, type="quantitative", title=title, format=".4~g")


def _alt(it: Series) -> str:
    shown = format.duration if it.unit == "ns" else significant
    values = [one.estimate for one in it.points if one.estimate]
    return (
        f"{it.percentile} of {it.op} in {format.plural(len(values), 'run')}, from "
        f"{shown(min(values))} to {shown(max(values))}; {words.conclusion(it)}."
    )
