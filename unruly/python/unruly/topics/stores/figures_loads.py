"""The p99 and the rate of good replies against the load, or against another factor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel
from unruly.topics.stores.statistics import stores_of
from unruly.topics.stores.words import knee_sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.drawing.document import Spec
    from unruly.drawing.view import View
    from unruly.topics.stores.loads import Load, Scaling

SERIES_MOST: Final = 8
FACTORS_MOST: Final = 4
HEIGHT: Final = 260


def ramps(view: View) -> Figure | None:
    """Return the p99 and the achieved rate against the scheduled load."""
    found = held.ramps[:SERIES_MOST] if (held := stores_of(view.analysis)) else ()
    if not found:
        return None
    frame = _frame([(ramp.series, load, load.asked_hz) for ramp in found for load in ramp.loads])
    low, high = float(frame["at"].min()), float(frame["at"].max())
    x = alt.X(
        "at:Q",
        title="load that was asked for (a second, log scale)",
        scale=alt.Scale(type="log", domain=[low / 1.15, high * 1.15], nice=False),
        axis=_rates(low, high),
    )
    knees = pd.DataFrame({"at": [ramp.knee.holds for ramp in found if ramp.knee.holds]})
    told = ". ".join(knee_sentence(ramp) for ramp in found)
    return Figure(
        view.key("ramps"),
        format.capital(knee_sentence(found[0])),
        "Each mark is a load, with its interval over repeats (95 %). Upright line: the highest "
        "load at which the p99 holds. Below it the curve on the left is flat and that on the right "
        "follows the dashed line, where all that is asked for is answered. Hollow marks: loads at "
        "which the generator itself was late.",
        (
            Panel(_p99s(frame, x, knees), f"p99 against load. {told}.", "p99", HEIGHT),
            Panel(_achieved(frame, x, knees), "Good replies against load.", "Good replies", HEIGHT),
        ),
        legend=_legend([ramp.series for ramp in found]),
        narrow=True,
    )


def scalings(view: View) -> tuple[Figure, ...]:
    """Return the same two numbers against each other factor, in the plan's order."""
    found = held.scalings if (held := stores_of(view.analysis)) else ()
    factors = list(dict.fromkeys(it.factor for it in found))[:FACTORS_MOST]
    return tuple(
        _scaling(view, factor, [it for it in found if it.factor == factor][:SERIES_MOST])
        for factor in factors
    )


def _scaling(view: View, factor: str, found: Sequence[Scaling]) -> Figure:
    name = factor.rsplit(".", 1)[-1]
    points = [
        (it.series, load, level)
        for it in found
        for load, level in zip(it.loads, it.levels, strict=True)
    ]
    frame = _frame(points)
    levels = list(dict.fromkeys(frame["at"]))
    x = alt.X("at:O", title=name, sort=levels, axis=alt.Axis(labelAngle=0, labelLimit=110))
    rates = [load.achieved_hz.estimate or 0.0 for _, load, _ in points]
    return Figure(
        view.key(f"scaling-{factor.replace('.', '-')}"),
        f"{format.capital(name)}: {_between(frame['p99'])}{_replies(rates)}",
        "Each mark is a cell, with its interval over repeats (95 %); lines join cells that differ "
        f"by {name} alone.",
        (
            Panel(_p99s(frame, x, None), f"p99 by {name}.", "p99", HEIGHT),
            Panel(_rate(frame, x, None), f"Good replies by {name}.", "Good replies", HEIGHT),
        ),
        legend=_legend([it.series for it in found]),
        narrow=True,
    )


def _between(p99s: pd.Series) -> str:
    """Over all cells: other factors may vary too, so it is no effect of one of them."""
    known = p99s[p99s < float("inf")]
    if known.empty:
        return "no cell has a p99"
    low, high = format.duration(known.min()), format.duration(known.max())
    return f"p99 between {low} and {high}" if low != high else f"p99 of {low} everywhere"


def _replies(rates: list[float]) -> str:
    """How many came, where that is not the same everywhere."""
    least, most = (format.significant(it) for it in (min(rates), max(rates)))
    return f", good replies between {least} and {most} a second" if least != most else ""


