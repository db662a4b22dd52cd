"""Latency over time, with the slowest replies and the failures where they happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import pandas as pd

from unruly.html import chart, format
from unruly.html.document import Figure, Key, Panel
from unruly.html.frames import merged_bins, named_ops, thinned_points, with_gaps

if TYPE_CHECKING:
    from unruly.html.view import View

SCALES = ((86_400e9, "days"), (3_600e9, "hours"), (60e9, "minutes"))
MOST_BINS = 150
MOST_MARKS = 40
"""So many events or changes; beyond, the longest."""


def timeline(view: View) -> Figure | None:
    """Return latency against time; None when nothing was measured."""
    bins = named_ops(view.analysis.timeline)
    bins = bins[bins["op"].isin(view.drawn_ops or bins["op"].unique())] if len(bins) else bins
    if bins.empty or not bins["p50"].notna().any():
        return None
    bins = merged_bins(bins, MOST_BINS)
    start = float(bins["started_ns"].min())
    scale, unit = time_unit(float(bins["ended_ns"].max()) - start)
    bins = bins.assign(time=((bins["started_ns"] + bins["ended_ns"]) / 2 - start) / scale)
    slow = _slowest(view, start, scale)
    latencies = pd.concat([bins["p50"], bins["p99"], slow["response"]])
    low, high = chart.span_of(latencies)
    marks = _marks(view, start, scale)
    spec = chart.finish(
        _layers(view, bins, slow, (low, high), f"time since the start ({unit})", marks), 320
    )
    title, peak = _title(bins, slow, unit)
    failed = int(bins["failed"].sum())
    caption = (
        "Response time. Thick lines: the median of each stretch of time; thin lines: its p99; "
        "dots: the slowest single replies. Look for stretches in which dots stand close together: "
        "stalls come in bursts."
    )
    if len(marks):
        kinds = ", ".join(dict.fromkeys(marks["what"]))
        caption += f" Upright lines: {kinds}."
    if failed:
        caption += " Crosses on the upper edge: replies that failed or never came."
    alt_text = f"Response time over {unit}: medians, 99th percentiles and slowest replies. {peak}"
    keys = (*chart.legend(view.ops),) if len(view.ops) > 1 else ()
    return Figure(
        view.key("timeline"),
        title,
        caption,
        (Panel(spec, alt_text, height=320),),
        legend=tuple(k for k in keys if k.label in view.drawn_ops)
        + ((Key("failed", -1, "cross"),) if failed else ()),
    )


def time_unit(span_ns: float) -> tuple[float, str]:
    """Return the unit in which so long a time is easiest to read, and its name."""
    for scale, unit in SCALES:
        if span_ns >= 2 * scale:
            return scale, unit
    return 1e9, "s"


def _slowest(view: View, start: float, scale: float) -> pd.DataFrame:
    slow = view.analysis.outliers
    empty = pd.DataFrame({"time": [], "response": [], "op": [], "pair": []})
    if slow.empty:
        return empty
    slow = slow[slow["response"].notna() & slow["op"].isin(view.drawn_ops)]
    if slow.empty:
        return empty
    slow = thinned_points(slow, view.points, "response")
    pair = [f"{s} → {r}" for s, r in zip(slow["sender"], slow["receiver"], strict=True)]
    return slow.assign(time=(slow["intended_ns"] - start) / scale, pair=pair)


def _marks(view: View, start: float, scale: float) -> pd.DataFrame:
    """Events, where levels settled, changes of the p99: what, which, and when."""
    found = view.analysis.over_time
    columns = ["what", "which", "time"]
    if found is None:
        return pd.DataFrame(columns=columns)
    happened = [
        (it["kind"], it["detail"] or it["process"], it["started_ns"])
        for it in found.events.head(MOST_MARKS).to_dict("records")
    ]
    moved = [
        ("p99 moved", row.op, at)
        for row in found.rows
        if row.op in view.drawn_ops
        for at in row.changed_ns
    ]
    settled = [
        ("settled", it.op, it.settled_ns)
        for it in found.warm_ups
        if it.op in view.drawn_ops and (it.settled_ns or 0) > it.began_ns
    ]
    told = [*happened, *settled[:MOST_MARKS], *moved[:MOST_MARKS]]
    marks = pd.DataFrame(told, columns=columns)
    # what came before the first request was due, a warm-up's, is not in the picture
    marks = marks[marks["time"] >= start]
    return marks.assign(time=(marks["time"] - start) / scale)


def _layers(
    view: View,
    bins: pd.DataFrame,
    slow: pd.DataFrame,
    ends: tuple[float, float],
    x_title: str,
    marks: pd.DataFrame,
) -> Any:
    axis = chart.latency_axis("response time", *ends)
    x = alt.X("time:Q", title=x_title, scale=alt.Scale(nice=False), axis=alt.Axis(tickCount=8))
    colour = chart.colour(view.ops)
    step = (bins["time"].max() - bins["time"].min()) / 25 if len(bins) > 1 else 1.0
    lines = pd.concat(
        [with_gaps(g, "time", step).assign(op=op) for op, g in bins.groupby("op", observed=True)]
    )
    line_data = chart.records(lines, ["time", "op", "p50", "p99"])
    tips = [
        alt.Tooltip("op:N", title="workload"),
        chart.latency_tooltip("response", "response"),
        alt.Tooltip("pair:N", title="from → to"),
        alt.Tooltip("time:Q", title=x_title),
    ]
    layers: list[alt.Chart] = []
    if len(marks):
        layers.append(
            alt.Chart(chart.records(marks, ["time", "what", "which"]))
            .mark_rule(strokeDash=[3, 3], opacity=0.8, style="zero")
            .encode(x=x, tooltip=["what:N", "which:N", alt.Tooltip("time:Q", title=x_title)])
        )
    if len(slow):
        layers.append(
            alt.Chart(chart.records(slow, ["time", "response", "op", "pair"]))
            .mark_point(filled=True, size=14, opacity=0.45)
            .encode(x=x, y=alt.Y("response:Q", **axis), color=colour, tooltip=tips)
        )
    for field, width, opacity in (("p99", 1.0, 0.7), ("p50", 2.4, 1.0)):
        layers.append(
            alt.Chart(line_data)
            .mark_line(strokeWidth=width, opacity=opacity, clip=True)
            .encode(x=x, y=alt.Y(f"{field}:Q", **axis), color=colour)
        )
    failed = bins[bins["failed"] > 0]
    if len(failed):
        layers.append(
            alt.Chart(chart.records(failed, ["time", "failed", "op"]))
            .mark_point(shape="cross", size=18, filled=True, style="failed", angle=45, opacity=0.7)
            .encode(x=x, y=alt.value(4), tooltip=["op:N", "failed:Q"])
        )
    return alt.layer(*layers)


def _title(bins: pd.DataFrame, slow: pd.DataFrame, unit: str) -> tuple[str, str]:
    medians, tails = chart.span_of(bins["p50"]), chart.span_of(bins["p99"])
    moved = tails[1] / tails[0]
    base = (
        f"the p99 of a moment ranges from {format.duration(tails[0])} to "
        f"{format.duration(tails[1])}"
    )
    if len(slow):
        worst = slow.sort_values("response").to_dict("records")[-1]
        peak = (
            f"The slowest reply took {format.duration(worst['response'])}, "
            f"{format.significant(float(worst['time']))} {unit} after the start."
        )
    else:
        peak = "No single reply stands out."
    steady = moved < 3 and medians[1] / medians[0] < 2
    word = "Latency was steady" if steady else "Latency moved with time"
    return f"{word}: {base}. {peak}", peak
