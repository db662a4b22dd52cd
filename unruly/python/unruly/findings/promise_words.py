"""What a run can promise, in words: the verdict, the report and the notebook say it alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.quantity import count, duration

if TYPE_CHECKING:
    from unruly.findings.model import CellSummary, PromiseLadder, PromiseStep

CONFIDENCE = "95 % confidence or better"
SPOILED = "a measurement that cannot be trusted promises nothing"
METHOD_PAGE = "unruly/docs/methods/block-interval.md"


def share_words(step: PromiseStep) -> str:
    """Write the share of requests that a step is about.

    Examples
    --------
    >>> from unruly.findings.model import PromiseStep
    >>> share_words(PromiseStep("p99.9", 0.999, None, None, None, None))
    '99.9 %'
    """
    return f"{100 * step.p:.10g} %"


def promise_words(row: CellSummary, label: str) -> str:
    """Write the promise line of one (cell, op), without a full stop.

    Parameters
    ----------
    row : CellSummary
        Its ladder is what is written.
    label : str
        What a reader calls the operation.

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


def bound_words(step: PromiseStep, label: str) -> str:
    """Write the bound of a step that has a promise: ``99 % of read within 4.90 ms``."""
    assert step.promise is not None
    return f"{share_words(step)} of {label} within {duration(step.promise.high)}"


def refusal_words(row: CellSummary) -> str:
    """Say why a run without any promise has none, and which length would give one."""
    median = row.ladder.step("p50")
    if median is None:
        return "this run has no latencies"
    if median.abstained is None and row.failed:
        return f"{count(row.failed)} of {count(row.n)} requests failed"
    why = f", because {_because(median)}" if median.reason else ""
    return f"this run cannot say even the median{why}{_run(median)}"


def next_words(ladder: PromiseLadder) -> str:
    """Say what the next step needs; empty above the last step.

    Examples
    --------
    >>> from unruly.findings.model import PromiseLadder, PromiseStep
    >>> refused = PromiseStep(
    ...     "p50", 0.5, 9.0, None, None, None, "A1", "not enough data", needed_ns=180e9
    ... )
    >>> next_words(PromiseLadder((refused,)))
    'p50 needs about 3 min'
    """
    step = ladder.next
    if step is None:
        return ""
    if step.needed_ns is None:
        return f"no promise for the {step.name}: {step.reason}"
    if step.drifted:
        return f"{step.name} needs at least {duration(step.needed_ns)}, because {_because(step)}"
    return f"{step.name} needs about {duration(step.needed_ns)}"


def step_refusal(step: PromiseStep) -> str:
    """Say why a step has no interval and how long a run would: ``not enough data; run ...``."""
    return f"{step.reason or ''}{_run(step)}"


def _because(step: PromiseStep) -> str:
    reason = step.reason or ""
    return "there is not enough data" if reason == "not enough data" else reason


def _run(step: PromiseStep) -> str:
    if step.needed_ns is None:
        return ""
    return f"; run {'at least' if step.drifted else 'about'} {duration(step.needed_ns)}"
