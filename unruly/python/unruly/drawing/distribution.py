"""The whole distribution: the share of replies above each latency, with the percentiles marked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel, Spec
from unruly.drawing.frames import exceedances, named_ops, quantile
from unruly.drawing.view import LATENCIES, View

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARES = {0.5: "p50", 0.1: "p90", 0.01: "p99", 1e-3: "p99.9", 1e-4: "p99.99", 1e-5: "p99.999"}


def curves_by_op(view: View) -> pd.DataFrame:
    """Return exceedance curves of each latency and drawn workload, cells added up."""
    frame = named_ops(view.analysis.distribution)
    if frame.empty:
        return exceedances(frame, ["latency", "op"])
    if view.drawn_ops:
        frame = frame[frame["op"].isin(view.drawn_ops)]
    return exceedances(frame, ["latency", "op"])


def distribution(view: View) -> Figure | None:
    """Return the exceedance curves of response and service time, side by side."""
    curves = curves_by_op(view)
    if curves.empty:
        return None
    ends = chart.span_of(curves["latency_ns"])
    least = float(curves["share"].min())
    panels = []
    for latency in LATENCIES:
        own = curves[curves["latency"] == latency]
        if own.empty:
            continue
        spec = curve_chart(own, "op", view.ops or [format.DASH], f"{latency} time", ends, least)
        panels.append(Panel(spec, _alt(own, latency), f"{latency.capitalize()} time", 320))
    return Figure(
        view.key("distribution"),
        _title(view, curves),
        READING,
        tuple(panels),
        legend=tuple(k for k in chart.legend(view.ops) if k.label in view.drawn_ops)
        if len(view.drawn_ops) > 1
        else (),
        narrow=True,
    )


READING = (
    "Read down to a percentile, then across: at “p99” one reply in 100 takes longer than where the "
    "curve stands. A curve that falls steeply is predictable; one that runs to the right is "
    "unruly. Response time counts from when the request was due, service time from when it was "
    "sent. Failed replies count as slower than all others."
)


def curve_chart(
    curves: pd.DataFrame,
    field: str,
    domain: Sequence[str],
    name: str,
    ends: tuple[float, float],
    least: float,
    height: int = 320,
    *,
    of: str = "replies",
    step: Literal["step-before", "step-after"] = "step-before",
) -> Spec:
    """Return exceedance curves on two log axes; the vertical one is marked by percentiles.

    `of` names the counted things. `step` says where a curve falls between two of its points.
    """
    values = [share for share in SHARES if share >= least] or [0.5]
    labels = " : ".join(f"datum.value == {share} ? '{SHARES[share]}'" for share in values) + " : ''"
    y = alt.Y(
        "share:Q",
        title=f"share of {of} above (log scale)",
        scale=alt.Scale(type="log", domain=[min(least, 0.3), 1], nice=False, clamp=True),
        axis=alt.Axis(values=values, labelExpr=labels),
    )
    lines = (
        alt.Chart(chart.records(curves, ["latency_ns", "share", field]))
        .mark_line(interpolate=step, strokeWidth=2, clip=True)
        .encode(
            x=alt.X("latency_ns:Q", **chart.latency_axis(name, *ends, most=6)),
            y=y,
            color=chart.colour(domain, field),
            tooltip=[
                alt.Tooltip(f"{field}:N"),
                chart.latency_tooltip("latency_ns", name),
                alt.Tooltip("share:Q", title="share above", format=".3~%"),
            ],
        )
    )
    marks = _marks(curves, field, values)
    points = (
        alt.Chart(chart.records(marks, ["latency_ns", "share", field]))
        .mark_point(filled=True, size=34, opacity=1)
        .encode(x="latency_ns:Q", y="share:Q", color=chart.colour(domain, field))
    )
    return chart.finish(alt.layer(lines, points), height)


def _marks(curves: pd.DataFrame, field: str, shares: list[float]) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for name, curve in curves.groupby(field, observed=True):
        for share in shares:
            at = quantile(curve, share)
            if not math.isnan(at):  # not NaN: the curve reaches that far
                rows.append({"latency_ns": at, "share": share, field: name})
    return pd.DataFrame(rows, columns=["latency_ns", "share", field])


def _alt(curves: pd.DataFrame, latency: str) -> str:
    parts = []
    for op, curve in curves.groupby("op", observed=True):
        median, tail = quantile(curve, 0.5), quantile(curve, 0.01)
        parts.append(f"{op}: median {format.duration(median)}, p99 {format.duration(tail)}")
    return f"Share of replies above each {latency} time, by workload. " + "; ".join(parts) + "."


def _title(view: View, curves: pd.DataFrame) -> str:
    response = curves[curves["latency"] == "response"]
    tails = {str(op): quantile(c, 0.01) for op, c in response.groupby("op", observed=True)}
    tails = {op: value for op, value in tails.items() if not math.isnan(value)}
    if not tails:
        if view.failed > 0.01 * view.rows:
            return f"{format.share(view.failed / view.rows)} failed: the curves end at that share"
        return "Too few replies to see the slowest 1 %"
    slowest = max(tails, key=lambda op: tails[op])
    if len(tails) == 1:
        curve = response[response["op"] == slowest]
        return (
            f"Half of the replies take at most {format.duration(quantile(curve, 0.5))}, "
            f"1 in 100 more than {format.duration(tails[slowest])}"
        )
    fastest = min(tails, key=lambda op: tails[op])
    if tails[fastest] == tails[slowest]:
        return (
            "All workloads have the same tail: 1 reply in 100 takes more than "
            f"{format.duration(tails[slowest])}"
        )
    return (
        f"{format.quoted(slowest)} has the longest tail: 1 reply in 100 takes more than "
        f"{format.duration(tails[slowest])}, against {format.duration(tails[fastest])} for "
        f"{format.quoted(fastest)}"
    )


def workloads(view: View) -> Figure | None:
    """Return the percentiles of each workload, response above service time."""
    rows = [c for latency in LATENCIES for c in view.by_op(latency) if c.p50 is not None]
    if not rows:
        return None
    points = pd.DataFrame(
        [
            {
                "op": c.op,
                "latency": c.latency,
                "name": name,
                "value": value,
                "p50": c.p50,
                "end": last,
            }
            for c in rows
            for last in [next(v for v in (c.p99_9, c.p99, c.p90, c.p50) if v is not None)]
            for name, value in (("p50", c.p50), ("p90", c.p90), ("p99", c.p99), ("p99.9", c.p99_9))
            if value is not None
        ]
    )
    ends = chart.span_of(points["value"])
    order = list(dict.fromkeys(c.op for c in rows))[:30]
    panels = []
    for latency in LATENCIES:
        own = points[(points["latency"] == latency) & points["op"].isin(order)]
        if len(own):
            spec = _dots(own, order, view.ops or order, f"{latency} time", ends)
            panels.append(
                Panel(
                    spec,
                    _dots_alt(own, latency),
                    f"{latency.capitalize()} time",
                    70 + 30 * len(order),
                )
            )
    return Figure(
        view.key("workloads"),
        _workloads_title(view),
        "Each row runs from the median to the p99.9 (or the last percentile that can be said): "
        "circle p50, square p90, triangle p99, diamond p99.9. Long rows are unpredictable.",
        tuple(panels),
        legend=SHAPES,
        narrow=True,
    )


SHAPES = (
    Key("p50", -2, "circle"),
    Key("p90", -2, "square"),
    Key("p99", -2, "triangle"),
    Key("p99.9", -2, "diamond"),
)


def _dots(
    own: pd.DataFrame,
    order: list[str],
    domain: Sequence[str],
    name: str,
    ends: tuple[float, float],
) -> Spec:
    axis = chart.latency_axis(name, *ends, most=6)
    data = chart.records(own, ["op", "name", "value", "p50", "end"])
    y = alt.Y("op:N", sort=order, title="workload", axis=alt.Axis(labelLimit=110))
    rule = (
        alt.Chart(data)
        .mark_rule(strokeWidth=2, opacity=0.55)
        .encode(x=alt.X("p50:Q", **axis), x2="end:Q", y=y, color=chart.colour(domain))
    )
    shape = alt.Shape(
        "name:N",
        legend=None,
        scale=alt.Scale(
            domain=["p50", "p90", "p99", "p99.9"],
            range=["circle", "square", "triangle-up", "diamond"],
        ),
    )
    dots = (
        alt.Chart(data)
        .mark_point(filled=True, size=70, opacity=1)
        .encode(
            x=alt.X("value:Q", **axis),
            y=y,
            color=chart.colour(domain),
            shape=shape,
            tooltip=[
                alt.Tooltip("op:N", title="workload"),
                alt.Tooltip("name:N", title="percentile"),
                chart.latency_tooltip("value", name),
            ],
        )
    )
    return chart.finish(alt.layer(rule, dots), 24 + 30 * len(order))


def _dots_alt(own: pd.DataFrame, latency: str) -> str:
    parts = []
    for op, rows in own.groupby("op", sort=False, observed=True):
        values = ", ".join(f"{r['name']} {format.duration(r['value'])}" for _, r in rows.iterrows())
        parts.append(f"{op}: {values}")
    return f"Percentiles of {latency} time by workload. " + "; ".join(parts) + "."


def _workloads_title(view: View) -> str:
    pairs = [
        (r.p99 / s.p99, r)
        for r in view.by_op("response")
        for s in view.by_op("service")
        if r.op == s.op and r.p99 and s.p99
    ]
    if not pairs:
        return "From the median to the tail of each workload"
    ratio, worst = max(pairs, key=lambda pair: pair[0])
    if ratio < 1.1:
        return "Response and service time agree at the p99: requests left on schedule"
    return (
        f"Requests waited before they were sent: the p99 of {format.quoted(worst.op)} is "
        f"{format.times(ratio)} as long from when it was due as from when it was sent"
    )
