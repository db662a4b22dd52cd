"""A run held to limits: broken or held only when the interval says so.

A limit is a line that somebody drew; a measurement is an estimate with an interval. Where the
interval lies on one side of the line the answer is plain. Where the line runs through it the run
was too short to decide, which is its own outcome, with the length that would do.

A failed request is slower than every limit: a lower bound among the failed requests breaks every
limit on a latency. Failures themselves have a limit, also where the file sets none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from unruly.base.cells import histograms_of, mean_by_blocks
from unruly.base.context import Context
from unruly.base.histograms import KEPT, Kept, kept_bins
from unruly.base.ladder import too_few_pieces
from unruly.base.limits import (
    FACTS,
    LATENCIES,
    MEANS,
    PERCENTILES,
    RATIOS,
    SHARES,
    Limit,
    LimitError,
)
from unruly.base.worked import FAILED_MOST
from unruly.quantity import count, duration, percent
from unruly.shown import Sheet, Shown
from unruly.stats import block_interval, bucket_edges, share_interval
from unruly.stats.blocks import BLOCKS
from unruly.stats.histogram import FAILED_BUCKET

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unruly.base.model import Judged
    from unruly.base.operation import CellSummary

LEVEL: Final = 0.95
PIECES: Final = f"A source of {BLOCKS} intervals can decide it."
FAILURES: Final = ("failed_share", "failed")
"""Statistics that set an operation's own limit on failures, in place of the built-in one."""


@dataclass(frozen=True, repr=False)
class Outcome(Shown):
    """What became of a limit in one (cell, op); ``low`` and ``high`` bound the statistic."""

    limit: Limit
    cell: str
    op: str
    outcome: str
    estimate: float | None
    low: float | None
    high: float | None
    needed_ns: float | None
    sentence: str

    def _sheet(self) -> Sheet:
        return Sheet(
            f"{self.outcome}: {self.limit.name}, {self.op} in {self.cell}: {self.sentence}"
        )


@dataclass(frozen=True)
class _Bounds:
    """What is known of a statistic, in the unit of its limit."""

    estimate: float | None
    low: float | None
    high: float | None
    reason: str = ""
    needed_ns: float | None = None
    is_fact: bool = False
    """What the run saw, whatever another one would see."""
    step: str = ""
    """What would decide it, where that is not a longer run."""


def judge(analysis: Judged, limits: list[Limit]) -> list[Outcome]:
    """Hold the run to each limit, for each (cell, op) that it is about.

    Raises
    ------
    LimitError
        When a limit is about a cell or an op that the run does not have.
    """
    if not analysis.cells and analysis.measured_ns:
        raise LimitError(
            analysis.run.path, "no latency was measured", "a run with requests",
            "streams between hosts have bandwidths: `streams.rows` of summary.json",
        )  # fmt: skip
    if not analysis.cells:
        raise LimitError(
            analysis.run.path, "nothing was measured", "a run with rows", "measure again"
        )
    for limit in limits:
        _check_known(analysis, limit)
    histograms = _Histograms(Context.of(analysis.run, lambda _: None))
    outcomes = _failures(analysis, limits) + [
        _judge_one(analysis, limit, cell, op, histograms)
        for limit in limits
        for cell, op in _about(analysis, limit)
    ]
    return outcomes if analysis.trustworthy else [_of_spoiled(it) for it in outcomes]


def _failures(analysis: Judged, limits: list[Limit]) -> list[Outcome]:
    """Hold every operation to the built-in limit on failures, unless `limits` has its own."""
    own = {
        key for limit in limits if limit.statistic in FAILURES for key in _about(analysis, limit)
    }
    line = f"at most {percent(FAILED_MOST)} failed"
    limit = Limit(line, "failed_share", FAILED_MOST, built_in=True)
    return [
        _built_in(limit, row)
        for row in analysis.cells
        if row.latency == "response" and row.op != "*" and row.n and (row.cell, row.op) not in own
    ]


def _built_in(limit: Limit, row: CellSummary) -> Outcome:
    """Judge what this run saw, as `drive` does: requests that failed are counted, not estimated."""
    share = row.failed / row.n
    outcome = "held" if share <= limit.at_most else "broken"
    sentence = (
        f"{count(row.failed)} of {count(row.n)} requests failed ({percent(share)}); "
        f"the built-in limit is {percent(limit.at_most)}"
    )
    return Outcome(limit, row.cell, row.op, outcome, share, share, share, None, sentence)


def _of_spoiled(found: Outcome) -> Outcome:
    """Of a spoiled run only failures are judged: its latencies may be the generator's own."""
    among_failures = found.low is not None and np.isinf(found.low)
    broken = found.outcome == "broken" and among_failures
    if broken or found.limit.statistic in FAILURES or found.limit.built_in:
        return found
    return replace(
        found, outcome="undecided", needed_ns=None, sentence="not judged, the run is spoiled"
    )


