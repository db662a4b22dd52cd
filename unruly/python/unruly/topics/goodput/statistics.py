"""How many requests met each limit that the plan sets them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast, get_args

import numpy as np

from unruly.base.ladder import LEVEL
from unruly.quantity import parse_duration
from unruly.stats import share_interval
from unruly.stats.blocks import BLOCKS
from unruly.tables import fetch, inline
from unruly.tables.spans import STREAMED
from unruly.topics.goodput import tables as goodput_tables
from unruly.topics.goodput.model import Good, Goodput, MeasureName, Missed

if TYPE_CHECKING:
    import pandas as pd

    from unruly.base.context import Context
    from unruly.stats import Interval

NAMES: Final = get_args(MeasureName)
_LIMIT: Final = re.compile(r"(\w+) < ([0-9.]+ ?[a-z]+)")
NO_PARTS: Final = "no reply of the run came in parts"


def has_goodput(context: Context) -> bool:
    """Return whether the plan of a run that measured something sets limits."""
    return not context.empty and bool(limits_of(context.run.plan.goodput))


def limits_of(text: str | None) -> dict[str, float]:
    """Read the limits of a plan, in ns. The runner has refused any other text.

    Examples
    --------
    >>> limits_of("ttft < 500ms, e2e < 5s")
    {'ttft': 500000000.0, 'e2e': 5000000000.0}
    >>> limits_of(None)
    {}
    """
    found = {}
    for part in (text or "").split(","):
        limit = _LIMIT.fullmatch(part.strip())
        if limit is None or limit[1] not in NAMES:
            continue
        try:
            found[limit[1]] = float(parse_duration(limit[2]))
        except ValueError:
            continue
    return found


def goodput(context: Context) -> Goodput | None:
    """Count the good requests of each cell.

    Parameters
    ----------
    context : Context
        The run.

    Returns
    -------
    Goodput or None
        None where the plan sets no limits.

    Notes
    -----
    Intervals are of blocks of time, since slow requests come together. A request without a reply is
    not good, and one with a reply that came in one piece has no gap. Do not compare the goodput of
    two runs whose rates differ by their shares: compare the good requests a second.
    """
    asked = context.run.plan.goodput or ""
    limits = limits_of(asked)
    if not limits:
        return None
    context.progress("goodput")
    has_spans = context.run.segments.get("spans", 0) > 0 and _is_streamed(context)
    rows = (
        goodput_tables.measured(context.rows, context.run.spans, retried=context.retried)
        if has_spans
        else goodput_tables.whole(context.rows)
    )
    places = context.places(BLOCKS)
    columns = ["cell", "repeat", "op", "first_ns", "before_ns", "block_ns"]
    frame = fetch(goodput_tables.by_block(rows, inline(places[columns]), limits, BLOCKS))
    lengths = _lengths_s(context)
    in_parts = has_spans or set(limits) <= {"e2e"}
    return Goodput(
        asked,
        tuple(
            _good(str(cell), own, limits, lengths.get(str(cell), 0.0), in_parts=in_parts)
            for cell, own in frame.groupby("cell", sort=True)
        ),
    )


def _is_streamed(context: Context) -> bool:
    """Whether replies came in parts: connections and services have spans too."""
    spans = context.run.spans
    return not fetch(spans.filter(spans.layer.isin(STREAMED)).select("layer").limit(1)).empty


def _lengths_s(context: Context) -> dict[str, float]:
    """How long each cell was measured, all repeats together: as planned, or as its requests say."""
    found: dict[str, float] = {}
    extents = context.extents.groupby(["cell", "repeat"], as_index=False).agg(
        first_ns=("first_ns", "min"), last_ns=("last_ns", "max")
    )
    for row in extents.to_dict("records"):
        cell = str(row["cell"])
        planned = context.run.plan.cell(cell).duration_ns
        seen = int(row["last_ns"]) - int(row["first_ns"])
        whole = planned if planned and context.run.status == "complete" else seen
        found[cell] = found.get(cell, 0.0) + whole / 1e9
    return found


def _good(
    cell: str, own: pd.DataFrame, limits: dict[str, float], length_s: float, *, in_parts: bool
) -> Good:
    counts = {name: int(own[name].sum()) for name in ("n", "good", "failed", *limits)}
    missed = tuple(
        Missed(cast("MeasureName", name), limit, counts[name]) for name, limit in limits.items()
    )
    known: dict[str, Any] = {"cell": cell, "n": counts["n"], "failed": counts["failed"]}
    if not in_parts:
        absent = dict.fromkeys(("share", "rate_hz"), NO_PARTS)
        return Good(**known, good=0, share=None, rate_hz=None, limits=(), absent=absent)
    blocks = own["block"].to_numpy(dtype=np.int64)
    good, whole = (
        np.bincount(blocks, own[name].to_numpy(dtype=np.float64), minlength=BLOCKS)
        for name in ("good", "n")
    )
    share = share_interval(good, whole, LEVEL)
    rate = _scaled(share, counts["n"] / length_s) if length_s > 0 else None
    absent = {} if rate else {"rate_hz": "the measured time has no length"}
    return Good(
        **known, good=counts["good"], share=share, rate_hz=rate, limits=missed, absent=absent
    )


def _scaled(share: Interval, requests_hz: float) -> Interval:
    estimate, low, high = (
        None if it is None else it * requests_hz for it in (share.estimate, share.low, share.high)
    )
    return replace(share, estimate=estimate, low=low, high=high)
