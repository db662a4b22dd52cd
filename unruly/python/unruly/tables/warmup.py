"""Expressions over the warm-up and the measured time after it, as one stretch of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

if TYPE_CHECKING:
    from ibis.expr.types import Table

KEYS: Final = ("cell", "repeat", "op")
PAUSES: Final = ("gc", "safepoint", "process stopped", "disk wait")
"""Kinds of events that make requests wait; faults, of any kind, do as well."""


def begun(rows: Table) -> Table:
    """Return the number of warm-up requests of each (cell, repeat, op) and their first time."""
    cold = rows.filter(rows.phase == "warmup")
    return cold.group_by(*KEYS).agg(n=cold.count(), first_ns=cold.intended_ns.min()).order_by(*KEYS)


def in_blocks(rows: Table, places: Table) -> Table:
    """Return rows with ``block``, their place among the equal blocks of their (cell, repeat, op).

    Parameters
    ----------
    rows : Table
        As `unruly.tables.requests.timed` gives them.
    places : Table
        cell, repeat, op, first_ns (of the warm-up where there is one), blocks, block_ns.
    """
    joined = rows.join(places, list(KEYS))
    block = ((joined.intended_ns - joined.first_ns) / joined.block_ns).floor().cast("int32")
    return joined.select(*KEYS, "ok", "response", block=ibis.least(joined.blocks - 1, block))


def disturbances(events: Table, most: int) -> Table:
    """Faults and pauses, faults first, the longest first: fault, process, started_ns, ended_ns."""
    fault = events.kind.startswith("fault ")
    found = events.filter(fault | events.kind.isin(PAUSES)).mutate(
        fault=fault, ended_ns=events.ended_ns.fill_null(events.started_ns)
    )
    length = found.ended_ns - found.started_ns
    ordered = found.order_by(ibis.desc("fault"), length.desc(), "started_ns")
    return ordered.limit(most).select("fault", "process", "started_ns", "ended_ns")
