"""What rises with latency: the correlation of each metric, and the scatter behind the strongest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel
from unruly.drawing.frames import thinned_points

if TYPE_CHECKING:
    from unruly.base.model import Correlation
    from unruly.drawing.view import View

MOST_BARS = 16
MOST_SCATTERS = 6
FALSE_DISCOVERIES = 0.05
KINDS = ("Pearson", "Spearman")
SPELLED = {
    "cpu": "CPU",
    "psi": "PSI",
    "io": "IO",
    "tcp": "TCP",
    "gc": "GC",
    "rss": "resident memory",
    "cgroup": "control group",
    "iowait": "IO wait",
    "softirq": "soft interrupts",
}


def correlations(view: View) -> Figure | None:
    """Return Pearson and Spearman of each metric with their intervals, strongest first."""
    found = view.analysis.correlations
    rows = [r for r in found.rows if r.pearson.estimate is not None]
    if not rows:
        return None
    rows = sorted(rows, key=lambda r: -abs(r.pearson.estimate or 0.0))
    shown = rows[:MOST_BARS]
    points: list[dict[str, Any]] = []
    for r in shown:
        for kind, value in zip(KINDS, (r.pearson, r.spearman), strict=True):
            points.append(
                {
                    "metric": _name(r.scope, r.metric),
                    "kind": kind,
                    "r": value.estimate,
                    "low": value.low,
                    "high": value.high,
                    "sure": r.q_value <= FALSE_DISCOVERIES,
                    "words": r.words,
                }
            )
    frame = pd.DataFrame(points)
    order = list(dict.fromkeys(frame["metric"]))
    level = format.level(shown[0].pearson.level)
    sure = [r for r in rows if r.q_value <= FALSE_DISCOVERIES]
    title = (
        f"{format.capital(_name(sure[0].scope, sure[0].metric))} moves with latency most "
        f"(Pearson {format.coefficient(sure[0].pearson.estimate)}); {len(sure)} of "
        f"{format.plural(len(rows), 'metric')} {'does' if len(sure) == 1 else 'do'} so beyond "
        "chance"
        if sure
        else f"None of {format.plural(len(rows), 'metric')} moves with latency beyond chance"
    )
    caption = (
        f"Circle: Pearson with the logarithm of the latency; square: Spearman (ranks). Lines: "
        f"{level} intervals by block bootstrap. Pale: not beyond chance (q above "
        f"{FALSE_DISCOVERIES:g} after Benjamini and Hochberg). Each reply is paired with the "
        "nearest "
        f"sample of its receiver: {format.share(found.paired_share)} could be paired, at most "
        f"{format.duration(found.largest_distance_ns)} apart. Correlation is not cause. "
        f"{found.note}"
    )
    if len(rows) > len(shown):
        caption += f" The {len(shown)} strongest of {len(rows)} are drawn."
    alt_text = "Correlation with service latency: " + "; ".join(
        f"{_name(r.scope, r.metric)} Pearson {format.coefficient(r.pearson.estimate)}"
        for r in shown
    )
    height = 20 + 26 * len(order)
    return Figure(
        view.key("correlations"),
        title,
        caption.strip(),
        (Panel(_bars(frame, order, height), alt_text, height=height),),
        legend=(Key("Pearson", 0, "circle"), Key("Spearman", 1, "square")),
    )


def _name(scope: str, metric: str) -> str:
    words = metric
    for ending in ("_ns", "_bytes", "_share", "_pages", "_hz"):
        words = words.removesuffix(ending)
    spelled = " ".join(SPELLED.get(word, word) for word in words.split("_"))
    return f"{spelled} ({scope})"


def _bars(frame: pd.DataFrame, order: list[str], height: int) -> dict[str, Any]:
    data = chart.records(frame, ["metric", "kind", "r", "low", "high", "sure", "words"])
    y = alt.Y("metric:N", sort=order, title=None, axis=alt.Axis(labelLimit=150))
    offset = alt.YOffset("kind:N", sort=list(KINDS))
    axis: dict[str, Any] = {
        "scale": alt.Scale(domain=[-1, 1]),
        "title": f"correlation with service time (from {format.MINUS}1 to 1, no unit)",
        "axis": alt.Axis(values=[-1, -0.5, 0, 0.5, 1], format=".1f"),
    }
    opacity = alt.condition("datum.sure", alt.value(1.0), alt.value(0.35))
    base = alt.Chart(data).encode(
        y=y, yOffset=offset, color=chart.colour(KINDS, "kind"), opacity=opacity
    )
    tips = [
        "metric:N",
        "kind:N",
        alt.Tooltip("r:Q", format=".2f"),
        alt.Tooltip("low:Q", format=".2f"),
        alt.Tooltip("high:Q", format=".2f"),
        alt.Tooltip("words:N", title="meaning"),
    ]
    zero = (
        alt.Chart(alt.InlineData(values=[{"at": 0}]))
        .mark_rule(style="zero")
        .encode(x=alt.X("at:Q", **axis))
    )
    rules = base.mark_rule(strokeWidth=1.6).encode(x=alt.X("low:Q", **axis), x2="high:Q")
    shape = alt.Shape(
        "kind:N", legend=None, scale=alt.Scale(domain=list(KINDS), range=["circle", "square"])
    )
    dots = base.mark_point(filled=True, size=48).encode(
        x=alt.X("r:Q", **axis), shape=shape, tooltip=tips
    )
    return chart.finish(alt.layer(zero, rules, dots), height)


def scatters(view: View) -> Figure | None:
    """Return latency against the value of each of the six strongest metrics."""
    found = view.analysis.correlations
    by_name = {f"{r.scope}:{r.metric}": r for r in found.rows}
    panels = []
    receivers: list[str] = []
    for frame in found.scatter.values():
        receivers.extend(str(v) for v in frame["receiver"].unique() if str(v) not in receivers)
    domain = sorted(receivers)[: chart.MOST_COLOURS]
    strongest = sorted(found.scatter.items(), key=lambda pair: -_strength(by_name.get(pair[0])))
    latencies = [v for frame in found.scatter.values() for v in frame["latency"]]
    ends = chart.span_of(latencies)
    for name, frame in strongest[:MOST_SCATTERS]:
        row = by_name.get(name)
        points = frame[frame["value"].notna() & frame["latency"].notna()]
        if row is None or points.empty:
            continue
        points = thinned_points(points, max(100, view.points // 4), "latency")
        points = points.assign(receiver=points["receiver"].astype(str))
        r = format.coefficient(row.pearson.estimate)
        label = _name(row.scope, row.metric)
        panels.append(
            Panel(
                _scatter(points, row.metric, domain, ends),
                f"Service time against {label}: Pearson {r}, highest at {row.highest}.",
                f"{format.capital(label)}: r = {r}",
                230,
            )
        )
    if not panels:
        return None
    return Figure(
        view.key("scatters"),
        _scatter_title(view),
        "Each dot: one receiver in one sampling interval - its value of the metric, and the "
        "service time of what it answered then. Colours are receivers: a cloud of one "
        "colour off to the side is a difference between nodes; a slope within one colour is "
        "a matter of time.",
        tuple(panels),
        legend=chart.legend(domain) if 1 < len(receivers) <= chart.MOST_COLOURS else (),
        narrow=True,
    )


def _strength(row: Correlation | None) -> float:
    return abs(row.pearson.estimate or 0.0) if row else 0.0


def _scatter(
    points: pd.DataFrame, metric: str, domain: list[str], ends: tuple[float, float]
) -> dict[str, Any]:
    kind = next((k for k in ("_ns", "_bytes", "_share") if metric.endswith(k)), "")
    shown = {
        "_ns": ("latency", "ns to s"),
        "_bytes": ("size", "bytes"),
        "_share": ("share", "%"),
        "": ("amount", "count"),
    }
    form, unit = shown[kind]
    if kind == "_ns":
        unit = chart.units(*chart.span_of(points["value"]))
    x_title = f"{_name('', metric).removesuffix(' ()')} ({unit})"
    mark = (
        alt.Chart(chart.records(points, ["value", "latency", "receiver"]))
        .mark_point(filled=True, size=16, opacity=0.5)
        .encode(
            x=alt.X(
                "value:Q",
                title=x_title,
                scale=alt.Scale(zero=False),
                axis=alt.Axis(tickCount=4, formatType=form, format="", labelFlush=True),
            ),
            y=alt.Y("latency:Q", **chart.latency_axis("service time", *ends, most=5)),
            color=chart.colour(domain, "receiver"),
            tooltip=[
                "receiver:N",
                alt.Tooltip("value:Q", title=x_title, formatType=form, format=""),
                chart.latency_tooltip("latency", "service"),
            ],
        )
    )
    return chart.finish(mark, 230)


def _scatter_title(view: View) -> str:
    rows = [r for r in view.analysis.correlations.rows if r.q_value <= FALSE_DISCOVERIES]
    if not rows:
        return "The clouds behind the strongest correlations show no clear slope"
    best = max(rows, key=lambda r: abs(r.pearson.estimate or 0.0))
    name = _name(best.scope, best.metric)
    if best.within is None:
        return f"When {name} is high, so is latency; {best.highest} has most of it"
    alone = abs(best.within) >= 0.3
    tail = (
        "also within one node over time"
        if alone
        else "a difference between nodes rather than of time"
    )
    return (
        f"{format.capital(name)} is highest at {best.highest}: {tail} (r within nodes "
        f"{format.coefficient(best.within)})"
    )
