"""The whole run over time: replies by status, latencies, and events of processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from unruly.base.quantiles import quantiles_of
from unruly.tables import fetch
from unruly.tables import flow as flow_tables

if TYPE_CHECKING:
    from unruly.base.context import Context

BINS_MOST: Final = 300
BINS_LEAST: Final = 5
LEGS_MOST: Final = 16
"""In a picture of more legs than this each is too narrow to read."""
SECOND_NS: Final = 1_000_000_000
COVERED_LEAST: Final = 0.5
"""Of a bin: the rate of less is that of a moment."""
FINITE: Final = 1e300
GOOD: Final = "ok"


@dataclass(frozen=True)
class Flow:
    """Bins of whole seconds over the run, all operations together.

    Frames: ``replies`` (started_ns, status, hz: good replies by arrival, failed requests by
    scheduled time), ``latency`` (started_ns, p99, max of the requests scheduled in the bin; NaN if
    the percentile falls among the failed ones).
    """

    bin_ns: int
    replies: pd.DataFrame
    latency: pd.DataFrame


def flow(context: Context, legs: pd.DataFrame) -> Flow | None:
    """Return the bins of the run; None for a few seconds, short trials, or a large matrix.

    Parameters
    ----------
    legs : DataFrame
        cell, repeat, first_ns, last_ns: the measured time of each trial.
    """
    first, last = int(legs["first_ns"].min()), int(legs["last_ns"].max()) + 1
    width = SECOND_NS * max(1, -(-(last - first) // (SECOND_NS * BINS_MOST)))
    bins = (last - first) // width + 1
    if bins < BINS_LEAST or len(legs) > LEGS_MOST:
        return None
    context.progress("flow")
    covered = _covered(legs, first, width, int(bins))
    held = np.flatnonzero(covered >= COVERED_LEAST * width)
    starts = first + np.arange(bins) * width
    came = fetch(flow_tables.came(context.rows, first, width))
    came = came[came["bin"].isin(held)]
    if came.empty:
        return None
    table = came.pivot_table(index="bin", columns="status", values="count", aggfunc="sum")
    # that no good reply came is a line at 0, and not none
    statuses = table.columns.union([GOOD])
    table = table.reindex(index=held, columns=statuses).fillna(0.0)
    seconds = covered[held] / SECOND_NS
    replies = [
        pd.DataFrame({"started_ns": starts[held], "status": str(status), "hz": count / seconds})
        for status, count in table.items()
    ]
    due = flow_tables.due_in_bins(context.rows, first, width)
    slow = quantiles_of(due, ["bin"], [0.99], context.size, ("response",))
    slow = slow[slow["bin"].isin(held)]
    p99 = np.array([float(found[0]) for found in slow["response"]])
    latency = pd.DataFrame(
        {
            "started_ns": starts[slow["bin"].to_numpy()],
            "p99": np.where(p99 < FINITE, p99, np.nan),
            "max": slow["response_max"].astype(float).to_numpy(),
        }
    )
    return Flow(int(width), pd.concat(replies, ignore_index=True), latency)


def _covered(legs: pd.DataFrame, first: int, width: int, bins: int) -> np.ndarray:
    """How much of each bin was measured, ns."""
    starts = np.arange(bins, dtype=np.int64) * width
    covered = np.zeros(bins, dtype=np.int64)
    for begin, end in zip(legs["first_ns"] - first, legs["last_ns"] + 1 - first, strict=True):
        inside = np.minimum(starts + width, int(end)) - np.maximum(starts, int(begin))
        covered += np.clip(inside, 0, width)
    return covered
