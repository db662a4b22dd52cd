"""The figures of a run that goes on as metrics: names, labels and values, for both exports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from unruly.base.ladder import PERCENTILES
from unruly.live.state import SHOWN
from unruly.quantity import NS_PER_S
from unruly.stats.histogram import FAILED_BUCKET, bucket_edges

if TYPE_CHECKING:
    from unruly.live.state import Operation, State

    Labels = tuple[tuple[str, str], ...]

EDGES_EVERY: Final = 46
"""Buckets between two bounds of the exported histogram: ten bounds for each power of ten."""
FIRST_EDGE: Final = 28 * EDGES_EVERY
"""The least bound, 0.6 us; everything below it is one bin."""
LAST_EDGE: Final = 111 * EDGES_EVERY
"""The largest bound, 114 s."""


@dataclass(frozen=True)
class Metric:
    """One metric: ``counter`` or ``gauge``, with a value for each set of labels."""

    name: str
    kind: str
    unit: str
    help: str
    values: tuple[tuple[Labels, float], ...]


@dataclass(frozen=True)
class Histogram:
    """Counts of response times up to each bound (s) of one operation, and of all that succeeded."""

    labels: Labels
    bounds_s: tuple[float, ...]
    up_to: tuple[int, ...]
    n: int
    sum_s: float


def histograms(state: State) -> list[Histogram]:
    """Return the histogram of each operation; its bounds are edges of buckets, so counts are exact.

    The sum takes each response time at the middle of its bucket, 0.25 % away at most.
    """
    edges = np.arange(FIRST_EDGE, LAST_EDGE + 1, EDGES_EVERY)
    bounds = bucket_edges(edges)[0] / NS_PER_S
    found = []
    for name in [it.name for it in state.operations()]:
        buckets, counts = state.tally.blocks(name)
        good = buckets < FAILED_BUCKET
        buckets, totals = buckets[good], counts[good].sum(axis=1)
        low, high = bucket_edges(buckets)
        below = np.concatenate([[0], np.cumsum(totals)])
        up_to = below[np.searchsorted(buckets, edges)]
        sum_s = float((np.sqrt(low) * np.sqrt(high) * totals).sum() / NS_PER_S)
        found.append(
            Histogram(
                _labels(state, name),
                tuple(bounds.tolist()),
                tuple(up_to.tolist()),
                int(totals.sum()),
                sum_s,
            )
        )
    return found


def metrics(state: State) -> list[Metric]:
    """Return every metric but the histogram."""
    ended = Metric(
        "unruly_run_ended", "gauge", "", "1 when the run is over, else 0.",
        (((), float(state.ended)),),
    )  # fmt: skip
    if not state.trial:
        return [ended]
    ops = state.operations()
    cell = _cell(state)
    seconds = state.latest.values()
    return [
        Metric(
            "unruly_requests", "counter", "",
            "Measured requests that have ended, by outcome.",
            tuple(
                ((*_labels(state, op.name), ("outcome", outcome)), float(count))
                for op in ops
                for outcome, count in (("ok", op.n - op.failed), ("failed", op.failed))
            ),
        ),
        Metric(
            "unruly_failures", "counter", "",
            "Copies that failed since the trial began, by status, with those of the warm-up.",
            tuple(((*cell, ("status", it)), float(n)) for it, n in sorted(state.failed.items())),
        ),
        Metric(
            "unruly_sent", "counter", "",
            "Copies sent since the trial began, with those of the warm-up.",
            ((cell, float(state.sent.total())),),
        ),
        Metric(
            "unruly_response_percentile_seconds", "gauge", "s",
            "Percentile of the response time so far, and the bounds of its 95 % interval.",
            tuple(_percentiles(state, ops)),
        ),
        Metric(
            "unruly_tail_episodes", "gauge", "",
            "Independent episodes of requests beyond the p99; 7 are needed for an interval.",
            tuple(
                (_labels(state, op.name), op.episodes) for op in ops if op.episodes is not None
            ),
        ),
        Metric(
            "unruly_run_needed_seconds", "gauge", "s",
            "About the run length that a percentile without an interval needs.",
            tuple(_needed(state, ops)),
        ),
        Metric(
            "unruly_open_requests", "gauge", "", "Requests that wait for their reply.",
            ((cell, float(sum(it["open"] for it in seconds))),),
        ),
        Metric(
            "unruly_send_delay_seconds", "gauge", "s",
            "Longest delay of a request in the load generator in the last second.",
            ((cell, max((it["lag_ns"] for it in seconds), default=0) / NS_PER_S),),
        ),
        Metric(
            "unruly_dropped_rows", "counter", "", "Rows that could not be written.",
            ((cell, float(sum(it["dropped"] for it in seconds))),),
        ),
        Metric(
            "unruly_measured_seconds", "gauge", "s", "Length of the measured time so far.",
            ((cell, float(state.tally.seconds)),),
        ),
        ended,
    ]  # fmt: skip


def _cell(state: State) -> Labels:
    return (
        ("cell", str(state.trial.get("cell", ""))),
        ("trial", str(state.trial.get("number", ""))),
    )


def _labels(state: State, op: str) -> Labels:
    return (*_cell(state), ("op", op))


def _percentiles(state: State, ops: list[Operation]) -> list[tuple[Labels, float]]:
    found: list[tuple[Labels, float]] = []
    for op in ops:
        for name in SHOWN:
            step = op.ladder.step(name) if op.ladder else None
            interval = step.interval if step else None
            share = f"{PERCENTILES[name.replace('.', '_')]:g}"
            bounds = {
                "estimate": op.estimates[name],
                "low": interval.low if interval else None,
                "high": interval.high if interval else None,
            }
            found += [
                (
                    (*_labels(state, op.name), ("quantile", share), ("bound", bound)),
                    value / NS_PER_S,
                )
                for bound, value in bounds.items()
                if value is not None and np.isfinite(value)
            ]
    return found


def _needed(state: State, ops: list[Operation]) -> list[tuple[Labels, float]]:
    return [
        ((*_labels(state, op.name), ("quantile", f"{step.p:g}")), step.needed_ns / NS_PER_S)
        for op in ops
        for step in (op.ladder.steps if op.ladder else ())
        if step.name in SHOWN and step.needed_ns is not None
    ]
