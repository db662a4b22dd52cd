"""Streams over time: how steady each second is, what happened, and what the load takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import altair as alt
import numpy as np
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Panel
from unruly.quantity import percent
from unruly.topics.streams.figures import M, loads_of, names_of
from unruly.topics.streams.hypotheses import is_jvm
from unruly.topics.streams.load import OFF_MOST
from unruly.topics.streams.model import GC, NONE, streams_of

if TYPE_CHECKING:
    from unruly.drawing.document import Spec
    from unruly.drawing.view import View
    from unruly.topics.streams.model import Leg, Stream, Streams

HEIGHT: Final = 210
POINTS: Final = 120
"""Most points of a curve: one more would fall on the same pixel."""
SECONDS_LEAST: Final = 6
COLLECTIONS: Final = ("gc", "gc pause", "safepoint")
ENDS: Final = ("writer", "reader")
EVENTS_MOST: Final = 60
PAUSES_MOST: Final = 5
PAUSE_LEAST_NS: Final = 50e6
"""Of a collector's pauses the longest few are drawn, and none that a tenth of a second hides."""
SIDES: Final = ("writer", "reader", "compete")
SAID: Final = {"writer": "writer", "reader": "reader", "compete": "competing load"}


def distributions(view: View) -> Figure | None:
    """Return the distribution of the bandwidth of single seconds, a panel for each load."""
    streams = streams_of(view.analysis)
    if streams is None:
        return None
    rows = [row for row in streams.rows if row.quantiles_bps]
    names = names_of(rows)[: chart.MOST_COLOURS]
    drawn = [row for row in rows if row.name in names]
    if not drawn:
        return None
    highest = max(row.quantiles_bps[1.0] for row in drawn) / M
    panels = []
    for load in loads_of(drawn):
        own = [row for row in drawn if row.load == load]
        frame = pd.concat([_curve(streams, row) for row in own], ignore_index=True)
        told = "; ".join(
            f"{row.name} varies by {percent(row.variation.estimate if row.variation else None)}"
            for row in own
        )
        spec = _curves(frame, names, highest)
        title = "No load" if load == NONE else f"Beside {load}"
        panels.append(Panel(spec, f"{title}: {told}.", title, HEIGHT))
    return Figure(
        view.key("seconds"),
        _steadiness_title(drawn),
        "Share of the seconds in which less came than that. A line that stands upright: every "
        "second is like the next. One that leans, or goes up in steps: it varies. All repeats "
        "together.",
        tuple(panels),
        legend=chart.legend(names),
        narrow=True,
    )


def over_time(view: View) -> Figure | None:
    """Return the bandwidth of each second of the first repeat, a panel for each load."""
    streams = streams_of(view.analysis)
    if streams is None or streams.seconds.empty:
        return None
    first: dict[str, Leg] = {}
    for leg in streams.legs:
        if (streams.seconds["cell"] == leg.cell).any():
            first.setdefault(leg.cell, leg)
    rows = [row for row in streams.rows if row.cell in first]
    names = names_of(rows)[: chart.MOST_COLOURS]
    rows = [row for row in rows if row.name in names]
    longest = max(_length(first[row.cell]) for row in rows)
    if longest < SECONDS_LEAST:
        return None
    drawn = streams.seconds["cell"].isin([row.cell for row in rows])
    highest = float(streams.seconds.loc[drawn, "bps"].max()) / M
    panels = []
    for load in loads_of(rows):
        own = [row for row in rows if row.load == load]
        spec, told = _time(streams, own, first, names, (longest, highest))
        title = "No load" if load == NONE else f"Beside {load}"
        panels.append(Panel(spec, f"{title}: {told}", title, HEIGHT))
    return Figure(
        view.key("stream-time"),
        _time_title(streams, rows),
        "What came in each second, of the first repeat of each cell. Upright lines: what happened "
        "to it, such as an end before its time, a fault, or the longest pauses of an end's "
        "collector (of 50 ms or more).",
        tuple(panels),
        legend=chart.legend(names),
        narrow=True,
    )


