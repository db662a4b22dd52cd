"""The p99 with its intervals: what may be promised, and how naive the usual interval is."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel, Spec
from unruly.drawing.view import ALL, LATENCIES, View

MOST_ROWS = 24
ALL_WORDS = "all together"


def promises(view: View) -> Figure | None:
    """Return the p99 of each workload with its interval, response and service time."""
    panels, rows = [], []
    for latency in LATENCIES:
        for c in _summaries(view, latency)[:MOST_ROWS]:
            if c.p99 is None:
                continue
            honest, naive, bound = c.p99_interval, c.p99_interval_iid, c.promise_p99
            rows.append(
                {
                    "latency": latency,
                    "row": _row_name(view, c.cell, c.op),
                    "p99": c.p99,
                    "low": honest.low if honest else None,
                    "high": honest.high if honest else None,
                    "low_iid": naive.low if naive else None,
                    "high_iid": naive.high if naive else None,
                    "promise": bound.high if bound else None,
                }
            )
    if not rows:
        return None
    frame = pd.DataFrame(rows)
    numbers = ["p99", "low", "high", "low_iid", "high_iid", "promise"]
    ends = chart.span_of(pd.concat([frame[c].astype(float) for c in numbers]))
    order = list(dict.fromkeys(frame["row"]))
    for latency in LATENCIES:
        own = frame[frame["latency"] == latency]
        if len(own):
            panels.append(
                Panel(
                    _chart(own, order, f"p99 {latency} time", ends),
                    _alt(own, latency),
                    f"{latency.capitalize()} time",
                    30 + 34 * len(order),
                )
            )
    levels = {
        format.level(i.level)
        for c in view.analysis.cells
        for i in (c.p99_interval, c.promise_p99)
        if i
    }
    caption = (
        "Diamond: the p99 that was measured. Thick line: its interval, which allows for "
        "stalls that "
        "come in bursts; thin line: the interval that would hold if replies were independent "
        "- they are not, so trust the thick one. Triangle: the promise, an upper bound."
        + (f" Levels: {format.listing(sorted(levels))}." if levels else "")
    )
    return Figure(
        view.key("promises"),
        _title(frame),
        caption,
        tuple(panels),
        legend=(Key("p99 measured", -2, "diamond"), Key("promise", 1, "triangle")),
        narrow=True,
    )


def _summaries(view: View, latency: str) -> list[Any]:
    if len(view.cells) == 1:
        named = view.by_op(latency)
        alls = [c for c in view.overall(latency) if c.op == ALL]
        return [*named, *(alls if len(named) > 1 else [])]
    return sorted(view.overall(latency), key=lambda c: -(c.p99 or 0.0))


def _row_name(view: View, cell: str, op: str) -> str:
    if len(view.cells) > 1:
        # a cell is named by the factors that differ between cells
        kept = [it for it in cell.split(" ") if not all(it in o.split(" ") for o in view.cells)]
        return " ".join(kept) or cell
    return ALL_WORDS if op == ALL else op


def _chart(own: pd.DataFrame, order: list[str], name: str, ends: tuple[float, float]) -> Spec:
    axis = chart.latency_axis(name, *ends, most=6)
    columns = ["row", "p99", "low", "high", "low_iid", "high_iid", "promise"]
    base = alt.Chart(chart.records(own, columns)).encode(
        y=alt.Y("row:N", sort=order, title=None, axis=alt.Axis(labelLimit=120))
    )
    tips = ["row:N", *(chart.latency_tooltip(c, c.replace("_", " ")) for c in columns[1:])]
    return chart.finish(
        alt.layer(
            base.mark_rule(strokeWidth=1, style="plain")
            .encode(x=alt.X("low_iid:Q", **axis), x2="high_iid:Q")
            .transform_filter("isValid(datum.low_iid) && isValid(datum.high_iid)"),
            base.mark_rule(strokeWidth=5, opacity=0.35, style="plain")
            .encode(x=alt.X("low:Q", **axis), x2="high:Q")
            .transform_filter("isValid(datum.low) && isValid(datum.high)"),
            base.mark_point(filled=True, size=80, shape="diamond", style="plain", opacity=1).encode(
                x=alt.X("p99:Q", **axis), tooltip=tips
            ),
            base.mark_point(filled=True, size=80, shape="triangle-left", style="second", opacity=1)
            .encode(x=alt.X("promise:Q", **axis), tooltip=tips)
            .transform_filter("isValid(datum.promise)"),
        ),
        24 + 34 * len(order),
    )


def _alt(own: pd.DataFrame, latency: str) -> str:
    parts = []
    for _, r in own.iterrows():
        bound = (
            f", promise {format.duration(r['promise'])}"
            if pd.notna(r["promise"])
            else ", no promise"
        )
        parts.append(f"{r['row']}: {format.duration(r['p99'])}{bound}")
    return f"p99 {latency} time with intervals. " + "; ".join(parts) + "."


def _title(frame: pd.DataFrame) -> str:
    response = frame[frame["latency"] == "response"]
    kept = response[response["promise"].notna()]
    if kept.empty:
        return "No p99 can be promised from this run; the measured values alone are shown"
    loosest = kept.sort_values("promise").to_dict("records")[-1]
    scope = "every row" if len(kept) == len(response) else f"{len(kept)} of {len(response)} rows"
    return (
        f"A p99 can be promised for {scope}; the loosest promise is "
        f"{format.duration(loosest['promise'])} ({format.quoted(str(loosest['row']))})"
    )
