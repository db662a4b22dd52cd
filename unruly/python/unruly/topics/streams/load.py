"""The competing load beside streams: whether it held its target, and what room it left."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from unruly.topics.streams import tables as stream_tables
from unruly.topics.streams.clocks import ahead_ns
from unruly.topics.streams.model import Held

if TYPE_CHECKING:
    import pandas as pd

    from unruly.base.context import Context
    from unruly.plan import CellPlan, Plan
    from unruly.topics.streams.legs import Flow

_SHARE: Final = re.compile(r"([0-9.]+) of ([0-9]+) cores")
OFF_MOST: Final = 0.02
"""Two points: what the load may be off its target."""


def held(context: Context, plan: Plan, flow: Flow, cell: str) -> tuple[Held, ...]:
    """Say of each host how much of its cores the load used, against what it was to use.

    Its workers say so themselves (`competing`); a collector's load does not, and has the plan's
    share of the cores that its process is kept on.
    """
    usage = flow.usage[(flow.usage["side"] == stream_tables.COMPETE) & (flow.usage["cell"] == cell)]
    told = flow.events[
        (flow.events["kind"] == stream_tables.COMPETING) & (flow.events["cell"] == cell)
    ]
    planned = plan.cell(cell)
    asked = planned.occupancy
    found = []
    for host, own in usage.groupby("host"):
        shares = told[told["host"] == host].drop_duplicates(["repeat", "process"])["detail"]
        parsed = [_SHARE.fullmatch(str(detail)) for detail in shares]
        known = [(float(it[1]), float(it[2])) for it in parsed if it]
        by_leg = own.groupby(["repeat", "process"]).agg(
            cpu=("cpu_ns", "sum"), covered=("covered_ns", "sum")
        )
        used = (by_leg["cpu"] / by_leg["covered"]).groupby("repeat").sum()
        if known and len(known) == len(by_leg):
            cores = known[0][1]
            target = sum(share for share, _ in known) / own["repeat"].nunique() / cores
        elif not known and asked is not None:
            names = own["process"].unique()
            cores = float(len(frozenset().union(*(_kept_on(context, planned, it) for it in names))))
            target = asked
        else:  # the event of some worker is missing: its run was cut off
            continue
        occupied = used / cores
        farthest = float(occupied.iloc[int((occupied - target).abs().argmax())])
        found.append(Held(str(host), cores, target, float(occupied.mean()), farthest))
    return tuple(found)


def unknown(flow: Flow, cell: str, known: tuple[Held, ...]) -> tuple[str, ...]:
    """Return the hosts of a stream's ends of whose load nobody knows what it used."""
    usage = flow.usage[flow.usage["cell"] == cell]
    hosts = usage.loc[usage["side"].isin(stream_tables.ENDS), "host"].unique()
    return tuple(sorted(set(map(str, hosts)) - {it.host for it in known}))


def _kept_on(context: Context, plan: CellPlan, process: str) -> frozenset[int]:
    """The cores of a process: its own, those of its group (compete-0 of compete-0-3), or all."""
    own = plan.pinned(process) or plan.pinned(process.rsplit("-", 1)[0])
    return own or frozenset(range(_cores(context, process)))


def rooms(context: Context, plan: Plan, flow: Flow, cell: str) -> dict[str, float]:
    """Return how many cores each end could use: its own, less what others used of them.

    Others are the competing loads, and other ends of the stream that are kept there too. It is no
    more than its quota, where the plan gives it one.
    Hosts that are namespaces share one machine, where a core is the same in all. A host that the
    run reached has cores of its own.
    """
    planned = plan.cell(cell)
    usage = flow.usage[flow.usage["cell"] == cell]
    machines = _machines(context)
    used = [
        (str(process), side, _kept_on(context, planned, str(process)), _cores_of(own))
        for (process, side), own in usage.groupby(["process", "side"])
    ]
    found = {}
    # one of which nothing is known in this time has its room too
    for process in (it for side in stream_tables.ENDS for it in flow.processes(cell, side)):
        may = _kept_on(context, planned, process)
        taken = sum(
            cores * len(may & on) / len(on)
            for other, its, on, cores in used
            # an end with no cores of its own is moved to where there is room
            if (its == stream_tables.COMPETE or (other != process and planned.pinned(other)))
            and machines.get(other) == machines.get(process)
        )
        found[process] = min(planned.quota(process), max(0.0, len(may) - taken))
    return found


def _machines(context: Context) -> dict[str, str]:
    """The host of each process that is on a machine of its own; nothing of the others."""
    own = ahead_ns(context)
    hosts = {str(it.get("name")): str(it.get("host")) for it in context.processes}
    return {process: host for process, host in hosts.items() if host in own}


def _cores_of(usage: pd.DataFrame) -> float:
    """What it used, as far as its rows know."""
    known = usage[usage["cpu_ns"].notna()]
    covered = float(known["covered_ns"].sum())
    return float(known["cpu_ns"].sum()) / covered if covered else 0.0


def _cores(context: Context, process: str) -> int:
    """How many cores the machine of a process has."""
    of = _machines(context).get(process)
    known = [
        int(host["cores"])
        for host in context.run.manifest.get("hosts") or []
        if isinstance(host, dict) and host.get("cores") and of in (None, host.get("name"))
    ]
    return max(known, default=1)