def resources(view: View) -> Figure | None:
    """Return CPU and memory over time beside a load: the collector's where there is one."""
    streams = streams_of(view.analysis)
    if streams is None:
        return None
    rows = [row for row in streams.rows if row.load != NONE and row.bandwidth_bps is not None]
    rows.sort(key=lambda row: (row.load != GC, not is_jvm(row.protocol)))
    usage = streams.usage
    chosen = next((row for row in rows if (usage["cell"] == row.cell).any()), None)
    if chosen is None:
        return None
    own = usage[(usage["cell"] == chosen.cell) & (usage["repeat"] == usage.loc[
        usage["cell"] == chosen.cell, "repeat"].min())]  # fmt: skip
    if own["second"].nunique() < SECONDS_LEAST:
        return None
    # of the load's processes what they use together, on each host
    by_second = own.groupby(["side", "host", "second"])[["cpu_cores", "rss_bytes"]]
    # what no row knows is no 0: a load inside another process has no memory of its own
    frame = by_second.sum(min_count=1).reset_index()
    frame = frame.rename(columns={"cpu_cores": "cores", "rss_bytes": "memory"})
    frame["what"] = [
        f"{SAID[side]}, {host}" if side == "compete" else SAID[side]
        for side, host in zip(frame["side"], frame["host"], strict=True)
    ]
    frame["memory"] /= 1e6
    names = list(dict.fromkeys(frame.sort_values(["side", "host"])["what"]))
    # the last second may be a part of one
    last = frame["second"].max()
    frame = frame[frame["second"] < last] if last >= SECONDS_LEAST else frame
    panels = tuple(
        Panel(
            _usage(frame, names, field, title), f"{title} over time: {_levels(frame, field)}.",
            format.capital(title), HEIGHT,
        )
        for field, title in (("cores", "CPU, cores"), ("memory", "memory, MB"))
    )  # fmt: skip
    return Figure(
        view.key("load"),
        _held_title(chosen),
        f"Of {chosen.label}, first repeat, each second of the measured time: CPU time, and the "
        "memory that processes hold. Where a collector works in the protocol's own JVM its heap "
        "and its CPU time are also in those of that end.",
        panels,
        legend=chart.legend(names),
        narrow=True,
    )


def _curve(streams: Streams, row: Stream) -> pd.DataFrame:
    """The share of seconds below each bandwidth."""
    own = streams.seconds.loc[streams.seconds["cell"] == row.cell, "bps"].to_numpy(dtype=float)
    share = np.linspace(0.0, 1.0, min(POINTS, own.size))
    return pd.DataFrame({
        "name": row.name, "mbps": np.quantile(own, share) / M, "share": 100 * share,
    })  # fmt: skip


def _curves(frame: pd.DataFrame, names: list[str], highest: float) -> Spec:
    drawn = (
        alt.Chart(chart.records(frame, ["name", "mbps", "share"]))
        .mark_line(strokeWidth=1.8, interpolate="step-after")
        .encode(
            x=alt.X(
                "mbps:Q", title="Mbit/s in a second",
                scale=alt.Scale(domain=[0, highest * 1.03], nice=False),
                axis=alt.Axis(tickCount=5),
            ),
            y=alt.Y(
                "share:Q", title="% of the seconds", scale=alt.Scale(domain=[0, 100]),
                axis=alt.Axis(tickCount=4),
            ),
            order=alt.Order("share:Q"),
            color=chart.colour(names, "name"),
            tooltip=["name:N", alt.Tooltip("mbps:Q", format=",.4~g"), "share:Q"],
        )
    )  # fmt: skip
    return chart.finish(alt.layer(drawn), HEIGHT)


def _length(leg: Leg) -> float:
    return (leg.last_ns - leg.first_ns) / 1e9


def _time(
    streams: Streams,
    rows: list[Stream],
    first: dict[str, Leg],
    names: list[str],
    ends: tuple[float, float],
) -> tuple[Spec, str]:
    parts, marks = [], []
    for row in rows:
        leg = first[row.cell]
        seconds = streams.seconds
        own = seconds[(seconds["cell"] == row.cell) & (seconds["repeat"] == leg.repeat)]
        parts.append(
            pd.DataFrame({
                "name": row.name, "time": own["second"] + 0.5, "mbps": own["bps"] / M,
            })
        )  # fmt: skip
        marks.append(_events(streams, row, leg))
    frame, events = pd.concat(parts, ignore_index=True), pd.concat(marks, ignore_index=True)
    x = alt.X(
        "time:Q", title="time measured (s)", scale=alt.Scale(domain=[0, ends[0]], nice=False),
        axis=alt.Axis(tickCount=6),
    )  # fmt: skip
    colour = chart.colour(names, "name")
    # the same in all panels, so that loads can be held against each other
    level = alt.Scale(domain=[0, 1.03 * max(ends[1], 1e-3)], nice=False)
    lines = (
        alt.Chart(chart.records(frame, ["name", "time", "mbps"]))
        .mark_line(strokeWidth=1.6)
        .encode(
            x=x, color=colour,
            y=alt.Y("mbps:Q", title="Mbit/s", axis=alt.Axis(tickCount=4), scale=level),
            tooltip=["name:N", "time:Q", alt.Tooltip("mbps:Q", format=",.4~g")],
        )
    )  # fmt: skip
    layers: list[Any] = [lines]
    if len(events):
        upright = alt.Chart(chart.records(events, ["name", "time", "kind"]))
        layers.insert(
            0,
            upright.mark_rule(strokeWidth=1.4, opacity=0.5).encode(
                x=x, color=colour, tooltip=["name:N", "kind:N"]
            ),
        )
    told = [
        f"{name} {format.significant(float(part['mbps'].min()))} to "
        f"{format.significant(float(part['mbps'].max()))} Mbit/s"
        for name, part in frame.groupby("name", sort=False)
    ]
    kinds = list(dict.fromkeys(events["kind"]))
    happened = f"; {format.listing(kinds, 6)}" if kinds else ""
    return chart.finish(alt.layer(*layers), HEIGHT), f"{'; '.join(told)}{happened}."


