"""The clocks of hosts that a run reached: how far each is ahead of the runner's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ibis

from unruly.base.rules_run import CLOCKS_APART_NS
from unruly.quantity import duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ibis.expr.types import Table

    from unruly.base.context import Context


def ahead_ns(context: Context) -> dict[str, int]:
    """Return how far the clock of each reached host is ahead: the middle of its bounds, in ns.

    Hosts without bounds share the clock of the runner.
    """
    hosts = context.run.manifest.get("hosts") or []
    clocks = {
        str(host["name"]): host["clock"]
        for host in hosts
        if isinstance(host, dict) and host.get("clock")
    }
    return {
        name: (int(clock["low_ns"]) + int(clock["high_ns"])) // 2 for name, clock in clocks.items()
    }


def unsure(context: Context) -> str:
    """Return why the rows of two hosts cannot be put on one time line; empty if they can.

    The bounds of a run are those of all its trials together. A clock that was set in between makes
    them wide, and their middle wrong for each trial.
    """
    for host in context.run.manifest.get("hosts") or []:
        clock = host.get("clock") if isinstance(host, dict) else None
        if clock and clock["steps"]:
            return f"the clock of {host['name']}, or that of the runner, was set during the run"
        if clock and clock["high_ns"] - clock["low_ns"] > CLOCKS_APART_NS:
            width = duration(clock["high_ns"] - clock["low_ns"])
            return f"the clock of {host['name']} is known to within {width} only"
    return ""


def on_one_clock(table: Table, ahead: Mapping[str, int]) -> Table:
    """Return a table whose ``started_ns`` and ``ended_ns`` are times of the runner's clock.

    The error is half the width of a clock's bounds. Rows of a trace itself are never changed.

    Parameters
    ----------
    table : Table
        With ``host``, ``started_ns`` and ``ended_ns``, wall clock of the host in ns; null stays
        null.
    ahead : Mapping[str, int]
        As ``ahead_ns`` returns it.
    """
    if not ahead:
        return table
    steps = [(table.host == name, ibis.literal(it, "int64")) for name, it in ahead.items()]
    by = ibis.cases(*steps, else_=ibis.literal(0, "int64"))
    return table.mutate(started_ns=table.started_ns - by, ended_ns=table.ended_ns - by)


def have_own_clocks(context: Context, kinds: frozenset[str]) -> bool:
    """Whether processes of these kinds are on several hosts, of which one has its own clock."""
    hosts = {str(it.get("host")) for it in context.processes if str(it.get("kind")) in kinds}
    return len(hosts) > 1 and not hosts.isdisjoint(ahead_ns(context))
