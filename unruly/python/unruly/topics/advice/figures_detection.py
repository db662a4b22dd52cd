"""A failure detector's timeout: how often it is wrong, and whom everybody hears in time."""

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
    from unruly.topics.advice.model import DetectionAdvice


def advice_detection(view: View) -> Figure | None:
    """Return false suspicions by timeout, and the size of what the accuracy set leaves out."""
    advice = advice_of(view)
    if advice is None:
        return None
    rows = advice_lines.drawn(view, advice.detection.rows)
    if not rows:
        return None
    frame = _frame(rows)
    panels = [_rates(view, frame)]
    sets = frame[frame["missed"].notna()]
    if len(sets):
        panels.append(_sets(view, sets))
    return Figure(
        view.key("advice-detection"),
        _title(rows),
        f"{advice.detection.assumption} Bands: {format.level(advice.level)} intervals. Where a "
        "line ends nobody was suspected any more, and the band's upper edge is what may have been "
        "missed. Dashed: how many may be late by the upper bound."
        + advice_lines.of_cell(view, advice.detection.rows),
        tuple(panels),
        legend=advice_lines.legend(view, rows),
        narrow=True,
    )


def _frame(rows: list[DetectionAdvice]) -> pd.DataFrame:
    found = []
    for row in rows:
        for point in row.points:
            rate = point.false_per_hour
            found.append(
                {
                    "op": row.op,
                    "timeout": point.timeout_ns,
                    "rate": rate.estimate or None,
                    "low": rate.low,
                    "high": rate.high,
                    "missed": None if point.missed is None else point.missed.estimate,
                    "missed_high": None if point.missed is None else point.missed.high,
                }
            )
    return pd.DataFrame(found)


def _rates(view: View, frame: pd.DataFrame) -> Panel:
    rates = frame[["rate", "high"]].astype(float)
    least = float(rates["rate"].min()) if rates["rate"].notna().any() else 1.0
    floor = min(least, float(rates["high"].min())) / 4
    frame = frame.assign(low=frame["low"].astype(float).clip(lower=floor))
    most = float(rates["high"].max())
    y = ("rate", "false suspicions an hour and pair (log scale)")
    scale = {
        "scale": alt.Scale(type="log", domain=[floor, most], nice=False, clamp=True),
        "axis": alt.Axis(
            values=chart.ticks(floor, most, 6), format="", formatType="amount", labelOverlap=True
        ),
    }
    spec = advice_lines.lines(
        view, frame, x=("timeout", "timeout T"), y=y, scale=scale, band=("low", "high"),
        value=alt.Tooltip("rate:Q", title="false suspicions an hour", format=".3~s"),
    )  # fmt: skip
    words = []
    for op, own in frame.groupby("op", sort=False):
        never = own[own["rate"].isna()]
        words.append(
            f"{op}: none from {format.duration(never['timeout'].min())} on"
            if len(never)
            else f"{op}: at every timeout"
        )
    text = f"False suspicions an hour by timeout. {'; '.join(words)}."
    return advice_lines.panel(spec, text, "How often is it wrong?")


def _sets(view: View, frame: pd.DataFrame) -> Panel:
    most = max(1, int(frame["missed_high"].max()))
    y = ("missed", "members that somebody saw late")
    scale = {
        "scale": alt.Scale(domain=[0, most]),
        "axis": alt.Axis(values=list(range(most + 1)), format="d"),
    }
    spec = advice_lines.lines(
        view, frame, x=("timeout", "timeout T"), y=y, scale=scale,
        bound="missed_high",
        value=alt.Tooltip("missed:Q", title="outside the accuracy set"), step=True,
    )  # fmt: skip
    words = []
    for op, own in frame.groupby("op", sort=False):
        none = own[own["missed"] == 0]
        words.append(
            f"{op}: nobody from {format.duration(none['timeout'].min())} on"
            if len(none)
            else f"{op}: somebody at every timeout"
        )
    text = f"Members outside the accuracy set, by timeout. {'; '.join(words)}."
    return advice_lines.panel(spec, text, "Whom does somebody see late?")


def _title(rows: list[DetectionAdvice]) -> str:
    found = []
    for row in rows:
        point = next((p for p in row.points if p.timeout_ns == row.chosen_ns), row.points[-1])
        found.append((point.timeout_ns, row, point))
    longest, row, point = max(found, key=lambda it: it[0])
    rate = point.false_per_hour
    often = (
        f"{format.significant(rate.estimate)} false suspicions an hour and pair"
        if rate.estimate
        else f"no false suspicion in {format.count(row.pings)} pings"
    )
    of = f" ({format.quoted(row.op)})" if len(rows) > 1 else ""
    return (
        f"A timeout of {format.duration(longest)} means {often}, and a crash is known within "
        f"{format.duration(point.detection_max_ns)}{of}"
    )
