"""Expressions over the whole run's time: what came in each bin, how slow, and what went on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

from unruly.tables.requests import in_bins

if TYPE_CHECKING:
    from ibis.expr.types import Table

HAPPENED: Final = (
    "gc",
    "safepoint",
    "process stopped",
    "process died",
    "process started",
    "disk wait",
)


def came(rows: Table, first_ns: int, bin_ns: int) -> Table:
    """Requests by status and bin: bin, status, count.

    A good reply counts when it came; one that failed, which may never have come, when it was due.
    """
    stamp = ibis.ifelse(rows.ok, rows.received_ns, rows.intended_ns)
    placed = rows.select("status", bin=((stamp - first_ns) // bin_ns).cast("int32"))
    keys = ("bin", "status")
    return placed.group_by(*keys).agg(count=placed.count()).order_by(*keys)


def due_in_bins(rows: Table, first_ns: int, bin_ns: int) -> Table:
    """What was due in each bin: bin, ok, response."""
    return in_bins(rows, first_ns, bin_ns).select("bin", "ok", "response")


def spans(events: Table, most: int) -> Table:
    """What else than faults went on in processes, the longest first.

    cell, repeat, process, kind, detail, started_ns, lasted_ns (0 of an instant).
    """
    told = events.filter(events.kind.isin(HAPPENED))
    lasted = (told.ended_ns - told.started_ns).fill_null(0)
    columns = ("cell", "repeat", "process", "kind", "detail", "started_ns", "lasted_ns")
    return (
        told.mutate(lasted_ns=lasted)
        .order_by(ibis.desc("lasted_ns"), "started_ns", "process", "kind")
        .limit(most)
        .select(*columns)
    )
