"""What flowed over the run: faults, collections and stalls in lanes; replies; failures; latency."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import altair as alt
import numpy as np
import pandas as pd

from unruly.base.worked import kind_name
from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel
from unruly.drawing.frames import with_gaps
from unruly.drawing.since import Since
from unruly.drawing.view import natural
from unruly.topics.stores.statistics import stores_of

if TYPE_CHECKING:
    from unruly.drawing.document import Spec
    from unruly.drawing.view import View
    from unruly.topics.stores.flow import Flow
    from unruly.topics.stores.statistics import Stores

FAULT: Final = "fault "
LANES_MOST: Final = 12
LANE: Final = 24
HEIGHT: Final = 130
LEFT: Final = 104
TITLE: Final = 20
"""The widths of every panel's axis and of its title, so that all panels align in time."""
VISIBLE: Final = 400
"""The least width of a drawn span is the width of the chart divided by this."""
FAULTS_TOLD: Final = 24
CELLS: Final = "cell"
LETTERS: Final = 140
"""This many letters fit into the width of the chart."""


def flow(view: View) -> Figure | None:
    """Return lanes of process events, good and failed replies a second, and the p99."""
    stores = stores_of(view.analysis)
    if stores is None or stores.flow is None or stores.flow.latency.empty:
        return None
    found, first, last = stores.flow, stores.legs["first_ns"].min(), stores.legs["last_ns"].max()
    since = Since.of(view, float(first), float(last))
    start, scale = since.start_ns, since.scale
    x, below = since.x(labels=False, clamp=True), since.x(clamp=True)
    spans = _spans(stores, start, scale)
    faults = spans[spans["kind"].str.startswith(FAULT)]
    kinds = [kind for kind in dict.fromkeys(spans["kind"]) if not kind.startswith(FAULT)]
    kinds = [kind for kind in kinds if kind != CELLS]
    panels, step = [], 1.5 * found.bin_ns / scale
    if len(spans):
        lanes = len(dict.fromkeys(spans["process"]))
        names = [f"{it['kind']} of {it['process']}" for it in faults.to_dict("records")]
        told = f": {format.listing(names, FAULTS_TOLD)}" if names else ""
        spec, height = _lanes(spans, kinds, x), LANE * lanes
        panels.append(Panel(spec, f"What went on in processes{told}.", "", height))
    replies = _timed(found.replies, found, start, scale)
    good, bad = replies[replies["status"] == "ok"], replies[replies["status"] != "ok"]
    panels.append(Panel(_good(good, faults, x, step), _told(good), "", HEIGHT))
    statuses = sorted(set(bad["status"]))
    if statuses:
        alt_text = (
            f"Failed requests a second by kind: {format.listing([*map(kind_name, statuses)])}."
        )
        panels.append(Panel(_failed(bad, statuses, faults, x, step / 1.5), alt_text, "", HEIGHT))
    latency = _timed(found.latency, found, start, scale)
    panels.append(
        Panel(_latency(latency, faults, below, step), "p99 and maximum.", "", HEIGHT + 30)
    )
    return Figure(
        view.key("flow"),
        _title(view, found, replies, faults),
        _caption(stores, found, kinds, statuses, len(faults)),
        tuple(panels),
        legend=(
            *([Key("fault", -1, "square")] if len(faults) else []),
            *(Key(kind, place, "square") for place, kind in enumerate(kinds)),
            *(Key(kind_name(it), place, "square") for place, it in enumerate(statuses)),
        ),
    )  # fmt: skip


def _caption(
    stores: Stores, found: Flow, kinds: list[str], statuses: list[str], faults: int
) -> str:
    total = sum(it.times for it in stores.faults)
    shaded = "the faults" if faults >= total else f"{faults} of {format.count(total)} faults"
    each = "second" if found.bin_ns == 1_000_000_000 else format.span(found.bin_ns)
    return (
        f"From above: {'events of each process; ' if kinds or faults else ''}good replies a "
        "second, by when they came; "
        + ("failed ones, by when they were due; " if statuses else "")
        + f"the p99 (thick) and the slowest (thin) of the requests scheduled in each {each}. "
        + (f"Shaded: {shaded}. " if faults else "")
        + "Where the p99 falls among the failed its line is broken. All workloads together."
    )


