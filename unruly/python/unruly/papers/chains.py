"""What the judges of n-tier applications read of a run: each cell's load, profit and bottleneck."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from unruly.stats import Interval, mean_interval, request_mean_interval
from unruly.stats.blocks import BLOCKS
from unruly.tables import fetch, inline
from unruly.topics.advice.statistics import advise
from unruly.topics.tiers.chain import used_cores
from unruly.topics.tiers.model import tiers_of

if TYPE_CHECKING:
    import pandas as pd

    from unruly.base.analysis import Analysis
    from unruly.base.context import Context

SECOND_NS: Final = 1e9
LOST_MOST: Final = 0.01
"""If more requests had no reply, nobody knows how the response times of the others swing."""
_REPEAT: Final = ["cell", "repeat"]


@dataclass(frozen=True)
class Loaded:
    """A cell of a chain of tiers.

    ``rate`` is requests answered well a second, ``swing`` the variance of the mean response time
    (ns) of windows of 100 ms at the front, and ``per_hour`` the profit in dollars an hour.
    ``collecting`` is the share of the time in which a JVM collected garbage, ``bottleneck`` the
    tier on the busiest core, or empty if that core has several processes, and ``busy`` the share of
    its time.
    """

    cell: str
    clients: int
    factors: dict[str, str] = field(default_factory=dict)
    rate: Interval | None = None
    swing: Interval | None = None
    per_hour: Interval | None = None
    collecting: Interval | None = None
    bottleneck: str = ""
    busy: float | None = None


def loaded(analysis: Analysis, context: Context) -> tuple[Loaded, ...]:
    """Return each cell of a run whose tap saw a chain of tiers; empty without one."""
    found = tiers_of(analysis)
    chained = [it for it in found.rows if it.chain is not None] if found else []
    if found is None or not chained:
        return ()
    earned = {it.cell: it.profit.per_hour for it in advise(analysis.run).profit.rows}
    spans = context.measured_time
    used, rates = used_cores(context), _rates(context, spans)
    rows = []
    for cell in dict.fromkeys(it.cell for it in chained):
        factors = analysis.run.factors.get(cell, {})
        clients = factors.get("drive.clients") or analysis.run.plan.cell(cell).clients or 0
        front = [it.tier for it in chained if it.cell == cell and it.chain and it.chain.front]
        here = (found.windows["cell"] == cell) & found.windows["tier"].isin(front)
        windows = found.windows[here]
        rows_here = [it for it in chained if it.cell == cell and it.tier in front]
        lost = sum(it.cut for it in rows_here) / max(sum(it.n for it in rows_here), 1)
        bottleneck, busy = _bottleneck(context, used.get(cell, {}), cell)
        rows.append(
            Loaded(
                cell,
                int(clients),
                dict(factors),
                rates.get(cell),
                _swing(windows) if lost <= LOST_MOST else None,
                earned.get(cell),
                _collecting(context, spans[spans["cell"] == cell]),
                bottleneck,
                busy,
            )
        )
    return tuple(rows)


def _bottleneck(context: Context, used: dict[str, float], cell: str) -> tuple[str, float | None]:
    """The tier that has the busiest core for itself, and how busy the core is."""
    plan = context.run.plan.cell(cell)
    tiers = {
        str(it["name"]): str(it.get("tier") or it["name"])
        for it in context.processes
        if it.get("kind") == "service"
    }
    cores: dict[int, dict[str, float]] = {}
    for name, share in used.items():
        pins = plan.pinned(name, of_service=name in tiers)
        if not pins:
            # it may run on every core
            return "", None
        for core in pins:
            cores.setdefault(core, {})[name] = share / len(pins)
    if not cores:
        return "", None
    busiest = max(cores.values(), key=lambda it: sum(it.values()))
    own = {tiers.get(name, "") for name in busiest}
    return (own.pop() if len(own) == 1 else ""), sum(busiest.values())


def _rates(context: Context, spans: pd.DataFrame) -> dict[str, Interval]:
    """The requests that were answered well a second, in each cell, from blocks of time."""
    good = context.rows.filter(context.rows.ok).join(inline(spans), _REPEAT)
    length = (good.until_ns - good.from_ns).cast("float64").nullif(0.0)
    block = ((good.intended_ns - good.from_ns) / length * BLOCKS).floor().cast("int64")
    placed = good.mutate(block=block.clip(lower=0, upper=BLOCKS - 1))
    frame = fetch(placed.group_by("cell", "repeat", "block").agg(n=placed.count()))
    found = {}
    for cell, own in spans.groupby("cell"):
        blocks = []
        for span in own.itertuples(index=False):
            counted = frame[(frame["cell"] == cell) & (frame["repeat"] == span.repeat)]
            counts = np.zeros(BLOCKS)
            counts[counted["block"].astype(int)] = counted["n"]
            seconds = float(span.until_ns - span.from_ns) / BLOCKS / SECOND_NS
            blocks.append(counts / seconds if seconds else counts)
        found[str(cell)] = mean_interval(np.concatenate(blocks))
    return found


def _swing(windows: pd.DataFrame) -> Interval | None:
    """The variance of the windows' mean response times about that of their repeat.

    It is weighed by requests, since the mean of a window of few swings by itself.
    """
    held = windows[windows["n"] > 0]
    if len(held) < BLOCKS:
        return None
    means = held["sum_ns"] / held["n"]
    by_repeat = held.groupby("repeat")[["sum_ns", "n"]].transform("sum")
    apart = ((means - by_repeat["sum_ns"] / by_repeat["n"]) ** 2).to_numpy(dtype=np.float64)
    weights = held["n"].to_numpy(dtype=np.float64)
    blocks = np.arange(len(held), dtype=np.int64) * BLOCKS // len(held)
    sums = np.bincount(blocks, apart * weights, minlength=BLOCKS)
    return request_mean_interval(sums, np.bincount(blocks, weights, minlength=BLOCKS))


def _collecting(context: Context, spans: pd.DataFrame) -> Interval | None:
    """The share of time in which a JVM of the services collected garbage, from blocks of time."""
    names = [str(it["name"]) for it in context.processes if it.get("kind") == "service"]
    events = context.run.events
    rows = events.filter((events.kind == "gc") & events.process.isin(names))
    frame = fetch(rows.select("cell", "repeat", "started_ns", "ended_ns"))
    shares = []
    for span in spans.itertuples(index=False):
        own = frame[(frame["cell"] == span.cell) & (frame["repeat"] == span.repeat)]
        own = own[(own["started_ns"] >= span.from_ns) & (own["started_ns"] < span.until_ns)]
        length = float(span.until_ns - span.from_ns)
        if not length:
            continue
        places = ((own["started_ns"] - span.from_ns) * BLOCKS // length).astype(np.int64)
        took = (own["ended_ns"] - own["started_ns"]).to_numpy(dtype=np.float64)
        shares.append(np.bincount(places, took, minlength=BLOCKS) / (length / BLOCKS))
    if not shares or not any(it.any() for it in shares):
        return None
    return mean_interval(np.concatenate(shares))
