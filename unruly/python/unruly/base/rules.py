"""From numbers to findings: each rule looks at one thing and says it once, or is silent.

A rule is a generator over the analysis. Its code has a page in unruly/docs/findings/, and a test
that raises it and one that does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unruly.base import rules_generator, rules_rate
from unruly.base.model import Finding
from unruly.base.promise import CONFIDENCE, bound_words
from unruly.base.rule import Rule
from unruly.base.words import named
from unruly.base.worked import failure_step, kinds_words
from unruly.quantity import count, duration, percent, times
from unruly.stats.blocks import DRIFTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis
    from unruly.base.operation import CellSummary

STEAL_MEAN_LIMIT: Final = 0.01
STEAL_MAX_LIMIT: Final = 0.10
STAMPED_WANTED: Final = 0.99
SAMPLER_LAG_LIMIT: Final = 0.5
"""Of a sampling period, at the p99."""
ROWS_WANTED: Final = 1_000
"""Ten rows beyond the p99."""
ALIKE: Final = 0.8
DISK_FACTOR: Final = 2.0


def _nothing_measured(analysis: Analysis) -> Iterator[Finding]:
    if analysis.cells:
        return
    yield Finding(
        "nothing-measured",
        "trust",
        "spoils",
        0,
        "nothing was measured",
        "The run has no measured row: it ended before the warm-up did, or nothing was sent.",
        {"rows": analysis.conservation.rows, "by_status": analysis.conservation.by_status},
        "Look at logs/ in the run directory, then run it again for longer than its warm-up.",
    )


def _rows_dropped(analysis: Analysis) -> Iterator[Finding]:
    dropped = analysis.self_distrust.dropped
    if not dropped:
        return
    scheduled = (analysis.conservation.copies or {}).get("scheduled", 0)
    share = dropped / scheduled if scheduled else None
    yield Finding(
        "rows-dropped",
        "trust",
        "spoils",
        1,
        f"{count(dropped)} rows were dropped",
        f"{count(dropped)} rows ({percent(share)}) were not recorded, because the recorder's "
        "buffer or "
        f"its disk was full. Most likely they belong to the slow requests.",
        {"dropped": dropped, "scheduled": scheduled},
        "Look in logs/ for a disk error. Otherwise lower the rate, or use a faster disk.",
    )


def _run_incomplete(analysis: Analysis) -> Iterator[Finding]:
    broken = analysis.run.broken
    if analysis.run.status != "incomplete" and not broken:
        return
    yield Finding(
        "run-incomplete",
        "trust",
        "spoils",
        0,
        broken[0] if broken else "a process that measures did not end properly",
        ("; ".join(broken) or "The manifest says no more")
        + ". What it lost are most likely the slow requests, so every percentile is too low.",
        {"status": analysis.run.status, "broken": broken},
        "Find out what ended it (memory, a limit, a full disk: its log is in logs/), and repeat "
        "the run.",
    )


def _run_cut_off(analysis: Analysis) -> Iterator[Finding]:
    if analysis.run.status not in ("cut off", "running"):
        return
    missing = analysis.run.missing
    yield Finding(
        "run-cut-off",
        "trust",
        "warns",
        3,
        "the run was cut off",
        "The runner died before the end. The analysis uses the rows that were written; "
        + ("; ".join(missing) if missing else "at most the last second of rows is missing")
        + ".",
        {"status": analysis.run.status, "missing": missing},
        "Judge it as a shorter run, or run it again.",
    )


def _run_stopped(analysis: Analysis) -> Iterator[Finding]:
    if analysis.run.status != "stopped":
        return
    measured = max((row.duration_ns for row in analysis.cells), default=0.0)
    planned = analysis.run.manifest.get("planned_ns")
    yield Finding(
        "run-stopped",
        "trust",
        "informs",
        4,
        "the run was asked to end early",
        f"It measured for {duration(measured)} of the {duration(planned)} planned. Its results are "
        f"valid for that time.",
        {"planned_ns": planned, "measured_ns": measured},
        "Run it to its end if this was too short.",
    )


def _failures(analysis: Analysis) -> Iterator[Finding]:
    worked = analysis.worked
    if not worked.failed:
        return
    failed = {analysis.label(row): row.failed for row in analysis.responses if row.failed}
    yield Finding(
        "failures",
        "trust",
        "warns",
        5,
        f"{count(worked.failed)} of {count(worked.requests)} requests failed",
        f"{kinds_words(worked.kinds, most=8)}. A failed request counts as slower than every "
        "answered one. So there is no mean, and no percentile that falls among the failures.",
        {"failed": failed, "by_status": dict(worked.kinds)},
        failure_step(worked),
    )


def _steal_high(analysis: Analysis) -> Iterator[Finding]:
    mean, largest = analysis.self_distrust.steal_share_mean, analysis.self_distrust.steal_share_max
    if (mean or 0) <= STEAL_MEAN_LIMIT and (largest or 0) <= STEAL_MAX_LIMIT:
        return
    yield Finding(
        "steal-high",
        "trust",
        "warns",
        6,
        f"other virtual machines took {percent(mean)} of the CPU time",
        f"CPU steal is {percent(mean)} on average and {percent(largest)} in the worst sample. "
        "Part of "
        f"the slow requests is due to other virtual machines on this hardware.",
        {"steal_share_mean": mean, "steal_share_max": largest},
        "Measure on a dedicated host, or at several times of day, and compare.",
    )


def _samples_late(analysis: Analysis) -> Iterator[Finding]:
    doubt = analysis.self_distrust
    lag, period = doubt.sampler_lag_ns.get("p99"), doubt.sampler_period_ns
    if lag is None or not period or lag <= SAMPLER_LAG_LIMIT * period:
        return
    yield Finding(
        "samples-late",
        "trust",
        "warns",
        7,
        "resource samples were taken late",
        f"One sample in 100 is {duration(lag)} late or later, with a sample every "
        f"{duration(period)}. "
        "So a reply may be paired with the state of the host after the event.",
        {"sampler_lag_ns": doubt.sampler_lag_ns, "period_ns": period},
        "Sample less often, or give the probe a higher priority.",
    )


def _kernel_stamps_missing(analysis: Analysis) -> Iterator[Finding]:
    share = analysis.self_distrust.kernel_stamp_share
    if share is None or share >= STAMPED_WANTED or analysis.run.status == "imported":
        return
    yield Finding(
        "kernel-stamps-missing",
        "trust",
        "informs",
        8,
        f"{percent(1 - share)} of the replies have no kernel time stamp",
        "Without kernel time stamps the delay between kernel and user space cannot be separated "
        "from the delay of the network.",
        {
            "kernel_stamp_share": share,
            "server_kernel_stamp_share": analysis.self_distrust.server_kernel_stamp_share,
        },
        "Run `unruly doctor`: it reports which time stamps this host supports.",
    )


def _times_made_up(analysis: Analysis) -> Iterator[Finding]:
    cells = sorted({row.cell for row in analysis.responses} & analysis.run.timeless)
    if not cells:
        return
    yield Finding(
        "times-made-up",
        "trust",
        "warns",
        9,
        "the source has no timestamps",
        "Its rows are placed one after another in the order of the file. Drift and bursts cannot "
        "be detected. Every interval assumes that this order is the order of time.",
        {"cells": cells},
        "Import the column with the timestamps as well (--time), if there is one.",
    )


def _promise_made(analysis: Analysis) -> Iterator[Finding]:
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
        f"{words}. With fewer than {count(ROWS_WANTED)} requests, "
        "fewer than ten lie beyond the p99.",
        {"rows": few, "wanted": ROWS_WANTED},
        "Run longer, or at a higher rate.",
    )


def _drift(analysis: Analysis) -> Iterator[Finding]:
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


def _run_tail_heavy(analysis: Analysis) -> Iterator[Finding]:
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


def _slow_node(analysis: Analysis) -> Iterator[Finding]:
    for place, node in enumerate(analysis.slow_nodes.named):
        yield Finding(
            "slow-node",
            "where",
            "warns",
            place,
            f"{node.node} is slow",
            node.words + ".",
            {
                "node": node.node,
                "ops": list(node.ops),
                "ratio": node.ratio,
                "windows": node.windows,
                "windows_slow": node.windows_slow,
                "observers": node.observers,
            },
            "Find out what its host does (see the causes), or leave it out of quorums.",
        )


def _slow_seen_alike(analysis: Analysis) -> Iterator[Finding]:
    slow = analysis.slow_nodes
    if slow.jaccard_mean is None or slow.jaccard_mean < ALIKE or not slow.named:
        return
    yield Finding(
        "slow-seen-alike",
        "where",
        "informs",
        100,
        "all observers see the same nodes as slow",
        f"The sets of slow nodes of two observers overlap by {percent(slow.jaccard_mean)} on "
        "average "
        f"(Jaccard index over {count(len(slow.jaccard))} pairs of observers). So the node is slow, "
        "not a link.",
        {"jaccard_mean": slow.jaccard_mean, "pairs": len(slow.jaccard)},
        "Look at the node itself, not at its links.",
    )


def _slow_columns(analysis: Analysis) -> Iterator[Finding]:
    for place, it in enumerate(analysis.bare_matrices):
        if not it.slow:
            continue
        rule = f"the p{100 * it.percentile:g} of its column is at least {times(it.factor)}"
        yield Finding(
            "slow-columns",
            "where",
            "informs",
            50 + place,
            f"{len(it.slow)} of {it.nodes} nodes are slow for every sender: {named(list(it.slow))}",
            f"In a matrix of one value for each pair a node is slow when {rule} that of the "
            "fastest "
            f"column, {duration(it.smallest_ns)}. A node's value to itself is left out.",
            {
                "cell": it.cell,
                "op": it.op,
                "slow": list(it.slow),
                "levels_ns": [level if level < float("inf") else None for level in it.levels_ns],
                "smallest_ns": it.smallest_ns,
            },
            "Send to these nodes last, or leave them out of groups that wait for all replies.",
        )


def _disk_dominates(analysis: Analysis) -> Iterator[Finding]:
    """Group-RPC workloads: what each adds to the median of null."""
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
    """What would help: waiting for fewer replies."""
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
    Rule("rate-not-reached", rules_rate.not_reached),
    Rule("nothing-measured", _nothing_measured),
    Rule("rows-dropped", _rows_dropped),
    Rule("generator-stalled", rules_generator.stalled),
    Rule("run-incomplete", _run_incomplete),
    Rule("run-cut-off", _run_cut_off),
    Rule("run-stopped", _run_stopped),
    Rule("failures", _failures),
    Rule("steal-high", _steal_high),
    Rule("samples-late", _samples_late),
    Rule("kernel-stamps-missing", _kernel_stamps_missing),
    Rule("times-made-up", _times_made_up),
    Rule("promise-made", _promise_made),
    Rule("few-rows", _few_rows),
    Rule("drift", _drift),
    Rule("abstained", _abstained),
    Rule("run-tail-heavy", _run_tail_heavy),
    Rule("slow-node", _slow_node),
    Rule("slow-seen-alike", _slow_seen_alike),
    Rule("slow-columns", _slow_columns),
    Rule("disk-dominates", _disk_dominates),
    Rule("first-reply", _next_step),
)
"""The rules that belong to no topic, in the order in which they are applied."""