def _spans(stores: Stores, start: float, scale: float) -> pd.DataFrame:
    """Spans of the lanes that are drawn: those with faults, then those with most to show."""
    frame = stores.spans
    first, last = stores.legs["first_ns"].min(), stores.legs["last_ns"].max()
    seen = (frame["ended_ns"] >= first) & (frame["started_ns"] <= last)
    # that every process started says nothing; that one did once it was measured does
    seen &= (frame["kind"] != "process started") | frame["process"].isin(
        set(frame.loc[frame["kind"].isin(["fault kill", "process died"]), "process"])
    )
    frame = frame[seen].assign(fault=lambda it: it["kind"].str.startswith(FAULT))
    lanes = frame.groupby("process").agg(fault=("fault", "sum"), n=("kind", "size"))
    chosen = lanes.sort_values(["fault", "n"], ascending=False).index[:LANES_MOST]
    held = frame[frame["process"].isin(chosen)][["process", "kind", "started_ns", "ended_ns"]]
    if stores.legs["cell"].nunique() > 1:
        legs = stores.legs.rename(columns={"first_ns": "started_ns", "last_ns": "ended_ns"})
        legs = legs.assign(process=CELLS, kind=CELLS, what=legs["cell"].map(_values))
        held = pd.concat([legs.drop(columns=["cell", "repeat"]), held.assign(what=held["kind"])])
    else:
        held = held.assign(what=held["kind"])
    begin = ((held["started_ns"] - start) / scale).clip(lower=0.0)
    length = (last - start) / scale
    end = ((held["ended_ns"] - start) / scale).clip(upper=length)
    drawn = end.where(end > begin + length / VISIBLE, begin + length / VISIBLE)
    lasted = (held["ended_ns"] - held["started_ns"]).astype(float)
    # of a leg's name as much as its bar has room for
    room = ((drawn - begin) / length * LETTERS).astype(int)
    names = [what[:most] for what, most in zip(held["what"], room, strict=True)]
    found = held.assign(time=begin, until=drawn, lasted=lasted, name=names)
    return found.reset_index(drop=True)


def _values(cell: str) -> str:
    """Of a cell's factors their values alone."""
    return re.sub(r"[^ =]+=", "", cell)


def _timed(frame: pd.DataFrame, found: Flow, start: float, scale: float) -> pd.DataFrame:
    return frame.assign(time=(frame["started_ns"] + found.bin_ns / 2 - start) / scale)


def _lanes(spans: pd.DataFrame, kinds: list[str], x: alt.X) -> Spec:
    names = sorted(set(spans["process"]) - {CELLS}, key=natural)
    order = [*([CELLS] if CELLS in set(spans["process"]) else []), *names]
    base = alt.Chart(
        chart.records(spans, ["process", "kind", "what", "name", "time", "until", "lasted"])
    ).encode(
        x=x,
        y=alt.Y("process:N", sort=order, title=None, axis=_left(LEFT + TITLE, labelLimit=LEFT)),
        tooltip=["process:N", "what:N", chart.latency_tooltip("lasted", "lasted")],
    )
    fault = f"indexof(datum.kind, '{FAULT}') == 0"
    legs = base.transform_filter(f"datum.kind == '{CELLS}'")
    return chart.finish(
        alt.layer(
            legs.mark_bar(height=15, opacity=0.18, style="plain").encode(x2="until:Q"),
            legs.mark_text(align="left", dx=4, fontSize=10.5, style="ink").encode(text="name:N"),
            base.mark_bar(height=13, opacity=0.85)
            .encode(x2="until:Q", color=chart.colour(kinds, "kind"))
            .transform_filter(f"datum.kind != '{CELLS}' && !({fault})"),
            base.mark_bar(height=13, opacity=0.75, style="failed")
            .encode(x2="until:Q")
            .transform_filter(fault),
        ),
        LANE * len(order),
    )


def _left(extent: int = LEFT, **more: Any) -> alt.Axis:
    return alt.Axis(minExtent=extent, maxExtent=extent, **more)


def _shaded(faults: pd.DataFrame, x: alt.X) -> list[alt.Chart]:
    if faults.empty:
        return []
    shade = alt.Chart(chart.records(faults, ["time", "until"])).mark_rect(
        opacity=0.1, style="failed"
    )
    return [shade.encode(x=x, x2="until:Q")]


