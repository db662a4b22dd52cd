"""Lanes of tiers: requests in flight and response times, over one axis of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import altair as alt

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Panel
from unruly.drawing.since import Since
from unruly.tables import fetch
from unruly.tables.turnarounds import WINDOW_NS
from unruly.topics.tiers.model import tiers_of

if TYPE_CHECKING:
    import pandas as pd

    from unruly.drawing.document import Spec
    from unruly.drawing.view import View
    from unruly.topics.tiers.model import Tiers

POINTS: Final = 600
"""Most points of a lane: of more windows than that the fullest of each few is drawn."""
HEIGHT: Final = 170
EVENTS_HEIGHT: Final = 80
EVENTS_MOST: Final = 200
LEFT: Final = 62
SHOWN: Final = ("gc", "gc pause", "safepoint", "process stopped", "disk wait", "tap gap")


def lanes(view: View) -> Figure | None:
    """Return requests in flight and response times of all tiers, and events under them."""
    found = tiers_of(view.analysis)
    if found is None or found.windows.empty:
        return None
    cell, repeat = _fullest(found)
    windows = found.windows
    own = windows[(windows["cell"] == cell) & (windows["repeat"] == repeat)]
    names = list(dict.fromkeys(own["tier"]))[: chart.MOST_COLOURS]
    own = own[own["tier"].isin(names)]
    first, last = float(own["window_ns"].min()), float(own["window_ns"].max() + WINDOW_NS)
    since = Since.of(view, first, last)
    frame = _thinned(own)
    frame = frame.assign(time=since.place(frame["window_ns"]))
    events = _events(view, first, last, since)
    above, below = since.x(labels=False), since.x()
    panels = [
        Panel(_flight(frame, names, above), _told(own), "Requests in flight", HEIGHT),
        Panel(
            _response(frame, names, above if len(events) else below),
            "Longest response time of the requests that began in each window.",
            "Longest response",
            HEIGHT,
        ),
    ]
    if len(events):
        panels.append(
            Panel(_marks(events, below), f"{len(events)} events.", "Events", EVENTS_HEIGHT)
        )
    several = windows[["cell", "repeat"]].drop_duplicates().shape[0] > 1
    return Figure(
        view.key("tiers"),
        _title(own),
        "As the tap saw the services, in windows of 100 ms: the mean number of requests in flight, "
        "and the longest response time of the requests that began in it."
        + (
            " Where there are more windows than fit, the fullest of each few."
            if len(own) > len(frame)
            else ""
        )
        + (
            f" Cell {format.quoted(cell)}, repeat {repeat}, which had the fullest window."
            if several
            else ""
        ),
        tuple(panels),
        legend=chart.legend(names),
    )


def _fullest(found: Tiers) -> tuple[str, int]:
    worst = found.windows.loc[found.windows["in_flight"].idxmax()]
    return str(worst["cell"]), int(worst["repeat"])


def _thinned(own: pd.DataFrame) -> pd.DataFrame:
    """The fullest of every few windows, where there are too many."""
    count = int(own["window_ns"].nunique())
    if count <= POINTS:
        return own
    width = WINDOW_NS * -(-count // POINTS)
    start = int(own["window_ns"].min())
    placed = own.assign(window_ns=start + (own["window_ns"] - start) // width * width)
    columns = ["in_flight", "longest_ns"]
    return placed.groupby(["tier", "window_ns"], as_index=False, sort=False)[columns].max()


def _flight(frame: pd.DataFrame, names: list[str], x: alt.X) -> Spec:
    drawn = chart.records(frame, ["time", "tier", "in_flight"])
    return chart.finish(
        alt.Chart(drawn)
        .mark_line(strokeWidth=1.2, interpolate="step-after")
        .encode(
            x=x,
            y=alt.Y("in_flight:Q", title="requests in flight", axis=_left(tickCount=5)),
            color=chart.colour(names, "tier"),
        ),
        HEIGHT,
    )


def _response(frame: pd.DataFrame, names: list[str], x: alt.X) -> Spec:
    replied = frame[frame["longest_ns"] > 0]
    axis = chart.latency_axis("longest response", *chart.span_of(replied["longest_ns"]))
    axis["axis"] = _left(values=axis["axis"].values, format="", formatType="latency")
    axis["title"] = "longest response"
    drawn = chart.records(replied, ["time", "tier", "longest_ns"])
    return chart.finish(
        alt.Chart(drawn)
        .mark_circle(size=14, opacity=0.7)
        .encode(x=x, y=alt.Y("longest_ns:Q", **axis), color=chart.colour(names, "tier")),
        HEIGHT,
    )


def _events(view: View, first: float, last: float, since: Since) -> pd.DataFrame:
    """What happened meanwhile: pauses, faults, and gaps of the tap."""
    events = view.analysis.run.events
    wanted = events.kind.isin(SHOWN) | events.kind.startswith("fault ")
    within = events.filter(
        wanted & (events.started_ns >= int(first)) & (events.started_ns < int(last))
    )
    frame = fetch(within.select("kind", "process", "started_ns", "ended_ns").order_by("started_ns"))
    ended = frame["ended_ns"].fillna(frame["started_ns"]).astype(float)
    longest = (ended - frame["started_ns"]).nlargest(EVENTS_MOST).index
    frame = frame.assign(
        time=since.place(frame["started_ns"].astype(float)), end=since.place(ended)
    )
    return frame.loc[sorted(longest)]


def _marks(events: pd.DataFrame, x: alt.X) -> Spec:
    drawn = chart.records(events, ["time", "end", "kind", "process"])
    return chart.finish(
        alt.Chart(drawn)
        .mark_bar(size=6, minBandSize=1)
        .encode(
            x=x,
            x2="end:Q",
            y=alt.Y("kind:N", title=None, axis=_left(labelLimit=LEFT)),
            tooltip=["kind:N", "process:N"],
        ),
        EVENTS_HEIGHT,
    )


def _left(**more: Any) -> alt.Axis:
    """Every axis is equally wide, so that a moment stands at one place in all lanes."""
    return alt.Axis(minExtent=LEFT, maxExtent=LEFT, **more)


def _title(own: pd.DataFrame) -> str:
    worst = own.loc[own["in_flight"].idxmax()]
    return (
        f"In its fullest 100 ms {worst['tier']} had {format.significant(worst['in_flight'])} "
        f"requests in flight, {format.significant(own['in_flight'].mean())} is the mean of all"
    )


def _told(own: pd.DataFrame) -> str:
    by_tier = own.groupby("tier", sort=False)["in_flight"].max()
    return "; ".join(f"{tier}: up to {format.significant(most)}" for tier, most in by_tier.items())
