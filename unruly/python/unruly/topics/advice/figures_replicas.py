"""Replicas by timeout: how many peers are slow, and from when on fewer replicas do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel
from unruly.topics.advice import figures_lines as advice_lines
from unruly.topics.advice.asked import advice_of

if TYPE_CHECKING:
    from unruly.drawing.view import View
    from unruly.topics.advice.model import ReplicasAdvice


def advice_replicas(view: View) -> Figure | None:
    """Return the mean number of slow peers, and the replicas that are enough, by timeout."""
    advice = advice_of(view)
    if advice is None:
        return None
    rows = advice_lines.drawn(view, advice.replicas.rows)
    if not rows:
        return None
    frame = pd.DataFrame(
        [
            {
                "op": row.op,
                "timeout": point.timeout_ns,
                "slow": point.mean_slow.estimate,
                "low": point.mean_slow.low,
                "high": point.mean_slow.high,
                "s": point.replicas.s.estimate,
                "n": point.replicas.n.estimate,
                "sure": point.replicas.n.high,
            }
            for row in rows
            for point in row.points
        ]
    )
    most = 2 * advice.faults + 1
    return Figure(
        view.key("advice-replicas"),
        _title(rows, most),
        f"{advice.replicas.assumption} In the strips a pale step is what the windows that were "
        "measured show, a full one what they prove."
        + advice_lines.of_cell(view, advice.replicas.rows),
        (_slow(view, frame), _strips(rows, frame, most)),
        legend=(
            *advice_lines.legend(view, rows),
            Key(f"{most} needed", -2, "square"),
            Key("fewer do", -3, "square"),
        ),
        narrow=True,
    )


def _slow(view: View, frame: pd.DataFrame) -> Panel:
    most = float(frame[["slow", "high"]].max().max()) or 1.0
    y = ("slow", "slow peers, mean over windows")
    scale = {
        "scale": alt.Scale(domain=[0, most], nice=True),
        "axis": alt.Axis(tickCount=5),
    }
    spec = advice_lines.lines(
        view, frame, x=("timeout", "timeout T"), y=y, scale=scale, band=("low", "high"),
        value=alt.Tooltip("slow:Q", title="slow peers", format=".2~f"),
    )  # fmt: skip
    words = []
    for op, own in frame.groupby("op", sort=False):
        none = own[own["slow"] == 0]
        words.append(
            f"{op}: none from {format.duration(none['timeout'].min())} on"
            if len(none)
            else f"{op}: {format.significant(own['slow'].iloc[-1])} at the longest timeout"
        )
    text = f"Mean number of slow peers of the worst observer. {'; '.join(words)}."
    return advice_lines.panel(spec, text, "How many peers are slow?")


def _strips(rows: list[ReplicasAdvice], frame: pd.DataFrame, most: int) -> Panel:
    order = [row.op for row in rows]
    times = sorted(set(frame["timeout"]))
    frame = frame.assign(
        shown=[
            f"{sure:.0f}" if sure < most else f"{n:.0f}?" if n < most else f"{most}"
            for n, sure in zip(frame["n"], frame["sure"], strict=True)
        ],
        kind=[
            "sure" if sure < most else "likely" if n < most else "all"
            for n, sure in zip(frame["n"], frame["sure"], strict=True)
        ],
        label=[format.duration(t) for t in frame["timeout"]],
    )
    height = 60 + 34 * len(order)
    base = alt.Chart(chart.records(frame, ["op", "label", "shown", "kind"])).encode(
        x=alt.X(
            "label:O",
            sort=[format.duration(t) for t in times],
            title="timeout T",
            axis=alt.Axis(labelAngle=-60, labelOverlap=True),
        ),
        y=alt.Y("op:N", sort=order, title=None, axis=alt.Axis(labelLimit=120)),
        tooltip=[
            alt.Tooltip("op:N", title="workload"),
            alt.Tooltip("label:N", title="timeout"),
            alt.Tooltip("shown:N", title="replicas (? is not proven)"),
        ],
    )
    layers = [
        base.mark_rect(style=style, opacity=opacity).transform_filter(f"datum.kind == '{kind}'")
        for kind, style, opacity in (
            ("all", "plain", 0.25), ("likely", "saved", 0.35), ("sure", "saved", 0.9),
        )
    ]  # fmt: skip
    words = [
        f"{op}: " + ", ".join(f"{r['label']} {r['shown']}" for _, r in own.iterrows())
        for op, own in frame.groupby("op", sort=False)
    ]
    spec = chart.finish(alt.layer(*layers), height)
    text = f"Replicas by timeout ({most} without any; ? is not proven). {'; '.join(words)}."
    return Panel(spec, text, f"Where do fewer than {most} replicas do?", height)


def _title(rows: list[ReplicasAdvice], most: int) -> str:
    def saves(row: ReplicasAdvice, bound: str) -> bool:
        return any(float(getattr(p.replicas.n, bound) or most) < most for p in row.points)

    sure = [row for row in rows if saves(row, "high")]
    if sure:
        who = format.listing([format.quoted(row.op) for row in sure])
        return f"Fewer than {most} replicas are enough for {who}, given the time"
    if any(saves(row, "estimate") for row in rows):
        return (
            f"Fewer than {most} replicas might do, but {format.count(rows[0].windows)} windows are "
            "too few to prove it"
        )
    return f"No timeout makes fewer than {most} replicas enough"
