"""The scheduled load and the results of each cell: how p99 and rate depend on a factor.

A rising load has a knee: the highest load at which the p99 has not broken. Any other factor (nodes,
replicas, clients) has the same two numbers for each of its levels.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from unruly.base.quantiles import quantiles_of
from unruly.stats import Interval, knee, repeats_interval
from unruly.tables import fetch, inline
from unruly.tables import loads as load_tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from unruly.base.context import Context
    from unruly.base.operation import CellSummary
    from unruly.contract import Count
    from unruly.stats import Knee

RATE: Final = "drive.rate"
_RATE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) *(/s|k/s|M/s|/min)")
_TIMES: Final = {"/s": 1.0, "k/s": 1e3, "M/s": 1e6, "/min": 1 / 60}
STEPS_LEAST: Final = 3
"""Two loads have no knee: there is nothing between them."""
CELLS_MOST: Final = 200
OWN_TAIL: Final = 0.10
OWN_LAG_NS: Final = 10e6
"""Of a leg's tail, and of a send lag: from here on `generator-stalled` spoils a run."""
SENT_LEAST: Final = 0.95
CHANCE: Final = 3.0
"""Standard deviations that requests which come at random may fall short of their rate."""


@dataclass(frozen=True)
class Load:
    """One cell: requests a second that were asked for, good replies a second, and the p99.

    Over its repeats; the p99 (response time, all operations together) has the bounds of the block
    method where there is one repeat. ``own``: the generator was late itself, so that the cell says
    what it can send, not what the store can do.
    """

    cell: str
    factors: dict[str, str]
    asked_hz: float
    achieved_hz: Interval
    p99: Interval
    repeats: Count
    own: bool


@dataclass(frozen=True)
class Ramp:
    """Cells that differ by their load alone, ascending; ``series`` names what they share."""

    series: str
    loads: tuple[Load, ...]
    knee: Knee


@dataclass(frozen=True)
class Scaling:
    """Cells that differ by one factor alone, by its levels in the plan's order."""

    factor: str
    series: str
    loads: tuple[Load, ...]

    @property
    def levels(self) -> tuple[str, ...]:
        """The factor's level of each."""
        return tuple(load.factors[self.factor] for load in self.loads)


def loads(
    context: Context, summaries: Sequence[CellSummary], legs: pd.DataFrame
) -> tuple[Load, ...]:
    """Measure each cell of a matrix, in the plan's order; nothing of a run without one.

    A leg of one request has no rate, and a cell of such legs is left out.
    """
    factors = context.factors
    measured = set(legs["cell"])
    plan = context.run.plan
    # the rate of a load that changes in stages is only its first
    named = [cell for cell in factors if cell in measured and plan.cell(cell).ramp is None]
    if len(named) < 2 or len(named) > CELLS_MOST:
        return ()
    context.progress("loads")
    size = context.size
    found = quantiles_of(context.rows, load_tables.KEYS, [0.99], size, ("response",))
    found["p99"] = [float(levels[0]) for levels in found["response"]]
    finite = found[np.isfinite(found["p99"])]
    told = [
        fetch(load_tables.came(context.rows, inline(legs[[*load_tables.KEYS, "last_ns"]]))),
        fetch(
            load_tables.late_tails(
                context.rows, inline(finite[[*load_tables.KEYS, "p99"]]), OWN_LAG_NS
            )
        ),
    ]
    frame = found.merge(legs, on=list(load_tables.KEYS))
    for more in told:
        frame = frame.merge(more, on=list(load_tables.KEYS), how="left")
    frame = frame[frame["due"] > 0]
    frame = frame.assign(seconds=(frame["last_ns"] - frame["first_ns"]) / 1e9)
    whole = {
        row.cell: row.p99_interval
        for row in summaries
        if row.op == "*" and row.latency == "response"
    }
    by_cell = dict(tuple(frame.groupby("cell")))
    return tuple(
        _load(cell, factors[cell], by_cell[cell], whole.get(cell))
        for cell in named
        if cell in by_cell
    )


def _load(cell: str, factors: dict[str, str], legs: pd.DataFrame, blocks: Interval | None) -> Load:
    seconds = legs["seconds"].to_numpy()
    planned = rate_hz(factors.get(RATE, ""))
    due = legs["due"].to_numpy(dtype=np.float64)
    asked = planned or float((due / seconds).mean())
    came = legs["came"].to_numpy() / seconds
    if planned:  # what the generator gave up on before it was a row
        due = np.maximum(due, planned * seconds - CHANCE * np.sqrt(planned * seconds))
    own = (legs["explained"] / legs["tail"]).fillna(0.0).to_numpy()
    late = bool(np.median(own) > OWN_TAIL or np.median(legs["sent"] / due) < SENT_LEAST)
    p99 = repeats_interval(legs["p99"].fillna(np.inf).to_numpy(), log=True)
    if len(legs) == 1 and blocks is not None:
        p99 = blocks
    return Load(cell, factors, asked, repeats_interval(came), p99, len(legs), late)


def rate_hz(text: str) -> float | None:
    """Read a rate as a plan writes it.

    Examples
    --------
    >>> rate_hz("2000/s"), rate_hz("2.5k/s"), rate_hz("90/min"), rate_hz("max")
    (2000.0, 2500.0, 1.5, None)
    """
    found = _RATE.fullmatch(text.strip())
    return float(found[1]) * _TIMES[found[2]] if found else None


def ramps(found: Sequence[Load]) -> tuple[Ramp, ...]:
    """Return each series of rising load, with its knee."""
    known = [load for load in found if rate_hz(load.factors.get(RATE, ""))]
    series = _series(known, RATE)
    ramps = []
    for name, own in series.items():
        rising = tuple(sorted(own, key=lambda load: load.asked_hz))
        if len({load.asked_hz for load in rising}) < max(STEPS_LEAST, len(rising)):
            continue
        asked = [load.asked_hz for load in rising]
        shares = [_share(load.achieved_hz, load.asked_hz) for load in rising]
        p99s, late = [load.p99 for load in rising], [load.own for load in rising]
        ramps.append(Ramp(name, rising, knee(asked, p99s, shares, own=late)))
    return tuple(ramps)


def scalings(found: Sequence[Load]) -> tuple[Scaling, ...]:
    """Return, for each factor but the load, the series in which it alone differs."""
    names = dict.fromkeys(name for load in found for name in load.factors if name != RATE)
    return tuple(
        Scaling(factor, name, tuple(own))
        for factor in names
        for name, own in _series([it for it in found if factor in it.factors], factor).items()
        if len(own) > 1
    )


def _series(found: Sequence[Load], factor: str) -> Mapping[str, list[Load]]:
    """Cells by all their other factors, in words."""
    series: dict[str, list[Load]] = defaultdict(list)
    for load in found:
        rest = {name: level for name, level in load.factors.items() if name != factor}
        series[_words(rest)].append(load)
    return series


def _words(factors: Mapping[str, Any]) -> str:
    return " ".join(f"{name.rsplit('.', 1)[-1]}={level}" for name, level in factors.items())


def _share(achieved: Interval, asked: float) -> Interval:
    ends = (achieved.estimate, achieved.low, achieved.high)
    estimate, low, high = (None if end is None else end / asked for end in ends)
    return replace(achieved, estimate=estimate, low=low, high=high)
