"""Short windows: how long requests took, how many came back, how many were in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Panel
from unruly.drawing.since import Since
from unruly.topics.over_time.statistics import over_time_of

if TYPE_CHECKING:
    import pandas as pd

    from unruly.drawing.document import Spec
    from unruly.drawing.view import View

HEIGHT = 150
LEFT = 62
HEIGHT_LATENCY = 210
"""As high as the title of its axis is long."""


def short_windows(view: View) -> Figure | None:
    """Return mean response, throughput and requests in flight by short windows."""
    found = over_time_of(view.analysis)
    frame = found.windows if found else None
    if frame is None or frame.empty:
        return None
    frame = frame[frame["op"].isin(view.drawn_ops)]
    if frame.empty or not frame["response_ns"].gt(0).any():
        return None
    since = Since.of(view, float(frame["started_ns"].min()), float(frame["started_ns"].max()))
    width = float(frame["started_ns"].drop_duplicates().sort_values().diff().min())
    frame = frame.assign(time=since.place(frame["started_ns"]))
    above, below = since.x(labels=False), since.x()
    # workloads that take turns would alternate in each window: what flows is their sum
    flow = frame.groupby("time", as_index=False)[["completed_hz", "in_flight"]].sum()
    panels = (
        Panel(_response(view, frame, above), _told(frame), height=HEIGHT_LATENCY),
        Panel(
            _flow(flow, "completed_hz", above, "replies a second"),
            "Good replies a second in each window, all workloads together.",
            height=HEIGHT,
        ),
        Panel(
            _flow(flow, "in_flight", below, "requests in flight"),
            "Requests in flight in each window on average, all workloads together.",
            height=HEIGHT,
        ),
    )
    length = format.duration(width)
    return Figure(
        view.key("windows"),
        _title(frame, length),
        f"Windows of {length}: the mean response of those that were due in it; of all workloads "
        "together the good replies that came in it, and the requests in flight. A queue that fills "
        "shows in all three: replies stop, more requests are in flight, and each waits long. A "
        "request that never came back is in flight for as long as the slowest answered one took.",
        panels,
        legend=(*chart.legend(view.ops),) if len(view.ops) > 1 else (),
    )


def _response(view: View, frame: pd.DataFrame, x: alt.X) -> Spec:
    axis = chart.latency_axis("mean response", *chart.span_of(frame["response_ns"].dropna()))
    axis["axis"] = _left(values=axis["axis"].values, format="", formatType="latency")
    return chart.finish(
        alt.Chart(chart.records(frame, ["time", "op", "response_ns"]))
        .mark_line(strokeWidth=1.2, opacity=0.85)
        .encode(x=x, y=alt.Y("response_ns:Q", **axis), color=chart.colour(view.ops)),
        HEIGHT_LATENCY,
    )


def _flow(flow: pd.DataFrame, field: str, x: alt.X, name: str) -> Spec:
    return chart.finish(
        alt.Chart(chart.records(flow, ["time", field]))
        .mark_line(style="plain", strokeWidth=1.2)
        .encode(x=x, y=alt.Y(f"{field}:Q", title=name, axis=_left(tickCount=5))),
        HEIGHT,
    )


def _left(**more: Any) -> alt.Axis:
    """Every axis is equally wide, so that a moment stands at one place in all three."""
    return alt.Axis(minExtent=LEFT, maxExtent=LEFT, **more)


def _title(frame: pd.DataFrame, length: str) -> str:
    worst = frame.loc[frame["response_ns"].idxmax()]
    usual = float(frame["response_ns"].median())
    return (
        f"In the worst {length} a request took {format.duration(float(worst['response_ns']))} on "
        f"average, {format.times(float(worst['response_ns']) / usual)} the usual"
    )


def _told(frame: pd.DataFrame) -> str:
    low, high = chart.span_of(frame["response_ns"].dropna())
    return f"Mean response by window, {format.duration(low)} to {format.duration(high)}."
