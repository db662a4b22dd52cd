"""Pictures of a matrix: the haircut, tails against means, what explains them, and how they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import altair as alt
import pandas as pd

from unruly.drawing import chart, format
from unruly.drawing.document import Figure, Key, Panel, Table, number, table, text
from unruly.topics.factors.statistics import factors_of

if TYPE_CHECKING:
    from unruly.drawing.view import View
    from unruly.topics.factors.cells import MatrixCell
    from unruly.topics.factors.statistics import Magical

MOST_CELLS: Final = 400
TABLE_CELLS: Final = 60
MOST_LEVELS: Final = 8
FIELDS: Final = ("mean", "p99", "maximum")
SHAPES: Final = ("circle", "triangle-up", "cross")
BOUND: Final = 25
OTHERS: Final = "other systems"
"""The common name of the systems for which there is no colour left."""
CURVE_MARKS: Final = (0.5, 0.9, 0.99, 0.999)


def haircut(view: View) -> Figure | None:
    """Mean, p99 and maximum of every cell, before and after its slowest 1 % are cut off."""
    cells = [c for c in _cells(view) if c.mean is not None and c.largest_after is not None]
    if not cells:
        return None
    cells.sort(key=lambda c: c.mean or 0.0)
    rows = [
        {"side": side, "cell": c.cell, "place": place, "field": field, "value": value}
        for place, c in enumerate(cells, 1)
        for side, values in (
            ("before", (c.mean, c.p99, c.largest)),
            ("after", (c.mean_after, c.p99_after, c.largest_after)),
        )
        for field, value in zip(FIELDS, values, strict=True)
        if value is not None
    ]
    frame = pd.DataFrame(rows)
    ends = chart.span_of(frame["value"])
    worst = [max((getattr(c, a) or 0.0) / (getattr(c, m) or 1.0) for c in cells)
             for a, m in (("largest", "mean"), ("largest_after", "mean_after"))]  # fmt: skip
    cuts = [c.smallest_haircut for c in cells if c.smallest_haircut is not None]
    least = f" The largest cut that any cell needs is {format.share(max(cuts))}." if cuts else ""
    panels = tuple(
        Panel(
            _marks(frame[frame["side"] == side], ends),
            f"Mean, p99 and maximum of {len(cells)} cells {words}, sorted by mean.",
            words[0].upper() + words[1:],
        )
        for side, words in (("before", "as measured"), ("after", "without the slowest 1 %"))
    )
    return Figure(
        view.key("haircut"),
        f"Without the slowest 1 % the maximum falls from {format.times(worst[0])} the mean to "
        f"{format.times(worst[1])}",
        "Each column of marks is one configuration, sorted by its mean; both panels have one scale."
        f" What is cut off was waited for all the same.{least}",
        panels,
        legend=(Key("mean", 0, "circle"), Key("p99", 1, "triangle"), Key("maximum", 2, "cross")),
        narrow=True,
    )


def ratios(view: View) -> Figure | None:
    """p99 and maximum over the mean, against the bounds that others have found."""
    cells = [c for c in _cells(view) if c.mean and c.p99 is not None and c.largest is not None]
    if not cells:
        return None
    cells.sort(key=lambda c: (c.p99 or 0.0) / (c.mean or 1.0))
    rows = []
    for place, c in enumerate(cells, 1):
        bounds = c.p99_over_mean
        low, high = (bounds.low, bounds.high) if bounds is not None else (None, None)
        both = (("p99", (c.p99 or 0.0), low, high), ("maximum", (c.largest or 0.0), None, None))
        rows += [
            {"place": place, "cell": c.cell, "field": f, "value": v / (c.mean or 1.0), "low": lo,
             "high": hi, "system": c.system}
            for f, v, lo, hi in both
        ]  # fmt: skip
    frame = pd.DataFrame(rows)
    beyond = sum((c.p99 or 0.0) > BOUND * (c.mean or 1.0) for c in cells)
    top = float(frame["value"].max()) * 1.2
    scale = alt.Scale(type="log", domain=[0.8, max(40.0, top)], nice=False, clamp=True)
    axis = alt.Axis(values=[1, 2, 5, 10, 25, 100, 1000, 10_000], format="~g")
    y = alt.Y("value:Q", scale=scale, axis=axis, title="times the mean (log scale)")
    # the ranks are given: a layer that shows no mark would have no extent
    whole = alt.Scale(domain=[1, max(2, int(frame["place"].max()))], nice=False)
    x = alt.X("place:Q", title="cells, by p99 over mean (rank)", scale=whole)
    base = alt.Chart(
        chart.records(frame, ["place", "cell", "field", "value", "low", "high", "system"])
    )
    spans = (
        base.transform_filter("datum.low != null && datum.high != null")
        .mark_rule(opacity=0.4)
        .encode(x=x, y=alt.Y("low:Q", scale=scale, axis=axis, title=None), y2="high:Q")
    )
    marks = base.mark_point(filled=True, size=30, opacity=0.85).encode(
        x=x,
        y=y,
        color=chart.colour(FIELDS[1:], "field"),
        tooltip=["cell:N", "field:N", alt.Tooltip("value:Q", format=".3~g")],
    )
    lines = (
        alt.Chart(alt.InlineData(values=[{"at": 10}, {"at": BOUND}]))
        .mark_rule(strokeDash=[4, 4])
        .encode(y=alt.Y("at:Q", scale=scale, axis=axis, title=None))
    )
    return Figure(
        view.key("ratios"),
        f"The p99 is beyond {BOUND} times the mean in {beyond} of "
        f"{format.plural(len(cells), 'cell')}",
        f"Dashed: 10 times the mean, beyond which a maximum is called unpredictable, and {BOUND} "
        "times, below which the p99 of sixteen middleware systems stayed. Vertical lines: the "
        "interval of p99 over mean, where one can be given.",
        (
            Panel(
                chart.finish(alt.layer(lines, spans, marks), 300),
                f"p99 and maximum over mean of {len(cells)} cells, sorted.",
                height=300,
            ),
        ),
        legend=(Key("p99", 0, "dot"), Key("maximum", 1, "dot")),
    )


def p99_on_mean(view: View) -> Figure | None:
    """p99 against mean, a line for each system."""
    magical = factors_of(view.analysis)
    cells = [c for c in _cells(view) if c.mean and c.p99]
    if magical is None or len(cells) < 3:
        return None
    shown = _shown_systems(magical)
    systems = list(dict.fromkeys(shown.values()))
    frame = pd.DataFrame(
        [{"mean": c.mean, "p99": c.p99, "system": shown[c.system], "cell": c.cell} for c in cells]
    )
    lines = [
        {"system": system, "mean": at, "p99": value}
        for system in systems
        if system != OTHERS
        for at, value in _line_points(magical, system, frame)
    ]
    x_ends, y_ends = chart.span_of(frame["mean"]), chart.span_of(frame["p99"])
    x = alt.X("mean:Q", **chart.latency_axis("mean", *x_ends))
    y = alt.Y("p99:Q", **chart.latency_axis("p99", *y_ends))
    marks = alt.Chart(chart.records(frame, ["mean", "p99", "system", "cell"])).mark_point(
        filled=True, size=40, opacity=0.8
    ).encode(
        x=x,
        y=y,
        color=chart.colour(systems, "system"),
        tooltip=["cell:N", chart.latency_tooltip("mean", "mean"),
                 chart.latency_tooltip("p99", "p99")],
    )  # fmt: skip
    fits = (
        alt.Chart(alt.InlineData(values=lines))
        .mark_line(clip=True)
        .encode(x=x, y=y, color=chart.colour(systems, "system"))
    )
    whole = magical.lines["*"]
    if whole.slope is None or whole.intercept is None:
        claim = f"p99 against mean of {format.plural(len(cells), 'cell')}"
    else:
        claim = (
            f"p99 = {format.significant(whole.slope.estimate)} {format.TIMES} mean "
            f"{_signed(whole.intercept.estimate)}, r = {format.significant(whole.r, 2)}"
        )
    return Figure(
        view.key("p99-on-mean"),
        claim,
        "Each dot is a cell; the lines are least squares for each system, drawn on log axes. In "
        f"the study the p99 was 1.04 {format.TIMES} mean + 263 µs over its traces.",
        (Panel(chart.finish(alt.layer(fits, marks), 320), claim, height=320),),
        legend=chart.legend(systems) if len(systems) > 1 else (),
        tables=(_line_table(magical),),
    )


def explained(view: View) -> Figure | None:
    """Which factor explains mean, p99, maximum and number of outliers."""
    magical = factors_of(view.analysis)
    # without repeats nothing is left to hold a factor against, and each explains everything
    if magical is None or all(e.p_value is None for it in magical.explained for e in it.effects):
        return None
    rows = [
        {"measure": it.measure, "factor": _plain(e.factor), "share": e.share}
        for it in magical.explained
        for e in it.effects
        if e.share is not None and e.factor != "residual"
    ]
    if not rows:
        return None
    frame = pd.DataFrame(rows)
    factors = list(dict.fromkeys(frame["factor"]))
    bars = alt.Chart(chart.records(frame, ["measure", "factor", "share"])).mark_bar().encode(
        x=alt.X("share:Q", title="share of the variance", axis=alt.Axis(format="%"),
                scale=alt.Scale(domain=[0, 1])),
        y=alt.Y("measure:N", sort=list(dict.fromkeys(frame["measure"])), title=None),
        color=chart.colour(factors, "factor"),
        tooltip=["measure:N", "factor:N", alt.Tooltip("share:Q", format=".1%")],
    )  # fmt: skip
    p99 = frame[frame["measure"] == "p99"]
    best = p99.loc[p99["share"].idxmax()] if len(p99) else frame.loc[frame["share"].idxmax()]
    return Figure(
        view.key("explained"),
        f"The factor that explains most of the {best['measure']} is {best['factor']}: "
        f"{format.share(float(best['share']))}",
        "Analysis of variance (type II) over cells and repeats. What is missing to 100 % no factor "
        "of the plan explains: chance, the hour, neighbours.",
        (Panel(chart.finish(bars, 180), "Shares of variance by factor.", height=180),),
        legend=chart.legend(factors),
        tables=(_effect_table(magical),),
    )


def by_level(view: View) -> Figure | None:
    """What one factor does to the whole distribution."""
    from unruly.topics.factors.statistics import CURVE  # noqa: PLC0415 - a constant of the analysis

    magical = factors_of(view.analysis)
    if magical is None or not magical.curves:
        return None
    panels = []
    for factor, levels in magical.curves.items():
        kept = list(levels)[:MOST_LEVELS]
        frame = pd.DataFrame(
            [
                {"level": level, "tail": 1 - p, "value": value}
                for level in kept
                for p, value in zip(CURVE, levels[level], strict=True)
            ]
        )
        ends = chart.span_of(frame["value"])
        lines = (
            alt.Chart(chart.records(frame, ["level", "tail", "value"]))
            .mark_line()
            .encode(
                x=alt.X("value:Q", **chart.latency_axis("response time", *ends, most=5)),
                y=alt.Y(
                    "tail:Q",
                    title="share above (log scale)",
                    scale=alt.Scale(type="log", domain=[0.001, 1], nice=False),
                    axis=alt.Axis(values=[1, 0.5, 0.1, 0.01, 0.001], format="~g"),
                ),
                color=alt.Color(
                    "level:N",
                    scale=alt.Scale(domain=kept, range="category"),
                    legend=alt.Legend(title=None, orient="top"),
                ),
                tooltip=["level:N", "tail:Q", chart.latency_tooltip("value", "response time")],
            )
        )
        name = _plain(factor)
        panels.append(Panel(chart.finish(lines, 260), f"Distribution by {name}.", name, height=280))
    return Figure(
        view.key("by-level"),
        "What each factor does to the whole distribution",
        "All rows of a level together. Lines that only shift keep their shape; a line that bends "
        "away has a tail that the others have not.",
        tuple(panels),
        narrow=True,
    )


def outliers(view: View) -> Figure | None:
    """How many outliers a cell has against how large they are, and whether they come in streaks."""
    magical = factors_of(view.analysis)
    cells = [c for c in _cells(view) if c.outlier_share and c.outlier_size]
    if magical is None or not cells:
        return None
    shown = _shown_systems(magical)
    systems = list(dict.fromkeys(shown.values()))
    frame = pd.DataFrame(
        [
            {"cell": c.cell, "share": c.outlier_share, "size": c.outlier_size,
             "streak": c.streak.estimate if c.streak else None, "system": shown[c.system]}
            for c in cells
        ]
    )  # fmt: skip
    log = alt.Scale(type="log", nice=False, padding=10)
    marks = alt.Chart(
        chart.records(frame, ["cell", "share", "size", "streak", "system"])
    ).mark_point(filled=True, opacity=0.8).encode(
        x=alt.X("share:Q", scale=log, title="share of outliers (log scale)",
                axis=alt.Axis(format="%", tickCount=4)),
        y=alt.Y("size:Q", scale=log, title="their mean over the cell's mean (log scale)",
                axis=alt.Axis(format="~g", tickCount=4)),
        size=alt.Size("streak:Q", legend=None, scale=alt.Scale(range=[30, 260])),
        color=chart.colour(systems, "system"),
        tooltip=["cell:N", alt.Tooltip("share:Q", format=".2%"),
                 alt.Tooltip("size:Q", format=".3~g"), alt.Tooltip("streak:Q", format=".3~g")],
    )  # fmt: skip
    found = magical.count_against_size
    claim = (
        f"More outliers go with {'smaller' if found.rho < 0 else 'larger'} ones: Spearman "
        f"{format.significant(found.rho, 2)}"
        if found is not None and found.p_value < 0.05
        else "How many outliers a cell has says nothing of how large they are"
    )
    return Figure(
        view.key("outliers"),
        claim,
        "Outliers are beyond mean + 3 standard deviations. A large dot: they come in streaks, as "
        "when something stalls and everybody in it waits.",
        (Panel(chart.finish(marks, 300), claim, height=300),),
        legend=chart.legend(systems) if len(systems) > 1 else (),
    )


def matrix_table(view: View) -> Table | None:
    """Every cell in numbers, the worst first."""
    magical = factors_of(view.analysis)
    cells = [c for c in _cells(view) if c.mean]
    if magical is None or not cells:
        return None
    cells.sort(key=lambda c: -((c.largest or 0.0) / (c.mean or 1.0)))
    rows = [
        [
            text(c.cell),
            number(format.count(c.n)),
            number(format.duration(c.median), c.absent.get("p50", "")),
            number(format.duration(c.mean)),
            number(format.duration(c.p99), c.absent.get("p99", "")),
            number(format.duration(c.largest), c.absent.get("max", "")),
            number(format.count(c.over_10x_mean), c.absent.get("over_10x_mean", "")),
            number(format.share(c.smallest_haircut), "a request failed"),
            number(format.significant(c.streak.estimate if c.streak else None),
                   c.absent.get("streak", "")),
            number(format.significant(c.dip_q, 2), c.absent.get("dip", "")),
        ]
        for c in cells[:TABLE_CELLS]
    ]  # fmt: skip
    tenfold = f"over 10 {format.TIMES} mean"
    columns = ("cell", "n", "p50", "mean", "p99", "maximum", tenfold, "smallest haircut",
               "mean streak", "dip, q")  # fmt: skip
    notes = [f"{it}." for it in magical.notes]
    if len(cells) > TABLE_CELLS:
        notes.insert(0, f"The {TABLE_CELLS} most unruly of {len(cells)}.")
    return table(columns, rows, "The cells of the matrix", " ".join(notes))


def resource_table(view: View) -> Table | None:
    """What client and server used, against number and size of outliers."""
    magical = factors_of(view.analysis)
    if magical is None or not magical.resources:
        return None
    rows = [
        [
            text(it.of),
            text(it.against),
            number(format.significant(it.rho, 2)),
            number(format.significant(it.q_value, 2)),
            number(format.count(it.cells)),
        ]
        for it in magical.resources[:12]
    ]
    columns = ("used a second", "against", "Spearman", "q", "cells")
    return table(columns, rows, "Resources against outliers, over the cells")


def _cells(view: View) -> list[MatrixCell]:
    magical = factors_of(view.analysis)
    return list(magical.cells[:MOST_CELLS]) if magical is not None else []


def _marks(frame: pd.DataFrame, ends: tuple[float, float]) -> Any:
    marks = alt.Chart(chart.records(frame, ["cell", "place", "field", "value"])).mark_point(
        filled=True, size=34, opacity=0.85
    ).encode(
        x=alt.X("place:Q", title="cells, by their mean (rank)",
                scale=alt.Scale(nice=False, padding=8),
                axis=alt.Axis(tickMinStep=1, format="d")),
        y=alt.Y("value:Q", **chart.latency_axis("response time", *ends)),
        color=chart.colour(FIELDS, "field"),
        shape=alt.Shape("field:N", legend=None,
                        scale=alt.Scale(domain=list(FIELDS), range=list(SHAPES))),
        tooltip=["cell:N", "field:N", chart.latency_tooltip("value", "response time")],
    )  # fmt: skip
    return chart.finish(marks, 280)


def _shown_systems(magical: Magical) -> dict[str, str]:
    """Return the name under which each system is drawn: beyond the colours there are, `OTHERS`."""
    systems = list(magical.systems)
    most = len(systems) if len(systems) <= chart.MOST_COLOURS else chart.MOST_COLOURS - 1
    return {name: name if place < most else OTHERS for place, name in enumerate(systems)}


def _line_points(magical: Magical, system: str, frame: pd.DataFrame) -> list[tuple[float, float]]:
    line = magical.lines.get(system) or magical.lines["*"]
    if line.slope is None or line.intercept is None:
        return []
    slope, intercept = line.slope.estimate or 0.0, line.intercept.estimate or 0.0
    low, high = chart.span_of(frame[frame["system"] == system]["mean"])
    places = [low * (high / low) ** (k / 24) for k in range(25)]
    return [(at, slope * at + intercept) for at in places if slope * at + intercept > 0]


def _line_table(magical: Magical) -> Table:
    rows = []
    for system, line in magical.lines.items():
        name = "all" if system == "*" else system
        if line.slope is None or line.intercept is None:
            absent = [number(format.DASH, line.reason) for _ in range(3)]
            rows.append([text(name), *absent, number(format.count(line.n))])
            continue
        slope, intercept = line.slope, line.intercept
        rows.append(
            [
                text(name),
                number(
                    f"{format.significant(slope.estimate)} "
                    f"[{format.significant(slope.low)}, {format.significant(slope.high)}]"
                ),
                number(
                    f"{_signed(intercept.estimate)} "
                    f"[{_signed(intercept.low)}, {_signed(intercept.high)}]"
                ),
                number(format.significant(line.r, 2)),
                number(format.count(line.n)),
            ]
        )
    return table(
        ("system", "slope", "intercept", "r", "cells"),
        rows,
        f"p99 = slope {format.TIMES} mean + intercept",
    )


def _effect_table(magical: Magical) -> Table:
    rows = [
        [
            text(it.measure),
            text(_plain(e.factor)),
            number(format.significant(e.f), e.reason),
            number(format.significant(e.p_value, 2), e.reason),
            number(format.share(e.share), e.reason),
            number(
                f"{format.share(e.partial.low)} to {format.share(e.partial.high)}"
                if e.partial
                else format.DASH,
                e.reason,
            ),
        ]
        for it in magical.explained
        for e in it.effects
        if e.factor != "residual"
    ]
    columns = ("measure", "factor", "F", "p", "share", "of what the others leave")
    return table(columns, rows, "Analysis of variance")


def _plain(factor: str) -> str:
    """A factor as people say it: drive.think is think."""
    return ":".join(part.rsplit(".", 1)[-1] for part in factor.split(":"))


def _signed(value_ns: float | None) -> str:
    if value_ns is None:
        return format.DASH
    sign = format.MINUS if value_ns < 0 else "+"
    return f"{sign} {format.duration(abs(value_ns))}"
