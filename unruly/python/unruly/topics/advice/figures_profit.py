"""Money: what share of the requests pays what, and profit as the load grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Panel
from unruly.quantity import duration, significant
from unruly.topics.advice.asked import advice_of

if TYPE_CHECKING:
    from unruly.drawing.view import View
    from unruly.topics.advice.model import Advice, PeakAdvice

HEIGHT = 260
MOST_CELLS = 12
MOST_PEAKS = 4


def advice_profit(view: View) -> Figure | None:
    """Return the shares of requests by step, and profit over load where cells differ in it."""
    advice = advice_of(view)
    if advice is None or not advice.profit.rows:
        return None
    panels = [_peak(peak) for peak in advice.peaks[:MOST_PEAKS]]
    panels.append(_steps(advice))
    return Figure(
        view.key("advice-profit"),
        _title(advice),
        f"{advice.profit.assumption} An hour like the run, by {advice.sla_name}; bars over loads "
        f"are {format.level(advice.level)} intervals.",
        tuple(panels),
        narrow=len(panels) > 1,
    )


def _names(advice: Advice) -> list[str]:
    bounds = advice.sla.at_most_ns
    return [*(f"up to {duration(bound)}" for bound in bounds), f"beyond {duration(bounds[-1])}"]


def _steps(advice: Advice) -> Panel:
    names = _names(advice)
    rows = sorted(advice.profit.rows, key=lambda row: row.profit.per_request)[:MOST_CELLS]
    frame = pd.DataFrame(
        [
            {
                "cell": row.cell,
                "step": f"{name}: {significant(pays)}",
                "order": place,
                "share": count / row.requests,
            }
            for row in rows
            for place, (name, pays, count) in enumerate(
                zip(names, advice.sla.pays, row.profit.counts, strict=True)
            )
        ]
    )
    order = list(dict.fromkeys(frame["step"]))
    several = frame["cell"].nunique() > 1
    height = 40 + (34 * len(order) if not several else 34 * frame["cell"].nunique())
    encode = {
        "x": alt.X(
            "share:Q",
            title="share of the requests",
            scale=alt.Scale(domain=[0, 1]),
            axis=alt.Axis(format=".0%", tickCount=5),
        ),
        "tooltip": [
            alt.Tooltip("cell:N"), alt.Tooltip("step:N"),
            alt.Tooltip("share:Q", title="of the requests", format=".3~%"),
        ],
    }  # fmt: skip
    base = alt.Chart(chart.records(frame, ["cell", "step", "order", "share"]))
    if several:
        bars = base.mark_bar().encode(
            y=alt.Y("cell:N", title=None, axis=alt.Axis(labelLimit=140)),
            color=alt.Color(
                "step:N", scale=alt.Scale(domain=order, range="category"),
                legend=alt.Legend(orient="top", title=None, columns=2, labelLimit=200),
            ),
            order="order:Q", **encode,
        )  # fmt: skip
    else:
        bars = base.mark_bar(style="plainbar").encode(
            y=alt.Y("step:N", sort=order, title=None, axis=alt.Axis(labelLimit=180)), **encode
        )
    text = "Share of the requests by what they pay. " + "; ".join(
        f"{r['cell']}, {r['step']}, {format.share(r['share'])}" for _, r in frame.iterrows()
    )
    return Panel(chart.finish(bars, height), text + ".", "What do the requests pay?", height)


def _peak(found: PeakAdvice) -> Panel:
    frame = pd.DataFrame(
        [
            {"load": load, "profit": it.estimate, "low": it.low, "high": it.high}
            for load, it in zip(found.loads, found.per_hour, strict=True)
        ]
    )
    base = alt.Chart(chart.records(frame, ["load", "profit", "low", "high"])).encode(
        x=alt.X("load:Q", title=found.factor, scale=alt.Scale(zero=False, padding=12)),
        tooltip=["load:Q", "profit:Q", "low:Q", "high:Q"],
    )
    y = alt.Y("profit:Q", title="profit an hour", scale=alt.Scale(zero=False))
    layers = [
        base.mark_rule(strokeWidth=4, opacity=0.3, style="plain")
        .encode(y=alt.Y("low:Q", title="profit an hour"), y2="high:Q")
        .transform_filter("isValid(datum.low) && isValid(datum.high)"),
        base.mark_line(style="plain", strokeWidth=1.5).encode(y=y),
        base.mark_point(filled=True, size=60, opacity=1, style="plain").encode(y=y),
        base.mark_point(filled=True, size=110, opacity=1, style="second", shape="diamond")
        .encode(y=y)
        .transform_filter(f"datum.load == {found.peak.load!r}"),
    ]
    text = f"Profit an hour by {found.factor}. " + "; ".join(
        f"{significant(r['load'])}: {significant(r['profit'])}" for _, r in frame.iterrows()
    )
    title = f"Profit over {found.factor}" + "".join(f", {k} {v}" for k, v in found.others.items())
    return Panel(chart.finish(alt.layer(*layers), HEIGHT), text + ".", title, HEIGHT)


def _title(advice: Advice) -> str:
    if advice.peaks:
        return format.capital(advice.peaks[0].sentence)
    worst = max(advice.profit.rows, key=lambda row: row.profit.lost_share or 0.0)
    lost = worst.profit.lost_share
    if not lost:
        return "By the agreement nothing is lost to latency or failures"
    of = f" ({format.quoted(worst.cell)})" if len(advice.profit.rows) > 1 else ""
    return f"Latency and failures cost {format.share(lost)} of what the requests could earn{of}"
