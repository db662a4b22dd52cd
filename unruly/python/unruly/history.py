"""A percentile over many runs of one plan: its level from run to run, and when the level changed.

Runs are compared with their like: one plan, one environment, one kind of machine, one cell, one
operation. Two runs
in a row without a change between them show how much the percentile varies from run to run.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from unruly.base.ladder import NAMES
from unruly.errors import ParameterError
from unruly.listing import listed_with_summaries
from unruly.stats import change_points, quantile_interval_iid
from unruly.stats.changes import EFFECTIVE_MIN

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from unruly.listing import Listed
    from unruly.stats import ChangePoint, Interval

ALPHA: Final = 0.05
"""The chance of an alarm where nothing changed, over all series together."""
RUNS_LEAST: Final = int(EFFECTIVE_MIN)
SERIES_MOST: Final = 200


@dataclass(frozen=True)
class Point:
    """The percentile in one run, with the interval of its summary; None where it has none."""

    directory: str
    started_ns: int
    estimate: float | None
    low: float | None
    high: float | None
    trustworthy: bool


@dataclass(frozen=True)
class Series:
    """One percentile of one operation over the runs of a plan in one environment.

    ``tag`` is the environment's name, and ``machine`` its kind of machine. ``noise`` is the median
    factor between two runs in a row without a change between them, 1 or
    more. ``absent`` says why there are no changes to report.
    """

    plan: str
    tag: str
    machine: str
    cell: str
    op: str
    percentile: str
    unit: str
    points: tuple[Point, ...]
    changes: tuple[ChangePoint, ...]
    noise: Interval
    absent: str = ""


def history_of(*directories: str | Path, percentile: str = "p99") -> list[Series]:
    """Return the series of all analysed runs below some directories.

    A run that is not trustworthy stays in its series, and counts neither for changes nor for noise.

    Raises
    ------
    ParameterError
        When a directory does not exist, the percentile is no step of the ladder, or there are more
        than 200 series.
    """
    if percentile not in NAMES.values():
        known = ", ".join(NAMES.values())
        raise ParameterError("percentile", f"is {percentile!r}", f"one of {known}", "p99")
    found: dict[tuple[str, ...], list[Point]] = {}
    for listed, summary in listed_with_summaries(*directories):
        for key, point in _points(listed, summary, percentile):
            found.setdefault(key, []).append(point)
    if len(found) > SERIES_MOST:
        raise ParameterError(
            "directories", f"have {len(found)} series", f"at most {SERIES_MOST}",
            "name the directories of fewer plans",
        )  # fmt: skip
    alpha = ALPHA / max(1, len(found))
    return [_series(key, percentile, points, alpha) for key, points in found.items()]


def _points(
    listed: Listed, summary: dict[str, Any], percentile: str
) -> Iterable[tuple[tuple[str, ...], Point]]:
    if listed.started_ns is None:
        return
    for cell in summary.get("cells") or []:
        if cell.get("latency") != "response" or cell.get("op") == "*":
            continue
        steps = {it["name"]: it for it in (cell.get("ladder") or {}).get("steps", [])}
        step = steps.get(percentile) or {}
        interval = step.get("interval") or {}
        point = Point(
            listed.directory,
            listed.started_ns,
            step.get("estimate"),
            interval.get("low"),
            interval.get("high"),
            bool(listed.trustworthy),
        )
        where = (listed.plan, listed.tag, listed.machine)
        key = (*where, cell["cell"], cell["op"], cell.get("unit", "ns"))
        yield key, point


def _series(key: tuple[str, ...], percentile: str, points: list[Point], alpha: float) -> Series:
    plan, tag, machine, cell, op, unit = key
    usable = [it for it in points if it.trustworthy and it.estimate]
    levels = np.array([it.estimate for it in usable], dtype=np.float64)
    changes: tuple[ChangePoint, ...] = ()
    absent = ""
    if levels.size < RUNS_LEAST:
        absent = f"{levels.size} trustworthy runs; {RUNS_LEAST} are needed to see a change"
    else:
        looked = change_points(levels, alpha=alpha)
        changes, absent = looked.points, looked.abstained or ""
    return Series(
        plan, tag, machine, cell, op, percentile, unit, tuple(points),
        _placed(changes, points, usable), _noise(levels, changes), absent,
    )  # fmt: skip


def _placed(
    changes: Iterable[ChangePoint], points: list[Point], usable: list[Point]
) -> tuple[ChangePoint, ...]:
    """Return the changes with their place among all points, not only the usable ones."""
    return tuple(replace(it, block=points.index(usable[it.block])) for it in changes)


def _noise(levels: np.ndarray, changes: Iterable[ChangePoint]) -> Interval:
    begins = {it.block for it in changes}
    steps = [
        abs(float(np.log(after / before)))
        for place, (before, after) in enumerate(itertools.pairwise(levels), start=1)
        if place not in begins
    ]
    return quantile_interval_iid(np.exp(steps), 0.5)
