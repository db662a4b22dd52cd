"""Expressions over the time of the whole run: requests and latencies in each bin, and events."""

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
    """Return the requests by status and bin: bin, status, count.

    A good reply counts in the bin in which it came. A failed request may have no reply, so it
    counts in the bin of its scheduled time.
    """
    stamp = ibis.ifelse(rows.ok, rows.received_ns, rows.intended_ns)
    placed = rows.select("status", bin=((stamp - first_ns) // bin_ns).cast("int32"))
    keys = ("bin", "status")
    return placed.group_by(*keys).agg(count=placed.count()).order_by(*keys)


def due_in_bins(rows: Table, first_ns: int, bin_ns: int) -> Table:
    """Return the requests scheduled in each bin: bin, ok, response."""
    return in_bins(rows, first_ns, bin_ns).select("bin", "ok", "response")


def spans(events: Table, most: int) -> Table:
    """Return the events of processes other than faults, the longest first.

    cell, repeat, process, kind, detail, started_ns, lasted_ns (0 for an instant).
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
