"""Finds the slowest requests, and the ids of their traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

from unruly.base.trace_ids import id_of, keys_of
from unruly.tables import fetch
from unruly.topics.traces.model import SlowTrace, Traces

if TYPE_CHECKING:
    from unruly.base.context import Context

MOST: Final = 10
PLACE: Final = "{trace_id}"


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
    keys = keys_of(context)
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


def _url(context: Context, cell: str, trace_id: str) -> str | None:
    """Where the plan says that a trace can be looked at. A plan may come from a stranger."""
    pattern = context.run.plan.cell(cell).trace_url
    if pattern is None or not pattern.startswith(("http://", "https://")):
        return None
    return pattern.replace(PLACE, trace_id)
