"""Charts of layers: usual and slow requests side by side, and the spans of the slowest request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Panel
from unruly.drawing.tables import op_name
from unruly.topics.layers.model import layers_of

if TYPE_CHECKING:
    from unruly.drawing.document import Spec
    from unruly.drawing.view import View
    from unruly.topics.layers.model import Blame, ServiceLayer

MOST_PANELS: Final = 4
BAR_HEIGHT: Final = 34
SPAN_HEIGHT: Final = 18
REST: Final = "all others"
KINDS: Final = ("usual", "slow")
MS: Final = 1e6


def _blamed(view: View) -> list[Blame]:
    found = layers_of(view.analysis)
    rows = [row for row in found.rows if row.layers] if found else []
    return sorted(rows, key=lambda row: -(row.limit_ns or 0.0))[:MOST_PANELS]


def _labels(rows: list[Blame]) -> list[str]:
    """The layers that have a colour: those with most extra time."""
    extra: dict[str, float] = {}
    for row in rows:
        for it in row.layers:
            extra[it.label] = extra.get(it.label, 0.0) + max(0.0, it.slow_ns - it.usual_ns)
    return sorted(extra, key=lambda label: -extra[label])[: chart.MOST_COLOURS - 1]


def usual_and_slow(view: View) -> Figure | None:
    """Return the time of each layer in usual and in slow requests; None without spans."""
    rows = _blamed(view)
    if not rows:
        return None
    labels = _labels(rows)
    panels = tuple(
        Panel(
            _bars(row, labels),
            f"Time of {_name(view, row)} by layer. "
            + "; ".join(_told(it) for it in row.layers[: chart.MOST_COLOURS])
            + ".",
            format.capital(_name(view, row)) if len(rows) > 1 else "",
            BAR_HEIGHT * 2 + 10,
        )
        for row in rows
    )
    top = rows[0].layers[0]
    return Figure(
        view.key("layers"),
        f"“{top.label}” has most of the extra time of "
        f"{format.share(top.share.estimate)} of the slow requests of {_name(view, rows[0])}",
        "Each bar is the time of a request by layer: the medians of usual requests, and the means "
        "of the slow ones. Spans that run at the same time count each, so a bar may be "
        "longer than a request.",
        panels,
        legend=chart.legend([*labels, REST]),
    )


def _told(it: ServiceLayer) -> str:
    return f"{it.label} {format.duration(it.usual_ns)}, slow {format.duration(it.slow_ns)}"


def _name(view: View, row: Blame) -> str:
    op = op_name(row.op)
    return f"{op} ({row.cell})" if len(view.cells) > 1 else op


def _bars(row: Blame, labels: list[str]) -> Spec:
    rows = []
    for kind in KINDS:
        rest = 0.0
        for it in row.layers:
            ns = it.usual_ns if kind == "usual" else it.slow_ns
            if it.label in labels:
                rows.append((kind, it.label, labels.index(it.label), ns / MS))
            else:
                rest += ns / MS
        rows.append((kind, REST, len(labels), rest))
    columns = ["requests", "layer", "place", "ms"]
    frame = pd.DataFrame(rows, columns=columns)
    bars = (
        alt.Chart(chart.records(frame, columns))
        .mark_bar(height=20)
        .encode(
            x=alt.X("ms:Q", title="time (ms)", stack="zero"),
            y=alt.Y("requests:N", sort=list(KINDS), title=None),
            color=chart.colour([*labels, REST], "layer"),
            order=alt.Order("place:Q"),
            tooltip=["requests:N", "layer:N", alt.Tooltip("ms:Q", format=".3s")],
        )
    )
    return chart.finish(bars, BAR_HEIGHT * 2 + 10)


def slowest(view: View) -> Figure | None:
    """Return the spans of the slowest request that has any; None without spans."""
    found = layers_of(view.analysis)
    if found is None or found.slowest.empty:
        return None
    frame = found.slowest
    services = list(dict.fromkeys(frame["service"]))[: chart.MOST_COLOURS]
    numbers = [f"{place:02d}" for place in range(len(frame))]
    frame = frame.assign(
        row=numbers,
        name=[f"{service}: {layer}" for service, layer in
              zip(frame["service"], frame["layer"], strict=True)],
        begin=frame["began"] / MS,
        end=frame["ended"] / MS,
    )  # fmt: skip
    columns = ["row", "name", "service", "begin", "end"]
    names = dict(zip(frame["row"], frame["name"], strict=True))
    y = alt.Y("row:N", title=None, sort=numbers, axis=alt.Axis(labels=False, ticks=False))
    took = (found.slowest_ns or 0.0) / MS
    # room for the words behind the last bars
    domain = [0.0, max(took, float(frame["end"].max())) * 1.3]
    scale = alt.Scale(domain=domain, nice=False)
    x = alt.X("begin:Q", title="time since the scheduled time (ms)", scale=scale)
    tips = [
        "name:N", alt.Tooltip("begin:Q", format=".3s"), alt.Tooltip("end:Q", format=".3s"),
    ]  # fmt: skip
    base = alt.Chart(chart.records(frame, columns))
    bars = base.mark_bar(height=12).encode(
        x=x, x2="end:Q", y=y, color=chart.colour(services, "service"), tooltip=tips
    )
    words = base.mark_text(align="left", dx=4, style="ink").encode(x="end:Q", y=y, text="name:N")
    reply = chart.records(pd.DataFrame({"begin": [took]}), ["begin"])
    ended = alt.Chart(reply).mark_rule(strokeDash=[2, 3]).encode(x=x)
    height = SPAN_HEIGHT * len(frame) + 10
    return Figure(
        view.key("layers-slowest"),
        f"The spans of the slowest “{found.slowest_op}” request, which took "
        f"{format.duration(found.slowest_ns)}",
        "Each bar is a span, below the span that it is part of; its colour is its service. "
        "The time begins at the scheduled time of the request; the dotted line is its reply.",
        (
            Panel(
                chart.finish(alt.layer(bars, words, ended), height),
                "Spans of the slowest request: "
                + "; ".join(names[it] for it in numbers[: chart.MOST_COLOURS])
                + ".",
                height=height,
            ),
        ),
        legend=chart.legend(services),
    )
