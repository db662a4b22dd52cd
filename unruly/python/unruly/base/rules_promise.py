"""Rules about the promise of a percentile: made, or refused and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.base.model import Finding
from unruly.base.promise import CONFIDENCE, bound_words
from unruly.base.rule import Rule
from unruly.base.words import named
from unruly.quantity import count, duration
from unruly.stats import blocks
from unruly.stats.blocks import DRIFTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis
    from unruly.base.operation import CellSummary

ROWS_WANTED: Final = 1_000
"""Ten rows beyond the p99."""


def _promise_made(analysis: Analysis) -> Iterator[Finding]:
    """The run can promise a percentile of an operation.

    Example: 99 % of null within 2 ms, with 95 % confidence or better

    Raised: The run can promise at least one of p50, p90, p95, p99, p99.9 and p99.99 of an
    operation, and no finding spoils the run. The finding names the highest of them.

    Means: In runs like this one, that share of the requests is answered within the bound. The
    promise is wrong in at most 5 % of such runs, stalls included *if they occurred*. The blind spot
    beside it says what this run was too short to see.

    Next: Promise this much and no more. The verdict reports how long a run the next percentile
    needs.

    Numbers: `cells[].ladder` in `summary.json`, and the method [block
    interval](../methods/block-interval.md).
    """
    blind = {(spot.cell, spot.op): spot for spot in analysis.blind_spot}
    for place, row in enumerate(analysis.responses):
        step = row.ladder.highest
        if step is None or step.promise is None:
            continue
        spot = blind.get((row.cell, row.op))
        rest = f"; {spot.sentence}" if spot else ", if the order of the rows is that of time"
        yield Finding(
            "promise-made",
            "promise",
            "informs",
            place,
            f"{bound_words(step, analysis.label(row))}, with {CONFIDENCE}",
            f"It rests on {step.promise.n_effective:.0f} independent tail episodes and survives "
            f"stalls{rest}.",
            {
                "cell": row.cell,
                "op": row.op,
                "percentile": step.name,
                "bound_ns": step.promise.high,
                "measured_ns": step.estimate,
                "n_effective": step.promise.n_effective,
            },
            "Promise this much and no more; a longer run narrows it.",
        )


def _few_rows(analysis: Analysis) -> Iterator[Finding]:
    """An operation has too few requests for a p99.

    Example: too few requests for a p99

    Raised: An operation of a cell has fewer than {ROWS_WANTED:count} measured rows.

    Means: Fewer than ten rows lie beyond the p99. The p99 is shown, and its interval is wide or
    absent.

    Next: Run longer, or at a higher rate.

    Numbers: `cells[].n` in `summary.json`.
    """
    few = {analysis.label(row): row.n for row in analysis.responses if row.n < ROWS_WANTED}
    if not few:
        return
    words = named([f"{label} has {count(n)}" for label, n in few.items()])
    yield Finding(
        "few-rows",
        "promise",
        "warns",
        1000,
        "too few requests for a p99",
        f"{words}. With fewer than {count(ROWS_WANTED)} requests, fewer than ten lie beyond the "
        "p99.",
        {"rows": few, "wanted": ROWS_WANTED},
        "Run longer, or at a higher rate.",
    )


def _drift(analysis: Analysis) -> Iterator[Finding]:
    """Latency drifted during the run, so its p99 describes this run only.

    Example: latency drifted during the run: null

    Raised: Latency drifted during the run and the p99 with it, by rule A2a or A2b of the [block
    method](../methods/block-interval.md). Neighbouring blocks of time resemble each other in the
    tail, or in the body while the tail follows the body. Cells with an [outage] are left out.

    Means: The p99 is not stationary. Possible reasons are a short warm-up, a filling disk, another
    process on the machine, or a memory longer than a thirtieth of the run. The p99 has no interval
    and no promise.

    Next: Measure after a longer warm-up, or remove the reason. Otherwise run for at least the
    length shown, which is {blocks.BLOCKS:count} times this run.

    Numbers: `cells[].abstained` and `cells[].ladder` in `summary.json`; the correlations of the
    blocks are in the evidence of the finding.
    """
    moved = [
        row
        for row in analysis.responses
        if row.abstained in DRIFTS and row.cell not in analysis.outage_cells
    ]
    if not moved:
        return
    labels = [analysis.label(row) for row in moved]
    longest = max(row.needed_ns or 0.0 for row in moved)
    yield Finding(
        "drift",
        "promise",
        "warns",
        1001,
        f"latency drifted during the run: {named(labels)}",
        "Neighbouring blocks of time resemble each other: the p99 is not stationary. Its numbers "
        "describe this run only, and it has no promise.",
        {"ops": labels, "needed_ns": longest, "details": _details(analysis, moved)},
        f"Run {duration(longest)}, or use a longer warm-up.",
    )


def _abstained(analysis: Analysis) -> Iterator[Finding]:
    """There is not enough data for an interval of the p99.

    Example: no p99 promise for null

    Raised: An operation of a cell has {ROWS_WANTED:count} rows or more, but fewer than
    {blocks.EPISODES_MIN:count} independent tail episodes, by rule A1 of the [block
    method](../methods/block-interval.md). With fewer rows the finding is [few-rows].

    Means: A handful of stalls make the whole tail, however many requests there were. An interval
    would be a guess. The lower bound still holds, and the run may still promise a lower percentile:
    the verdict prints the highest one.

    Next: Run for about the length shown. It is known within a factor of 2, so twice that length is
    safer.

    Numbers: `cells[]` (`abstained`, `needed_ns`, `p99_lower_bound`, `ladder`) in `summary.json`.
    """
    short = [row for row in analysis.responses if row.abstained == "A1" and row.n >= ROWS_WANTED]
    if not short:
        return
    labels = [analysis.label(row) for row in short]
    lengths = {analysis.label(row): row.needed_ns for row in short}
    # a lower step may need longer, when it was refused because it drifted
    steps = (row.ladder.next for row in short)
    known = [value for value in lengths.values() if value is not None]
    known += [step.needed_ns for step in steps if step and step.needed_ns is not None]
    bounds = named(
        [
            f"{analysis.label(row)} at least {duration(row.p99_lower_bound)}"
            for row in short
            if row.p99_lower_bound is not None
        ]
    )
    longest = duration(max(known)) if known else "much longer"
    yield Finding(
        "abstained",
        "promise",
        "warns",
        1002,
        f"no p99 promise for {named(labels)}",
        "There is not enough data for an interval of the p99"
        + (f"; this run can say: {bounds}" if bounds else "")
        + ".",
        {
            "ops": labels,
            "needed_ns": lengths,
            "lower_bound_ns": {analysis.label(row): row.p99_lower_bound for row in short},
            "details": _details(analysis, short),
        },
        f"Run {longest}.",
    )


def _details(analysis: Analysis, rows: list[CellSummary]) -> dict[str, str]:
    """The numbers behind each refused p99."""
    steps = {analysis.label(row): row.ladder.step("p99") for row in rows}
    return {label: step.details for label, step in steps.items() if step}


RULES: Final = (
    Rule("promise-made", "promise", ("informs",), _promise_made),
    Rule("few-rows", "promise", ("warns",), _few_rows),
    Rule("drift", "promise", ("warns",), _drift, (blocks,)),
    Rule("abstained", "promise", ("warns",), _abstained, (blocks,)),
)
