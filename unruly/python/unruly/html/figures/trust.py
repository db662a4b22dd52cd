"""The send delay of the load generator compared with the response time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from unruly.drawing.view import View

NAMES = {"p50": "p50", "p90": "p90", "p99": "p99", "p99_9": "p99.9", "max": "max"}
SERIES = ("response time", "our send delay")


def send_lag(view: View) -> Figure | None:
    """Return the quantiles of the send delay beside those of the response time."""
    lag = view.analysis.self_distrust.send_lag_ns
    worst = max(view.overall("response"), key=lambda c: c.n, default=None)
    if not lag or worst is None:
        return None
    measured = {
        "p50": worst.p50,
        "p90": worst.p90,
        "p99": worst.p99,
        "p99_9": worst.p99_9,
        "max": worst.max if worst.max is not None else worst.max_ok,
    }
    sources: tuple[Mapping[str, float | None], ...] = (measured, lag)
    rows = [
        {"name": shown, "series": series, "value": value}
        for series, source in zip(SERIES, sources, strict=True)
        for name, shown in NAMES.items()
        if (value := source.get(name)) is not None and value > 0
    ]
    frame = pd.DataFrame(rows)
    if frame.empty or frame["series"].nunique() < 2:
        return None
    axis = chart.latency_axis("time", *chart.span_of(frame["value"]), most=7)
    base = alt.Chart(chart.records(frame, ["name", "series", "value"])).encode(
        x=alt.X(
            "name:N",
            sort=list(NAMES.values()),
            title="percentile",
            axis=alt.Axis(labelAngle=0),
            scale=alt.Scale(type="point", padding=0.4),
        ),
        y=alt.Y("value:Q", **axis),
        color=chart.colour(SERIES, "series"),
        tooltip=["series:N", "name:N", chart.latency_tooltip("value", "time")],
    )
    shape = alt.Shape(
        "series:N", legend=None, scale=alt.Scale(domain=list(SERIES), range=["circle", "square"])
    )
    spec = chart.finish(
        alt.layer(
            base.mark_line(strokeWidth=2),
            base.mark_point(filled=True, size=60, opacity=1).encode(shape=shape),
        ),
        240,
    )
    ratio = (measured["p99"] or float("nan")) / lag["p99"] if lag.get("p99") else None
    words = "; ".join(
        f"{r['series']} {r['name']} {format.duration(r['value'])}" for _, r in frame.iterrows()
    )
    return Figure(
        view.key("send-lag"),
        _title(view, ratio),
        "Send delay: how much later than scheduled our own generator sent. It is part of every "
        "response time. Where the two lines come near each other, the tail is our own.",
        (Panel(spec, f"Quantiles of response time and of our send delay. {words}.", height=240),),
        legend=(Key(SERIES[0], 0, "circle"), Key(SERIES[1], 1, "square")),
    )


def _title(view: View, ratio: float | None) -> str:
    """Never call the generator harmless where a finding says that it was late."""
    late = any(it.code.startswith("generator") for it in view.analysis.findings)
    if ratio is None or math.isnan(ratio):
        return "Our own send lag beside the response time"
    if ratio >= 5 and late:
        return f"At the p99 our send delay is {format.share(1 / ratio)} of the response time"
    if ratio >= 5:
        return (
            f"Our own sending hardly matters: at the p99 it is {format.times(ratio)} shorter "
            "than the response time"
        )
    return (
        "Our own sending is part of the tail: the p99 response time is only "
        f"{format.times(ratio)} our send delay"
    )
