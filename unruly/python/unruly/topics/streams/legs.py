"""The legs of a run of streams: when each was measured, its account, what it did each second."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from unruly.stats import growth, repeats_interval, request_mean_interval, stability
from unruly.stats.interval import Interval
from unruly.tables import fetch, inline
from unruly.topics.streams import tables as stream_tables
from unruly.topics.streams.clocks import ahead_ns, have_own_clocks, on_one_clock, unsure
from unruly.topics.streams.model import Leg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unruly.base.context import Context
    from unruly.plan import Plan
    from unruly.stats import Growth

SECOND_NS: Final = stream_tables.SECOND_NS
SECONDS_LEAST: Final = 6
FEW_SECONDS: Final = "one repeat of fewer than 6 whole seconds"
LEVEL: Final = 0.95


@dataclass(frozen=True)
class Flow:
    """The bandwidth of each trial, and the samples of its processes.

    ``bps`` maps (cell, repeat) to the bandwidth of each whole second, ``mean_bps`` to that of the
    whole measured time: 0 if it broke before that. Trials that could not begin have neither.
    ``ends`` has every process that has rows: cell, side, process. ``doubt`` says why the rows of
    several hosts are on no common time line; then no trial has a bandwidth.
    """

    legs: tuple[Leg, ...]
    bps: dict[tuple[str, int], NDArray[np.float64]]
    mean_bps: dict[tuple[str, int], float]
    usage: pd.DataFrame
    events: pd.DataFrame
    note: str
    ends: pd.DataFrame
    doubt: str = ""

    def repeats(self, cell: str) -> list[int]:
        """Return the repeats of a cell that have a bandwidth."""
        return sorted(repeat for name, repeat in self.mean_bps if name == cell)

    def processes(self, cell: str, side: str) -> list[str]:
        """Return the processes of a side, even one without a row of the measured time."""
        of_side = self.ends[(self.ends["cell"] == cell) & (self.ends["side"] == side)]
        return sorted(of_side["process"].unique())


def flow(context: Context, plan: Plan) -> Flow:
    """Return the bandwidth and the samples of all trials, second by second."""
    ahead = ahead_ns(context)
    intervals = on_one_clock(context.run.intervals, ahead)
    begins = fetch(stream_tables.begins(intervals))
    events = fetch(stream_tables.happened(on_one_clock(context.run.events, ahead)))
    frame, note = _legs(context, plan, begins, events)
    usage = fetch(stream_tables.each_second(intervals, inline(frame)))
    totals = fetch(stream_tables.totals(intervals))
    bps, means = {}, {}
    legs = []
    counted = {key: part for key, part in totals.groupby(["cell", "repeat"])}  # noqa: C416
    came = _least(usage[usage["side"] == "reader"], counted)
    for it in frame.to_dict("records"):
        key = (str(it["cell"]), int(it["repeat"]))
        told = events[(events["cell"] == key[0]) & (events["repeat"] == key[1])]
        length = int(it["last_ns"]) - int(it["first_ns"])
        seconds = _seconds(came.get(key), length)
        leg = _leg(context, it, told, seconds, counted.get(key))
        legs.append(leg)
        # one that broke before it was measured has no rows of that time, and gave nothing
        begun = key in came or context.run.status == "complete"
        if not leg.failed and length > 0 and begun:
            bps[key] = seconds
            flowed = float(came[key]["bytes"].sum()) if key in came else 0.0
            means[key] = 8e9 * flowed / length
    ends = totals[["cell", "side", "process"]]
    doubt = unsure(context) if have_own_clocks(context, frozenset(stream_tables.ENDS)) else ""
    if doubt:
        bps, means = {}, {}
        legs = [replace(leg, silent_seconds=0) for leg in legs]
    return Flow(tuple(legs), bps, means, usage, events, note, ends, doubt)


def _least(
    usage: pd.DataFrame, counted: dict[Any, pd.DataFrame]
) -> dict[tuple[str, int], pd.DataFrame]:
    """What came in each leg: of several readers to the one to which least came."""
    found = {}
    for (cell, repeat), leg in usage.groupby(["cell", "repeat"]):
        totals = counted[cell, repeat]
        readers = totals.loc[totals["side"] == "reader", "process"]
        # nothing may have come to one of them
        parts = [leg[leg["process"] == process] for process in readers]
        found[str(cell), int(repeat)] = min(parts, key=lambda it: it["bytes"].sum())
    return found


def _legs(
    context: Context, plan: Plan, begins: pd.DataFrame, events: pd.DataFrame
) -> tuple[pd.DataFrame, str]:
    """Return each trial's measured time (the plan's window since its stream began) and a note.

    A stream begins with the first row in which its writer wrote. A native writer has rows from that
    instant on, but a JVM has earlier ones. If the run was stopped, the measured time of the last
    trial ends with its rows.
    """
    ends = begins[begins["side"].isin(stream_tables.ENDS)]
    keys = list(stream_tables.KEYS)
    by_leg = ends.groupby(keys, as_index=False)
    spans = by_leg.agg(first_ns=("first_ns", "min"), last_ns=("last_ns", "max"))
    wrote = ends[(ends["side"] == "writer") & ends["flowed_ns"].notna()]
    # a double cannot hold a wall clock in ns, so the stamps stay integers
    began = {
        (str(cell), int(repeat)): int(at)
        for cell, repeat, at in zip(wrote["cell"], wrote["repeat"], wrote["flowed_ns"], strict=True)
    }
    legs = zip(spans["cell"], spans["repeat"], spans["first_ns"], strict=True)
    spans["first_ns"] = [began.get((str(cell), int(it)), int(first)) for cell, it, first in legs]
    failed = events[events["kind"] == stream_tables.FAILED]
    told = failed.groupby(keys, as_index=False).agg(first_ns=("started_ns", "min"))
    spans = pd.concat([spans, told.assign(last_ns=told["first_ns"])], ignore_index=True)
    spans = spans.drop_duplicates(keys)
    rows, unknown = [], False
    for it in spans.to_dict("records"):
        begun, ended = int(it["first_ns"]), int(it["last_ns"])
        window = plan.cell(str(it["cell"])).measured_ns
        unknown |= window is None
        first, last = (begun, ended) if window is None else (begun + window[0], begun + window[1])
        last = last if context.run.status == "complete" else min(last, ended)
        rows.append({**it, "first_ns": first, "last_ns": max(first, last)})
    order = {cell: place for place, cell in enumerate(plan.cells)}
    rows.sort(key=lambda it: (order.get(str(it["cell"]), len(order)), it["cell"], it["repeat"]))
    note = "the plan says no duration: all that flowed is counted as measured" if unknown else ""
    return pd.DataFrame(rows, columns=[*keys, "first_ns", "last_ns"]), note


def _seconds(came: pd.DataFrame | None, length_ns: int) -> NDArray[np.float64]:
    """Bits of each whole second, 0 where nothing came."""
    seconds = np.zeros(max(0, length_ns // SECOND_NS))
    if came is not None:
        inside = came[came["second"] < seconds.size]
        np.add.at(seconds, inside["second"].to_numpy(), 8 * inside["bytes"].to_numpy(dtype=float))
    return seconds


def _leg(
    context: Context,
    it: dict[Any, Any],
    told: pd.DataFrame,
    seconds: NDArray[np.float64],
    counted: pd.DataFrame | None,
) -> Leg:
    cell, repeat = str(it["cell"]), int(it["repeat"])
    ends = [] if counted is None else counted.to_dict("records")
    writer: dict[Any, Any] = next((end for end in ends if end["side"] == "writer"), {})
    readers = [end for end in ends if end["side"] == "reader"]
    # the reader whose account is farthest from the written messages, else the one that lost most
    wrote = writer.get("messages", 0)
    reader: dict[Any, Any] = max(
        readers,
        key=lambda end: (abs(wrote - end["messages"] - end["lost"]), end["lost"]),
        default={},
    )
    written, read, lost = (
        int(side.get(name, 0))
        for side, name in ((writer, "messages"), (reader, "messages"), (reader, "lost"))
    )
    failed = _words(told, (stream_tables.FAILED,))
    # if a stream never began, the later failures only follow from that
    broken = () if failed else _words(told, stream_tables.BROKEN)
    faults = tuple(dict.fromkeys(kind for kind in told["kind"] if kind.startswith("fault ")))
    whole = context.run.status == "complete" and bool(writer) and bool(reader)
    return Leg(
        cell, repeat, int(it["first_ns"]), int(it["last_ns"]), written, read, lost,
        sum(int(end["duplicated"]) for end in readers),
        sum(int(end["reordered"]) for end in readers), written - read - lost,
        longest_silence(seconds), whole and not failed and not broken, failed, broken, faults,
        _words(told, (stream_tables.REFUSED,)),
    )  # fmt: skip


def _words(told: pd.DataFrame, kinds: Sequence[str]) -> tuple[str, ...]:
    found = told[told["kind"].isin(kinds)]
    words = (
        str(kind) if pd.isna(detail) or not detail else f"{kind}: {detail}"
        for kind, detail in zip(found["kind"], found["detail"], strict=True)
    )
    return tuple(dict.fromkeys(words))


def longest_silence(seconds: NDArray[np.float64]) -> int:
    """Return how many whole seconds in a row nothing came, at most.

    Examples
    --------
    >>> longest_silence(np.array([5.0, 0, 0, 3, 0]))
    2
    """
    longest = now = 0
    for silent in (seconds == 0).tolist():
        now = now + 1 if silent else 0
        longest = max(longest, now)
    return longest


def over_repeats(means: Sequence[float], seconds: Sequence[NDArray[np.float64]]) -> Interval:
    """A mean over repeats; of one repeat over its seconds, and of few seconds without bounds."""
    if len(means) > 1:
        found = repeats_interval(means)
        low = None if found.low is None else max(0.0, found.low)
        return Interval(found.estimate, low, found.high, LEVEL, found.n, found.n_effective,
                        found.method)  # fmt: skip
    if seconds[0].size >= SECONDS_LEAST:
        return stability(seconds[0]).mean
    return Interval(float(means[0]), None, None, LEVEL, 1, 1.0, FEW_SECONDS)


@dataclass(frozen=True)
class Cost:
    """What one side of a cell cost: each interval None where no row knows it."""

    cpu_cores: Interval | None
    cpu_per_message_ns: Interval | None
    rss_bytes_max: int | None
    growth: Growth | None


def cost(usage: pd.DataFrame, load: pd.DataFrame) -> Cost:
    """Sum up the samples of one side of one cell: second, cpu_ns, covered_ns, messages, rss.

    What a competing load uses inside the very process (``load``) is none of the stream's.
    """
    cores, by_second, per_message, grown = [], [], [], []
    known = _without(usage[usage["cpu_ns"].notna()], load)
    for _, leg in known.groupby("repeat"):
        cores.append(float(leg["cpu_ns"].sum() / leg["covered_ns"].sum()))
        whole = leg[leg["covered_ns"] > SECOND_NS // 2]
        by_second.append((whole["cpu_ns"] / whole["covered_ns"]).to_numpy(dtype=float))
        if leg["messages"].sum() > 0:
            per_message.append(leg)
    for _, leg in usage.groupby("repeat"):
        held = leg.sort_values("second")["rss_bytes"].dropna().to_numpy(dtype=float)
        if held.size >= SECONDS_LEAST:
            grown.append(growth(held))
    rss = usage["rss_bytes"].max()
    return Cost(
        over_repeats(cores, by_second) if cores else None,
        _per_message(per_message),
        None if pd.isna(rss) else int(rss),
        max(grown, key=lambda it: it.grown) if grown else None,
    )


def _without(usage: pd.DataFrame, load: pd.DataFrame) -> pd.DataFrame:
    keys = ["repeat", "process", "second"]
    held = load.groupby(keys)["cpu_ns"].sum()
    own = usage.set_index(keys)["cpu_ns"]
    less = own - held.reindex(own.index).fillna(0.0)
    # rows of the load are longer, and are spread more evenly than what it did
    return usage.assign(cpu_ns=less.clip(lower=0.0).to_numpy(dtype=float))


def _per_message(legs: Sequence[pd.DataFrame]) -> Interval | None:
    if not legs:
        return None
    if len(legs) > 1:
        return repeats_interval([float(it["cpu_ns"].sum() / it["messages"].sum()) for it in legs])
    return request_mean_interval(
        legs[0]["cpu_ns"].to_numpy(dtype=float), legs[0]["messages"].to_numpy(dtype=float)
    )