def _check_known(analysis: Judged, limit: Limit) -> None:
    for name, wanted in (("cell", limit.cell), ("op", limit.op)):
        known = sorted({str(getattr(row, name)) for row in analysis.cells})
        if wanted is not None and wanted not in known:
            raise LimitError(
                f"limit {limit.name!r}", f"{name} is {wanted!r}", f"one of {', '.join(known)}",
                f"`unruly verdict` lists each measured {name}",
            )  # fmt: skip
    if not _about(analysis, limit):
        raise LimitError(
            f"limit {limit.name!r}", f"cell {limit.cell!r} has no op {limit.op!r}",
            "an operation of that cell", "`unruly verdict` lists the operations of each cell",
        )  # fmt: skip


def _about(analysis: Judged, limit: Limit) -> list[tuple[str, str]]:
    """Return each (cell, op) that a limit covers: every op by itself, never the mixture of all."""
    return list(
        dict.fromkeys(
            (row.cell, row.op)
            for row in analysis.cells
            if limit.cell in (None, row.cell)
            and (row.op == limit.op if limit.op else row.op != "*")
        )
    )


@dataclass(frozen=True)
class _Blocks:
    """Buckets, and counts by bucket and block; with the bins of a source that kept no rows."""

    buckets: NDArray[Any]
    counts: NDArray[Any]
    kept: Kept | None = None