def _good(good: pd.DataFrame, faults: pd.DataFrame, x: alt.X, step: float) -> Spec:
    line = (
        alt.Chart(chart.records(with_gaps(good, "time", step), ["time", "hz"]))
        .mark_line(style="plain", strokeWidth=1.6)
        .encode(x=x, y=alt.Y("hz:Q", title="good replies a second", axis=_amount()))
    )
    return chart.finish(alt.layer(*_shaded(faults, x), line), HEIGHT)


def _amount() -> alt.Axis:
    return _left(tickCount=4, format="", formatType="amount")


def _failed(
    bad: pd.DataFrame, statuses: list[str], faults: pd.DataFrame, x: alt.X, wide: float
) -> Spec:
    upto = bad.sort_values("status").groupby("time")["hz"].cumsum()
    bars = bad.assign(
        time=bad["time"] - 0.45 * wide, until=bad["time"] + 0.45 * wide, upto=upto,
        above=upto - bad["hz"],
    )[bad["hz"] > 0]  # fmt: skip
    drawn = (
        alt.Chart(chart.records(bars, ["time", "until", "above", "upto", "hz", "status"]))
        .mark_rect(opacity=0.85)
        .encode(
            x=x,
            x2="until:Q",
            y=alt.Y("above:Q", title="failed a second", axis=_amount()),
            y2="upto:Q",
            color=chart.colour(statuses, "status"),
            tooltip=["status:N", alt.Tooltip("hz:Q", title="a second", format=",.0f")],
        )
    )
    return chart.finish(alt.layer(*_shaded(faults, x), drawn), HEIGHT)


def _latency(latency: pd.DataFrame, faults: pd.DataFrame, x: alt.X, step: float) -> Spec:
    axis = chart.latency_axis(
        "p99, slowest", *chart.span_of(pd.concat([latency["p99"], latency["max"]])), most=5
    )
    axis["axis"] = _left(values=axis["axis"].values, format="", formatType="latency")
    data = chart.records(with_gaps(latency, "time", step), ["time", "p99", "max"])
    lines = [
        alt.Chart(data)
        .mark_line(strokeWidth=width, opacity=opacity, style="plainbar" if thick else "plain")
        .encode(x=x, y=alt.Y(f"{name}:Q", **axis))
        for name, width, opacity, thick in (("max", 1.0, 0.7, False), ("p99", 2.2, 1.0, True))
    ]
    return chart.finish(alt.layer(*_shaded(faults, x), *lines), HEIGHT + 30)


def _told(good: pd.DataFrame) -> str:
    low, high = (format.significant(float(it)) for it in (good["hz"].min(), good["hz"].max()))
    return f"Good replies a second, {low} to {high}."


def _awaited(found: Flow, bins: pd.Series) -> pd.Series:
    """Return in which bins somebody waited: a reply was due, or an earlier one had not come.

    A client that sends its next request after a reply has nothing due in a silence.
    """
    latency = found.latency.sort_values("started_ns")
    starts = latency["started_ns"].to_numpy()
    until = np.maximum.accumulate(starts + latency["max"].fillna(0.0).to_numpy())
    earlier = np.searchsorted(starts, bins.to_numpy()) - 1
    reached = np.where(earlier >= 0, until[np.maximum(earlier, 0)], -np.inf)
    return bins.isin(starts) | (reached >= bins + found.bin_ns)


def _title(view: View, found: Flow, replies: pd.DataFrame, faults: pd.DataFrame) -> str:
    if all(row.failed == row.n for row in view.analysis.cells):
        return "No request was answered well"
    good = replies[replies["status"] == "ok"]
    failed = float(replies.loc[replies["status"] != "ok", "hz"].sum())
    silent = int(((good["hz"] == 0) & _awaited(found, good["started_ns"])).sum())
    if view.analysis.worked.outages:
        return max(view.analysis.worked.outages, key=lambda it: it.failed).words.rstrip(".")
    if silent:
        stretch = format.span(silent * found.bin_ns)
        return f"No good reply came in {stretch} of the run"
    each = f"Good replies came in every {format.span(found.bin_ns)} with requests"
    if failed:
        return f"{each}, but some requests failed"
    if len(faults):
        return f"{each}, also during the faults"
    return f"{each}, and none failed"
