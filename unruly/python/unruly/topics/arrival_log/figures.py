"""The distributions of first, quorum and all, of the same operations, in one picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.drawing import chart, format
from unruly.drawing.distribution import curve_chart
from unruly.drawing.document import Figure, Panel
from unruly.drawing.frames import exceedances, quantile

if TYPE_CHECKING:
    import pandas as pd

    from unruly.drawing.view import View
    from unruly.topics.arrival_log.model import ArrivalLog

WAITS = ("first", "quorum", "all")
MOST_PANELS = 6
TAIL = 0.01


def waits_figure(view: View, log: ArrivalLog) -> Figure | None:
    """Return the share of operations above each time, a panel for each (cell, op)."""
    if log.distribution.empty:
        return None
    curves = exceedances(log.distribution, ["cell", "op", "measure"])
    if curves.empty:
        return None
    ends, least = chart.span_of(curves["latency_ns"]), float(curves["share"].min())
    several = curves["cell"].nunique() > 1
    panels = []
    for (cell, op), own in curves.groupby(["cell", "op"], sort=False):
        name = f"{op} ({cell})" if several else str(op)
        # outliers are few and far apart: the share stays what it is until the next one
        spec = curve_chart(
            own, "measure", WAITS, "response time", ends, least, 300,
            of="operations", step="step-after",
        )  # fmt: skip
        panels.append(Panel(spec, f"{name}. {_said(own)}", format.capital(name), 300))
    rest = len(panels) - MOST_PANELS
    left = f" Shown: {MOST_PANELS} of {len(panels)}; all are in the tables." if rest > 0 else ""
    return Figure(
        view.key("arrivals"),
        _title(curves),
        "The same operations three times. Read down to a percentile, then across: at “p99” one "
        "operation in 100 takes longer than where the curve stands. The gap between two curves is "
        "the price of waiting for more replicas. An operation that never had enough correct "
        "copies counts as slower than all others." + left,
        tuple(panels[:MOST_PANELS]),
        legend=chart.legend(WAITS),
        narrow=True,
    )


def _tails(curves: pd.DataFrame) -> dict[str, float]:
    named = {str(name): own for name, own in curves.groupby("measure")}
    return {name: quantile(named[name], TAIL) for name in WAITS if name in named}


def _said(curves: pd.DataFrame) -> str:
    parts = [f"{name}: p99 {format.duration(tail)}" for name, tail in _tails(curves).items()]
    return "Share of operations above each response time. " + "; ".join(parts) + "."


def _title(curves: pd.DataFrame) -> str:
    """Of the (cell, op) with the longest tail until a quorum."""
    found = {key: _tails(own) for key, own in curves.groupby(["cell", "op"], sort=False)}
    known = {
        key: tails
        for key, tails in found.items()
        if not any(format.is_absent(tails.get(name)) for name in ("first", "quorum"))
    }
    if not known:
        return "Too few operations to see the slowest 1 % at a quorum"
    (_, op), tails = max(known.items(), key=lambda item: item[1]["quorum"])
    last = tails.get("all")
    rest = (
        "; that many never had all of their copies"
        if format.is_absent(last)
        else f", all of them after {format.duration(last)}"
    )
    return (
        f"1 operation in 100 of {format.quoted(str(op))} has its first correct copy only after "
        f"{format.duration(tails['first'])}, a quorum after {format.duration(tails['quorum'])}"
        + rest
    )
