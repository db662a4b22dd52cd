"""The faults compared, cells side by side: the p99 within each, and the longest silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel
from unruly.topics.stores.statistics import stores_of
from unruly.topics.stores.words import fault_name, unseen_sentence, worst_fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.drawing.document import Spec
    from unruly.drawing.view import View
    from unruly.topics.stores.faults import FaultEffect

CELLS_MOST: Final = 8
ROWS_MOST: Final = 16
ROW: Final = 34
VALUES: Final = ("free", "p99", "gap")


def faults(view: View) -> Figure | None:
    """Return the p99 within each fault and the longest silence, beside the fault-free p99."""
    found = held.faults if (held := stores_of(view.analysis)) else ()
    if not found:
        return None
    alike = _alike(found)
    frame = pd.DataFrame(
        {
            "cell": it.cell,
            "row": it.kind.removeprefix("fault ") if alike else fault_name(it, several=False),
            "free": it.free_p99,
            "p99": it.p99,
            "gap": it.gap_ns,
            "failed": it.p99 is None and it.failed > 0,
            "hurt": it.hurt,
            "lost": it.lost > 0,
        }
        for it in found
    )
    cells, order = _worst(frame, "cell", CELLS_MOST), _worst(frame, "row", ROWS_MOST)
    left_out = _left_out(frame, cells, order)
    frame = frame[frame["cell"].isin(cells) & frame["row"].isin(order)]
    ends = chart.span_of(pd.concat([frame[name].astype(float) for name in VALUES]))
    panels = tuple(
        Panel(
            _chart(own, order, ends),
            _alt(own),
            cell if len(cells) > 1 else "",
            60 + ROW * len(order),
        )
        for cell in cells
        for own in [frame[frame["cell"] == cell]]
    )
    return Figure(
        view.key("faults"),
        _title(found),
        "Circle: the p99 of the fault-free time of the same cell; diamond: that of requests "
        "scheduled during the fault; triangle: the longest time without a good reply. A cross on "
        "the right: more than 1 % of these requests failed, so that there is no p99. The distance "
        f"from circle to diamond is the cost of the fault to a client meanwhile.{left_out}",
        panels,
        legend=(
            Key("fault-free p99", -2, "circle"),
            Key("p99 within the fault", 0, "diamond"),
            Key("longest silence", 1, "triangle"),
            *([Key("more than 1 % failed", -1, "cross")] if frame["failed"].any() else []),
        ),
        narrow=len(cells) > 1,
    )


def _worst(frame: pd.DataFrame, name: str, most: int) -> list[str]:
    """Those that hurt most, in the order in which all stand."""
    ranked = frame.sort_values(["lost", "hurt", "gap"], ascending=False, kind="stable")
    chosen = set(ranked[name].drop_duplicates().head(most))
    return [it for it in dict.fromkeys(frame[name]) if it in chosen]


def _left_out(frame: pd.DataFrame, cells: list[str], order: list[str]) -> str:
    shown = [
        f"{len(held)} of {frame[name].nunique()} {what}"
        for name, held, what in (("cell", cells, "cells"), ("row", order, "faults"))
        if len(held) < frame[name].nunique()
    ]
    return f" Shown: {', '.join(shown)}, those that hurt most." if shown else ""


def _alike(found: Sequence[FaultEffect]) -> bool:
    """Whether a kind says which fault it is in every cell, whatever its process is called there."""
    cells = len({it.cell for it in found})
    return cells > 1 and len({(it.cell, it.kind) for it in found}) == len(found)


def _chart(own: pd.DataFrame, order: list[str], ends: tuple[float, float]) -> Spec:
    axis = chart.latency_axis("p99, silence", *ends, most=6)
    base = alt.Chart(chart.records(own, ["row", *VALUES, "failed"])).encode(
        y=alt.Y(
            "row:N",
            sort=order,
            title=None,
            # every cell has every row, so that they stand side by side
            scale=alt.Scale(domain=order),
            axis=alt.Axis(labelLimit=150),
        ),
        tooltip=["row:N", *(chart.latency_tooltip(name, name) for name in VALUES)],
    )
    high = axis["scale"].domain[1]
    return chart.finish(
        alt.layer(
            base.mark_rule(strokeWidth=1.5, opacity=0.5, style="plain")
            .encode(x=alt.X("free:Q", **axis), x2="p99:Q")
            .transform_filter("isValid(datum.free) && isValid(datum.p99)"),
            base.mark_point(filled=False, size=60, strokeWidth=1.6, style="ink").encode(
                x=alt.X("free:Q", **axis)
            ),
            base.mark_point(filled=True, size=95, shape="diamond", style="plainbar", opacity=1)
            .encode(x=alt.X("p99:Q", **axis))
            .transform_filter("isValid(datum.p99)"),
            base.mark_point(filled=True, size=70, shape="triangle-up", style="second", opacity=1)
            .encode(x=alt.X("gap:Q", **axis)),
            base.mark_point(filled=True, size=60, shape="cross", angle=45, style="failed")
            .transform_calculate(edge=f"{high}")
            .encode(x=alt.X("edge:Q", **axis))
            .transform_filter("datum.failed"),
        ),
        24 + ROW * len(order),
    )  # fmt: skip


def _alt(own: pd.DataFrame) -> str:
    told = [
        f"{it['row']}: p99 {format.duration(it['p99'])}, fault-free {format.duration(it['free'])}, "
        f"longest silence {format.duration(it['gap'])}"
        for it in own.to_dict("records")
    ]
    return f"{'; '.join(told)}."


def _title(found: tuple[FaultEffect, ...]) -> str:
    worst = worst_fault(found)
    if worst is None:
        return format.capital(unseen_sentence(found))
    several = len({it.cell for it in found}) > 1
    name = fault_name(worst, several=several)
    longest = max(found, key=lambda it: it.gap_ns or 0.0)
    if worst.lost:
        return f"The {name} hurts most: {format.count(worst.lost)} replies lacked a written value"
    whose = "" if longest is worst else f" ({fault_name(longest, several=several)})"
    return (
        f"The {name} hurts most; the longest silence was {format.duration(longest.gap_ns)}{whose}"
    )
