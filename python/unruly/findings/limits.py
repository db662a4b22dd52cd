"""Limits that a run is held to: broken or held only when the interval says so.

A limit is a line that somebody drew; a measurement is an estimate with an interval. Where the
interval lies on one side of the line the answer is plain. Where the line runs through it the run
was too short to decide, which is its own outcome, with the length that would do.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from unruly.errors import UnrulyError
from unruly.findings.cells import histograms_of
from unruly.findings.context import Context
from unruly.findings.histograms import kept_bins
from unruly.findings.words import duration, latency, percent
from unruly.stats import block_interval, share_interval
from unruly.stats.histogram import FAILED_BUCKET
from unruly.tables import requests as request_tables

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from unruly.findings.model import Analysis

PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}
SHARES: Final = ("failed_share",)
FACTS: Final = ("max",)
STATISTICS: Final = (*PERCENTILES, *FACTS, *SHARES)
KEYS: Final = ("statistic", "at_most", "cell", "op", "latency", "name")
UNITS: Final = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9}
LEVEL: Final = 0.95
OUTCOMES: Final = ("held", "broken", "undecided")


class LimitError(UnrulyError):
    """The file of limits cannot be used, or a limit is on something that the run does not have."""


@dataclass(frozen=True)
class Limit:
    """One limit. ``at_most`` is in ns for latencies, else a share; None stands for every one."""

    name: str
    statistic: str
    at_most: float
    latency: str = "response"
    op: str | None = None
    cell: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a limit in one (cell, op); ``low`` and ``high`` bound the statistic."""

    limit: Limit
    cell: str
    op: str
    outcome: str
    estimate: float | None
    low: float | None
    high: float | None
    needed_ns: float | None
    sentence: str


