"""Group requests: by group size, and what it costs to wait for the k-th of n replies."""

from __future__ import annotations

import math

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.distribution import READING, curve_chart
from unruly.drawing.document import Figure, Panel
from unruly.drawing.frames import exceedances, named_ops, quantile
from unruly.drawing.view import LATENCIES, View

QUANTILES = (("p50", "p50"), ("p99", "p99"), ("p99_9", "p99.9"))
MOST_PANELS = 6


def group_sizes(view: View) -> Figure | None:
    """Return the distribution of group requests (all replies, majority, first) by group size."""
    frame = named_ops(view.analysis.group_distribution)
    if frame.empty:
        return None
    sizes = sorted({int(v) for v in frame["size"]})
    domain = [_of(size) for size in sizes][: chart.MOST_COLOURS]
    levels = {
        "first reply": frame["k"] == 1,
        "majority of replies": frame["k"] == frame["size"] // 2 + 1,
        "all replies": frame["k"] == frame["size"],
    }
    curves = []
    for level, chosen in levels.items():
        part = frame[chosen]
        curve = exceedances(part.assign(group=[_of(int(v)) for v in part["size"]]), ["group"])
        curves.append(curve.assign(level=level))
    joined = pd.concat(curves, ignore_index=True)
    joined = joined[joined["group"].isin(domain)]
    if joined.empty:
        return None
    ends, least = chart.span_of(joined["latency_ns"]), float(joined["share"].min())
    panels = tuple(
        Panel(
            curve_chart(own, "group", domain, "response time", ends, least, 280),
            _sizes_alt(own, str(level)),
            format.capital(f"{level}, response time"),
            280,
        )
        for level, own in joined.groupby("level", sort=False)
    )
    keys = chart.legend(domain) if len(domain) > 1 else ()
    return Figure(
        view.key("group-size"),
        _sizes_title(joined, domain),
        "Group requests of all workloads together. " + READING,
        panels,
        legend=keys,
        narrow=True,
    )


def _of(size: int) -> str:
    return f"group of {size}"


def _sizes_alt(curves: pd.DataFrame, level: str) -> str:
    parts = [
        f"{group}: median {format.duration(quantile(c, 0.5))}, p99 "
        f"{format.duration(quantile(c, 0.01))}"
        for group, c in curves.groupby("group", sort=False)
    ]
    return f"Time until {level} have come. " + "; ".join(parts) + "."


def _sizes_title(curves: pd.DataFrame, domain: list[str]) -> str:
    every = curves[curves["level"] == "all replies"]
    tails = {g: quantile(every[every["group"] == g], 0.01) for g in domain}
    tails = {g: v for g, v in tails.items() if not math.isnan(v)}
    if len(tails) < 2:
        tail = next(iter(tails.values()), None)
        return f"To have all replies of a {domain[0]} takes {format.duration(tail)} at the p99"
    first, last = next(iter(tails)), list(tails)[-1]
    ratio = tails[last] / tails[first]
    word = "slower than" if ratio > 1.1 else "faster than" if ratio < 0.9 else "about as fast as"
    return (
        f"A {last} is {word} a {first}: all replies have come after "
        f"{format.duration(tails[last])}, against {format.duration(tails[first])}, at the p99"
    )


def kth_of_n(view: View) -> Figure | None:
    """Return latency against the number of replies waited for, a panel for each size."""
    rows = [
        {"op": g.op, "size": g.size, "k": g.k, "name": name, "value": getattr(g, field)}
        for g in view.analysis.groups
        if g.op in view.ops and g.size > 1
        for field, name in QUANTILES
        if getattr(g, field) is not None
    ]
    if not rows:
        return None
    points = pd.DataFrame(rows)
    points = points.groupby(["op", "size", "k", "name"], as_index=False).agg({"value": "max"})
    sizes = sorted(points["size"].unique())[-MOST_PANELS:]
    ends = chart.span_of(points["value"])
    panels = []
    for size in sizes:
        own = points[points["size"] == size]
        panels.append(
            Panel(
                _kth(view, own, int(size), ends),
                _kth_alt(own, int(size)),
                f"Response time, group of {size}",
                260,
            )
        )
    return Figure(
        view.key("kth"),
        _kth_title(points),
        "Time from when a group request was due until the k-th of its n replies had come. Solid: "
        "median; dashed: p99; dotted: p99.9. A sharp rise at the last k means that one member "
        "holds up all; a quorum avoids it.",
        tuple(panels),
        legend=tuple(k for k in chart.legend(view.ops) if k.label in view.drawn_ops)
        if len(view.ops) > 1
        else (),
        narrow=True,
    )


def _kth(view: View, own: pd.DataFrame, size: int, ends: tuple[float, float]) -> dict[str, object]:
    dash = alt.StrokeDash(
        "name:N",
        legend=None,
        scale=alt.Scale(domain=["p50", "p99", "p99.9"], range=[[1, 0], [6, 3], [2, 3]]),
    )
    base = alt.Chart(chart.records(own, ["op", "k", "name", "value"])).encode(
        x=alt.X(
            "k:Q",
            title=f"replies waited for (of {size})",
            scale=alt.Scale(domain=[1, size], padding=10, nice=False),
            axis=alt.Axis(values=list(range(1, size + 1)), format="d"),
        ),
        y=alt.Y("value:Q", **chart.latency_axis("response time", *ends, most=7)),
        color=chart.colour(view.ops),
        detail="name:N",
        tooltip=[
            alt.Tooltip("op:N", title="workload"),
            alt.Tooltip("name:N", title="percentile"),
            alt.Tooltip("k:Q", title="k"),
            chart.latency_tooltip("value", "response"),
        ],
    )
    return chart.finish(
        alt.layer(
            base.mark_line(strokeWidth=1.8).encode(strokeDash=dash),
            base.mark_point(filled=True, size=22, opacity=1),
        ),
        260,
    )


def _kth_alt(own: pd.DataFrame, size: int) -> str:
    tails = own[own["name"] == "p99"]
    parts = [
        f"{op}: "
        + ", ".join(
            f"{int(r['k'])} of {size} {format.duration(r['value'])}" for _, r in rows.iterrows()
        )
        for op, rows in tails.groupby("op", sort=False)
    ]
    return "Response time at the p99 by number of replies waited for. " + "; ".join(parts) + "."


def _kth_title(points: pd.DataFrame) -> str:
    tails = points[(points["name"] == "p99") & (points["size"] == points["size"].max())]
    best: tuple[float, str] | None = None
    for op, rows in tails.groupby("op", sort=False):
        size = int(rows["size"].iloc[0])
        at = dict(zip(rows["k"], rows["value"], strict=True))
        if size in at and 1 in at:
            costs = at[size] / at[1]
            if best is None or costs > best[0]:
                best = (costs, f"{format.quoted(str(op))}, p99, groups of {size}")
    if best is None:
        return "What waiting for one more reply costs"
    return f"Waiting for the last reply costs {format.times(best[0])} the first ({best[1]})"


def sizes_by_latency(view: View) -> dict[str, pd.DataFrame]:
    """Return the copies' percentiles by group size, a frame for each latency."""
    frame = view.analysis.by.get("by_size", pd.DataFrame())
    if frame.empty:
        return {}
    return {latency: frame[frame["latency"] == latency] for latency in LATENCIES}
