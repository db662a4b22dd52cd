"""A figure of the report as one chart of plain Vega-Lite, for any viewer.

The page gives its charts three things that plain Vega-Lite lacks: number formats of its own, the
palette of the reader's scheme, and legends in HTML. Here the formats become expressions, the
palette is the page's light one, and legends are drawn in the chart.
"""

from __future__ import annotations

import re
import textwrap
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from unruly.drawing.chart import one_line

if TYPE_CHECKING:
    from unruly.drawing.document import Figure, Spec

SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v6.json"
WIDE, NARROW = 640, 300
"""Widths of a panel, in pixels: alone in its row, and beside another one."""
TITLE_WIDTH: Final = 95
CHANNELS: Final = ("color", "shape", "opacity", "fillOpacity", "size", "x", "y")
STEPS: Final = {
    "latency": ((1e9, " s"), (1e6, " ms"), (1e3, " µs"), (1.0, " ns")),
    "size": ((1e9, " GB"), (1e6, " MB"), (1e3, " kB"), (1.0, " B")),
    "amount": ((1e9, " G"), (1e6, " M"), (1.0, "")),
    "share": ((0.01, " %"),),
}
"""Units of the page's own formats, from the largest on."""


def plain_spec(figure: Figure) -> Spec:
    """Return all panels of a figure as one Vega-Lite specification."""
    narrow = figure.narrow and len(figure.panels) > 1
    panels: list[Spec] = []
    data: dict[str, Any] = {}
    for panel in figure.panels:
        spec: Spec = _plain(one_line(panel.spec), figure)
        data |= spec.pop("datasets", {})
        if spec.get("width") == "container":
            spec["width"] = NARROW if narrow else WIDE
        if panel.title:
            spec["title"] = {"text": panel.title, "anchor": "start", "fontSize": 12}
        panels.append(spec)
    return {
        "$schema": SCHEMA,
        "title": {
            "text": textwrap.wrap(figure.title, TITLE_WIDTH),
            "anchor": "start",
            "fontSize": 15,
            "offset": 12,
        },
        "datasets": data,
        "concat": panels,
        "columns": 2 if narrow else 1,
        # one legend for all panels; each panel keeps its other scales
        "resolve": {"scale": dict.fromkeys(CHANNELS, "independent") | _shared(figure)},
        "config": _config(),
    }


def _plain(value: Any, figure: Figure) -> Any:
    """A part of a specification without the page's formats, with the legends that it needs."""
    if isinstance(value, list):
        return [_plain(inner, figure) for inner in value]
    if not isinstance(value, dict):
        return value
    found = {key: _plain(inner, figure) for key, inner in value.items()}
    kind = found.get("formatType")
    if kind in STEPS and "field" not in found:
        del found["formatType"]
        found.pop("format", None)
        found["labelExpr"] = _written(str(kind), "datum.value")
    encoding = found.get("encoding")
    if isinstance(encoding, dict):
        _show_legends(encoding, figure)
        _name_values(found, encoding)
    return found


def _shared(figure: Figure) -> dict[str, str]:
    """The channels that the figure has a legend for."""
    coloured = any(key.colour >= 0 for key in figure.legend)
    shaped = any(key.mark != "dot" for key in figure.legend)
    return {name: "shared" for name, told in (("color", coloured), ("shape", shaped)) if told}


def _show_legends(encoding: dict[str, Any], figure: Figure) -> None:
    for channel in _shared(figure):
        held = encoding.get(channel)
        if isinstance(held, dict) and "field" in held and held.get("legend", 0) is None:
            held["legend"] = {"title": None}


def _name_values(spec: dict[str, Any], encoding: dict[str, Any]) -> None:
    """Let a tooltip show a field that is written out, where it has a format of the page."""
    shown = encoding.get("tooltip")
    for entry in shown if isinstance(shown, list) else []:
        kind, field = entry.pop("formatType", None), entry.get("field")
        if kind not in STEPS or not field:
            continue
        entry.pop("format", None)
        name = f"{field} in words"
        written = {"calculate": _written(str(kind), f"datum['{field}']"), "as": name}
        spec.setdefault("transform", []).append(written)
        entry.update(field=name, type="nominal")


def _written(kind: str, value: str) -> str:
    """Return an expression that writes `value` with three digits and its unit.

    Examples
    --------
    >>> _written("share", "datum.value")
    "isValid(datum.value) ? format(datum.value / 0.01, '.3~r') + ' %' : ''"
    """
    steps = STEPS[kind]
    expression = _in_unit(value, *steps[-1])
    for scale, unit in reversed(steps[:-1]):
        at_least = f"abs({value}) >= {scale * 0.9995:.10g}"
        expression = f"{at_least} ? {_in_unit(value, scale, unit)} : {expression}"
    return f"isValid({value}) ? {expression} : ''"


def _in_unit(value: str, scale: float, unit: str) -> str:
    return f"format({value} / {scale:.10g}, '.3~r') + '{unit}'"


@cache
def _colours() -> dict[str, str]:
    """The palette of the page in a light scheme, by the names of its style sheet."""
    style = files("unruly.html").joinpath("style.css").read_text(encoding="utf-8")
    light = style.partition("{")[2].partition("}")[0]
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", light))


def _config() -> dict[str, Any]:
    """What `page.js` configures for a light scheme."""
    colour = _colours()
    soft, ink = colour["soft"], colour["ink"]
    axis = {
        "labelColor": soft, "titleColor": soft, "gridColor": colour["rule"], "gridOpacity": 0.55,
        "domain": False, "tickColor": colour["rule"], "titleFontWeight": "normal",
    }  # fmt: skip
    return {
        "background": colour["raised"],
        "font": "sans-serif",
        "axis": axis,
        "axisDiscrete": {"grid": False, "ticks": False, "labelColor": ink},
        "view": {"stroke": None},
        "rule": {"color": soft},
        "range": {"category": [colour[f"c{place}"] for place in range(8)]},
        "style": {
            "plain": {"color": soft},
            "plainbar": {"color": colour["c0"]},
            "second": {"color": colour["c1"]},
            "failed": {"color": colour["bad"]},
            "ink": {"color": ink},
            "paper": {"color": colour["paper"]},
            "heat": {"stroke": colour["paper"], "strokeWidth": 1.5, "color": colour["heat"]},
            "saved": {"color": colour["good"]},
            "zero": {"color": soft, "strokeDash": [2, 3]},
        },
    }
