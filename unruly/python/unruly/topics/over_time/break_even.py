"""At which rate of faults recoveries cost the clients as much time as fault-free outliers do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import ibis
import numpy as np

from unruly.base.quantiles import quantiles_of
from unruly.quantity import count
from unruly.stats import break_even_faults, outlier_limit
from unruly.stats.break_even import BLOCKS_LEAST, FAULTS_LEAST
from unruly.tables import fetch, inline
from unruly.tables import steadiness as steadiness_tables

if TYPE_CHECKING:
    from unruly.stats import BreakEven, Recoveries

BLOCKS_MOST: Final = 30
BLOCK_REQUESTS: Final = 100
Span = tuple[int, int]


def break_even(
    free: ibis.Table,
    whole: dict[str, Any],
    recoveries: Recoveries,
    faults: tuple[Span, ...],
    measured: Span,
    clients: int,
    size: int,
    absent: dict[str, str],
) -> BreakEven | None:
    """Return the break-even rate of faults; None with its reason in ``absent``.

    Parameters
    ----------
    free : Table
        The fault-free requests.
    whole : dict
        n, failed, mean and sd of these.
    faults : tuple of spans
        From each fault to its recovery.
    measured : span
        The times of the first and the last request.
    size : int
        An upper bound of the number of rows.
    """
    totals = [one.total_ns for one in recoveries.faults if one.total_ns is not None]
    blocks = min(BLOCKS_MOST, recoveries.fault_free // BLOCK_REQUESTS)
    spans = _between(faults, measured)
    reason = None
    if len(totals) < FAULTS_LEAST:
        told = "1 recovery" if len(totals) == 1 else f"{len(totals)} recoveries"
        reason = f"{told}; {FAULTS_LEAST} are needed"
    elif blocks < BLOCKS_LEAST or not spans:
        reason = (
            f"{count(recoveries.fault_free)} fault-free requests; "
            f"{count(BLOCKS_LEAST * BLOCK_REQUESTS)} are needed"
        )
    if reason:
        absent["break_even"] = reason
        return None
    middle = quantiles_of(free.mutate(node=ibis.literal(0)), ["node"], [0.5], size, ["response"])
    median = float(middle["response"].iloc[0][0])
    if not np.isfinite(median) or (recoveries.median_ns.estimate or 0.0) <= median:
        absent["break_even"] = "the median recovery is no longer than the median fault-free request"
        return None
    length = spans[-1]["before_ns"] + spans[-1]["to_ns"] - spans[-1]["from_ns"]
    limit = outlier_limit(float(whole["mean"]), float(whole["sd"]))
    frame = fetch(
        steadiness_tables.excess_in_blocks(free, inline(spans), limit, median, length / blocks)
    )
    excess = np.zeros(blocks)
    np.add.at(excess, frame["block"].clip(0, blocks - 1).to_numpy(), frame["excess"].to_numpy())
    if not excess.any():
        absent["break_even"] = "no fault-free request exceeds mean + 3 sd"
        return None
    return break_even_faults(excess, length / blocks / 1e9, totals, median, clients=clients)


def _between(faults: tuple[Span, ...], measured: Span) -> list[dict[str, int]]:
    """The measured time outside of all faults: from_ns, to_ns, before_ns (how much is before)."""
    found: list[dict[str, int]] = []
    at, before = measured[0], 0
    for first, last in (*sorted(faults), (measured[1] + 1, measured[1] + 1)):
        until = min(first, measured[1] + 1)
        if until > at:
            found.append({"from_ns": at, "to_ns": until, "before_ns": before})
            before += until - at
        at = max(at, last)
    return found