def _legend(series: list[str]) -> tuple[Key, ...]:
    names = list(dict.fromkeys(series))
    return chart.legend(names) if len(names) > 1 else ()


def _frame(points: Sequence[tuple[str, Load, Any]]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "series": series,
            "cell": load.cell,
            "at": at,
            "p99": load.p99.estimate,
            "p99_low": load.p99.low,
            "p99_high": load.p99.high,
            "hz": load.achieved_hz.estimate,
            "hz_low": None if load.achieved_hz.low is None else max(0.0, load.achieved_hz.low),
            "hz_high": load.achieved_hz.high,
            "own": load.own,
        }
        for series, load, at in points
    )


def _rates(low: float, high: float) -> alt.Axis:
    return alt.Axis(values=chart.ticks(low / 1.15, high * 1.15, 7), format="", formatType="amount")


def _p99s(frame: pd.DataFrame, x: alt.X, knees: pd.DataFrame | None) -> Spec:
    # whiskers over many decades say "nothing is known": the axis is that of the estimates
    ends = chart.span_of(frame["p99"].astype(float))
    axis = chart.latency_axis("p99", ends[0] / 2, ends[1] * 2, most=7)
    return _marks(frame, x, "p99", axis, chart.latency_tooltip("p99", "p99"), knees, [])


def _achieved(frame: pd.DataFrame, x: alt.X, knees: pd.DataFrame) -> Spec:
    low, high = chart.span_of([*frame["hz"], *frame["at"]])
    axis: dict[str, Any] = {
        "title": "good replies a second (log scale)",
        "scale": alt.Scale(
            type="log", domain=[low / 1.15, high * 1.15], nice=False, clamp=True
        ),
        "axis": _rates(low, high),
    }  # fmt: skip
    asked = (
        alt.Chart(chart.records(frame.sort_values("at"), ["at"]))
        .mark_line(style="zero")
        .encode(x=x, y=alt.Y("at:Q", **axis))
    )
    return _marks(frame, x, "hz", axis, _tip(), knees, [asked])


def _rate(frame: pd.DataFrame, x: alt.X, knees: pd.DataFrame | None) -> Spec:
    axis: dict[str, Any] = {
        "title": "good replies a second",
        "axis": alt.Axis(format="", formatType="amount", tickCount=6),
    }
    return _marks(frame, x, "hz", axis, _tip(), knees, [])


def _tip() -> alt.Tooltip:
    return alt.Tooltip("hz:Q", title="good replies a second", format=",.0f")


def _marks(
    frame: pd.DataFrame,
    x: alt.X,
    field: str,
    axis: dict[str, Any],
    tip: alt.Tooltip,
    knees: pd.DataFrame | None,
    below: list[alt.Chart],
) -> Spec:
    low, high = f"{field}_low", f"{field}_high"
    colour = chart.colour(list(dict.fromkeys(frame["series"])), "series")
    base = alt.Chart(chart.records(frame, ["series", "cell", "at", field, low, high, "own"]))
    base = base.encode(x=x, color=colour)
    y = alt.Y(f"{field}:Q", **axis)
    marks = base.encode(y=y, tooltip=["cell:N", tip])
    whiskers = [
        base.mark_rule(strokeWidth=3, opacity=0.3, clip=True)
        .encode(y=alt.Y(f"{low}:Q", **axis), y2=f"{high}:Q")
        .transform_filter(f"isValid(datum.{low}) && isValid(datum.{high})")
    ]
    layers = [
        *below,
        *(whiskers if frame[low].notna().any() else []),
        base.mark_line(strokeWidth=1.6).encode(y=y),
    ]
    # a layer without a mark has no extent
    if not frame["own"].all():
        layers.append(
            marks.mark_point(filled=True, size=60, opacity=1).transform_filter("!datum.own")
        )
    if frame["own"].any():
        layers.append(
            marks.mark_point(filled=False, size=60, strokeWidth=1.6).transform_filter("datum.own")
        )
    if knees is not None and len(knees):
        layers.append(
            alt.Chart(chart.records(knees, ["at"])).mark_rule(style="zero", strokeWidth=1.4)
            .encode(x=x)
        )  # fmt: skip
    return chart.finish(alt.layer(*layers), HEIGHT)