class _Histograms:
    """Block histograms of the run, read once for each latency."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.held: dict[str, dict[Any, _Blocks]] = {}

    def of(self, cell: str, op: str, kind: str) -> _Blocks:
        """The blocks of an operation; a single op is also all ops."""
        if kind not in self.held:
            rows = [] if self.context.empty else histograms_of(self.context, kind)
            self.held[kind] = {key: _Blocks(buckets, counts) for key, buckets, counts in rows}
            for kept in kept_bins(self.context.run):
                self.held[kind][kept.cell, kept.op] = _Blocks(*kept.blocks(), kept)
        found = self.held[kind]
        if (cell, op) in found:
            return found[cell, op]
        return next(value for (name, _), value in found.items() if name == cell)


def _judge_one(
    analysis: Judged, limit: Limit, cell: str, op: str, histograms: _Histograms
) -> Outcome:
    summary = next(
        row
        for row in analysis.cells
        if (row.cell, row.op, row.latency) == (cell, op, limit.latency)
    )
    blocks = histograms.of(cell, op, limit.latency)
    if summary.kept == KEPT and limit.latency == "service" and limit.statistic not in FAILURES:
        why = "histograms keep response times alone"
        known = _Bounds(None, None, None, why, step="A run that has its rows can decide it.")
    elif limit.statistic in PERCENTILES:
        known = _percentile(limit, summary, blocks)
    elif limit.statistic in MEANS:
        known = _mean(summary, blocks)
    elif limit.statistic in RATIOS:
        known = _ratio(summary)
    elif limit.statistic in FACTS:
        known = _fact(limit.statistic, summary)
    else:
        known = _share(limit.statistic, summary, blocks)
    outcome = decide(limit.at_most, known.low, known.high)
    sentence = _sentence(limit, outcome, known, summary)
    return Outcome(
        limit, cell, op, outcome, known.estimate, known.low, known.high, known.needed_ns, sentence
    )


def _percentile(limit: Limit, summary: CellSummary, blocks: _Blocks) -> _Bounds:
    estimate = getattr(summary, limit.statistic.replace(".", "_"))
    if summary.abstained == "short":
        why = summary.absent.get("p99_interval", "no blocks")
        return _Bounds(estimate, None, None, why, step=PIECES if blocks.kept else "")
    p = PERCENTILES[limit.statistic]
    block = block_interval(blocks.buckets, blocks.counts, p, estimate=estimate, level=LEVEL)
    needed = summary.duration_ns * block.needed_factor if block.abstained else None
    high = block.promise.high if block.promise else None
    # the method has no lower bound only where that bound falls among the failed requests
    low, step = block.lower_bound, ""
    if low is None:
        low = float("inf")
    elif blocks.kept is not None:
        inside = decide(limit.at_most, low, high)
        low, high = blocks.kept.widened(low, high)
        if inside != decide(limit.at_most, low, high):
            step = "A source with finer bins can decide it."
    return _Bounds(estimate, low, high, block.reason or "", needed, step=step)


def _mean(summary: CellSummary, blocks: _Blocks) -> _Bounds:
    if summary.mean is None or summary.abstained == "short":
        return _Bounds(None, None, None, summary.absent.get("mean", "no blocks of time"))
    found = mean_by_blocks(blocks.buckets, blocks.counts, summary.mean)
    return _Bounds(found.estimate, found.low, found.high)


def _ratio(summary: CellSummary) -> _Bounds:
    reason = summary.absent.get("p99_over_mean", "")
    found = summary.p99_over_mean_interval
    if found is None:
        reason = reason or summary.absent.get("p99_over_mean_interval", "")
        return _Bounds(summary.p99_over_mean, None, None, reason)
    return _Bounds(found.estimate, found.low, found.high)


def _fact(statistic: str, summary: CellSummary) -> _Bounds:
    value = getattr(summary, statistic)
    if value is None and summary.failed:
        value = float("inf")
    return _Bounds(value, value, value, summary.absent.get(statistic, ""))


def _share(statistic: str, summary: CellSummary, blocks: _Blocks) -> _Bounds:
    """Return a share of the requests with bounds, or the same scaled to a number of requests.

    A source of few intervals does not show how failures come together. A limit is broken there when
    the share that was counted is above it, and held when independent requests would hold it.
    """
    buckets, counts = blocks.buckets, blocks.counts
    if statistic in ("failed", *SHARES):
        above = buckets >= FAILED_BUCKET
    elif getattr(summary, statistic) is None:
        return _Bounds(None, None, None, summary.absent.get(statistic, ""))
    else:
        assert summary.mean is not None
        tenfold = statistic == "over_10x_mean"
        limit = 10 * summary.mean if tenfold else summary.mean + 3 * (summary.sd or 0.0)
        above = bucket_edges(buckets)[0] >= limit
    found = share_interval(counts[above].sum(axis=0), counts.sum(axis=0), LEVEL)
    scale = 1 if statistic in SHARES else summary.n
    estimate = found.estimate if statistic in SHARES else getattr(summary, statistic)
    low, high = (bound * scale if bound is not None else None for bound in (found.low, found.high))
    if blocks.kept is not None and too_few_pieces(blocks.kept.intervals):
        high = max(high, estimate) if high is not None and estimate is not None else None
        return _Bounds(estimate, estimate, high, step=PIECES, is_fact=True)
    if estimate is not None and low is not None and high is not None:
        low, high = min(low, estimate), max(high, estimate)
    return _Bounds(estimate, low, high)


def decide(at_most: float, low: float | None, high: float | None) -> str:
    """Say whether a line is broken, held, or inside the interval.

    Examples
    --------
    >>> decide(2.0, 2.1, 3.0), decide(2.0, 1.0, 2.0), decide(2.0, 1.0, None)
    ('broken', 'held', 'undecided')
    """
    if low is not None and low > at_most:
        return "broken"
    if high is not None and high <= at_most:
        return "held"
    return "undecided"


def _sentence(limit: Limit, outcome: str, known: _Bounds, summary: CellSummary) -> str:
    show = _shown(limit.statistic)
    estimate, low, high = (
        show(value) if value is not None else None
        for value in (known.estimate, known.low, known.high)
    )
    line = show(limit.at_most)
    if limit.statistic in FACTS or (known.is_fact and outcome != "undecided"):
        if estimate is None:
            return f"the limit is {line}. This run cannot decide it: {known.reason}"
        return f"this run saw {estimate}, the limit is {line}; a longer run may see another"
    measured = f"measured {estimate}, " if estimate else ""
    if known.low is not None and np.isinf(known.low):
        failed = f"{count(summary.failed)} of {count(summary.n)} requests failed"
        return f"{failed}, and a failed request is slower than every limit; the limit is {line}"
    if outcome == "broken":
        return f"{measured}at least {low} with {100 * LEVEL:.0f} % confidence; the limit is {line}"
    if outcome == "held":
        return f"{measured}at most {high} with {100 * LEVEL:.0f} % confidence; the limit is {line}"
    through = f"the limit lies in the interval from {low} to {high or 'no bound'}" if low else ""
    why = f": {known.reason or through}" if known.reason or through else ""
    longer = f"Run about {duration(known.needed_ns)}." if known.needed_ns else "Run longer."
    longer = known.step or longer
    return f"{measured}the limit is {line}. This run cannot decide it{why}. {longer}"


def _shown(statistic: str) -> Any:
    if statistic in SHARES:
        return percent
    if statistic in LATENCIES:
        return _latency
    return _number


def _number(value: float) -> str:
    if not np.isfinite(value):
        return "beyond every number (a request failed)"
    return count(round(value)) if value == round(value) else f"{value:.3g}"


def _latency(value: float) -> str:
    return duration(value) if np.isfinite(value) else "beyond every answer (a request failed)"
