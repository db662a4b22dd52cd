"""What a run of groups says of the claims of the study of synchrony."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import scipy

from unruly.papers.judgement import (
    HOLDS,
    LEVEL,
    MOST,
    NOT,
    UNDECIDED,
    Judgement,
    all_of,
    beside_line,
    between,
    most,
    unknown,
)
from unruly.stats import Interval, interval_of_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.papers.evidence import Evidence, Latency, Metric

LONG: Final = 2.0
"""A tail is long if the p99 is surely beyond this many medians."""
LITTLE: Final = 1.5
"""A workload costs little if it takes less than this many times as long as an empty request."""
ABOUT_THE_SAME: Final = 1.25
WINDOWS_LEAST: Final = 5
"""Fewer independent windows give no interval that deserves the name."""
PAIRED: Final = (0.15, 0.97)
COLLECTION: Final = "gc_ns"
COLLECTIONS: Final = "gc_count"
"""The number of collections, which is no rival of the time that they took."""


def long_tail(evidence: Evidence) -> Judgement:
    """Each operation has a long tail over a low median."""
    rows = [it for it in evidence.latencies if it.p50]
    return all_of([_tail(it) for it in rows]) if rows else unknown("nothing was answered")


def _tail(row: Latency) -> Judgement:
    median = row.p50 or 1.0
    ratio = (row.p99 or 0) / median
    words = f"the p99 of {row.op} is {ratio:.1f} x its median"
    held = row.p99_interval
    if held is None or held.low is None or held.high is None:
        return Judgement(UNDECIDED, ratio, None, None, f"{words}, without an interval")
    found = Interval(
        ratio, held.low / median, held.high / median, held.level, held.n, None, held.method
    )
    return beside_line(found, LONG, words, above=True)


def larger_groups_slower(evidence: Evidence) -> Judgement:
    """In most cells and workloads the larger groups wait longer for all of their replies."""
    medians = {(it.cell, it.op, it.size): it.p50 for it in evidence.groups if it.p50 is not None}
    sizes = sorted({size for _, _, size in medians})
    if len(sizes) < 2:
        return unknown("the run has one size of groups")
    small, large = sizes[0], sizes[-1]
    both = {it[:2] for it in medians if {(*it[:2], small), (*it[:2], large)} <= set(medians)}
    hits = sum(medians[*it, large] > medians[*it, small] for it in both)
    words = f"workloads of a cell wait longer in groups of {large} than of {small}"
    return most(hits, len(both), words)


def _ratio(evidence: Evidence, first: str, second: str) -> Interval | None:
    bounds = []
    for op in (second, first):
        held = evidence.medians.get(op)
        if held is None or held.estimate is None or held.low is None or held.high is None:
            return None
        bounds.append((held.estimate, held.low, held.high))
    return Interval(*interval_of_ratio(*bounds), LEVEL, 0, None, "block intervals")


def _over(evidence: Evidence, first: str, second: str, line: float, *, above: bool) -> Judgement:
    found = _ratio(evidence, first, second)
    if found is None:
        return unknown(f"the medians of {first} and {second} have no interval")
    sentence = f"the median of {first} is {found.estimate:.2f} times that of {second}"
    return beside_line(found, line, sentence, above=above)


def disk_costs_most(evidence: Evidence) -> Judgement:
    """A write to disk before the answer costs more than any other single workload."""
    others = ("network", "crypto", "null")
    return all_of([_over(evidence, "disk", it, 1.0, above=True) for it in others])


def crypto_costs_little(evidence: Evidence) -> Judgement:
    """A hash costs little."""
    return _over(evidence, "crypto", "null", LITTLE, above=False)


def by_workload(evidence: Evidence) -> Judgement:
    """The disk and all workloads together cost most, a hash little."""
    parts = [_over(evidence, it, "network", 1.0, above=True) for it in ("disk", "mixed")]
    return all_of([*parts, crypto_costs_little(evidence)])


def network_at_most_disk(evidence: Evidence) -> Judgement:
    """50 KB each way cost less than a write to disk, or about the same."""
    return _over(evidence, "network", "disk", ABOUT_THE_SAME, above=False)


def slow_seen_alike(evidence: Evidence) -> Judgement:
    """Observers see the same slow nodes while a node is slow.

    Only windows count in which the plan made a node slow: in the others every slow set is a chance
    of its observer. All pairs of observers of a window see the same nodes, so that a window is one
    observation, and windows that resemble the one before count for less.
    """
    held = [it for it in evidence.overlaps if it.struck]
    if not held:
        return unknown("the plan made no node slow, and without a slow node nothing is decided")
    values = np.array([it.jaccard for it in held])
    effective = effective_number(values)
    words = (
        f"two observers' slow sets overlap by {values.mean():.2f} over {values.size} windows with "
        f"a slow node, worth {effective:.1f} independent ones"
    )
    if effective < WINDOWS_LEAST:
        return Judgement(UNDECIDED, float(values.mean()), None, None, words)
    free = effective - 1
    spread = max(float(values.std(ddof=1)), 1 / (2 * values.size))
    reach = float(scipy.stats.t.ppf((1 + LEVEL) / 2, free) * spread / np.sqrt(effective))
    low, high = max(0.0, float(values.mean()) - reach), min(1.0, float(values.mean()) + reach)
    found = Interval(float(values.mean()), low, high, LEVEL, values.size, effective, "windows")
    return beside_line(found, MOST, words, above=True)


def effective_number(values: np.ndarray) -> float:
    """Return how many independent values a series of neighbouring windows is worth.

    Parameters
    ----------
    values : ndarray, shape (windows,), float64
        In the order of time; no NaN.

    Returns
    -------
    float
        n (1 - r) / (1 + r), with the correlation r of each value with the next where it is
        positive; at most n.
    """
    size = values.size
    if size < 3 or np.ptp(values) == 0:
        return float(size)
    away = values - values.mean()
    r = float((away[1:] * away[:-1]).sum() / (away**2).sum())
    r = min(0.99, max(0.0, r))
    return size * (1 - r) / (1 + r)


def paired_share(evidence: Evidence) -> Judgement:
    """Between 15 and 97 % of the replies could be paired; the share is counted, not estimated."""
    found = evidence.paired_share
    if found is None:
        return unknown("no resource was sampled")
    counted = Interval(found, found, found, 1.0, 0, None, "counted")
    judged = between(counted, *PAIRED, f"{100 * found:.0f} % of the replies are paired")
    return Judgement(judged.verdict, found, None, None, judged.sentence)


def collections_strongest(evidence: Evidence) -> Judgement:
    """The time in collections is the strongest correlate of latency."""
    collected = next((it for it in evidence.metrics if it.metric == COLLECTION), None)
    own = (COLLECTION, COLLECTIONS)
    others = [it for it in evidence.metrics if it.metric not in own and _bounds(it)]
    if collected is None or not others or _bounds(collected) is None:
        return unknown("the run has no correlation with collections, or with nothing else")
    low, high = _bounds(collected) or (0.0, 0.0)
    rival = max(others, key=lambda it: abs(it.pearson.estimate or 0.0))
    # surely stronger than each other one, or surely weaker than some other
    strongest = all((_bounds(it) or (0.0, 1.0))[1] < low for it in others)
    beaten = any((_bounds(it) or (0.0, 1.0))[0] > high for it in others)
    verdict = HOLDS if strongest else NOT if beaten else UNDECIDED
    sentence = (
        f"Pearson {collected.pearson.estimate:.2f} with collections, and at most "
        f"{rival.pearson.estimate:.2f} with the others ({rival.metric})"
    )
    return Judgement(verdict, collected.pearson.estimate, low, high, sentence)


def _bounds(row: Metric) -> tuple[float, float] | None:
    """Return how strong a correlation may be at least and at most, whatever its sign."""
    low, high = row.pearson.low, row.pearson.high
    if low is None or high is None:
        return None
    ends: Sequence[float] = (abs(low), abs(high))
    return (0.0 if low < 0 < high else min(ends)), max(ends)


JUDGES: Final = {
    "long_tail": long_tail,
    "larger_groups_slower": larger_groups_slower,
    "by_workload": by_workload,
    "disk_costs_most": disk_costs_most,
    "crypto_costs_little": crypto_costs_little,
    "network_at_most_disk": network_at_most_disk,
    "slow_seen_alike": slow_seen_alike,
    "paired_share": paired_share,
    "collections_strongest": collections_strongest,
}
