"""The p99 between every two runtimes with its interval, cell by cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Panel
from unruly.topics.runtimes.model import ANYBODY, runtimes_of
from unruly.topics.runtimes.rules import abs_ratio, is_apart

if TYPE_CHECKING:
    from unruly.drawing.document import Spec
    from unruly.drawing.view import View
    from unruly.topics.runtimes.model import Runtimes, RuntimeTail

MOST_CELLS: Final = 16
MARK: Final = 15
"""The height of one mark, and between two cells half of it."""
ARROW: Final = "\u2192"
ORDER: Final = ("native", "jvm")


def pair_name(tail: RuntimeTail) -> str:
    """Return who asks and who answers, as every table and legend has it."""
    asks = "anybody" if tail.asks == ANYBODY else tail.asks
    return f"{asks} {ARROW} {tail.answers}"


def by_runtime(view: View) -> Figure | None:
    """Return the p99 of every pair of runtimes of each cell; None where no agent is a JVM."""
    found = runtimes_of(view.analysis)
    if found is None:
        return None
    tails = [it for it in found.tails if it.asks != ANYBODY and it.p99 is not None]
    if not tails:
        return None
    tails.sort(key=lambda it: (ORDER.index(it.asks), ORDER.index(it.answers)))
    pairs = list(dict.fromkeys(map(pair_name, tails)))
    worst: dict[str, float] = {}
    for it in tails:
        worst[it.cell] = max(worst.get(it.cell, 0.0), it.p99 or 0.0)
    cells = sorted(worst, key=lambda cell: -worst[cell])
    frame = pd.DataFrame([_row(it) for it in tails if it.cell in cells[:MOST_CELLS]])
    left = len(cells) - MOST_CELLS
    height = 40 + MARK * (len(frame) + frame["cell"].nunique() // 2)
    return Figure(
        view.key("by-runtime"),
        _title(found),
        "Diamond: the p99 of the copies from who asks to who answers; line: its interval of 95 %, "
        "which allows for bursts. Where there is no line the tail has too few episodes for one."
        + (f" Shown: the {MOST_CELLS} worst of {len(cells)} cells." if left > 0 else ""),
        (Panel(_chart(frame, pairs, height), _alt(frame), "", height),),
        legend=chart.legend(pairs) if len(cells) > 1 else (),
    )


def _row(tail: RuntimeTail) -> dict[str, Any]:
    held = tail.p99_interval
    return {
        "cell": tail.cell,
        "pair": pair_name(tail),
        "p99": tail.p99,
        "low": held.low if held else None,
        "high": held.high if held else None,
    }


def _chart(frame: pd.DataFrame, pairs: list[str], height: int) -> Spec:
    several = frame["cell"].nunique() > 1
    order = list(dict.fromkeys(frame.sort_values("p99", ascending=False)["cell"]))
    drawn = frame.astype({"low": float, "high": float})
    ends = chart.span_of(pd.concat([drawn[name].dropna() for name in ("p99", "low", "high")]))
    axis = chart.latency_axis("p99 response time", *ends, most=8)
    base = alt.Chart(chart.records(drawn, ["cell", "pair", "p99", "low", "high"])).encode(
        y=alt.Y(
            "cell:N" if several else "pair:N",
            sort=order if several else pairs,
            title=None,
            axis=alt.Axis(labelLimit=260),
        ),
        color=chart.colour(pairs, "pair"),
        tooltip=[
            "cell:N",
            alt.Tooltip("pair:N", title="from, to"),
            *(chart.latency_tooltip(name, name) for name in ("p99", "low", "high")),
        ],
    )
    if several:
        base = base.encode(yOffset=alt.YOffset("pair:N", sort=pairs))
    return chart.finish(
        alt.layer(
            base.mark_rule(strokeWidth=4, opacity=0.4)
            .encode(x=alt.X("low:Q", **axis), x2="high:Q")
            .transform_filter("isValid(datum.low) && isValid(datum.high)"),
            base.mark_point(filled=True, size=60, shape="diamond", opacity=1).encode(
                x=alt.X("p99:Q", **axis)
            ),
        ),
        height,
    )


def _alt(frame: pd.DataFrame) -> str:
    several = frame["cell"].nunique() > 1
    parts = [
        (f"{row['cell']}, " if several else "") + f"{row['pair']}: {format.duration(row['p99'])}"
        for row in frame.to_dict("records")
    ]
    return "p99 response time by who asks and who answers. " + "; ".join(parts) + "."


def _title(found: Runtimes) -> str:
    """What the interval shows, of the cell where it is farthest from none."""
    known = [it for it in found.ratios if it.ratio.low is not None and it.ratio.high is not None]
    if not known:
        return "The p99 by the runtime of who asks and of who answers"
    apart = [it for it in known if is_apart(it.ratio)]
    most = max(apart or known, key=lambda it: abs_ratio(it.ratio))
    low, high = most.ratio.low or 0.0, most.ratio.high or 0.0
    if not apart:
        return "No cell shows that it matters to the p99 whether a JVM or a native agent answers"
    return (
        f"What JVMs answer has a p99 {format.times(most.ratio.estimate)} that of native agents "
        f"({format.significant(low)} to {format.significant(high)})"
    )
