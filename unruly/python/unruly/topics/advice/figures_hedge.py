"""A second copy after a delay: what it would save, and what it would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Panel
from unruly.topics.advice import figures_lines as advice_lines
from unruly.topics.advice.asked import advice_of

if TYPE_CHECKING:
    from unruly.drawing.view import View
    from unruly.topics.advice.model import HedgeAdvice

WAYS = ("first", "single", "all")


def advice_hedge(view: View) -> Figure | None:
    """Return the p99 of every way of asking, and the extra load of a hedge by its delay."""
    advice = advice_of(view)
    if advice is None:
        return None
    rows = advice_lines.drawn(view, advice.hedge.rows)
    if not rows:
        return None
    panels = [_ways(rows)]
    frame = pd.DataFrame(
        [
            {
                "op": row.op,
                "delay": way.delay_ns,
                "p99": way.quantiles[0.99],
                "extra": way.extra.estimate if way.extra else None,
                "low": way.extra.low if way.extra else None,
                "high": way.extra.high if way.extra else None,
            }
            for row in rows
            for way in row.ways.hedges
        ]
    )
    if len(frame):
        panels += [_curve(view, frame), _extra(view, frame)]
    return Figure(
        view.key("advice-hedge"),
        _title(rows),
        f"{advice.hedge.assumption} First, majority and all: exact; single and hedge: what-ifs. "
        f"Bars are {format.level(advice.level)} intervals that allow for stalls in bursts."
        + advice_lines.of_cell(view, advice.hedge.rows),
        tuple(panels),
        legend=advice_lines.legend(view, rows),
        narrow=True,
    )


def _ways(rows: list[HedgeAdvice]) -> Panel:
    found = []
    for row in rows:
        for name in WAYS:
            way = getattr(row.ways, name)
            if way.quantiles[0.99] is not None:
                found.append(
                    {
                        "row": f"{row.op}, {name}",
                        "p99": way.quantiles[0.99],
                        "low": way.p99.low,
                        "high": way.p99.high,
                    }
                )
    frame = pd.DataFrame(found, columns=["row", "p99", "low", "high"])
    order = list(frame["row"])
    ends = chart.span_of(pd.concat([frame[c].astype(float) for c in ("p99", "low", "high")]))
    axis = chart.latency_axis("p99", *ends, most=6)
    base = alt.Chart(chart.records(frame, ["row", "p99", "low", "high"])).encode(
        y=alt.Y("row:N", sort=order, title=None, axis=alt.Axis(labelLimit=120))
    )
    height = 40 + 26 * len(order)
    layers = [
        base.mark_rule(strokeWidth=5, opacity=0.35, style="plain")
        .encode(x=alt.X("low:Q", **axis), x2="high:Q")
        .transform_filter("isValid(datum.low) && isValid(datum.high)"),
        base.mark_point(filled=True, size=70, shape="diamond", style="plain", opacity=1).encode(
            x=alt.X("p99:Q", **axis),
            tooltip=["row:N", *(chart.latency_tooltip(c, c) for c in ("p99", "low", "high"))],
        ),
    ]
    text = "p99 by way of asking. " + "; ".join(
        f"{r['row']}: {format.duration(r['p99'])}" for _, r in frame.iterrows()
    )
    return Panel(chart.finish(alt.layer(*layers), height), text + ".", "Ways of asking", height)


def _curve(view: View, frame: pd.DataFrame) -> Panel:
    known = frame[frame["p99"].notna()]
    scale = chart.latency_axis("p99", *chart.span_of(known["p99"].astype(float)), most=6)
    y = ("p99", str(scale.pop("title")))
    spec = advice_lines.lines(
        view, frame, x=("delay", "delay d"), y=y, scale=scale,
        value=chart.latency_tooltip("p99", "p99"),
    )  # fmt: skip
    text = "p99 of a hedged request by delay. " + "; ".join(
        f"{op}: {format.duration(own['p99'].astype(float).min())} at best"
        for op, own in frame.groupby("op", sort=False)
    )
    return advice_lines.panel(spec, text + ".", "What would a hedge save?")


def _extra(view: View, frame: pd.DataFrame) -> Panel:
    y = ("extra", "requests sent twice")
    scale = {
        "scale": alt.Scale(domain=[0, 1]),
        "axis": alt.Axis(format=".0%", tickCount=5),
    }
    spec = advice_lines.lines(
        view, frame, x=("delay", "delay d"), y=y, scale=scale,
        band=("low", "high"),
        value=alt.Tooltip("extra:Q", title="sent twice", format=".3~%"),
    )  # fmt: skip
    text = "Share of requests that send a second copy, by delay. " + "; ".join(
        f"{op}: {format.share(own['extra'].iloc[0])} at "
        f"{format.duration(own['delay'].iloc[0])}, {format.share(own['extra'].iloc[-1])} at "
        f"{format.duration(own['delay'].iloc[-1])}"
        for op, own in frame.groupby("op", sort=False)
    )
    return advice_lines.panel(spec, text + ".", "What would it cost?")


def _title(rows: list[HedgeAdvice]) -> str:
    best: tuple[float, str] | None = None
    for row in rows:
        single = row.ways.single.quantiles[0.99]
        way = next((w for w in row.ways.hedges if w.delay_ns == row.chosen_ns), None)
        hedged = way.quantiles[0.99] if way else None
        if row.chosen_ns is None or single is None or hedged is None or way is None:
            continue
        extra = way.extra.estimate if way.extra else None
        ratio = single / hedged
        words = (
            f"A second copy after {format.duration(row.chosen_ns)} would cut the p99 of "
            f"{format.quoted(row.op)} from {format.duration(single)} to "
            f"{format.duration(hedged)}, for {format.share(extra)} more requests"
        )
        if best is None or ratio > best[0]:
            best = ratio, words
    return best[1] if best else "No hedge that adds at most a tenth would surely shorten the p99"
