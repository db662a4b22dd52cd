"""Rules about the tail: its outliers, the disk's part in it, and what would shorten it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.base.words import named
from unruly.quantity import count, duration, percent, times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis

DISK_FACTOR: Final = 2.0


def _run_tail_heavy(analysis: Analysis) -> Iterator[Finding]:
    """Some requests took more than ten times the mean.

    Example: the slowest null took 16 × the mean

    Raised: At least one row is above ten times the mean of its cell and operation.

    Means: The maximum of such a system cannot be predicted from one run to the next. Its p99 may be
    predictable: only the slowest 1 % is unruly.

    Next: Promise a percentile, never a maximum. Look at when the outliers occurred, and at which
    receivers.

    Numbers: `cells[]` (`over_10x_mean`, `max_over_mean`) in `summary.json`, and the method [tail
    counts](../methods/tail-counts.md).
    """
    heavy = [row for row in analysis.responses if row.over_10x_mean]
    if not heavy:
        return
    worst = max(heavy, key=lambda row: row.max_over_mean or 0.0)
    counts = {analysis.label(row): row.over_10x_mean for row in heavy}
    words = named([f"{count(v or 0)} of {label}" for label, v in counts.items()])
    yield Finding(
        "run-tail-heavy",
        "unruly",
        "informs",
        0,
        f"the slowest {analysis.label(worst)} took {times(worst.max_over_mean)} the mean",
        f"Requests that took more than ten times the mean: {words}. The maximum of such a system "
        f"cannot be predicted. Its p99 may be predictable.",
        {"over_10x_mean": counts, "max_over_mean": worst.max_over_mean, "op": worst.op},
        "Promise a percentile, not a maximum. The report lists the outliers with their times.",
    )


def _disk_dominates(analysis: Analysis) -> Iterator[Finding]:
    """Waiting for the disk is most of a disk request.

    Example: the disk takes 80 % of the time of a disk request

    Raised: The median of workload `disk` is at least {DISK_FACTOR:number} times that of `null`, and
    no other workload (except `mixed`) adds as much to the median of `null`.

    Means: The request spends most of its time waiting for the write.

    Next: Reply before the write, batch writes, or use a disk that syncs faster.

    Numbers: `cells[].p50` in `summary.json`.
    """
    by_cell: dict[str, dict[str, float | None]] = {}
    for row in analysis.responses:
        by_cell.setdefault(row.cell, {})[row.op] = row.p50
    for cell, medians in by_cell.items():
        base, disk = medians.get("null"), medians.get("disk")
        if base is None or disk is None or disk < DISK_FACTOR * base:
            continue
        others = [v for op, v in medians.items() if op not in ("disk", "mixed") and v is not None]
        if any(value - base >= disk - base for value in others):
            continue
        yield Finding(
            "disk-dominates",
            "why",
            "informs",
            200,
            f"the disk takes {percent((disk - base) / disk)} of the time of a disk request",
            f"The median of disk is {duration(disk)}, that of null {duration(base)}. No other "
            "workload "
            f"adds as much.",
            {"cell": cell, "p50_ns": medians},
            "Reply before the write, batch writes, or use a disk that syncs faster.",
        )
        return


def _next_step(analysis: Analysis) -> Iterator[Finding]:
    """Waiting for the first reply only would shorten the p99.

    Example: the first of 3 replies has a p99 of null that is 2.4 × shorter

    Raised: For some group request, the p99 of the last of n replies is at least twice the p99 of
    the first.

    Means: A request that waits for all replies waits for the slowest receiver. The latencies of the
    first, the k-th and the last reply are exact, because they come from the same requests.

    Next: Use the first correct reply where the operation allows it, and a majority where it does
    not. See the method [k-th of n](../methods/kth-of-n.md).

    Numbers: `groups[]` in `summary.json`.
    """
    best: dict[str, Any] | None = None
    for last in analysis.groups:
        if last.level != "all" or last.p99 is None:
            continue
        for early in analysis.groups:
            same = (early.cell, early.op, early.size) == (last.cell, last.op, last.size)
            if same and early.level == "first" and early.p99 and last.p99 >= 2 * early.p99:
                gain = last.p99 / early.p99
                if best is None or gain > best["gain"]:
                    best = {"gain": gain, "first": early, "all": last}
    if best is None:
        return
    early, last = best["first"], best["all"]
    shorter = times(best["gain"])
    yield Finding(
        "first-reply",
        "help",
        "informs",
        0,
        f"the first of {last.size} replies has a p99 of {last.op} that is {shorter} shorter",
        f"For the same requests the p99 of the first reply is {duration(early.p99)}, and of all "
        f"{last.size} replies {duration(last.p99)}.",
        {
            "cell": last.cell,
            "op": last.op,
            "size": last.size,
            "first_p99_ns": early.p99,
            "all_p99_ns": last.p99,
        },
        "Use the first correct reply where the operation allows it, a majority where it does not.",
    )


RULES: Final = (
    Rule("run-tail-heavy", "unruly", ("informs",), _run_tail_heavy),
    Rule("disk-dominates", "why", ("informs",), _disk_dominates),
    Rule("first-reply", "help", ("informs",), _next_step),
)
