"""What all charts share: data as rounded records, axes in time units, and the palette.

Colours are named by their place in the palette (``range="category"``), never by value: the page
resolves them when it is drawn, so that the same chart is legible in a light and a dark scheme.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Literal

import altair as alt

from unruly.drawing.document import Key, Spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

MOST_COLOURS = 8
"""The eye cannot distinguish more hues than this; further ops are in the tables only."""

CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

DIGITS = 4
"""Significant digits of a plotted value: a tenth of a pixel on a 1,000 pixel log axis."""


def rounded(value: Any) -> Any:
    """Return a value fit for JSON: a float with four digits, or null if it is not finite."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value
    as_float = float(value)
    if not math.isfinite(as_float):
        return None
    short = float(f"{as_float:.{DIGITS}g}")
    return int(short) if short.is_integer() else short


class _Shared(alt.InlineData):
    """Rows that all copies of a chart share: Altair copies a chart for each layer and each step."""

    def __deepcopy__(self, memo: Any = None) -> _Shared:
        return self


def records(frame: pd.DataFrame, columns: Sequence[str]) -> alt.InlineData:
    """Return the named columns as inline data; a column that is not plotted does not travel."""
    taken = [frame[name].tolist() for name in columns]
    rows = [
        dict(zip(columns, (rounded(v) for v in row), strict=True))
        for row in zip(*taken, strict=True)
    ]
    return _Shared(values=rows)


def colour(domain: Sequence[str], field: str = "op") -> alt.Color:
    """Return the colour of a workload (or an environment), the same in every figure."""
    return alt.Color(
        f"{field}:N",
        scale=alt.Scale(domain=list(domain), range="category"),
        legend=None,
    )


FAINTEST = 0.07
"""How much of the heat's colour its least value has."""


def heat(field: str, domain: tuple[float, float], kind: Literal["log", "linear"]) -> Any:
    """Return the encoding of a heat map: one colour, and of it the more, the higher the value.

    A share of a colour looks right on any paper; a ramp of colours needs one for each.
    """
    scale = alt.Scale(type=kind, domain=list(domain), range=[FAINTEST, 1.0])
    return alt.FillOpacity(f"{field}:Q", legend=None, scale=scale)


def on_heat(field: str) -> Any:
    """Return the colour of words on a heat map, in contrast to their square."""
    strong = f"scale('fillOpacity', datum.{field}) > 0.5"
    return alt.condition(strong, alt.value("var(--paper)"), alt.value("var(--ink)"))


def legend(domain: Sequence[str]) -> tuple[Key, ...]:
    """Return the legend that belongs to `colour`."""
    return tuple(Key(label, index % MOST_COLOURS) for index, label in enumerate(domain))


def span_of(values: Iterable[float]) -> tuple[float, float]:
    """Return the least and the greatest positive finite value, or a decade around 1 ms."""
    finite = [float(v) for v in values if v is not None and math.isfinite(v) and v > 0]
    return (min(finite), max(finite)) if finite else (1e5, 1e7)


def padded(low: float, high: float) -> tuple[float, float]:
    """Return a log domain a little wider than the values, and at least half a decade wide."""
    if high / low < 3:
        middle = math.sqrt(low * high)
        low, high = min(low, middle / 2), max(high, middle * 2)
    return low / 1.12, high * 1.12


def units(low: float, high: float) -> str:
    """Return the units that an axis from `low` to `high` nanoseconds shows.

    Examples
    --------
    >>> units(2e4, 3e8), units(2e6, 3e7)
    ('µs to ms', 'ms')
    """
    names = ["ns", "µs", "ms", "s"]
    first, last = (min(3, max(0, int(math.log10(v) // 3))) for v in (low, high))
    return names[first] if first == last else f"{names[first]} to {names[last]}"


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return round values of a log axis: decades, with 2 and 5 between where there is room."""
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [
            s * 10.0**e
            for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            for s in steps
            if low <= s * 10.0**e <= high
        ]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]


def latency_axis(
    name: str, low: float, high: float, *, most: int = 8, title: bool = True
) -> dict[str, Any]:
    """Return ``scale``, ``axis`` and ``title`` of a latency on a log axis.

    The labels carry their unit (``10 ms``); the title says which units there are.
    """
    low, high = padded(low, high)
    return {
        "scale": alt.Scale(type="log", domain=[low, high], nice=False, clamp=True),
        "axis": alt.Axis(values=ticks(low, high, most), format="", formatType="latency"),
        "title": f"{name} ({units(low, high)}, log scale)" if title else None,
    }


def latency_tooltip(field: str, title: str) -> alt.Tooltip:
    """Return a tooltip in time units."""
    return alt.Tooltip(
        field=field, type="quantitative", title=title, formatType="latency", format=""
    )


def finish(chart: Any, height: int) -> Spec:
    """Return the specification: as wide as the page allows, without what the page adds itself."""
    spec: Spec = chart.properties(width="container", height=height).to_dict(validate=False)
    for unwanted in ("$schema", "config", "usermeta"):
        spec.pop(unwanted, None)
    return spec


def one_line(value: Any) -> Any:
    """Return the specification without line breaks and control characters in its strings.

    Vega writes names into expressions of its own and cannot parse them back when they hold such.
    """
    if isinstance(value, str):
        return CONTROLS.sub("\ufffd", value)
    if isinstance(value, dict):
        return {key: one_line(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [one_line(inner) for inner in value]
    return value
