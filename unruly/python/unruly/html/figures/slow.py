"""Slow nodes: when, how many, whether observers agree, and how firm the definition is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Panel, Spec
from unruly.drawing.view import View, natural

if TYPE_CHECKING:
    from unruly.base.model import SlowNodes

MOST_WINDOWS = 400
FEW_TICKS = 8
LEAST_BARS = 3


def slow_by_window(view: View) -> Figure | None:
    """Return the share of observers that see each node as slow, window by window."""
    slow = view.analysis.slow_nodes
    if slow.sets.empty or not any(len(s) for s in slow.sets["slow"]):
        return None
    sets = slow.sets.assign(when=_window_names(slow))
    observers = sets.groupby("when", observed=True)["observer"].count()
    seen = sets.explode("slow").dropna(subset=["slow"])
    seen = seen.assign(node=seen["slow"].astype(str))
    counts = seen.groupby(["when", "node"], as_index=False, observed=True).agg(
        views=("slow", "size")
    )
    counts["share"] = [
        v / int(observers[w]) for v, w in zip(counts["views"], counts["when"], strict=True)
    ]
    windows = list(dict.fromkeys(sets["when"]))
    nodes = sorted(set(counts["node"]), key=natural)
    kept = counts[counts["when"].isin(windows[:MOST_WINDOWS])]
    height = 50 + 30 * min(len(nodes), 16)
    worst = counts.groupby("node")["share"].mean().idxmax()
    alt_text = "Share of views in which a node is slow, by window: " + "; ".join(
        f"{r['node']} in {r['when']}: {format.share(r['share'])}"
        for _, r in kept.head(10).iterrows()
    )
    words = [named.words.rstrip(".") + "." for named in slow.named]
    title = (
        f"{format.listing([named.node for named in slow.named])} "
        f"{'is' if len(slow.named) == 1 else 'are'} slow for all observers, themselves included"
        if slow.named
        else f"No node is slow for all; {worst} is seen as slow most often"
    )
    caption = (
        "Each square: of all views of one window (each observer and workload is a view), the share "
        "that sees the node (row) as slow. Slow means: its "
        f"p{format.significant(100 * _percentile(view))}"
        f" is at least {format.times(view.analysis.options.factor)} that of the fastest "
        f"member, and beyond it by more than {format.duration(view.analysis.options.floor_ns)}. "
        + " ".join(words)
    )
    return Figure(
        view.key("slow-windows"),
        title,
        caption,
        (Panel(_windows(kept, windows[:MOST_WINDOWS], nodes, height), alt_text, height=height),),
    )


def _percentile(view: View) -> float:
    value = view.analysis.options.percentile
    return value if value <= 1 else value / 100


def _window_names(slow: SlowNodes) -> list[str]:
    several_cells = slow.sets["cell"].nunique() > 1
    several = slow.sets["repeat"].nunique() > 1
    names = []
    for _, row in slow.sets.iterrows():
        name = f"window {int(row['window']) + 1}"
        name = f"repeat {int(row['repeat']) + 1}, {name}" if several else name
        names.append(f"{row['cell']}, {name}" if several_cells else name)
    return names


def _windows(counts: pd.DataFrame, windows: list[str], nodes: list[str], height: int) -> Spec:
    base = alt.Chart(chart.records(counts, ["when", "node", "share"])).encode(
        x=alt.X(
            "when:N",
            sort=windows,
            title="window of the run",
            scale=alt.Scale(domain=windows),
            axis=alt.Axis(labelOverlap=True, labelAngle=0, labelLimit=120),
        ),
        y=alt.Y("node:N", sort=nodes, title="node"),
        tooltip=["when:N", "node:N", alt.Tooltip("share:Q", title="of the views", format=".3~%")],
    )
    heat = base.mark_rect(style="heat").encode(fillOpacity=chart.heat("share", (0, 1), "linear"))
    if len(windows) > 12:
        return chart.finish(heat, height)
    words = base.mark_text(fontSize=11).encode(
        text=alt.Text("share:Q", format=".0%"),
        color=chart.on_heat("share"),
    )
    return chart.finish(alt.layer(heat, words), height)


def slow_counts(view: View) -> Figure | None:
    """Return the two histograms of the paper: how many are slow, and how alike the sets are."""
    slow = view.analysis.slow_nodes
    if slow.histogram.empty:
        return None
    counts = slow.histogram.groupby("slow_nodes", as_index=False)["count"].sum()
    most = max(LEAST_BARS, int(counts["slow_nodes"].max()))
    counts = counts.set_index("slow_nodes").reindex(range(most + 1), fill_value=0).reset_index()
    counts["share"] = counts["count"] / counts["count"].sum()
    panels = [
        Panel(
            _bars(counts, "slow_nodes:O", "slow nodes in one view", "share of views"),
            "Share of views by number of slow nodes: "
            + "; ".join(
                f"{int(r['slow_nodes'])}: {format.share(r['share'])}"
                for _, r in counts.iterrows()
                if r["share"]
            ),
            "How many nodes are slow",
            220,
        )
    ]
    mean = slow.jaccard_mean
    if len(slow.jaccard):
        steps = (slow.jaccard["jaccard"] * 10).round().astype(int).clip(0, 10) / 10
        alike = steps.value_counts(normalize=True).sort_index()
        full = pd.DataFrame({"jaccard": [i / 10 for i in range(11)]})
        full["share"] = [float(alike.get(v, 0.0)) for v in full["jaccard"]]
        panels.append(
            Panel(
                _bars(full, "jaccard:O", "Jaccard index (1 = the same set)", "share of pairs"),
                "Share of pairs of observers by Jaccard index: "
                + "; ".join(
                    f"{r['jaccard']}: {format.share(r['share'])}"
                    for _, r in full.iterrows()
                    if r["share"]
                ),
                "How alike two observers see it",
                220,
            )
        )
    nobody = float(counts.loc[counts["slow_nodes"] == 0, "share"].sum())
    title = (
        f"Nobody is slow in {format.share(nobody)} of the views"
        if nobody
        else "Somebody is slow in every view"
    )
    if mean is not None:
        word = "agree" if mean >= 0.8 else "partly agree" if mean >= 0.4 else "do not agree"
        title += (
            f"; where somebody is, observers {word} on who (mean Jaccard index "
            f"{format.coefficient(mean)})"
        )
    return Figure(
        view.key("slow-counts"),
        title,
        "A view is one observer in one window under one workload. The Jaccard index compares the "
        "sets that two observers hold to be slow, where both sets have somebody: near 1, slowness "
        "belongs to the node; near 0, to the eye of the observer (a link).",
        tuple(panels),
        narrow=True,
    )


def _bars(frame: pd.DataFrame, x: str, x_title: str, y_title: str) -> Spec:
    column = x.split(":", maxsplit=1)[0]
    bars = (
        alt.Chart(chart.records(frame, [column, "share"]))
        .mark_bar(style="plainbar")
        .encode(
            x=alt.X(x, title=x_title, axis=alt.Axis(labelAngle=0)),
            y=alt.Y(
                "share:Q",
                title=f"{y_title} (%)",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format=".0%", tickCount=5),
            ),
            tooltip=[
                alt.Tooltip(x, title=x_title),
                alt.Tooltip("share:Q", title=y_title, format=".3~%"),
            ],
        )
    )
    return chart.finish(bars, 220)


def sensitivity(view: View) -> Figure | None:
    """Return how many are slow under other factors and percentiles than the chosen ones."""
    frame = view.analysis.slow_nodes.sensitivity
    if frame.empty:
        return None
    frame = frame.assign(
        line=[
            f"p{format.significant(100 * (p if p <= 1 else p / 100))}" for p in frame["percentile"]
        ]
    )
    lines = sorted(set(frame["line"]), key=natural)
    panels = []
    for field, title in (("slow_pairs", "pairs seen as slow"), ("named", "nodes slow for all")):
        most = max(2, int(frame[field].max()))
        few = {"values": list(range(most + 1))} if most <= FEW_TICKS else {"tickCount": 5}
        spec = chart.finish(
            alt.Chart(chart.records(frame, ["factor", "line", field]))
            .mark_line(point=alt.OverlayMarkDef(filled=True, size=45), strokeWidth=1.8)
            .encode(
                x=alt.X(
                    "factor:Q",
                    title="slow means: at least this many times the fastest (a factor)",
                    scale=alt.Scale(zero=False, nice=False),
                    axis=alt.Axis(values=sorted(set(frame["factor"])), format=".3~g"),
                ),
                y=alt.Y(
                    f"{field}:Q",
                    title=f"{title} (count)",
                    scale=alt.Scale(domain=[0, most], nice=True),
                    axis=alt.Axis(format="d", **few),
                ),
                color=chart.colour(lines, "line"),
                tooltip=["factor:Q", alt.Tooltip("line:N", title="percentile"), f"{field}:Q"],
            ),
            220,
        )
        words = "; ".join(
            f"{r['line']} and factor {r['factor']}: {int(r[field])}" for _, r in frame.iterrows()
        )
        panels.append(
            Panel(spec, f"Number of {title} by definition. {words}.", format.capital(title), 220)
        )
    named = frame["named"]
    title = (
        f"The answer does not hang on the definition: {format.plural(int(named.iloc[0]), 'node')} "
        "slow for all under each of them"
        if named.nunique() == 1
        else f"The definition matters: between {int(named.min())} and {int(named.max())} nodes are "
        "slow for all, depending on factor and percentile"
    )
    return Figure(
        view.key("sensitivity"),
        title,
        "The factor and the percentile that define “slow” are choices. Flat lines mean "
        "that the choice does not matter here.",
        tuple(panels),
        legend=chart.legend(lines),
        narrow=True,
    )
