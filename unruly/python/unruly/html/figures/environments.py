"""Several runs on one page: overlaid distributions, slow nodes and correlations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.distribution import READING, curve_chart
from unruly.drawing.document import Figure, Panel, Spec
from unruly.drawing.frames import exceedances, named_ops, quantile
from unruly.drawing.view import LATENCIES, View

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_OPS = 6
MOST_METRICS = 12


def overlaid(views: Sequence[View]) -> Figure | None:
    """Return the distribution of each environment, all workloads together, in one frame."""
    labels = [view.label for view in views]
    frames = [
        named_ops(v.analysis.distribution).assign(place=v.label)
        for v in views
        if not v.analysis.distribution.empty
    ]
    if not frames:
        return None
    curves = exceedances(pd.concat(frames, ignore_index=True), ["latency", "place"])
    ends, least = chart.span_of(curves["latency_ns"]), float(curves["share"].min())
    panels = []
    for latency in LATENCIES:
        own = curves[curves["latency"] == latency]
        parts = [
            f"{p}: median {format.duration(quantile(c, 0.5))}, p99 "
            f"{format.duration(quantile(c, 0.01))}"
            for p, c in own.groupby("place", sort=False)
        ]
        panels.append(
            Panel(
                curve_chart(own, "place", labels, f"{latency} time", ends, least),
                f"Share of replies above each {latency} time, by run. {'; '.join(parts)}.",
                f"{latency.capitalize()} time",
                320,
            )
        )
    return Figure(
        "overlaid",
        _overlaid_title(views),
        "All workloads together. " + READING,
        tuple(panels),
        legend=chart.legend(labels),
        narrow=True,
    )


def _overlaid_title(views: Sequence[View]) -> str:
    """Put the measured p99s side by side; whether they differ is decided elsewhere."""
    firsts = [(view.label, view.first_of_all("response")) for view in views]
    tails = [(label, c.p99) for label, c in firsts if c is not None and c.p99 is not None]
    if len(tails) < 2:
        return "All requests of each run in one picture"
    tails.sort(key=lambda it: -it[1])
    told = [f"{format.duration(p99)} in {label}" for label, p99 in tails]
    return f"1 reply in 100 took more than {format.listing(told, 4)}"


def by_workload(views: Sequence[View]) -> Figure | None:
    """Return p50 to p99 of each environment, one panel for each workload."""
    labels = [view.label for view in views]
    rows = [
        {"place": v.label, "op": c.op, "p50": c.p50, "p99": c.p99}
        for v in views
        for c in v.by_op("response")
        if c.p50 is not None and c.p99 is not None
    ]
    if not rows:
        return None
    frame = pd.DataFrame(rows)
    ends = chart.span_of(pd.concat([frame["p50"], frame["p99"]]))
    shared = frame.groupby("op")["place"].nunique()
    both = set(shared.index[shared > 1])  # one bar has nothing to be compared with
    ops = [op for op in views[0].ops if op in both][:MOST_OPS]
    if not ops:
        return None
    panels = []
    for op in ops:
        own = frame[frame["op"] == op]
        words = "; ".join(
            f"{r['place']} {format.duration(r['p50'])} to {format.duration(r['p99'])}"
            for _, r in own.iterrows()
        )
        panels.append(
            Panel(
                _ranges(own, labels, ends),
                f"Response time of {op}, median to p99: {words}.",
                format.capital(str(op)),
                40 + 26 * len(labels),
            )
        )
    held = frame[frame["op"].isin(ops)]
    spread = {op: float(g["p99"].max() / g["p99"].min()) for op, g in held.groupby("op")}
    most = max(spread, key=lambda op: spread[op])
    title = (
        f"The measured p99 differs most for {format.quoted(str(most))}, by a factor of "
        f"{format.significant(spread[most])}"
    )
    return Figure(
        "environment-workloads",
        title,
        "Response time of each workload (of the first cell). Circle: median; triangle: p99.",
        tuple(panels),
        legend=chart.legend(labels),
        narrow=True,
    )


def _ranges(own: pd.DataFrame, labels: list[str], ends: tuple[float, float]) -> Spec:
    axis = chart.latency_axis("response time", *ends, most=5)
    base = alt.Chart(chart.records(own, ["place", "p50", "p99"])).encode(
        y=alt.Y("place:N", sort=labels, title=None, axis=alt.Axis(labelLimit=90)),
        color=chart.colour(labels, "place"),
        tooltip=[
            "place:N",
            chart.latency_tooltip("p50", "p50"),
            chart.latency_tooltip("p99", "p99"),
        ],
    )
    return chart.finish(
        alt.layer(
            base.mark_rule(strokeWidth=2, opacity=0.6).encode(x=alt.X("p50:Q", **axis), x2="p99:Q"),
            base.mark_point(filled=True, size=50, opacity=1).encode(x=alt.X("p50:Q", **axis)),
            base.mark_point(filled=True, size=50, opacity=1, shape="triangle-up").encode(
                x=alt.X("p99:Q", **axis)
            ),
        ),
        20 + 26 * len(labels),
    )


def slow_everywhere(views: Sequence[View]) -> Figure | None:
    """Return how many nodes are slow, and how alike observers see it, by run."""
    views = [view for view in views if view.observers > 1 and view.receivers > 1]
    labels = [view.label for view in views]
    counts: list[dict[str, Any]] = []
    alike: list[dict[str, Any]] = []
    for v in views:
        slow = v.analysis.slow_nodes
        total = slow.histogram["count"].sum() if len(slow.histogram) else 0
        if total:
            by = slow.histogram.groupby("slow_nodes")["count"].sum()
            counts += [
                {"place": v.label, "value": k, "share": n / total} for k, n in by.to_dict().items()
            ]
        if len(slow.jaccard):
            steps = (slow.jaccard["jaccard"] * 5).round().astype(int).clip(0, 5) / 5
            alike += [
                {"place": v.label, "value": k, "share": s}
                for k, s in steps.value_counts(normalize=True).sort_index().to_dict().items()
            ]
    panels = []
    for rows, x_title, y_title, name in (
        (counts, "slow nodes in one view", "share of views", "How many nodes are slow"),
        (
            alike,
            "overlap of two observers (1: the same nodes)",
            "share of pairs",
            "How alike observers see it",
        ),
    ):
        if len({row["place"] for row in rows}) > 1:
            frame = pd.DataFrame(rows)
            words = "; ".join(
                f"{r['place']} {r['value']}: {format.share(r['share'])}" for r in rows[:30]
            )
            panels.append(
                Panel(_grouped(frame, labels, x_title, y_title), f"{name}: {words}.", name, 220)
            )
    if not panels:
        return None
    means = {v.label: v.analysis.slow_nodes.jaccard_mean for v in views}
    words_of = [f"{label} {format.coefficient(m)}" for label, m in means.items() if m is not None]
    title = (
        "Do observers agree on who is slow? Their mean overlap: " + "; ".join(words_of)
        if words_of
        else "No run has two observers that both see a slow node"
    )
    return Figure(
        "environment-slow",
        title,
        "As in the histograms of each run below, side by side.",
        tuple(panels),
        legend=chart.legend(labels),
        narrow=True,
    )


def _grouped(frame: pd.DataFrame, labels: list[str], x_title: str, y_title: str) -> Spec:
    bars = (
        alt.Chart(chart.records(frame, ["place", "value", "share"]))
        .mark_bar()
        .encode(
            x=alt.X("value:O", title=x_title, axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("place:N", sort=labels),
            y=alt.Y(
                "share:Q",
                title=f"{y_title} (%)",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format=".0%", tickCount=5),
            ),
            color=chart.colour(labels, "place"),
            tooltip=[
                "place:N",
                alt.Tooltip("value:O", title=x_title),
                alt.Tooltip("share:Q", format=".3~%"),
            ],
        )
    )
    return chart.finish(bars, 220)


def correlated_everywhere(views: Sequence[View]) -> Figure | None:
    """Return the Pearson correlation of the strongest metrics, a bar for each environment."""
    labels = [view.label for view in views]
    rows = [
        {
            "metric": f"{r.metric.replace('_', ' ')} ({r.scope})",
            "place": v.label,
            "r": r.pearson.estimate,
            "low": r.pearson.low,
            "high": r.pearson.high,
        }
        for v in views
        for r in v.analysis.correlations.rows
        if r.pearson.estimate is not None
    ]
    if not rows:
        return None
    frame = pd.DataFrame(rows)
    shared = frame.groupby("metric")["place"].nunique()
    frame = frame[frame["metric"].isin(shared.index[shared > 1])]
    if frame.empty:
        return None
    strength = frame.assign(size=frame["r"].abs()).groupby("metric")["size"].max()
    order = list(strength.sort_values(ascending=False).index[:MOST_METRICS])
    frame = frame[frame["metric"].isin(order)]
    height = 20 + len(order) * (10 + 9 * len(labels))
    axis: dict[str, Any] = {
        "scale": alt.Scale(domain=[-1, 1]),
        "title": "Pearson correlation with service time (no unit)",
        "axis": alt.Axis(values=[-1, -0.5, 0, 0.5, 1], format=".1f"),
    }
    base = alt.Chart(chart.records(frame, ["metric", "place", "r", "low", "high"])).encode(
        y=alt.Y("metric:N", sort=order, title=None, axis=alt.Axis(labelLimit=150)),
        yOffset=alt.YOffset("place:N", sort=labels),
        color=chart.colour(labels, "place"),
    )
    bars = base.mark_bar(opacity=0.75).encode(
        x=alt.X("r:Q", **axis), tooltip=["metric:N", "place:N", alt.Tooltip("r:Q", format=".2f")]
    )
    rules = base.mark_rule(strokeWidth=1.4).encode(x=alt.X("low:Q", **axis), x2="high:Q")
    words = "; ".join(
        f"{r['place']}, {r['metric']}: {format.coefficient(r['r'])}"
        for _, r in frame.head(12).iterrows()
    )
    return Figure(
        "environment-correlations",
        f"Over all runs {order[0]} moves with latency most",
        "Pearson with the logarithm of the latency, and its interval, as in the paper's "
        "sixth figure.",
        (
            Panel(
                chart.finish(alt.layer(bars, rules), height),
                f"Correlations: {words}.",
                height=height,
            ),
        ),
        legend=chart.legend(labels),
    )
