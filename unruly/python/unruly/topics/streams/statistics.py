"""The view of streams: what each protocol gave beside each load, and what became of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from unruly.stats import stability
from unruly.tables import fetch
from unruly.topics.streams import (
    factors as stream_factors,
)
from unruly.topics.streams import (
    legs as stream_legs,
)
from unruly.topics.streams import (
    load as stream_load,
)
from unruly.topics.streams import tables as stream_tables
from unruly.topics.streams import (
    verdicts as stream_verdicts,
)
from unruly.topics.streams.clocks import ahead_ns, have_own_clocks, on_one_clock
from unruly.topics.streams.hypotheses import hypotheses
from unruly.topics.streams.kept import kept
from unruly.topics.streams.model import NONE, End, Stream, Streams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.base.context import Context
    from unruly.base.operation import CellSummary
    from unruly.plan import Plan
    from unruly.stats import Interval, Throughput
    from unruly.topics.streams.legs import Flow

KINDS: Final = frozenset({"writer", "reader"})
MESSAGE: Final = "message"
UNKNOWN: Final = "unknown"
"""The protocol of a cell whose plan does not say it."""
UNJUDGED: Final = "failed"
"""The verdict of a row until the verdicts of all rows are known."""
GROWN_LEAST_BYTES: Final = 16 << 20
GROWN_LEAST_SHARE: Final = 0.10
"""Of what it held at first: less growth of a process's memory is nobody's trouble."""
BOUND_LEAST: Final = 0.95
BOUND_MOST: Final = 1.10
"""Of a core: a process that uses more has a second thread at work."""


def wanted(context: Context) -> bool:
    """Whether the run has streams."""
    return any(str(it.get("kind")) in KINDS for it in context.processes)


def streams(context: Context, summaries: Sequence[CellSummary]) -> Streams | None:
    """Look at every cell of a run of streams; None of any other run."""
    if not wanted(context):
        return None
    context.progress("streams")
    plan = context.run.plan
    flow = stream_legs.flow(context, plan)
    cells = list(dict.fromkeys(leg.cell for leg in flow.legs))
    latencies = {
        row.cell: row for row in summaries if row.op == MESSAGE and row.latency == "response"
    }
    rows = [_stream(context, plan, flow, cell, latencies.get(cell)) for cell in cells]
    rows = _beside_unloaded(plan, flow, rows)
    judged = stream_verdicts.judged(rows, flow.legs)
    happened = on_one_clock(context.run.events, ahead_ns(context))
    paused = fetch(stream_tables.collections(happened))
    ran = flow.events[flow.events["kind"] != stream_tables.COMPETING]
    events = pd.concat([it for it in (ran, paused) if len(it)] or [ran], ignore_index=True)
    return Streams(
        tuple(judged), flow.legs, hypotheses(judged, flow), _seconds(flow),
        _usage(flow), events, flow.note,
    )  # fmt: skip


def _stream(
    context: Context, plan: Plan, flow: Flow, cell: str, latency: CellSummary | None
) -> Stream:
    """All of a cell but what other cells say of it."""
    repeats = flow.repeats(cell)
    legs = [leg for leg in flow.legs if leg.cell == cell]
    absent: dict[str, str] = {}
    bandwidth, spread = _bandwidth(flow, cell, repeats, absent)
    read, lost = sum(leg.read for leg in legs), sum(leg.lost for leg in legs)
    ends = _ends(context, plan, flow, cell, repeats)
    if latency is None or latency.p99 is None:
        absent["p99_ns"] = _no_latency(context, latency)
    variation = spread.variation if spread and "variation" not in absent else None
    planned = plan.cell(cell)
    load = planned.competing or NONE
    held = stream_load.held(context, plan, flow, cell)
    unknown = stream_load.unknown(flow, cell, held) if load != NONE and repeats else ()
    if unknown:
        absent["held"] = f"no row says what the competing load used on {', '.join(unknown)}"
    if not read + lost:
        absent["loss_share"] = "no message came"
    return Stream(
        cell, context.factors.get(cell, {}), planned.protocol or UNKNOWN, load,
        stream_factors.series(planned), len(legs), planned.link_bps, bandwidth, variation,
        spread.quantiles if spread else {}, spread.stalled_share if spread else None,
        None, None, latency.p99 if latency else None, latency.p99_interval if latency else None,
        lost / (read + lost) if read + lost else None, sum(leg.duplicated for leg in legs),
        sum(leg.reordered for leg in legs), ends["writer"], ends["reader"], held, UNJUDGED, (),
        bool(unknown) or any(abs(it.off) > stream_load.OFF_MOST for it in held), absent,
    )  # fmt: skip


def _no_latency(context: Context, latency: CellSummary | None) -> str:
    """Why a cell has no p99."""
    if have_own_clocks(context, KINDS):
        return "writer and reader are on hosts with clocks of their own"
    return latency.absent.get("p99", "too few") if latency else "no sampled message was measured"


def _bandwidth(
    flow: Flow, cell: str, repeats: list[int], absent: dict[str, str]
) -> tuple[Interval | None, Throughput | None]:
    """The mean of a cell, and how its seconds spread, repeats end to end."""
    if not repeats:
        reason = "no repeat of it began" if any(
            leg.failed for leg in flow.legs if leg.cell == cell
        ) else "nothing of it was measured"  # fmt: skip
        reason = flow.doubt or reason
        absent |= dict.fromkeys(("bandwidth_bps", "variation", "stalled_share"), reason)
        return None, None
    seconds = [flow.bps[cell, repeat] for repeat in repeats]
    means = [flow.mean_bps[cell, repeat] for repeat in repeats]
    bandwidth = stream_legs.over_repeats(means, seconds)
    joined = np.concatenate(seconds)
    if joined.size < stream_legs.SECONDS_LEAST:
        reason = f"{joined.size} whole seconds; {stream_legs.SECONDS_LEAST} are needed"
        absent |= dict.fromkeys(("variation", "stalled_share"), reason)
        return bandwidth, None
    spread = stability(joined)
    if spread.variation.estimate is None:
        absent["variation"] = "nothing came"
    return bandwidth, spread


def _ends(
    context: Context, plan: Plan, flow: Flow, cell: str, repeats: list[int]
) -> dict[str, End]:
    usage = flow.usage[(flow.usage["cell"] == cell) & flow.usage["repeat"].isin(repeats)]
    rooms = stream_load.rooms(context, plan, flow, cell)
    load = usage[usage["side"] == stream_tables.COMPETE]
    found = {}
    for side in stream_tables.ENDS:
        of_side = usage[usage["side"] == side]
        ends = [
            _end(process, of_side[of_side["process"] == process], load, rooms[process])
            for process in flow.processes(cell, side)
        ]
        # of several readers the one that is nearest to all that it may use
        found[side] = max(ends, key=_share, default=_end("", of_side, load, 0.0))
    return found


def _share(end: End) -> float:
    """How much of what it may use an end used; one of which nobody knows may be the nearest."""
    if end.cpu_cores is None or end.cpu_cores.estimate is None:
        return np.inf
    used = end.cpu_cores.estimate
    return used / end.room_cores if end.room_cores else used


def _end(process: str, usage: pd.DataFrame, load: pd.DataFrame, room: float) -> End:
    found = stream_legs.cost(usage, load)
    absent: dict[str, str] = {}
    nobody = "no row of this end was measured" if usage.empty else "no row says it"
    if found.cpu_cores is None:
        absent["cpu_cores"] = nobody
    if found.cpu_per_message_ns is None:
        absent["cpu_per_message_ns"] = nobody if found.cpu_cores is None else "no message passed"
    if found.rss_bytes_max is None:
        absent["rss_bytes_max"] = nobody
    if found.growth is None:
        absent["grown_bytes"] = f"fewer than {stream_legs.SECONDS_LEAST} seconds in any repeat"
    used = (found.cpu_cores.estimate if found.cpu_cores else None) or 0.0
    one = BOUND_LEAST * min(1.0, room) <= used <= BOUND_MOST
    bound = used > 0 and (one or used >= BOUND_LEAST * room)
    grown = found.growth
    level = (found.rss_bytes_max or 0) - (grown.grown if grown else 0.0)
    grows = (
        grown is not None
        and grown.goes_on
        and grown.grown >= max(GROWN_LEAST_BYTES, GROWN_LEAST_SHARE * level)
    )
    return End(
        process, found.cpu_cores, found.cpu_per_message_ns, min(1.0, room), bound,
        found.rss_bytes_max,
        grown.grown if grown else None, grown.rate if grown else None, grows, absent,
    )  # fmt: skip


def _beside_unloaded(plan: Plan, flow: Flow, rows: list[Stream]) -> list[Stream]:
    """Hold each cell with a load against the one whose factors are the same without it."""
    bases = {
        (row.protocol, tuple(stream_factors.rest(plan.cell(row.cell)).items())): row.cell
        for row in rows
        if row.load == NONE
    }
    found = []
    for row in rows:
        if row.load == NONE:
            found.append(replace(row, absent={**row.absent, "of_unloaded": "it is unloaded"}))
            continue
        base = bases.get((row.protocol, tuple(stream_factors.rest(plan.cell(row.cell)).items())))
        share, reason = kept(flow, row.cell, base)
        absent = row.absent if share else {**row.absent, "of_unloaded": reason}
        found.append(replace(row, of_unloaded=share, unloaded_cell=base, absent=absent))
    return found


def _seconds(flow: Flow) -> pd.DataFrame:
    parts: dict[str, list[Any]] = defaultdict(list)
    for (cell, repeat), values in flow.bps.items():
        parts["cell"] += [cell] * values.size
        parts["repeat"] += [repeat] * values.size
        parts["second"] += range(values.size)
        parts["bps"] += values.tolist()
    return pd.DataFrame(parts, columns=["cell", "repeat", "second", "bps"])


def _usage(flow: Flow) -> pd.DataFrame:
    keys = [*stream_tables.PROCESS, "second"]
    frame = flow.usage.assign(cpu_cores=flow.usage["cpu_ns"] / flow.usage["covered_ns"])
    numbers = ["cpu_cores", "rss_bytes", "in_flight"]
    # engines mark a missing number differently
    known = frame[numbers].apply(pd.to_numeric).astype(float)
    return frame[keys].join(known).reset_index(drop=True)
