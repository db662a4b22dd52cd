"""Finds the slowest requests, and the ids of their traces.

A process that sends traces writes the first half of their ids into its events. The second half
follows from it and from the request's number, by two rounds of splitmix64: so a row of `requests`
and the trace of its request find each other without a column of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

from unruly.tables import fetch
from unruly.topics.traces.model import SlowTrace, Traces

if TYPE_CHECKING:
    from unruly.base.context import Context

KIND: Final = "trace key"
MOST: Final = 10
PLACE: Final = "{trace_id}"
_MASK: Final = (1 << 64) - 1


def has_traces(context: Context) -> bool:
    """Return whether a run that measured something may have the keys of traces."""
    return not context.empty and context.run.segments.get("events", 0) > 0


def traces(context: Context) -> Traces | None:
    """Look for the slowest answered requests of a run.

    Parameters
    ----------
    context : Context
        The run.

    Returns
    -------
    Traces or None
        None where no request was answered, or no process wrote the key of its traces.
    """
    keys = _keys(context)
    if not keys:
        return None
    context.progress("slowest traces")
    rows = context.rows.filter(context.rows.ok).order_by(
        ibis.desc("response"), "cell", "repeat", "client", "request"
    )
    columns = ("cell", "repeat", "op", "client", "request", "response", "intended_ns")
    found = []
    for row in fetch(rows.limit(MOST).select(*columns)).to_dict("records"):
        key = keys.get((row["cell"], int(row["repeat"]), int(row["client"])))
        if key is None:
            continue
        trace_id = id_of(key, int(row["request"]))
        found.append(
            SlowTrace(
                str(row["cell"]), str(row["op"]), int(row["client"]), int(row["request"]),
                float(row["response"]), int(row["intended_ns"]), trace_id,
                _url(context, str(row["cell"]), trace_id),
            )
        )  # fmt: skip
    return Traces(tuple(found)) if found else None


def id_of(key: int, request: int) -> str:
    """Return the id of a request's trace.

    Examples
    --------
    >>> id_of(10, 1)
    '000000000000000acf36f4119163aff4'
    """
    return f"{key:016x}{_mix(key, request):016x}"


def _mix(seed: int, stream: int) -> int:
    return _finalise((_finalise(seed) + stream) & _MASK)


def _finalise(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _keys(context: Context) -> dict[tuple[str, int, int], int]:
    """The key of each (cell, repeat, client); a line that is no key is left out."""
    events = context.run.events
    told = fetch(events.filter(events.kind == KIND).select("cell", "repeat", "detail"))
    keys = {}
    for cell, repeat, detail in told.itertuples(index=False):
        client, _, key = str(detail).partition(" ")
        try:
            keys[str(cell), int(repeat), int(client)] = int(key, 16) & _MASK
        except ValueError:
            continue
    return keys


def _url(context: Context, cell: str, trace_id: str) -> str | None:
    """Where the plan says that a trace can be looked at. A plan may come from a stranger."""
    pattern = context.run.plan.cell(cell).trace_url
    if pattern is None or not pattern.startswith(("http://", "https://")):
        return None
    return pattern.replace(PLACE, trace_id)
