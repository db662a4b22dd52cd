"""Charts of streams side by side: bandwidth, the share left under load, the cost of each end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import altair as alt
import pandas as pd

from unruly import quantity
from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel
from unruly.topics.streams.model import NONE, streams_of
from unruly.topics.streams.words import cores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from unruly.drawing.document import Spec
    from unruly.drawing.view import View
    from unruly.stats import Interval
    from unruly.topics.streams.model import Stream

BAR: Final = 15
GAP: Final = 12
LABEL: Final = 150
M: Final = 1e6
CUT: Final = 2.0
LINES: Final = "Lines: intervals (95 %), drawn to twice the bar at most"
COLUMNS: Final = ["name", "load", "label", "value", "low", "high", "drawn"]


def loads_of(rows: Sequence[Stream]) -> list[str]:
    """Return the loads of a run, none first."""
    found = dict.fromkeys(row.load for row in rows)
    return sorted(found, key=lambda load: (load != NONE, list(found).index(load)))


def names_of(rows: Sequence[Stream]) -> list[str]:
    """Return protocols (with the factors that separate their cells), the fastest unloaded first."""
    best: dict[str, float] = {}
    for row in rows:
        mean = (row.bandwidth_bps.estimate if row.bandwidth_bps else None) or 0.0
        best[row.name] = max(best.get(row.name, 0.0), mean)
    return sorted(best, key=lambda name: -best[name])


def bandwidth(view: View) -> Figure | None:
    """Return the bandwidth of each protocol beside each load."""
    rows = _rows(view)
    known = [row for row in rows if row.bandwidth_bps is not None]
    if not known:
        return None
    frame = _frame(known, lambda row: row.bandwidth_bps, 1 / M)
    links = sorted({row.link_bps for row in known if row.link_bps})
    marks = [link / M for link in links] if len(links) == 1 else []
    spec, height = bars(frame, names_of(known), loads_of(rows), "Mbit/s at the reader", marks)
    told = "; ".join(f"{row.label} {quantity.bandwidth(_mean(row.bandwidth_bps))}" for row in known)
    dashed = f" Dashed: the link's {quantity.bandwidth(links[0])}." if marks else ""
    return Figure(
        view.key("bandwidth"),
        _bandwidth_title(known),
        "Messages that came, without headers, over the measured time. "
        f"{LINES}, over repeats, or over the seconds of one.{dashed}",
        (Panel(spec, f"Bandwidth: {told}.", height=height),),
        legend=load_legend(loads_of(rows)),
    )


def kept(view: View) -> Figure | None:
    """Return the share of its unloaded bandwidth that each protocol keeps beside each load."""
    known = [row for row in _rows(view) if row.of_unloaded is not None]
    if not known:
        return None
    frame = _frame(known, lambda row: row.of_unloaded, 100.0)
    loads = loads_of(_rows(view))
    least: dict[str, float] = {}
    for row in known:
        mean = _mean(row.of_unloaded) or 0.0
        least[row.name] = min(least.get(row.name, 9.0), mean)
    order = sorted(least, key=lambda name: -least[name])
    spec, height = bars(frame, order, loads, "% of the unloaded bandwidth", [100.0])
    worst = min(known, key=lambda row: _mean(row.of_unloaded) or 0.0)
    told = "; ".join(f"{row.label} {format.share(_mean(row.of_unloaded))}" for row in known)
    return Figure(
        view.key("kept"),
        f"{worst.label} keeps {format.share(_mean(worst.of_unloaded))} of its bandwidth",
        "Bandwidth beside a load over that of the same cell without it, by pairs of repeats, or of "
        f"one pair by its seconds. {LINES}; without a line there are too few seconds for one. "
        "Dashed: all of it.",
        (Panel(spec, f"What is left: {told}.", height=height),),
        legend=load_legend(loads, without=NONE),
    )


def processors(view: View) -> Figure | None:
    """Return the cores that writer and reader use."""
    rows = _rows(view)
    known = [row for row in rows if row.writer.cpu_cores or row.reader.cpu_cores]
    if not known:
        return None
    panels = []
    for side in ("writer", "reader"):
        frame = _frame(known, partial(_cores_of, side), 1.0)
        if frame.empty:
            continue
        spec, height = bars(frame, names_of(known), loads_of(rows), f"cores, {side}", [1.0])
        told = "; ".join(f"{row.label} {cores(_mean(_cores_of(side, row)))}" for row in known)
        panels.append(Panel(spec, f"Cores of the {side}: {told}.", side.capitalize(), height))
    bound = [row for row in known if row.writer.bound or row.reader.bound]
    title = (
        f"{format.listing([row.label for row in bound], 4)}: a core is all that there is to use"
        if bound
        else "No end uses all of a core"
    )
    return Figure(
        view.key("processors"),
        title,
        "CPU time of each end's own process, in cores, without the kernel's work for it in "
        f"interrupts. {LINES}. Dashed: one core. A load that is kept on the same core leaves less "
        "than that.",
        tuple(panels),
        legend=load_legend(loads_of(rows)),
        narrow=True,
    )


def bars(
    frame: pd.DataFrame, order: list[str], loads: list[str], title: str, marks: Sequence[float]
) -> tuple[Spec, int]:
    """Return bars with intervals, a row for each name, and the height of the picture."""
    here = [load for load in loads if load in set(frame["load"])]
    rows = [name for name in order if name in set(frame["name"])]
    height = (BAR * len(here) + GAP) * len(rows)
    axis: dict[str, Any] = {
        "title": title,
        "scale": alt.Scale(zero=True, nice=True),
        "axis": alt.Axis(tickCount=6, format=",.4~r"),
    }
    base = alt.Chart(chart.records(frame, COLUMNS))
    base = base.encode(
        y=alt.Y(
            "name:N", sort=rows, title=None, axis=alt.Axis(labelLimit=LABEL),
            scale=alt.Scale(paddingInner=0.25, paddingOuter=0.1),
        ),
        yOffset=alt.YOffset("load:N", sort=here),
    )  # fmt: skip
    tips = [alt.Tooltip(f"{name}:Q", format=".4~g") for name in ("value", "low", "high")]
    drawn = [
        base.mark_bar(opacity=0.8).encode(
            x=alt.X("value:Q", **axis), color=chart.colour(loads, "load"),
            tooltip=["label:N", *tips],
        ),
    ]  # fmt: skip
    if frame["low"].notna().any():
        drawn.append(
            base.mark_rule(strokeWidth=2, style="ink")
            .encode(x=alt.X("low:Q", **axis), x2="drawn:Q")
            .transform_filter("isValid(datum.low) && isValid(datum.drawn)")
        )
    if marks:
        lines = alt.Chart(chart.records(pd.DataFrame({"at": list(marks)}), ["at"]))
        drawn.append(lines.mark_rule(style="zero").encode(x=alt.X("at:Q", **axis)))
    return chart.finish(alt.layer(*drawn), height), height


def load_legend(loads: Sequence[str], without: str | None = None) -> tuple[Key, ...]:
    """Return the legend of loads, in the colours that they have in every figure."""
    return tuple(
        Key("no load" if load == NONE else f"beside {load}", place, "square")
        for place, load in enumerate(loads)
        if load != without
    )


def _rows(view: View) -> tuple[Stream, ...]:
    return held.rows if (held := streams_of(view.analysis)) else ()


def _cores_of(side: str, row: Stream) -> Interval | None:
    return (row.writer if side == "writer" else row.reader).cpu_cores


def _mean(found: Interval | None) -> float | None:
    return found.estimate if found else None


def _frame(
    rows: Sequence[Stream], value: Callable[[Stream], Interval | None], scale: float
) -> pd.DataFrame:
    points = []
    for row in rows:
        found = value(row)
        if found is None or found.estimate is None:
            continue
        low, high = (None if end is None else end * scale for end in (found.low, found.high))
        # an interval of two repeats may reach ten times as far as all bars: its line is cut there
        drawn = None if high is None else min(high, CUT * found.estimate * scale)
        points.append({
            "name": row.name, "load": row.load, "label": row.label,
            "value": found.estimate * scale, "low": low, "high": high, "drawn": drawn,
        })  # fmt: skip
    return pd.DataFrame(points, columns=COLUMNS).astype(dict.fromkeys(COLUMNS[-3:], float))


def _bandwidth_title(rows: Sequence[Stream]) -> str:
    full = [row for row in rows if row.verdict == "link saturated"]
    slowest = min(rows, key=lambda row: _mean(row.bandwidth_bps) or 0.0)
    least = f"{slowest.label} gives {quantity.bandwidth(_mean(slowest.bandwidth_bps))}"
    if len(full) == len(rows):
        return "Every protocol fills the link beside every load"
    if full:
        return f"{len(full)} of {len(rows)} cells fill the link; {least}"
    best = max(rows, key=lambda row: _mean(row.bandwidth_bps) or 0.0)
    if best.cell == slowest.cell:
        return least
    return f"{best.label} gives {quantity.bandwidth(_mean(best.bandwidth_bps))}, {least}"
