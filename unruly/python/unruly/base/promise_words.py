"""What a run can promise, in words: the verdict, the report and the notebook say it alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.base.promise import CONFIDENCE, bound_words, length_words, next_words, reason_words
from unruly.quantity import count

if TYPE_CHECKING:
    from unruly.base.operation import CellSummary

METHOD_PAGE = "unruly/docs/methods/block-interval.md"


def promise_words(row: CellSummary, label: str) -> str:
    """Write the promise line of one (cell, op), without a full stop.

    Parameters
    ----------
    row : CellSummary
        The summary whose ladder is written.
    label : str
        The readable name of the operation.

    Returns
    -------
    str
        ``99 % of read within 4.90 ms (95 % confidence or better); p99.9 needs about 30 min``, or
        ``none for read: this run cannot say even the median, because latency drifted during the
        run; run at least 30 min``.
    """
    best = row.ladder.highest
    if best is None:
        return f"none for {label}: {refusal_words(row)}"
    rest = "".join(f"; {it}" for it in (next_words(row.ladder), best.note) if it)
    return f"{bound_words(best, label)} ({CONFIDENCE}){rest}"


def refusal_words(row: CellSummary) -> str:
    """Say why a run without any promise has none, and which length would give one."""
    median = row.ladder.step("p50")
    if median is None:
        return "this run has no latencies"
    if median.abstained is None and row.failed:
        return f"{count(row.failed)} of {count(row.n)} requests failed"
    why = f", because {reason_words(median)}" if median.reason else ""
    return f"this run cannot say even the median{why}{length_words(median)}"
