"""How many times slower is B, quantile by quantile, with the band in which the truth lies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel, Part, Section, Table, number, table, text

if TYPE_CHECKING:
    from unruly.base.comparison import Compared, Comparison

OUTCOMES = {"slower": "slower", "faster": "faster"}
COLUMNS = ["quantile", "ratio", "low", "high", "a", "b", "shown"]


def comparison_sections(comparison: Comparison) -> list[Section]:
    """Return the page of a comparison: a part for each thing that was compared."""
    parts = tuple(_part(result, place) for place, result in enumerate(comparison.results))
    left_out = Part(lead=comparison.left_out) if comparison.left_out else None
    return [Section("shift", "Is it different?", (*parts, *([left_out] if left_out else [])))]


def _part(result: Compared, place: int) -> Part:
    # without a single bound there is nothing to draw but the measured values, which a table has
    bounded = any(it.ratio.low is not None or it.ratio.high is not None for it in result.moved)
    figure = _figure(result, place) if bounded else None
    numbers = (_table(result),)
    return Part(
        heading=" · ".join(part for part in (result.cell, result.op, result.design) if part),
        lead=(f"{format.capital(result.sentence)}.", f"Next: {result.next_step}."),
        figures=(figure,) if figure else (),
        tables=() if figure else numbers,
        closed_tables=numbers if figure else (),
    )


def _figure(result: Compared, place: int) -> Figure | None:
    frame = pd.DataFrame([_record(it) for it in result.moved], columns=COLUMNS)
    if frame.empty:
        return None
    bounds = pd.concat([frame["ratio"], frame["low"], frame["high"]]).dropna()
    low, high = min(0.95, float(bounds.min())), max(1.05, float(bounds.max()))
    spec = chart.finish(_layers(frame, (low / 1.05, high * 1.05), result), 280)
    return Figure(
        f"shift-{place}",
        _claim(result),
        f"How many times {result.a}'s latency {result.b}'s is, at each quantile; the bars are the"
        " intervals. At the line both are alike. A bar that reaches the edge has no bound there.",
        (Panel(spec, f"Ratios of quantiles: {result.sentence}", height=280),),
        legend=(Key("shown to differ", -1, "dot"), Key("not shown", 0, "circle")),
    )


def _claim(result: Compared) -> str:
    """Return the outcome of a comparison as a sentence."""
    if result.outcome == "undecided":
        return f"It is undecided whether {result.b} differs from {result.a}"
    moved = [it.quantile for it in result.moved if it.outcome in OUTCOMES]
    if result.outcome == "different" and moved:
        return f"{result.b} differs from {result.a} at the {format.listing(moved, 6)}"
    if result.outcome == "different":
        return f"{result.b} differs from {result.a}"
    return f"{result.b} is not shown to differ from {result.a}"


def _record(it: Any) -> dict[str, Any]:
    return {
        "quantile": it.quantile,
        "ratio": it.ratio.estimate,
        "low": it.ratio.low,
        "high": it.ratio.high,
        "a": it.a,
        "b": it.b,
        "shown": it.outcome in OUTCOMES,
    }


def _layers(frame: pd.DataFrame, ends: tuple[float, float], result: Compared) -> Any:
    order = frame["quantile"].tolist()
    bars = frame.assign(low=frame["low"].fillna(ends[0]), high=frame["high"].fillna(ends[1]))
    data = chart.records(bars, COLUMNS)
    x = alt.X("quantile:N", sort=order, title="quantile", axis=alt.Axis(labelAngle=0))
    scale = alt.Scale(type="log", domain=list(ends), nice=False, clamp=True)
    axis = alt.Axis(values=_ticks(*ends), format=".3~g")
    y_title = f"{result.b} over {result.a} (log scale)"
    tips = [
        alt.Tooltip("quantile:N"),
        alt.Tooltip("ratio:Q", format=".3g"),
        alt.Tooltip("low:Q", format=".3g"),
        alt.Tooltip("high:Q", format=".3g"),
        chart.latency_tooltip("a", result.a),
        chart.latency_tooltip("b", result.b),
    ]
    one = (
        alt.Chart(alt.InlineData(values=[{"one": 1}]))
        .mark_rule(strokeDash=[4, 4])
        .encode(y=alt.Y("one:Q", scale=scale, axis=axis, title=y_title))
    )
    whole = alt.Chart(data)
    band = whole.mark_rule(strokeWidth=3, opacity=0.45).encode(
        x=x, y=alt.Y("low:Q", scale=scale, axis=axis, title=y_title), y2="high:Q", tooltip=tips
    )
    shown = (
        whole.transform_filter("datum.shown")
        .mark_point(filled=True, size=110, style="failed")
        .encode(x=x, y=alt.Y("ratio:Q", scale=scale, axis=axis, title=y_title), tooltip=tips)
    )
    other = (
        whole.transform_filter("!datum.shown")
        .mark_point(size=80, strokeWidth=2)
        .encode(x=x, y=alt.Y("ratio:Q", scale=scale, axis=axis, title=y_title), tooltip=tips)
    )
    return alt.layer(one, band, other, shown)


def _ticks(low: float, high: float) -> list[float]:
    """About eight round ratios, 1 among them."""
    step = math.log10(high / low) / 7
    # two ratios next to each other differ by so much: neither is rounded away
    digits = max(1, 1 - math.floor(math.log10(min(1.0, step))))
    found = [float(f"{low * 10 ** (k * step):.{digits}g}") for k in range(1, 7)]
    return sorted({1.0, *(it for it in found if abs(math.log10(it)) > step / 2)})


def _table(result: Compared) -> Table:
    rows = [
        [
            text(it.quantile),
            number(format.duration(it.a)),
            number(format.duration(it.b)),
            number(f"{it.ratio.estimate or 0:.3g}"),
            number(_bounds(it), it.reason),
            text(it.outcome),
        ]
        for it in result.moved
    ]
    columns = ("quantile", result.a, result.b, "ratio", "interval", "outcome")
    return table(columns, rows, f"{result.b} against {result.a}")


def _bounds(it: Any) -> str:
    if it.ratio.low is None and it.ratio.high is None:
        return format.DASH
    low = "?" if it.ratio.low is None else f"{it.ratio.low:.3g}"
    high = "?" if it.ratio.high is None else f"{it.ratio.high:.3g}"
    return f"{low} to {high}"
