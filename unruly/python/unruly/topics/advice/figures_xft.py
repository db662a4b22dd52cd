"""Nines by timeout: XFT against crash and Byzantine fault tolerance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel
from unruly.topics.advice import figures_lines as advice_lines
from unruly.topics.advice.asked import advice_of

if TYPE_CHECKING:
    from unruly.drawing.view import View
    from unruly.topics.advice.model import XftAdvice

MOST_NINES = 16.0
"""A double cannot distinguish a probability with more nines from 1."""


def advice_xft(view: View) -> Figure | None:
    """Return nines of consistency and availability by timeout."""
    advice = advice_of(view)
    if advice is None:
        return None
    rows = advice_lines.drawn(view, advice.xft.rows)
    if not rows:
        return None
    t = advice.faults
    return Figure(
        view.key("advice-xft"),
        _title(rows, t),
        f"{advice.xft.assumption} A nine more is a tenth of the chance of failure. Lines: by the "
        f"measured share of partitioned members; bands: by its {format.level(advice.level)} upper "
        "bound. Straight lines: CFT (dashed) and BFT (dotted), whose consistency does not hang on "
        "time." + advice_lines.of_cell(view, advice.xft.rows),
        (
            _panel(view, rows, "consistency", references=True),
            _panel(view, rows, "availability", references=False),
        ),
        legend=(*advice_lines.legend(view, rows), Key("CFT, BFT", -2)),
        narrow=True,
    )


def _panel(view: View, rows: list[XftAdvice], what: str, *, references: bool) -> Panel:
    frame = pd.DataFrame(
        [
            {
                "op": row.op,
                "timeout": point.timeout_ns,
                "nines": min(MOST_NINES, getattr(point.nines, f"xft_{what}")),
                "sure": min(MOST_NINES, getattr(point.sure, f"xft_{what}")),
            }
            for row in rows
            for point in row.points
        ]
    )
    nines = rows[0].points[-1].nines
    lines = {"CFT": nines.cft_consistency, "BFT": nines.bft_consistency} if references else {}
    top = max([float(frame["nines"].max()), *lines.values()])
    y = ("nines", f"nines of {what}")
    scale: dict[str, Any] = {
        "scale": alt.Scale(domain=[0, top], nice=True),
        "axis": alt.Axis(tickCount=6),
    }
    rules = [
        alt.Chart(chart.records(pd.DataFrame({"at": [value]}), ["at"]))
        .mark_rule(style="plain", strokeDash=[6, 3] if name == "CFT" else [2, 3], strokeWidth=1.5)
        .encode(y=alt.Y("at:Q", title=y[1], **scale))
        for name, value in lines.items()
    ]
    spec = advice_lines.lines(
        view, frame, x=("timeout", "timeout T"), y=y, scale=scale, band=("sure", "nines"),
        value=alt.Tooltip("nines:Q", title="nines", format=".1f"), beside=rules,
    )  # fmt: skip
    best = frame.groupby("op", sort=False)["nines"].max()
    text = f"Nines of {what} of XFT by timeout. " + "; ".join(
        f"{op}: up to {value:.1f}" for op, value in best.items()
    )
    more = "".join(f"; {name} {value:.1f}" for name, value in lines.items())
    return advice_lines.panel(spec, text + more + ".", format.capital(what))


def _title(rows: list[XftAdvice], t: int) -> str:
    found = [
        (point.timeout_ns, point, row)
        for row in rows
        for point in row.points
        if point.timeout_ns == row.chosen_ns
    ]
    if not found:
        return f"What slowness costs XFT with {2 * t + 1} replicas"
    timeout, point, row = max(found, key=lambda it: it[0])
    of = f" ({format.quoted(row.op)})" if len(rows) > 1 else ""
    return (
        f"With a timeout of {format.duration(timeout)}, XFT has "
        f"{point.nines.xft_consistency:.1f} nines of consistency where crash tolerance has "
        f"{point.nines.cft_consistency:.1f}, on the same {2 * t + 1} replicas{of}"
    )
