"""Who is slow to whom: the matrix of sender and receiver, and each member's own view."""

from __future__ import annotations

import math

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel, Spec
from unruly.drawing.frames import named_ops
from unruly.drawing.view import ALL, LATENCIES, View, natural

MOST_MATRICES = 6
MOST_MEMBERS = 9
MOST_LABELLED = 12
MOST_NODES = 64
LONG_NAMES = 24
"""Names longer than this in all do not fit side by side above a panel of 270 pixels."""
MATRIX_SPREAD = 4.0
"""A panel's colours span at least this factor, so that equal pairs look equal."""


def pairs_of(view: View, latency: str) -> pd.DataFrame:
    """Return the percentiles of each (op, sender, receiver), with names as text."""
    frame = view.analysis.by.get("pairs", pd.DataFrame())
    if frame.empty:
        return frame
    frame = named_ops(frame[frame["latency"] == latency])
    frame = frame[frame["p90"].notna()]
    return frame.assign(sender=frame["sender"].astype(str), receiver=frame["receiver"].astype(str))


def uneven_op(pairs: pd.DataFrame) -> str:
    """Return the workload in which the slowest and the fastest pair differ most."""
    spread = {
        str(op): math.log(max(g["p90"]) / max(1.0, min(g["p90"])))
        for op, g in pairs.groupby("op", observed=True)
    }
    return max(spread, key=lambda op: spread[op])


def matrix(view: View) -> Figure | None:
    """Return the heat map of the p90 from every sender to every receiver, by workload."""
    service, response = pairs_of(view, "service"), pairs_of(view, "response")
    if service.empty or service[["sender", "receiver"]].drop_duplicates().shape[0] < 2:
        return None
    nodes = view.node_names()
    if len(nodes) > MOST_NODES:
        return None
    uneven = uneven_op(service)
    ops = [op for op in view.drawn_ops if op in set(service["op"])] or [uneven]
    ops = sorted(ops, key=lambda op: op != uneven)[: MOST_MATRICES - 1]
    panels = []
    for op, frame, latency in [
        (uneven, response, "response"),
        *((op, service, "service") for op in ops),
    ]:
        own = frame[frame["op"] == op]
        if own.empty:
            continue
        label = "All workloads" if op == ALL else format.capital(op)
        height = min(420, 60 + 34 * len(nodes))
        # One unit for a panel, said once: a square is too narrow for it.
        scale, unit = format.unit_of(float(own["p90"].median()))
        panels.append(
            Panel(
                _heat(own, nodes, height, scale),
                _heat_alt(own, latency),
                f"{label}, {latency} time, p90 in {unit}",
                height,
            )
        )
    caption = (
        "Each square: the 90th percentile from the sender (row) to the receiver (column). The "
        "colour compares within one panel: calm is its fastest pair, strongest is its slowest (or "
        f"{MATRIX_SPREAD:g} times the fastest). A strong column is a slow receiver; a strong "
        "row a slow sender; a single strong square a slow link."
    )
    return Figure(
        view.key("matrix"),
        _matrix_title(service[service["op"] == uneven], uneven),
        caption,
        tuple(panels),
        narrow=True,
    )


def _heat(own: pd.DataFrame, nodes: list[str], height: int, scale: float) -> Spec:
    prefix = common_prefix(nodes)
    shown = own.assign(label=[format.significant(v / scale, 2) for v in own["p90"]])
    base = alt.Chart(chart.records(shown, ["sender", "receiver", "p90", "label"])).encode(
        x=alt.X(
            "receiver:N",
            sort=nodes,
            title=f"receiver ({prefix}…)" if prefix else "receiver",
            axis=alt.Axis(
                orient="top",
                labelAngle=0,
                labelExpr=f"substring(datum.label, {len(prefix)})",
                labelOverlap=True,
                labelLimit=60,
            ),
        ),
        y=alt.Y("sender:N", sort=nodes, title="sender", axis=alt.Axis(labelLimit=80)),
    )
    low, high = chart.span_of(own["p90"])
    high = max(high, MATRIX_SPREAD * low)
    heat = base.mark_rect(style="heat").encode(
        fillOpacity=chart.heat("p90", (low, high), "log"),
        tooltip=["sender:N", "receiver:N", chart.latency_tooltip("p90", "p90")],
    )
    if len(nodes) > MOST_LABELLED:
        return chart.finish(heat, height)
    words = base.mark_text(fontSize=10).encode(text="label:N", color=chart.on_heat("p90"))
    if len(nodes) > 7:
        words = words.mark_text(fontSize=8)
    return chart.finish(alt.layer(heat, words), height)


def common_prefix(names: list[str]) -> str:
    """Return what long names have in common before their numbers; it moves to the axis title.

    Examples
    --------
    >>> common_prefix([f"agent-{i}" for i in range(5)]), common_prefix(["n1", "n2"])
    ('agent-', '')
    """
    if sum(len(name) for name in names) <= LONG_NAMES:
        return ""
    first, last = min(names), max(names)
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
    prefix = first[:shared].rstrip("0123456789")
    return prefix if all(len(name) > len(prefix) for name in names) else ""


def _heat_alt(own: pd.DataFrame, latency: str) -> str:
    slow = own.sort_values("p90", ascending=False).head(3)
    parts = [
        f"{r['sender']} to {r['receiver']} {format.duration(r['p90'])}" for _, r in slow.iterrows()
    ]
    return f"p90 {latency} time of each sender and receiver; the slowest: " + "; ".join(parts) + "."


