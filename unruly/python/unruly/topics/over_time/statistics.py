"""Over time: throughput, arrivals, changes of the p99, recoveries from injected faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from unruly.base.quantiles import quantiles_of
from unruly.quantity import count
from unruly.shown import Shown
from unruly.stats import (
    change_points,
    index_of_dispersion,
    stability,
    windows_of_sums,
)
from unruly.tables import fetch, inline
from unruly.tables import steadiness as steadiness_tables
from unruly.topics.over_time.recoveries import fault_recoveries
from unruly.topics.over_time.warmup import warm_ups

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unruly.base.analysis import Analysis
    from unruly.base.context import Context
    from unruly.contract import Absent
    from unruly.plan import CellPlan
    from unruly.stats import ChangePoints, Dispersion, Throughput
    from unruly.topics.over_time.recoveries import FaultRecovery
    from unruly.topics.over_time.warmup import WarmUp

KEYS_MOST: Final = 100
"""So many (cell, op) are looked at over time: of a larger matrix nobody reads a row for each."""
BLOCKS_MOST: Final = 60
BLOCK_REQUESTS: Final = 200
"""Fewer, and the p99 of a block is its maximum."""
BLOCKS_LEAST: Final = 10
SECONDS_LEAST: Final = 6
BINS_MOST: Final = 6_000
BIN_NS_LEAST: Final = 1_000_000
BINS_LEAST: Final = 20
ARRIVALS_LEAST: Final = 200
"""Of few arrivals the index is 1, whatever they are: each is alone in its window."""
ALPHA: Final = 0.05
IN_STAGES: Final = "the load changed in stages, as its plan asked"
"""Shared among all that are looked at: so rarely does a run without a change show one."""
EVENTS_MOST: Final = 400
WINDOW_NS: Final = 100_000_000
WINDOWS_MOST: Final = 300
WINDOWS_LEAST: Final = 10
WINDOW_COLUMNS: Final = [
    "op", "started_ns", "due", "failed", "response_ns", "completed_hz", "in_flight",
]  # fmt: skip


@dataclass(frozen=True, repr=False)
class Steadiness(Shown):
    """One (cell, op) over time; ``absent`` has the reason of each None.

    ``changed_ns`` are the instants at which the changes of the p99 begin.
    """

    cell: str
    op: str
    throughput: Throughput | None
    dispersion: Dispersion | None
    changes: ChangePoints | None
    changed_ns: tuple[int, ...]
    absent: Absent


@dataclass(frozen=True, repr=False)
class OverTime(Shown):
    """All of them; ``note`` says why there are no rows."""

    rows: tuple[Steadiness, ...]
    recoveries: tuple[FaultRecovery, ...]
    events: pd.DataFrame
    """kind, detail, process, started_ns, ended_ns: at most 400, the longest."""
    note: str = ""
    warm_ups: tuple[WarmUp, ...] = ()
    """When each (cell, repeat, op) had settled."""
    windows: pd.DataFrame | None = None
    """Short windows (100 ms, at most 300): op, started_ns, due, failed, response_ns (mean of the
    answered), completed_hz, in_flight; None without pictures."""


def over_time(context: Context) -> OverTime:
    """Look at every (cell, op) over its time, and at what followed each fault."""
    context.progress("over time")
    events = fetch(steadiness_tables.longest_events(context.run.events, EVENTS_MOST))
    recoveries = fault_recoveries(context)
    places = context.places(1)
    timeless = context.run.timeless
    places = places[~places["cell"].isin(timeless)]
    subjects = places[["cell", "op"]].drop_duplicates()
    if subjects.empty:
        return OverTime((), recoveries, events, "its source kept no times")
    if len(subjects) > KEYS_MOST:
        return OverTime(
            (), recoveries, events,
            f"{count(len(subjects))} cells and operations, where at most {KEYS_MOST} are looked "
            "at over time: measure those of interest alone",
        )  # fmt: skip
    rows = tuple(_rows(context, _measures(context, places)))
    return OverTime(rows, recoveries, events, warm_ups=warm_ups(context))


def short_windows(context: Context) -> pd.DataFrame:
    """Short windows of the whole run for each op: mean response, good replies, in flight.

    100 ms each, or as many times that as leaves 300 windows. ``response_ns`` is the mean of the
    answered. A request that never came back is in flight for as long as the longest answered one.
    """
    nothing = pd.DataFrame(columns=WINDOW_COLUMNS)
    timeless = context.run.timeless
    if context.empty or timeless & set(context.extents["cell"]):
        return nothing
    first = int(context.extents["first_ns"].min())
    span = int(context.extents["last_ns"].max()) + 1 - first
    width = WINDOW_NS * max(1, -(-span // (WINDOW_NS * WINDOWS_MOST)))
    count_ = span // width
    if count_ < WINDOWS_LEAST:
        return nothing
    context.progress("short windows")
    due = fetch(steadiness_tables.due_in_windows(context.rows, first, width))
    longest = context.pairs["longest_ns"].max()
    left = fetch(
        steadiness_tables.left_in_windows(
            context.rows, first, width, 0 if np.isnan(longest) else int(longest)
        )
    )
    places = pd.MultiIndex.from_product(
        [sorted(set(due["op"])), range(count_)], names=["op", "window"]
    )
    sums = [frame.set_index(["op", "window"]) for frame in (due, left)]
    both = pd.concat([frame.reindex(places, fill_value=0) for frame in sums], axis=1)
    parts = []
    for op, held in both.groupby(level="op", sort=True):
        found = windows_of_sums(
            start_ns=first, width_ns=width, **{name: held[name].to_numpy() for name in held}
        )
        columns = {
            "started_ns": found.started_ns, "due": found.due, "failed": found.failed,
            "response_ns": found.response_ok_ns, "completed_hz": found.completed_hz,
            "in_flight": found.in_flight,
        }  # fmt: skip
        parts.append(pd.DataFrame({"op": op, **columns}))
    return pd.concat(parts, ignore_index=True)


def _measures(context: Context, places: pd.DataFrame) -> pd.DataFrame:
    """How each (cell, op) is cut: blocks, and bins of arrivals."""
    n = context.extents.groupby(["cell", "op"], as_index=False)["n"].sum()
    places = places.merge(n, on=["cell", "op"])
    blocks = (places["n"] // BLOCK_REQUESTS).clip(lower=1, upper=BLOCKS_MOST)
    return places.assign(
        blocks=blocks,
        block_ns=places["total_ns"] / blocks,
        bin_ns=(places["total_ns"] // BINS_MOST).clip(lower=BIN_NS_LEAST),
    )


def _rows(context: Context, places: pd.DataFrame) -> list[Steadiness]:
    columns = [
        "cell", "repeat", "op", "first_ns", "last_ns", "before_ns", "blocks", "block_ns", "bin_ns",
    ]  # fmt: skip
    table = inline(places[columns])
    copies = bool((context.extents["receivers"] > 1).any())
    blocks = steadiness_tables.in_blocks(context.rows, table)
    keys = ["cell", "op", "block"]
    levels = quantiles_of(blocks, keys, [0.99], context.size, ["response"])
    levels["p99"] = [float(found[0]) for found in levels["response"]]
    answered = _by_key(fetch(steadiness_tables.answered_each_second(context.rows, table)))
    due = _by_key(fetch(steadiness_tables.due_in_bins(context.rows, table, copies=copies)))
    by_block = _by_key(levels)
    plan = context.run.plan
    found = []
    alpha = ALPHA / len(places[["cell", "op"]].drop_duplicates())
    for key, own in places.groupby(["cell", "op"], sort=True):
        absent: dict[str, str] = {}
        one = own.iloc[0]
        planned = plan.cell(str(one["cell"]))
        if planned.ramp is not None:
            absent |= dict.fromkeys(("throughput", "dispersion", "changes"), IN_STAGES)
            found.append(Steadiness(str(one["cell"]), str(one["op"]), None, None, None, (), absent))
            continue
        changes, changed_ns = _changes(by_block.get(key), own, alpha, absent)
        found.append(
            Steadiness(
                str(one["cell"]),
                str(one["op"]),
                _throughput(answered.get(key), int(one["total_ns"]), absent),
                _dispersion(due.get(key), one, planned, absent),
                changes,
                changed_ns,
                absent,
            )
        )
    return found


def _by_key(frame: pd.DataFrame) -> dict[Any, pd.DataFrame]:
    return {key: part for key, part in frame.groupby(["cell", "op"], sort=False)}  # noqa: C416


def _filled(frame: pd.DataFrame | None, size: int) -> NDArray[np.int64]:
    """Counts by place, 0 where nothing came; places beyond the last whole one are left out."""
    counts = np.zeros(size, dtype=np.int64)
    if frame is not None:
        inside = frame[(frame["place"] >= 0) & (frame["place"] < size)]
        counts[inside["place"].to_numpy()] = inside["count"].to_numpy()
    return counts


def _throughput(
    answered: pd.DataFrame | None, total_ns: int, absent: dict[str, str]
) -> Throughput | None:
    seconds = total_ns // steadiness_tables.SECOND_NS
    if seconds < SECONDS_LEAST:
        absent["throughput"] = f"{seconds} whole seconds; {SECONDS_LEAST} are needed"
        return None
    counts = _filled(answered, seconds)
    if counts.sum() < seconds:
        absent["throughput"] = "fewer than one good reply a second: single seconds say nothing"
        return None
    return stability(counts)


def _dispersion(
    due: pd.DataFrame | None, place: pd.Series[Any], planned: CellPlan, absent: dict[str, str]
) -> Dispersion | None:
    # users who think by a common clock have bursts of their own
    if planned.is_closed_loop and planned.dispersion is None:
        absent["dispersion"] = (
            "in a closed loop requests follow replies: they are nobody's arrivals"
        )
        return None
    bins = int(place["total_ns"] // place["bin_ns"])
    if bins < BINS_LEAST:
        absent["dispersion"] = f"{bins} bins of 1 ms; {BINS_LEAST} are needed"
        return None
    counts = _filled(due, bins)
    if counts.sum() < ARRIVALS_LEAST:
        absent["dispersion"] = f"{count(counts.sum())} requests; {ARRIVALS_LEAST} are needed"
        return None
    return index_of_dispersion(counts, float(place["bin_ns"]))


def _changes(
    levels: pd.DataFrame | None, places: pd.DataFrame, alpha: float, absent: dict[str, str]
) -> tuple[ChangePoints | None, tuple[int, ...]]:
    """Change points of the p99 by block, and when each begins."""
    blocks = int(places["blocks"].iloc[0])
    if levels is None or blocks < BLOCKS_LEAST:
        absent["changes"] = (
            f"{count(places['n'].iloc[0])} requests; {count(BLOCKS_LEAST * BLOCK_REQUESTS)} are "
            "needed"
        )
        return None, ()
    series = np.full(blocks, np.nan)
    series[levels["block"].to_numpy()] = levels["p99"].to_numpy()
    held = int((~np.isnan(series)).sum())
    if held < BLOCKS_LEAST:
        absent["changes"] = (
            f"requests were due in {held} of {blocks} blocks; {BLOCKS_LEAST} are needed"
        )
        return None, ()
    found = change_points(series, alpha=alpha)
    if found.abstained:
        absent["changes"] = found.abstained
    places = places.sort_values("before_ns")
    changed = []
    for point in found.points:
        since = point.block * float(places["block_ns"].iloc[0])
        own = places[places["before_ns"] <= since].iloc[-1]
        changed.append(int(own["first_ns"]) + int(since - own["before_ns"]))
    return found, tuple(changed)


def over_time_of(analysis: Analysis) -> OverTime | None:
    """Return what this topic says of a run; None where it does not apply."""
    return analysis.topic("over_time", OverTime)