def read_limits(path: Path) -> list[Limit]:
    """Read a TOML file of ``[[limit]]`` tables.

    Raises
    ------
    LimitError
        When it is missing, not TOML, or a limit in it is not one; with the limit's number.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LimitError(path, f"cannot be read: {error}", "a file of limits", _EXAMPLE) from error
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LimitError(path, f"is not TOML: {error}", "a file of limits", _EXAMPLE) from error
    rows = tables.get("limit")
    if set(tables) != {"limit"} or not isinstance(rows, list) or not rows:
        raise LimitError(path, "has no [[limit]]", "one or more of them and nothing else", _EXAMPLE)
    return [_limit(path, number, row) for number, row in enumerate(rows, 1)]


_EXAMPLE = 'statistic = "p99", at_most = "2ms" under [[limit]]'


def _limit(path: Path, number: int, row: Any) -> Limit:
    where = f"{path}: limit {number}"
    if not isinstance(row, dict):
        raise LimitError(where, "is not a table", "keys and values", _EXAMPLE)
    for key, value in row.items():
        if key not in KEYS:
            raise LimitError(where, f"has the key {key!r}", f"one of {', '.join(KEYS)}", _EXAMPLE)
        if key != "at_most" and not isinstance(value, str):
            raise LimitError(where, f"{key} is {value!r}", "text", _EXAMPLE)
    asked = row.get("statistic")
    # summary.json writes p99_9 where people write p99.9
    statistic = str(asked) if asked in STATISTICS else str(asked).replace("_", ".")
    if statistic not in STATISTICS:
        wanted = f"one of {', '.join(STATISTICS)}"
        raise LimitError(where, f"statistic is {asked!r}", wanted, _EXAMPLE)
    kind = row.get("latency", "response")
    if kind not in request_tables.LATENCIES:
        wanted = " or ".join(request_tables.LATENCIES)
        raise LimitError(where, f"latency is {kind!r}", wanted, 'latency = "response"')
    at_most = _at_most(where, statistic, row.get("at_most"))
    name = row.get("name") or f"{statistic} <= {row['at_most']}"
    return Limit(name, statistic, at_most, kind, row.get("op"), row.get("cell"))


def _at_most(where: str, statistic: str, value: Any) -> float:
    if statistic in SHARES:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
        raise LimitError(where, f"at_most is {value!r}", "a share from 0 to 1", "at_most = 0.001")
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(ns|us|ms|s|min)", str(value))
    if not isinstance(value, str) or found is None or float(found[1]) == 0:
        raise LimitError(
            where, f"at_most is {value!r}", "a latency above 0 with its unit", 'at_most = "2ms"'
        )
    return float(found[1]) * UNITS[found[2]]


def judge(analysis: Analysis, limits: list[Limit]) -> list[Outcome]:
    """Hold the run to each limit, for each (cell, op) that it is about.

    Raises
    ------
    LimitError
        When a limit is about a cell or an op that the run does not have.
    """
    if not analysis.cells:
        raise LimitError(
            analysis.run.path, "nothing was measured", "a run with rows", "measure again"
        )
    for limit in limits:
        _check_known(analysis, limit)
    histograms = _Histograms(Context.of(analysis.run, lambda _: None))
    return [
        _judge_one(analysis, limit, cell, op, histograms)
        for limit in limits
        for cell, op in _about(analysis, limit)
    ]


def _check_known(analysis: Analysis, limit: Limit) -> None:
    for name, wanted in (("cell", limit.cell), ("op", limit.op)):
        known = sorted({str(getattr(row, name)) for row in analysis.cells})
        if wanted is not None and wanted not in known:
            raise LimitError(
                f"limit {limit.name!r}", f"{name} is {wanted!r}", f"one of {', '.join(known)}",
                "`unruly verdict` lists what was measured",
            )  # fmt: skip


def _about(analysis: Analysis, limit: Limit) -> list[tuple[str, str]]:
    """Every op by itself where none is named: a mixture is of no operation."""
    return list(
        dict.fromkeys(
            (row.cell, row.op)
            for row in analysis.cells
            if limit.cell in (None, row.cell)
            and (row.op == limit.op if limit.op else row.op != "*")
        )
    )


class _Histograms:
    """Block histograms of the run, read once for each latency."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.held: dict[str, dict[Any, tuple[NDArray[Any], NDArray[Any]]]] = {}

    def of(self, cell: str, op: str, kind: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Buckets, and counts by bucket and block; a single op is also all ops."""
        if kind not in self.held:
            rows = [] if self.context.empty else histograms_of(self.context, kind)
            self.held[kind] = {key: (buckets, counts) for key, buckets, counts in rows}
            for kept in kept_bins(self.context.run):
                self.held[kind][kept.cell, kept.op] = kept.blocks()
        found = self.held[kind]
        if (cell, op) in found:
            return found[cell, op]
        return next(value for (name, _), value in found.items() if name == cell)


def _judge_one(
    analysis: Analysis, limit: Limit, cell: str, op: str, histograms: _Histograms
) -> Outcome:
    summary = next(
        row
        for row in analysis.cells
        if (row.cell, row.op, row.latency) == (cell, op, limit.latency)
    )
    if summary.abstained == "short" and limit.statistic in PERCENTILES:
        reason = summary.absent.get("p99_interval", "no blocks of time")
        estimate = getattr(summary, limit.statistic.replace(".", "_"))
        sentence = _sentence(limit, "undecided", (estimate, None, None), reason, None)
        return Outcome(limit, cell, op, "undecided", estimate, None, None, None, sentence)
    buckets, counts = histograms.of(cell, op, limit.latency)
    needed: float | None = None
    if limit.statistic in SHARES:
        failed = counts[buckets >= FAILED_BUCKET].sum(axis=0)
        found = share_interval(failed, counts.sum(axis=0), LEVEL)
        estimate, low, high, reason = found.estimate, found.low, found.high, ""
    elif limit.statistic in FACTS:
        # What was seen is a fact of this run; how large it may become nobody can say.
        estimate = low = high = summary.max if summary.failed == 0 else float("inf")
        reason = ""
    else:
        name = limit.statistic.replace(".", "_")
        estimate = getattr(summary, name)
        block = block_interval(
            buckets, counts, PERCENTILES[limit.statistic], estimate=estimate, level=LEVEL
        )
        low, reason = block.lower_bound, block.reason or ""
        high = block.promise.high if block.promise else None
        needed = summary.duration_ns * block.needed_factor if block.abstained else None
    outcome = decide(limit.at_most, low, high)
    sentence = _sentence(limit, outcome, (estimate, low, high), reason, needed)
    return Outcome(limit, cell, op, outcome, estimate, low, high, needed, sentence)


def decide(at_most: float, low: float | None, high: float | None) -> str:
    """Say whether a line is broken, held, or inside the interval.

    Examples
    --------
    >>> decide(2.0, 2.1, 3.0), decide(2.0, 1.0, 2.0), decide(2.0, 1.0, None)
    ('broken', 'held', 'undecided')
    """
    if low is not None and low > at_most:
        return "broken"
    if high is not None and high <= at_most:
        return "held"
    return "undecided"


def _sentence(
    limit: Limit,
    outcome: str,
    bounds: tuple[float | None, float | None, float | None],
    reason: str,
    needed_ns: float | None,
) -> str:
    show = percent if limit.statistic in SHARES else _latency
    estimate, low, high = (show(value) if value is not None else None for value in bounds)
    line = show(limit.at_most)
    if limit.statistic in FACTS:
        return f"the largest was {estimate}, the limit is {line}; a longer run may see a larger one"
    measured = f"measured {estimate}, " if estimate else ""
    if outcome == "broken":
        return f"{measured}at least {low} with {100 * LEVEL:.0f} % confidence; the limit is {line}"
    if outcome == "held":
        return f"{measured}at most {high} with {100 * LEVEL:.0f} % confidence; the limit is {line}"
    why = f": {reason}" if reason else f": the interval from {low} to {high or 'no bound'} holds it"
    longer = f"; run about {duration(needed_ns)}" if needed_ns else "; run longer"
    return f"{measured}the limit of {line} cannot be decided{why}{longer}"


def _latency(value: float) -> str:
    return latency(value) if np.isfinite(value) else "beyond every answer (a request failed)"