def _matrix_title(own: pd.DataFrame, op: str) -> str:
    ordered = own.sort_values("p90").to_dict("records")
    worst, best = ordered[-1], ordered[0]
    ratio = float(worst["p90"]) / float(best["p90"])
    where = "" if op == ALL else f" under {format.quoted(op)}"
    if ratio < 1.5:
        return f"All pairs are alike: no p90 is more than {format.times(ratio)} another{where}"
    return (
        f"From {worst['sender']} to {worst['receiver']} the p90 is {format.times(ratio)} that "
        f"of the fastest pair{where} ({format.duration(worst['p90'])} against "
        f"{format.duration(best['p90'])})"
    )


def members(view: View) -> Figure | None:
    """Return one panel for each initiator and one for each receiver, as in the paper."""
    pairs = pairs_of(view, "service")
    if pairs.empty:
        return None
    op = uneven_op(pairs)
    own = pairs[pairs["op"] == op]
    names = sorted(set(own["sender"]) | set(own["receiver"]), key=natural)
    if len(names) < 2:
        return None
    chosen = _worst_first(own, names)[:MOST_MEMBERS]
    ends = chart.span_of(pd.concat([own["p50"], own["p99"]]))
    panels = []
    for side, other, word in (("sender", "receiver", "from"), ("receiver", "sender", "to")):
        for name in sorted(chosen, key=natural):
            part = own[own[side] == name]
            if len(part):
                alt_text = _member_alt(part, other, f"{word} {name}")
                panels.append(
                    Panel(
                        _ranges(part, other, names, ends),
                        alt_text,
                        format.capital(f"{word} {name}"),
                        56 + 22 * min(len(names), 12),
                    )
                )
    where = (
        "all workloads"
        if op == ALL
        else f"the workload {format.quoted(op)}, where members differ most"
    )
    caption = (
        f"Service time of {where}. One panel for each member as initiator (“From”), "
        "then for each as receiver (“To”). A row runs from the median (circle) over the p90 "
        "(square) to the p99 (triangle). If the same row is long in every “From” panel, its own "
        "too, that member is slow for all: look at its host, not at the network."
    )
    if len(names) > len(chosen):
        caption += f" Shown: the {len(chosen)} slowest of {len(names)} members."
    return Figure(
        view.key("members"),
        _members_title(own),
        caption,
        tuple(panels),
        legend=(Key("p50", -2, "circle"), Key("p90", -2, "square"), Key("p99", -2, "triangle")),
        narrow=True,
    )


def _worst_first(own: pd.DataFrame, names: list[str]) -> list[str]:
    tails = own.groupby("receiver", observed=True)["p90"].median()
    return sorted(names, key=lambda n: -float(tails.get(n, 0.0)))


def _ranges(part: pd.DataFrame, other: str, names: list[str], ends: tuple[float, float]) -> Spec:
    rows = part[part[other].isin(names[:40])]
    fields = [other, "p50", "p90", "p99"]
    axis = chart.latency_axis("service time", *ends, most=5)
    base = alt.Chart(chart.records(rows, fields)).encode(
        y=alt.Y(
            f"{other}:N",
            sort=names,
            title=other,
            scale=alt.Scale(domain=names[:40]),
            axis=alt.Axis(labelLimit=80),
        ),
        tooltip=[f"{other}:N", *(chart.latency_tooltip(p, p) for p in ("p50", "p90", "p99"))],
    )
    layers = [
        base.mark_rule(strokeWidth=2, opacity=0.5, style="plain").encode(
            x=alt.X("p50:Q", **axis), x2="p99:Q"
        )
    ]
    layers.extend(
        base.mark_point(filled=True, size=36, opacity=1, shape=shape, style="plain").encode(
            x=alt.X(f"{field}:Q", **axis)
        )
        for field, shape in (("p50", "circle"), ("p90", "square"), ("p99", "triangle-up"))
    )
    return chart.finish(alt.layer(*layers), 20 + 22 * min(len(names), 12))


def _member_alt(part: pd.DataFrame, other: str, word: str) -> str:
    parts = [
        f"{r[other]} {format.duration(r['p50'])} to {format.duration(r['p99'])}"
        for _, r in part.head(12).iterrows()
    ]
    return f"Service time {word}, median to p99, by {other}: " + "; ".join(parts) + "."


def _members_title(own: pd.DataFrame) -> str:
    slowest = own.loc[own.groupby("sender", observed=True)["p90"].idxmax()]
    votes = slowest["receiver"].value_counts()
    name, number, of = str(votes.index[0]), int(votes.iloc[0]), len(slowest)
    itself = bool((slowest[slowest["sender"] == name]["receiver"] == name).any())
    if number == of and of > 1:
        tail = ", itself included" if itself else ", though not in its own"
        return f"{name} is the slowest receiver in the eyes of all {of} initiators{tail}"
    if number > of / 2:
        return f"{name} is the slowest receiver in the eyes of {number} of {of} initiators"
    return f"No receiver is the slowest for most initiators: {name} is for {number} of {of}"


def sides(view: View, side: str) -> dict[str, pd.DataFrame]:
    """Return the percentiles by sender or by receiver, a frame for each latency."""
    frame = view.analysis.by.get(f"by_{side}", pd.DataFrame())
    return {} if frame.empty else {k: frame[frame["latency"] == k] for k in LATENCIES}
