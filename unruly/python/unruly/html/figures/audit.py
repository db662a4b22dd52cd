"""One audited percentile: its requests over time, and where the percentile may lie."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel
from unruly.drawing.since import TICKS, time_unit
from unruly.output import audit as words

if TYPE_CHECKING:
    from unruly.auditing import Audited, Points
    from unruly.drawing.document import Spec

HEIGHT: Final = 260
ROW: Final = 34
USUAL, EARLY, OWN, ADDED = "usual formula", "MLPerf", "this file", "with the missing"
TICKS_MOST: Final = 6
SEVERAL: Final = 12.0
"""A range this wide has ticks enough at 1, 2 and 5."""
WIDER_SHOWN: Final = 1.2
"""Bounds that are wider by less than this are called alike."""
TOGETHER: Final = 3.0
"""Slow requests in an episode from which a picture says that they came together."""


def picture(it: Audited, key: str) -> Figure | None:
    """Return the requests over time and the bounds; None if the order of the requests is unknown.

    Parameters
    ----------
    it : Audited
        One percentile of one file.
    key : str
        The id of the figure, unique on its page.
    """
    points = it.points
    if points is None:
        return None
    panels = [Panel(_requests(it, points), _requests_alt(it), "The requests over time", HEIGHT)]
    bounds = _bounds(it)
    if len(bounds):
        height = 24 + ROW * len(bounds)
        title = f"Where the true {words.name_of(it)} lies"
        panels.append(Panel(_ranges(it, bounds, height), _bounds_alt(it, bounds), title, height))
    failed = any(math.isinf(value) for value in points.latency_ns)
    legend = (
        Key(f"slower than the {words.name_of(it)}", 1),
        Key("other requests", -2),
        *((Key("failed", -1, "cross"),) if failed else ()),
    )
    caption = _caption(it, points, bounds, failed=failed)
    return Figure(key, _title(it), caption, tuple(panels), legend=legend)


def _title(it: Audited) -> str:
    """Return what the picture shows, as a sentence."""
    claims, name = it.claims, words.name_of(it)
    if claims is None or claims.estimate is None or not claims.beyond:
        return "The requests of the file"
    if claims.own.abstained in ("A2a", "A2b"):
        return "The latency drifted, so the end of the run says little about its beginning"
    together = claims.beyond >= TOGETHER * max(claims.episodes, 1.0)
    came = f"{format.plural(claims.beyond, 'slow request')} came in about {words.episodes(claims)}"
    if not together:
        alone = words.outcome(it) == "sound"
        return f"{came}: hardly any of them came together" if alone else came
    wider = _wider(it)
    if wider is None:
        return came
    if wider < WIDER_SHOWN:
        return f"{came}, yet the usual bounds are wide enough"
    return f"{came}, so the bounds of the {name} are {format.times(wider)} as wide as usual"


def _wider(it: Audited) -> float | None:
    """Return how many times as wide the bounds are that the file supports."""
    claims = it.claims
    own = claims.own.interval if claims else None
    if claims is None or own is None or None in (own.low, own.high, claims.low, claims.high):
        return None
    usual = float(claims.high or 0) - float(claims.low or 0)
    return (float(own.high or 0) - float(own.low or 0)) / usual if usual > 0 else None


def _caption(it: Audited, points: Points, bounds: pd.DataFrame, *, failed: bool) -> str:
    name = words.name_of(it)
    said = ["Each dot is a request: how long it took, and when it was sent."]
    if it.scheduled:
        said = ["Each dot is a request: how long it took, and when it was scheduled."]
    if not points.timed:
        said = ["Each dot is a request: how long it took, in the order of the file."]
    if it.estimate is not None:
        said.append(f"The dashed line is the {name} of the file.")
    said.append("Dots that stand above one another came at one time, as after a pause.")
    usual = sum(
        not slow and math.isfinite(value)
        for slow, value in zip(points.slow, points.latency_ns, strict=True)
    )
    others = it.n - it.failed - (it.claims.beyond if it.claims else 0)
    if usual < others:
        said.append(f"Of {format.count(others)} other requests, {format.count(usual)} are drawn.")
    if failed:
        said.append("Crosses at the upper edge are requests that failed.")
    if points.left_out:
        said.append(
            f"{format.count(points.left_out)} more slow or failed requests are not drawn, but the "
            f"slowest one of each stretch of time is."
        )
    if len(bounds):
        said.append(
            "Below, each bar is a range for the true percentile; a bar that reaches the edge has "
            "no bound there."
        )
        if bounds["at_most"].notna().any():
            said.append("A triangle is an upper bound alone.")
        if bounds["near"].notna().any():
            said.append("A diamond is an estimate with the requests that were not sent.")
        if OWN not in set(bounds["row"]):
            said.append("This file supports no bounds, so it has no bar.")
    return " ".join(said)


def _frame(points: Points) -> tuple[pd.DataFrame, float, str]:
    """Return the points in the unit of the axis of time, the end of the axis, and its title."""
    scale, unit = time_unit(points.end) if points.timed else (1.0, "")
    times = [at / scale for at in points.at]
    frame = pd.DataFrame({"time": times, "latency": points.latency_ns, "slow": points.slow})
    title = f"time since the first request ({unit})" if points.timed else "number of the request"
    return frame, max(points.end / scale, 1e-9), title


def _requests(it: Audited, points: Points) -> Spec:
    frame, end, title = _frame(points)
    good = frame[frame["latency"].map(math.isfinite)]
    failed = frame[~frame["latency"].map(math.isfinite)]
    low, high = chart.span_of([*good["latency"], it.estimate or math.nan])
    good = good.assign(latency=good["latency"].clip(lower=low))
    axis = chart.latency_axis("latency", low, high)
    x = alt.X(
        "time:Q",
        title=title,
        scale=alt.Scale(domain=[0, end], nice=False),
        axis=alt.Axis(tickCount=TICKS),
    )
    y = alt.Y("latency:Q", **axis)
    tips = [
        chart.latency_tooltip("latency", "latency"),
        alt.Tooltip("time:Q", title=title, format=".5~g"),
    ]
    layers: list[Any] = []
    for slow, style, size, opacity in ((False, "plain", 10, 0.4), (True, "second", 18, 0.75)):
        layers.append(
            alt.Chart(chart.records(good[good["slow"] == slow], ["time", "latency"]))
            .mark_point(filled=True, size=size, opacity=opacity, style=style)
            .encode(x=x, y=y, tooltip=tips)
        )
    if it.estimate:
        line = alt.Chart(alt.InlineData(values=[{"at": chart.rounded(it.estimate)}]))
        layers.append(line.mark_rule(style="zero", strokeWidth=1.4).encode(y=alt.Y("at:Q", **axis)))
    if len(failed):
        layers.append(
            alt.Chart(chart.records(failed, ["time"]))
            .mark_point(shape="cross", size=18, filled=True, style="failed", angle=45, opacity=0.7)
            .encode(x=x, y=alt.value(4))
        )
    return chart.finish(alt.layer(*layers), HEIGHT)


def _requests_alt(it: Audited) -> str:
    shown = f"; the {words.name_of(it)} is {format.duration(it.estimate)}" if it.estimate else ""
    slow = f"{format.count(it.claims.beyond)} were slower" if it.claims else ""
    found = f"{words.size(it)[:-1]}{shown}"
    return f"Latency of the requests over time. {found}{f', and {slow}' if slow else ''}."


def _bounds(it: Audited) -> pd.DataFrame:
    """Return the ranges of the percentile: of each who claims one, its ends."""
    rows: list[dict[str, Any]] = []
    claims = it.claims
    if claims is not None and claims.estimate is not None:
        own = claims.own.interval
        if claims.low is not None:
            rows.append({"row": USUAL, "low": claims.low, "high": claims.high})
        if claims.bound is not None:
            rows.append({"row": EARLY, "at_most": claims.bound})
        if own is not None and own.low is not None:
            rows.append({"row": OWN, "low": own.low, "high": own.high})
        if rows and it.omission and it.omission.estimate:
            rows.append({"row": ADDED, "near": it.omission.estimate})
    columns = ["row", "low", "high", "at_most", "near"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype(dict.fromkeys(columns[1:], float))


def _ranges(it: Audited, bounds: pd.DataFrame, height: int) -> Spec:
    numbers = ["low", "high", "at_most", "near"]
    ends = chart.span_of([*bounds[numbers].to_numpy().ravel(), it.estimate or math.nan])
    least, edge = chart.padded(*ends)
    axis = chart.latency_axis(words.name_of(it), *ends)
    axis["axis"] = alt.Axis(values=_ticks(least, edge), format="", formatType="latency")
    bars = bounds[bounds["low"].notna()]
    bars = bars.assign(end=bars["high"].fillna(edge), own=bars["row"] == OWN)
    y = alt.Y(
        "row:N", sort=bounds["row"].tolist(), title=None,
        scale=alt.Scale(domain=bounds["row"].tolist()), axis=alt.Axis(labelLimit=130),
    )  # fmt: skip
    tips = ["row:N", chart.latency_tooltip("low", "from"), chart.latency_tooltip("high", "to")]
    layers: list[Any] = []
    for own, style in ((False, "second"), (True, "saved")):
        layers.append(
            alt.Chart(chart.records(bars[bars["own"] == own], ["row", "low", "high", "end"]))
            .mark_rule(strokeWidth=8, strokeCap="round", opacity=0.75, style=style)
            .encode(x=alt.X("low:Q", **axis), x2="end:Q", y=y, tooltip=tips)
        )
    marks = (("at_most", "triangle-left", "second"), ("near", "diamond", "failed"))
    for field, shape, style in marks:
        held = bounds[bounds[field].notna()]
        if len(held):
            tips = ["row:N", chart.latency_tooltip(field, field.replace("_", " "))]
            layers.append(
                alt.Chart(chart.records(held, ["row", field]))
                .mark_point(filled=True, size=110, shape=shape, style=style, opacity=1)
                .encode(x=alt.X(f"{field}:Q", **axis), y=y, tooltip=tips)
            )
    line = alt.Chart(alt.InlineData(values=[{"at": chart.rounded(it.estimate)}]))
    layers.append(line.mark_rule(style="zero", strokeWidth=1.4).encode(x=alt.X("at:Q", **axis)))
    return chart.finish(alt.layer(*layers), height)


def _ticks(low: float, high: float) -> list[float]:
    """Return round latencies of a log axis that may span less than a decade."""
    if high / low > SEVERAL:
        return chart.ticks(low, high, TICKS_MOST)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [step * 10.0**decade for decade in decades for step in (1, 1.5, 2, 3, 4, 5, 7)]
    return [it for it in found if low <= it <= high]


def _bounds_alt(it: Audited, bounds: pd.DataFrame) -> str:
    parts = []
    for row in bounds.to_dict("records"):
        if not math.isnan(row["low"]):
            upper = format.duration(row["high"])
            until = f"to {upper}" if upper != format.DASH else "or more"
            parts.append(f"{row['row']}: {format.duration(row['low'])} {until}")
        elif not math.isnan(row["at_most"]):
            parts.append(f"{row['row']}: at most {format.duration(row['at_most'])}")
        else:
            parts.append(f"{row['row']}: near {format.duration(row['near'])}")
    return f"Ranges of the true {words.name_of(it)}. {'; '.join(parts)}."
