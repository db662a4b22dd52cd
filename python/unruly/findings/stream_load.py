"""The competing load beside streams: whether it held its target, and what room it left."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from unruly.findings.stream_model import Held
from unruly.tables import streams as stream_tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from unruly.findings.context import Context
    from unruly.findings.stream_legs import Flow
    from unruly.findings.stream_plan import StreamPlan

_SHARE: Final = re.compile(r"([0-9.]+) of ([0-9]+) cores")
OFF_MOST: Final = 0.02
"""Two points: what the load may be off its target."""


def held(flow: Flow, cell: str) -> tuple[Held, ...]:
    """Say of each host how much of its cores the load used, against what it said it would."""
    usage = flow.usage[(flow.usage["side"] == stream_tables.COMPETE) & (flow.usage["cell"] == cell)]
    told = flow.events[
        (flow.events["kind"] == stream_tables.COMPETING) & (flow.events["cell"] == cell)
    ]
    found = []
    for host, own in usage.groupby("host"):
        # workers whose event is missing (their run was cut off) are not held against a target
        shares = told[told["host"] == host].drop_duplicates(["repeat", "process"])["detail"]
        parsed = [_SHARE.fullmatch(str(detail)) for detail in shares]
        known = [(float(it[1]), float(it[2])) for it in parsed if it]
        # a leg's time is covered by every worker alike
        by_leg = own.groupby(["repeat", "process"]).agg(
            cpu=("cpu_ns", "sum"), covered=("covered_ns", "sum")
        )
        used = (by_leg["cpu"] / by_leg["covered"]).groupby("repeat").sum()
        legs = own["repeat"].nunique()
        if not known or len(known) < len(by_leg):
            continue
        cores = known[0][1]
        target = sum(share for share, _ in known) / legs / cores
        occupied = used / cores
        farthest = float(occupied.iloc[int((occupied - target).abs().argmax())])
        found.append(Held(str(host), cores, target, float(occupied.mean()), farthest))
    return tuple(found)


def rooms(context: Context, plan: StreamPlan, flow: Flow, cell: str) -> dict[str, float]:
    """Return how many cores each end could use: its own, less what loads used of them.

    All hosts of a run are namespaces of one machine, or it itself: a core is the same in all.
    """
    usage = flow.usage[flow.usage["cell"] == cell]
    cores = _cores(context.run.manifest)
    loads = []
    for process, own in usage[usage["side"] == stream_tables.COMPETE].groupby("process"):
        group = plan.pinned(str(process)) or plan.pinned(str(process).rsplit("-", 1)[0])
        used = float(own["cpu_ns"].sum() / own["covered_ns"].sum())
        loads.append((group or frozenset(range(cores)), used))
    found = {}
    for side in stream_tables.ENDS:
        names = usage.loc[usage["side"] == side, "process"]
        own_cores = plan.pinned(str(names.iloc[0])) if len(names) else frozenset()
        may = own_cores or frozenset(range(cores))
        taken = sum(used * len(may & on) / len(on) for on, used in loads)
        found[side] = max(0.0, len(may) - taken)
    return found


def _cores(manifest: Mapping[str, Any]) -> int:
    known = [
        int(host["cores"])
        for host in manifest.get("hosts") or []
        if isinstance(host, dict) and host.get("cores")
    ]
    return max(known, default=1)


def collections(frame: pd.DataFrame) -> dict[str, float]:
    """Return the time in collections of each cell, ns."""
    lasted = (frame["ended_ns"] - frame["started_ns"]).groupby(frame["cell"]).sum()
    return {str(cell): float(ns) for cell, ns in lasted.items()}
