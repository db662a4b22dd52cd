"""Latency over time, with the slowest replies and the failures where they happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel
from unruly.drawing.frames import merged_bins, named_ops, thinned_points, with_gaps
from unruly.drawing.since import Since
from unruly.topics.over_time.statistics import over_time_of

if TYPE_CHECKING:
    from unruly.drawing.view import View

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
    since = Since.of(view, float(bins["started_ns"].min()), float(bins["ended_ns"].max()))
    bins = bins.assign(time=since.place((bins["started_ns"] + bins["ended_ns"]) / 2))
    slow = _slowest(view, since)
    latencies = pd.concat([bins["p50"], bins["p99"], slow["response"]])
    low, high = chart.span_of(latencies)
    marks = _marks(view, since)
    spec = chart.finish(_layers(view, bins, slow, (low, high), since, marks), 320)
    peak = _peak(view, slow, since)
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
    alt_text = (
        f"Response time over {since.unit}: medians, 99th percentiles and slowest replies. {peak}"
    )
    keys = (*chart.legend(view.ops),) if len(view.ops) > 1 else ()
    return Figure(
        view.key("timeline"),
        _title(view, peak),
        caption,
        (Panel(spec, alt_text, height=320),),
        legend=tuple(k for k in keys if k.label in view.drawn_ops)
        + ((Key("failed", -1, "cross"),) if failed else ()),
    )


def _slowest(view: View, since: Since) -> pd.DataFrame:
    slow = view.analysis.outliers
    empty = pd.DataFrame({"time": [], "response": [], "op": [], "pair": []})
    if slow.empty:
        return empty
    slow = slow[slow["response"].notna() & slow["op"].isin(view.drawn_ops)]
    if slow.empty:
        return empty
    slow = thinned_points(slow, view.points, "response")
    pair = [f"{s} → {r}" for s, r in zip(slow["sender"], slow["receiver"], strict=True)]
    return slow.assign(time=since.place(slow["intended_ns"]), pair=pair)


def _marks(view: View, since: Since) -> pd.DataFrame:
    """Events, where levels settled, changes of the p99: what, which, and when."""
    found = over_time_of(view.analysis)
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
    # marks before the first measured request, or after the last one, are outside the chart
    marks = marks[marks["time"].between(since.start_ns, since.end_ns)]
    return marks.assign(time=since.place(marks["time"]))


def _layers(
    view: View,
    bins: pd.DataFrame,
    slow: pd.DataFrame,
    ends: tuple[float, float],
    since: Since,
    marks: pd.DataFrame,
) -> Any:
    axis = chart.latency_axis("response time", *ends)
    x = since.x()
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
        since.tooltip,
    ]
    layers: list[alt.Chart] = []
    if len(marks):
        layers.append(
            alt.Chart(chart.records(marks, ["time", "what", "which"]))
            .mark_rule(strokeDash=[3, 3], opacity=0.8, style="zero")
            .encode(x=x, tooltip=["what:N", "which:N", since.tooltip])
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


def _title(view: View, peak: str) -> str:
    """Return the title: the finding about a moved p99 if there is one, and the slowest reply."""
    moved = next((it for it in view.analysis.findings if it.code == "p99-moved"), None)
    return f"{format.capital(moved.title)}. {peak}" if moved else peak


def _peak(view: View, slow: pd.DataFrame, since: Since) -> str:
    if view.analysis.run.keeps_bins_alone:
        return "Medians and tails over the run: histograms have no single replies"
    if slow.empty:
        return "Medians and tails over the run: no single reply stands out"
    worst = slow.sort_values("response").to_dict("records")[-1]
    took = format.duration(worst["response"])
    return f"The slowest reply took {took}, {since.when(float(worst['time']))}"