def _events(streams: Streams, row: Stream, leg: Leg) -> pd.DataFrame:
    """What happened to a leg, by when of its measured time."""
    found = streams.events
    own = found[(found["cell"] == leg.cell) & (found["repeat"] == leg.repeat)]
    own = own[own["started_ns"].between(leg.first_ns, leg.last_ns)]
    paused = own[own["kind"].isin(COLLECTIONS)]
    # those of the load's own virtual machine stop nobody else
    of_ends = np.array([str(it).startswith(ENDS) for it in paused["process"]], dtype=bool)
    ends = paused.loc[of_ends]
    length = (ends["ended_ns"] - ends["started_ns"]).astype(float)
    longest = length[length >= PAUSE_LEAST_NS].nlargest(PAUSES_MOST).index
    inside = own.loc[[*own.index.difference(paused.index)[:EVENTS_MOST], *longest]]
    since = (inside["started_ns"] - leg.first_ns).astype(float) / 1e9
    return pd.DataFrame({"name": row.name, "time": since, "kind": inside["kind"]})


def _usage(frame: pd.DataFrame, names: list[str], field: str, title: str) -> Spec:
    known = frame[frame[field].notna()]
    drawn = (
        alt.Chart(chart.records(known.assign(time=known["second"] + 0.5), ["what", "time", field]))
        .mark_line(strokeWidth=1.8)
        .encode(
            x=alt.X("time:Q", title="time measured (s)", axis=alt.Axis(tickCount=6)),
            y=alt.Y(
                f"{field}:Q", title=title, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=4)
            ),
            color=chart.colour(names, "what"),
            tooltip=["what:N", "time:Q", alt.Tooltip(f"{field}:Q", format=".3~g")],
        )
    )
    return chart.finish(alt.layer(drawn), HEIGHT)


def _levels(frame: pd.DataFrame, field: str) -> str:
    means = frame.groupby("what")[field].mean().dropna()
    return "; ".join(f"{what} {format.significant(float(mean))}" for what, mean in means.items())


def _held_title(row: Stream) -> str:
    if not row.held:
        return f"What {row.label} takes over time"
    worst = max(row.held, key=lambda it: abs(it.off))
    how = "did not hold" if abs(worst.off) > OFF_MOST else "held"
    if "held" in row.absent:
        return format.capital(row.absent["held"])
    return (
        f"The {row.load} load {how} its share: {format.share(worst.farthest)} of the cores, "
        f"{format.share(worst.target)} wanted"
    )


def _steadiness_title(rows: list[Stream]) -> str:
    known = [row for row in rows if row.variation is not None]
    if not known:
        return "How the bandwidth of single seconds is spread"
    worst = max(known, key=lambda row: (row.variation.estimate if row.variation else None) or 0.0)
    share = worst.variation.estimate if worst.variation else None
    return f"{worst.label} varies most: by {percent(share)} from second to second"


def _time_title(streams: Streams, rows: list[Stream]) -> str:
    began = [leg for leg in streams.legs if not leg.failed]
    silent = max(began, key=lambda leg: leg.silent_seconds)
    if silent.silent_seconds:
        (name,) = [row.label for row in streams.rows if row.cell == silent.cell]
        return f"{name} is silent for {silent.silent_seconds} s at most"
    return "Something came in every second of every stream" if rows else ""
