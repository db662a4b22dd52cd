"""What made the slow requests slow: how much each cause explains, and when it struck."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Datum, Figure, Key, Panel, Table, number, table, text
from unruly.drawing.frames import thinned_points
from unruly.drawing.since import Since
from unruly.drawing.tables import MOST_ROWS, cut, op_name
from unruly.topics.causes.model import SLOW_LEAST, causes_of

if TYPE_CHECKING:
    from unruly.drawing.document import Spec
    from unruly.drawing.view import View
    from unruly.stats import Interval
    from unruly.topics.causes.model import Slowness

UNKNOWN = "unknown"
MOST_PANELS = 4
MOST_SENTENCES = 6
BAR_HEIGHT = 34
HEIGHT = 260
PARTS = {
    "send_lag": "sent late",
    "client_kernel": "client kernel to user",
    "server_kernel": "server kernel to user",
    "handler": "handler",
    "rest": "network, queue, or not stamped",
}


def _explained(view: View) -> list[Slowness]:
    found = causes_of(view.analysis)
    return [row for row in found.rows if row.causes] if found else []


def _labels(view: View) -> list[str]:
    """Every cause, the one that explains most first: its place is its colour."""
    sums: dict[str, int] = {}
    for row in _explained(view):
        for cause in row.causes:
            sums[cause.label] = sums.get(cause.label, 0) + cause.requests
    return sorted(sums, key=lambda label: -sums[label])[: chart.MOST_COLOURS]


def lead(view: View) -> tuple[str, ...]:
    """Return sentences about slow requests that no event explains, and about skipped data."""
    found = causes_of(view.analysis)
    if found is None:
        return ()
    if found.note:
        return (f"Causes were not looked for: {found.note}.",)
    rises = any(it.code == "correlate" for it in view.analysis.findings)
    bare = [row for row in found.rows if not row.causes and row.unknown is not None]
    alone = [row for row in found.rows if row.unknown is None and row.slow >= SLOW_LEAST]
    return (
        *(
            f"No cause of the slow requests of {_name(view, row)} can be named: "
            f"{row.absent['unknown']}."
            for row in alone[:MOST_SENTENCES]
        ),
        *(
            f"No pause, fault or wait that was recorded explains the "
            f"{format.plural(row.slow, 'slow request')} of {_name(view, row)} (beyond "
            f"{format.duration(row.limit_ns)}) better than chance."
            for row in bare[:MOST_SENTENCES]
        ),
        *(
            ("What rises with latency is shown below; it need not be the cause.",)
            if bare and rises
            else ()
        ),
        *(f"{told}." for told in found.left_out),
    )


def nothing_explains(view: View) -> str:
    """Return why no cause is named, in one sentence."""
    found = causes_of(view.analysis)
    if found is None or found.note:
        run = view.analysis.run
        missing = (
            "the run has histograms and no single requests"
            if run.keeps_bins_alone
            else "the run has no times"
            if run.timeless
            else "`unruly report` does"
        )
        why = found.note if found else missing
        return f"Causes were not looked for: {why}."
    rows = [row for row in found.rows if row.slow]
    if not rows or all(row.unknown is None for row in rows):
        return "Too few requests were slow to separate their causes from chance."
    return "No pause, fault or wait that was recorded explains them better than chance."


def _name(view: View, row: Slowness) -> str:
    op = op_name(row.op)
    return f"{op} ({row.cell})" if len(view.cells) > 1 else op


def explained(view: View) -> Figure | None:
    """Return the share of the slow requests that each cause explains."""
    rows, labels = _explained(view)[:MOST_PANELS], _labels(view)
    if not rows:
        return None
    top = rows[0].causes[0]
    unknown = rows[0].unknown.estimate if rows[0].unknown else None
    panels = tuple(
        Panel(
            _bars(row, labels),
            f"Share of the slow requests of {_name(view, row)}: "
            + "; ".join(f"{it.label} {format.share(it.explained.estimate)}" for it in row.causes)
            + f"; unknown {format.share(row.unknown.estimate if row.unknown else None)}.",
            format.capital(_name(view, row)) if len(rows) > 1 else "",
            BAR_HEIGHT * (len(row.causes) + 1) + 10,
        )
        for row in rows
    )
    return Figure(
        view.key("causes"),
        f"{format.capital(top.label)}, explains {format.share(top.explained.estimate)} of the slow "
        f"requests of {_name(view, rows[0])}; {format.share(unknown)} is unknown",
        "Each slow request belongs to one cause, the most specific that covers half of its time; "
        "the grey bar is what nothing explains. Lines: 95 % intervals by blocks of time. A cause "
        "stands here only if requests are slow more often while it is there, beyond chance.",
        panels,
    )


def _bars(row: Slowness, labels: list[str]) -> Spec:
    shares = [(it.label, it.explained) for it in row.causes]
    if row.unknown is not None:
        shares.append((UNKNOWN, row.unknown))
    frame = pd.DataFrame(
        [(name, it.estimate, it.low, it.high) for name, it in shares],
        columns=["cause", "share", "low", "high"],
    )
    columns = ["cause", "share", "low", "high"]
    data, named = chart.records(frame, columns), frame["cause"].isin(labels)
    y = alt.Y("cause:N", sort=list(frame["cause"]), title=None, axis=alt.Axis(labelLimit=260))
    x = alt.X(
        "share:Q",
        title="share of the slow requests",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format="%", tickCount=5),
    )
    tips = ["cause:N", *(alt.Tooltip(f"{name}:Q", format=".1%") for name in columns[1:])]
    layers = [
        alt.Chart(chart.records(frame[named], columns))
        .mark_bar(height=18)
        .encode(x=x, y=y, color=chart.colour(labels, "cause"), tooltip=tips),
        alt.Chart(chart.records(frame[~named], columns))
        .mark_bar(height=18, style="ink", opacity=0.35)
        .encode(x=x, y=y, tooltip=tips),
        alt.Chart(data).mark_rule(strokeWidth=1.5).encode(x="low:Q", x2="high:Q", y=y),
    ]
    return chart.finish(alt.layer(*layers), BAR_HEIGHT * len(frame) + 10)


def over_time(view: View) -> Figure | None:
    """Return the slow requests where they happened, coloured by cause."""
    found, labels = causes_of(view.analysis), _labels(view)
    if found is None or not labels:
        return None
    points = found.points[found.points["response"].notna()]
    if points.empty:
        return None
    counts = points["cause"].value_counts()
    points = thinned_points(points, view.points, "response")
    start = float(view.analysis.started_ns or points["intended_ns"].min())
    since = Since.of(view, start, float(points["intended_ns"].max()))
    points = points.assign(time=since.place(points["intended_ns"]))
    axis = chart.latency_axis("response time", *chart.span_of(points["response"]))
    x = since.x()
    tips = [
        "cause:N",
        alt.Tooltip("op:N", title="workload"),
        chart.latency_tooltip("response", "response"),
        since.tooltip,
    ]
    known = points["cause"].isin(labels)
    columns = ["time", "response", "op", "cause"]
    y = alt.Y("response:Q", **axis)
    layers = [
        alt.Chart(chart.records(points[~known], columns))
        .mark_point(filled=True, size=22, opacity=0.35, style="ink")
        .encode(x=x, y=y, tooltip=tips),
        alt.Chart(chart.records(points[known], columns))
        .mark_point(filled=True, size=30, opacity=0.75)
        .encode(x=x, y=y, color=chart.colour(labels, "cause"), tooltip=tips),
    ]
    unknown = (Key(UNKNOWN, -2),) if not known.all() else ()
    words = "; ".join(f"{label}: {format.count(counts.get(label, 0))}" for label in labels)
    others = counts.drop(labels, errors="ignore").sum()
    slow = sum(row.slow for row in found.rows if row.unknown is not None)
    some = f"{format.count(len(points))} of " if len(points) < slow else ""
    return Figure(
        view.key("causes-time"),
        f"{some}{format.plural(slow, 'slow request')} and what made "
        f"{'it' if slow == 1 else 'them'} slow",
        "Each dot is a slow request, where it was due; its colour is its cause. Dots of one colour "
        "that stand together are one episode; grey ones are unexplained. Those that failed have no "
        "response time, and no dot.",
        (
            Panel(
                chart.finish(alt.layer(*layers), HEIGHT),
                f"Slow requests over {since.unit} by cause. {words}; unknown: "
                f"{format.count(others)}.",
                height=HEIGHT,
            ),
        ),
        legend=(*chart.legend(labels), *unknown),
    )


def cause_table(view: View) -> Table | None:
    """Return every cause with its numbers, and where the time of the slow requests went."""
    found = causes_of(view.analysis)
    if found is None or not found.rows:
        return None
    body = [
        [
            text(_name(view, row)),
            text(cause.cause),
            text(cause.process),
            _share(cause.explained),
            number(format.times(cause.lift)),
            number("<0.001" if cause.p_value < 0.001 else format.significant(cause.p_value)),
            number(format.count(cause.times)),
            number(format.duration(cause.lasted_ns)),
        ]
        for row in found.rows
        for cause in row.causes
    ]
    columns = (
        "workload", "cause", "of", "explains", "slow so much more often", "p", "times", "lasted",
    )  # fmt: skip
    return table(columns, body[:MOST_ROWS], "Causes of slow requests", cut(body, "causes"))


def _share(found: Interval) -> Datum:
    between = f"{format.share(found.low)} to {format.share(found.high)}"
    return Datum(format.share(found.estimate), aside=between)


def part_table(view: View) -> Table | None:
    """Return of how many slow requests each part took most of the excess."""
    found = causes_of(view.analysis)
    rows = [row for row in found.rows if row.parts] if found else []
    if not rows:
        return None
    body = [
        [
            text(_name(view, row)),
            number(format.count(row.slow)),
            number(format.duration(row.limit_ns)),
            *(number(format.share(row.parts.get(part))) for part in PARTS),
        ]
        for row in rows[:MOST_ROWS]
    ]
    return table(
        ("workload", "slow", "beyond", *PARTS.values()),
        body,
        "Where the time of the slow requests went",
        "The share of the slow requests whose excess over the usual time was mostly in this part. "
        + cut(rows, "rows"),
    )
