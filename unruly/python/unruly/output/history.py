"""A percentile over many runs as lines with bars, and as JSON."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from unruly.quantity import DASH, NS_PER_S, count, duration, significant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.history import Point, Series
    from unruly.stats import ChangePoint

BAR: Final = "\u2588"
BAR_LEAST: Final = 10
BAR_MOST: Final = 40


def history_text(found: Sequence[Series], *, width: int = 100) -> str:
    """Return each series: whether it changed, and a line for each run."""
    if not found:
        return "no analysed run with a time of day here; hint: unruly runs lists them"
    return "\n\n".join(_series(it, width) for it in found)


def _series(it: Series, width: int) -> str:
    cell = "" if it.cell in ("", "all") else f" ({it.cell})"
    machine = f" on {it.machine}" if it.machine else ""
    tag = f" [{it.tag}]" if it.tag else ""
    runs = f"{count(len(it.points))} {'run' if len(it.points) == 1 else 'runs'}"
    head = f"{it.plan}{tag}{cell}, {it.percentile} of {it.op}{machine}, {runs}"
    told = [conclusion(it), noise(it)]
    lines = [head, *(textwrap.fill(line, width, subsequent_indent="  ") for line in told if line)]
    return "\n".join([*lines, *_lines(it, width)])


def conclusion(it: Series) -> str:
    """Return whether and when the level changed."""
    if it.changes:
        return "changed: " + "; ".join(_change(it, one) for one in it.changes)
    return f"changes: not known: {it.absent}" if it.absent else "changes: none"


def _change(it: Series, change: ChangePoint) -> str:
    found = change.ratio
    known = found.low is not None and found.high is not None
    bounds = f" [{significant(found.low)}, {significant(found.high)}]" if known else ""
    ratio = DASH if found.estimate is None else significant(found.estimate)
    return f"since {day(it.points[change.block].started_ns)} it is {ratio}{bounds} times as long"


def noise(it: Series) -> str:
    """Return how much two runs in a row differ without a change; empty if it is not known."""
    found = it.noise
    if found.estimate is None:
        return ""
    known = found.low is not None and found.high is not None
    bounds = f" [{significant(found.low)}, {significant(found.high)}]" if known else ""
    return (
        f"noise: without a change, two runs in a row differ by a factor of "
        f"{significant(found.estimate)}{bounds} (median)"
    )


def _lines(it: Series, width: int) -> list[str]:
    texts = [value(one, it.unit) for one in it.points]
    days = [day(one.started_ns) for one in it.points]
    column = max(len(text) for text in texts)
    room = min(BAR_MOST, width - len(days[0]) - column - 6)
    most = max((one.estimate or 0.0 for one in it.points), default=0.0)
    lines = []
    for place, (when, text, one) in enumerate(zip(days, texts, it.points, strict=True)):
        mark = "!" if not one.trustworthy else ">" if _begins(it, place) else " "
        bar = ""
        if room >= BAR_LEAST and one.estimate and np.isfinite(one.estimate):
            bar = BAR * max(1, round(room * one.estimate / most))
        lines.append(f"{mark} {when}  {text.ljust(column)}  {bar}".rstrip())
    if any(not one.trustworthy for one in it.points):
        lines.append("! a run that is not trustworthy: it counts neither for changes nor for noise")
    return lines


def _begins(it: Series, place: int) -> bool:
    return any(change.block == place for change in it.changes)


def value(one: Point, unit: str) -> str:
    """Return the percentile of a run with its interval."""
    if one.estimate is None:
        return DASH
    shown = duration if unit == "ns" else significant
    if one.low is None or one.high is None:
        return shown(one.estimate)
    return f"{shown(one.estimate)} [{shown(one.low)}, {shown(one.high)}]"


def day(ns: int) -> str:
    """Return a time as a day and a minute, UTC."""
    return f"{datetime.fromtimestamp(ns / NS_PER_S, UTC):%Y-%m-%d %H:%M}"


def history_json(found: Sequence[Series]) -> dict[str, Any]:
    """Return the series for a program; times are in ns, and null stands for the unknown."""
    return {"schema": 1, "series": [_plain(asdict(it)) for it in found]}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(it) for key, it in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(it) for it in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value
