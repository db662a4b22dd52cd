"""From numbers to findings: each rule looks at one thing and says it once, or is silent.

A rule is a generator over the evidence. Its code has a page in docs/findings/, and a test that
raises it and one that does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from unruly.findings import (
    rules_causes,
    rules_generator,
    rules_rate,
    rules_runtime,
    rules_store,
    rules_stream,
    rules_time,
    rules_warmup,
)
from unruly.findings.mechanisms import SHORTAGES
from unruly.findings.model import SECTIONS, SEVERITIES, Finding
from unruly.findings.promise_words import CONFIDENCE, bound_words
from unruly.findings.words import count, duration, latency, named, percent
from unruly.findings.worked import NOTHING, Worked, failure_step, kinds_words
from unruly.stats.blocks import DRIFTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from unruly.findings.bare_matrix import BareMatrix
    from unruly.findings.cause_model import Causes
    from unruly.findings.magical import Magical
    from unruly.findings.model import (
        BlindSpot,
        CellSummary,
        Conservation,
        Correlation,
        Correlations,
        GroupSummary,
        SelfDistrust,
        SlowNodes,
    )
    from unruly.findings.runtime_model import Runtimes
    from unruly.findings.steadiness import OverTime
    from unruly.findings.stores import Stores
    from unruly.findings.stream_model import Streams
    from unruly.findings.tails import Tail
    from unruly.run import Run

STEAL_MEAN_LIMIT: Final = 0.01
STEAL_MAX_LIMIT: Final = 0.10
STAMPED_WANTED: Final = 0.99
SAMPLER_LAG_LIMIT: Final = 0.5
"""Of a sampling period, at the p99."""
ROWS_WANTED: Final = 1_000
"""Ten rows beyond the p99."""
ALIKE: Final = 0.8
CORRELATION_LEAST: Final = 0.3
FALSE_DISCOVERY: Final = 0.05
WITHIN_LEAST: Final = 0.1
CORRELATES_SHOWN: Final = 3
DISK_FACTOR: Final = 2.0
P99_BOUND: Final = 25.0
FACTOR_P: Final = 0.01


@dataclass(frozen=True)
class Evidence:
    """What the rules look at."""

    run: Run
    cells: list[CellSummary]
    groups: list[GroupSummary]
    slow_nodes: SlowNodes
    correlations: Correlations
    conservation: Conservation
    self_distrust: SelfDistrust
    blind_spot: list[BlindSpot]
    magical: Magical | None = None
    over_time: OverTime | None = None
    bare_matrices: tuple[BareMatrix, ...] = ()
    causes: Causes | None = None
    stores: Stores | None = None
    streams: Streams | None = None
    runtimes: Runtimes | None = None
    worked: Worked = NOTHING

    @cached_property
    def responses(self) -> list[CellSummary]:
        """Response time of each (cell, op), without the sum over ops."""
        return [row for row in self.cells if row.latency == "response" and row.op != "*"]

    def label(self, row: CellSummary | Tail) -> str:
        """Name a (cell, op): the op alone where there is one cell."""
        return f"{row.op} ({row.cell})" if self._several_cells else row.op

    @cached_property
    def _several_cells(self) -> bool:
        return len({row.cell for row in self.cells}) > 1


def find(evidence: Evidence) -> list[Finding]:
    """Apply every rule; sort by section, severity, rank."""
    found = [finding for rule in RULES for finding in rule(evidence)]
    found.sort(key=lambda f: (SECTIONS.index(f.section), SEVERITIES.index(f.severity), f.rank))
    return found


def _nothing_measured(evidence: Evidence) -> Iterator[Finding]:
    if evidence.cells or (evidence.streams and evidence.streams.legs):
        return
    yield Finding(
        "nothing-measured",
        "trust",
        "spoils",
        0,
        "nothing was measured",
        "The run has no measured row: it ended before the warm-up did, or nothing was sent.",
        {"rows": evidence.conservation.rows, "by_status": evidence.conservation.by_status},
        "Look at logs/ in the run directory, then run it again for longer than its warm-up.",
    )


def _rows_dropped(evidence: Evidence) -> Iterator[Finding]:
    dropped = evidence.self_distrust.dropped
    if not dropped:
        return
    scheduled = (evidence.conservation.copies or {}).get("scheduled", 0)
    share = dropped / scheduled if scheduled else None
    yield Finding(
        "rows-dropped",
        "trust",
        "spoils",
        1,
        f"{count(dropped)} rows were dropped",
        f"{count(dropped)} rows ({percent(share)}) could not be kept: the recorder's ring was "
        f"full, or its disk was. They are most likely from the stalls that the tail is made of.",
        {"dropped": dropped, "scheduled": scheduled},
        "Look in logs/ for an error of the disk; else lower the rate, or use a faster disk.",
    )


def _run_cut_off(evidence: Evidence) -> Iterator[Finding]:
    if evidence.run.status not in ("cut off", "running"):
        return
    missing = evidence.run.missing
    yield Finding(
        "run-cut-off",
        "trust",
        "warns",
        3,
        "the run was cut off",
        "The runner died before the end. What was written is read; "
        + ("; ".join(missing) if missing else "at most the last second of rows is missing")
        + ".",
        {"status": evidence.run.status, "missing": missing},
        "Judge it as a shorter run, or run it again.",
    )


def _run_stopped(evidence: Evidence) -> Iterator[Finding]:
    if evidence.run.status != "stopped":
        return
    measured = max((row.duration_ns for row in evidence.cells), default=0.0)
    planned = evidence.run.manifest.get("planned_ns")
    yield Finding(
        "run-stopped",
        "trust",
        "informs",
        4,
        "the run was asked to end early",
        f"It measured for {duration(measured)} of the {duration(planned)} planned. It is valid, "
        f"and shorter.",
        {"planned_ns": planned, "measured_ns": measured},
        "Nothing, if that was enough.",
    )


def _failures(evidence: Evidence) -> Iterator[Finding]:
    worked = evidence.worked
    if not worked.failed:
        return
    failed = {evidence.label(row): row.failed for row in evidence.responses if row.failed}
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


def _steal_high(evidence: Evidence) -> Iterator[Finding]:
    mean, largest = evidence.self_distrust.steal_share_mean, evidence.self_distrust.steal_share_max
    if (mean or 0) <= STEAL_MEAN_LIMIT and (largest or 0) <= STEAL_MAX_LIMIT:
        return
    yield Finding(
        "steal-high",
        "trust",
        "warns",
        6,
        f"other guests took {percent(mean)} of the CPUs",
        f"Steal is {percent(mean)} on average and {percent(largest)} in the worst sample: part of "
        f"the tail belongs to the neighbours on this machine.",
        {"steal_share_mean": mean, "steal_share_max": largest},
        "Measure on a dedicated host, or at several times of day, and compare.",
    )


def _samples_late(evidence: Evidence) -> Iterator[Finding]:
    doubt = evidence.self_distrust
    lag, period = doubt.sampler_lag_ns.get("p99"), doubt.sampler_period_ns
    if lag is None or not period or lag <= SAMPLER_LAG_LIMIT * period:
        return
    yield Finding(
        "samples-late",
        "trust",
        "warns",
        7,
        "resource samples came late",
        f"The p99 of the samplers' lag is {latency(lag)}, with a sample every {duration(period)}: "
        "what is paired with a reply may be the state after the event.",
        {"sampler_lag_ns": doubt.sampler_lag_ns, "period_ns": period},
        "Sample less often, or give the probe a higher priority.",
    )


def _kernel_stamps_missing(evidence: Evidence) -> Iterator[Finding]:
    share = evidence.self_distrust.kernel_stamp_share
    if share is None or share >= STAMPED_WANTED or evidence.run.status == "imported":
        return
    if evidence.streams is not None:  # its reader stamps messages itself
        return
    yield Finding(
        "kernel-stamps-missing",
        "trust",
        "informs",
        8,
        f"{percent(1 - share)} of the replies have no kernel time stamp",
        "Without the kernel's stamp the delay between kernel and user space cannot be told from "
        "the network's.",
        {
            "kernel_stamp_share": share,
            "server_kernel_stamp_share": evidence.self_distrust.server_kernel_stamp_share,
        },
        "Nothing, unless you look for that delay: `unruly doctor` says what this host can stamp.",
    )


def _times_made_up(evidence: Evidence) -> Iterator[Finding]:
    cells = sorted({row.cell for row in evidence.responses} & evidence.run.timeless)
    if not cells:
        return
    yield Finding(
        "times-made-up",
        "trust",
        "warns",
        9,
        "the source has no times",
        "Its rows are laid end to end in the order of the file. Whether the level drifts or stalls "
        "come in bursts cannot be judged; every interval relies on that order being the order of "
        "time.",
        {"cells": cells},
        "Import the column with the times as well (--time), if there is one.",
    )


def _promise_made(evidence: Evidence) -> Iterator[Finding]:
    blind = {(spot.cell, spot.op): spot for spot in evidence.blind_spot}
    for place, row in enumerate(evidence.responses):
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
            f"{bound_words(step, evidence.label(row))}, with {CONFIDENCE}",
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


def _few_rows(evidence: Evidence) -> Iterator[Finding]:
    few = {evidence.label(row): row.n for row in evidence.responses if row.n < ROWS_WANTED}
    if not few:
        return
    words = named([f"{label} has {count(n)}" for label, n in few.items()])
    yield Finding(
        "few-rows",
        "promise",
        "warns",
        1000,
        "too few rows for a p99",
        f"{words}; with fewer than {count(ROWS_WANTED)} rows, fewer than ten lie beyond the p99.",
        {"rows": few, "wanted": ROWS_WANTED},
        "Run longer, or at a higher rate.",
    )


def _drift(evidence: Evidence) -> Iterator[Finding]:
    moved = [row for row in evidence.responses if row.abstained in DRIFTS]
    if not moved:
        return
    labels = [evidence.label(row) for row in moved]
    longest = max(row.needed_ns or 0.0 for row in moved)
    yield Finding(
        "drift",
        "promise",
        "warns",
        1001,
        f"latency drifted during the run: {named(labels)}",
        "Neighbouring blocks of time resemble each other: the p99 is not stationary. Its numbers "
        "describe this run only, and it has no promise.",
        {"ops": labels, "needed_ns": longest, "details": _details(evidence, moved)},
        f"Cut a longer warm-up, or run for at least {duration(longest)}.",
    )


def _abstained(evidence: Evidence) -> Iterator[Finding]:
    short = [row for row in evidence.responses if row.abstained == "A1" and row.n >= ROWS_WANTED]
    if not short:
        return
    labels = [evidence.label(row) for row in short]
    lengths = {evidence.label(row): row.needed_ns for row in short}
    known = [value for value in lengths.values() if value is not None]
    bounds = named(
        [
            f"{evidence.label(row)} at least {latency(row.p99_lower_bound)}"
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
            "lower_bound_ns": {evidence.label(row): row.p99_lower_bound for row in short},
            "details": _details(evidence, short),
        },
        f"Run for about {longest} (factor 2 either way); twice that is safer.",
    )


def _details(evidence: Evidence, rows: list[CellSummary]) -> dict[str, str]:
    """The numbers behind each refused p99."""
    steps = {evidence.label(row): row.ladder.step("p99") for row in rows}
    return {label: step.details for label, step in steps.items() if step}


def _run_tail_heavy(evidence: Evidence) -> Iterator[Finding]:
    heavy = [row for row in evidence.responses if row.over_10x_mean]
    if not heavy:
        return
    worst = max(heavy, key=lambda row: row.max_over_mean or 0.0)
    counts = {evidence.label(row): row.over_10x_mean for row in heavy}
    words = named([f"{count(v or 0)} of {label}" for label, v in counts.items()])
    yield Finding(
        "run-tail-heavy",
        "unruly",
        "informs",
        0,
        f"the slowest {evidence.label(worst)} took {worst.max_over_mean:.0f} x the mean",
        f"Requests over ten times their mean: {words}. The maximum of such a system is not "
        f"predictable; its p99 may be.",
        {"over_10x_mean": counts, "max_over_mean": worst.max_over_mean, "op": worst.op},
        "Promise a percentile, never a maximum; look at the outliers' times in the report.",
    )


def _cells_unruly(evidence: Evidence) -> Iterator[Finding]:
    """C1 over a matrix: in how many configurations the maximum is beyond ten times the mean."""
    view = evidence.magical
    if view is None:
        return
    known = [cell for cell in view.cells if cell.mean and cell.largest is not None]
    wild = [cell for cell in known if (cell.largest or 0.0) > 10 * (cell.mean or 0.0)]
    if not wild:
        return
    worst = max(wild, key=lambda cell: (cell.largest or 0.0) / (cell.mean or 1.0))
    cuts = [c.smallest_haircut for c in wild if c.smallest_haircut is not None]
    needed = f" Cutting {percent(max(cuts))} would leave none so." if cuts else ""
    yield Finding(
        "cells-unruly",
        "unruly",
        "informs",
        1,
        f"the maximum is beyond 10 x the mean in {len(wild)} of {len(known)} cells",
        f"The worst is {worst.cell}: {(worst.largest or 0.0) / (worst.mean or 1.0):.0f} x its "
        f"mean, with a p99 of {latency(worst.p99)}.{needed}",
        {
            "cells": len(known),
            "unruly": len(wild),
            "worst": worst.cell,
            "largest_over_mean": (worst.largest or 0.0) / (worst.mean or 1.0),
            "smallest_haircut": max(cuts) if cuts else None,
        },
        "Promise percentiles of such a system, never its maximum.",
    )


def _p99_bound(evidence: Evidence) -> Iterator[Finding]:
    """The study's bound on p99 over mean: reported where a cell is beyond it."""
    view = evidence.magical
    if view is None:
        return
    known = [c for c in view.cells if c.p99_over_mean is not None and c.p99_over_mean.estimate]
    beyond = [c for c in known if (c.p99_over_mean.estimate or 0.0) > P99_BOUND]  # type: ignore[union-attr]
    if not beyond:
        return
    yield Finding(
        "p99-beyond-bound",
        "unruly",
        "warns",
        2,
        f"the p99 is beyond {P99_BOUND:.0f} x the mean in {len(beyond)} of {len(known)} cells",
        f"In sixteen systems the p99 stayed below that with 99 % confidence; here it does not: "
        f"{named([cell.cell for cell in beyond])}. Even the p99 of such a cell is not predictable "
        "from its mean.",
        {"cells": {c.cell: c.p99_over_mean.estimate for c in beyond if c.p99_over_mean}},
        "Look at these cells by themselves: what stalls there stalls more than 1 % of the time.",
    )


def _factor_effect(evidence: Evidence) -> Iterator[Finding]:
    """C3: which factor explains the p99, when one does."""
    view = evidence.magical
    if view is None:
        return
    for explained in view.explained:
        if explained.measure != "p99":
            continue
        effects = [it for it in explained.effects if it.p_value is not None]
        strong = [it for it in effects if (it.p_value or 1.0) < FACTOR_P and it.partial is not None]
        if not strong:
            continue
        best = max(strong, key=lambda it: it.share or 0.0)
        assert best.partial is not None
        yield Finding(
            "factor-effect",
            "why",
            "informs",
            50,
            f"{best.factor} explains {percent(best.share)} of the variance of the p99",
            f"Over {explained.observations} cells and repeats: F = {best.f:.1f}, p = "
            f"{best.p_value:.2g}; of what the other factors leave it explains "
            f"{percent(best.partial.estimate)} [{percent(best.partial.low)}, "
            f"{percent(best.partial.high)}].",
            {it.factor: {"f": it.f, "p": it.p_value, "share": it.share} for it in effects},
            "Choose this factor first; the report shows the whole distribution by its levels.",
        )


def _two_modes(evidence: Evidence) -> Iterator[Finding]:
    view = evidence.magical
    if view is None:
        return
    bimodal = [c.cell for c in view.cells if c.dip_q is not None and c.dip_q < FALSE_DISCOVERY]
    if not bimodal:
        return
    yield Finding(
        "more-than-one-mode",
        "unruly",
        "informs",
        3,
        f"{len(bimodal)} of {len(view.cells)} cells have more than one mode",
        f"Their latencies gather around several values, so that a mean is one that nobody sees: "
        f"{named(bimodal)}.",
        {"cells": bimodal},
        "Look at their distributions for a cache, a second path or a timer.",
    )


def _slow_node(evidence: Evidence) -> Iterator[Finding]:
    for place, node in enumerate(evidence.slow_nodes.named):
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
            "Leave it out of quorums, or find what its host does; see the findings on why.",
        )


def _slow_seen_alike(evidence: Evidence) -> Iterator[Finding]:
    slow = evidence.slow_nodes
    if slow.jaccard_mean is None or slow.jaccard_mean < ALIKE or not slow.named:
        return
    yield Finding(
        "slow-seen-alike",
        "where",
        "informs",
        100,
        "all observers see the same nodes as slow",
        f"The slow sets of two observers overlap by {slow.jaccard_mean:.2f} (Jaccard) on average "
        f"over {count(len(slow.jaccard))} pairs of observers: the node is slow, not a link.",
        {"jaccard_mean": slow.jaccard_mean, "pairs": len(slow.jaccard)},
        "One observer is enough to find it.",
    )


def _slow_columns(evidence: Evidence) -> Iterator[Finding]:
    for place, it in enumerate(evidence.bare_matrices):
        if not it.slow:
            continue
        rule = f"the p{100 * it.percentile:g} of their column is at least {it.factor:g} times"
        yield Finding(
            "slow-columns",
            "where",
            "informs",
            50 + place,
            f"{len(it.slow)} of {it.nodes} nodes are slow to whoever asks: {named(list(it.slow))}",
            f"Rule for a bare matrix of one value a pair, without groups or windows: {rule} the "
            f"smallest column's, {latency(it.smallest_ns)}; a node to itself is left out.",
            {
                "cell": it.cell,
                "op": it.op,
                "slow": list(it.slow),
                "levels_ns": [level if level < float("inf") else None for level in it.levels_ns],
                "smallest_ns": it.smallest_ns,
            },
            "Ask these nodes last, or leave them out of groups that wait for all.",
        )


def _disk_dominates(evidence: Evidence) -> Iterator[Finding]:
    """Group-RPC workloads: what each adds to the median of null."""
    by_cell: dict[str, dict[str, float | None]] = {}
    for row in evidence.responses:
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
            f"writing to disk takes {percent((disk - base) / disk)} of a disk request",
            f"The median of disk is {latency(disk)}, of null {latency(base)}; no other workload "
            f"adds as much.",
            {"cell": cell, "p50_ns": medians},
            "Answer before the write, batch writes, or use a device that syncs faster.",
        )
        return


def _correlate(evidence: Evidence) -> Iterator[Finding]:
    slow = {node.node for node in evidence.slow_nodes.named}
    shown = [row for row in evidence.correlations.rows if _stands(row, slow)]
    # what can make requests slow before what only goes along, such as the memory of a backlog
    shown.sort(key=lambda row: row.metric not in SHORTAGES)
    for place, row in enumerate(shown[:CORRELATES_SHOWN]):
        rank, pearson = row.spearman, row.pearson
        whose = f"of {row.highest}'s process" if row.scope == "process" else "of the host"
        yield Finding(
            "correlate",
            "why",
            "informs",
            place,
            f"latency goes with the {row.words}",
            f"The {row.words} of whoever answers goes with its latency: Spearman "
            f"{rank.estimate:.2f} "
            f"[{rank.low:.2f}, {rank.high:.2f}], Pearson {pearson.estimate:.2f} (log latency); it "
            f"is highest {whose}."
            if row.scope == "process"
            else f"The {row.words} {whose} goes with the latency of what it answers: Spearman "
            f"{rank.estimate:.2f} [{rank.low:.2f}, {rank.high:.2f}], Pearson "
            f"{pearson.estimate:.2f} (log latency).",
            {
                "metric": row.metric,
                "scope": row.scope,
                "spearman": rank.estimate,
                "pearson": pearson.estimate,
                "within": row.within,
                "q_value": row.q_value,
                "highest": row.highest,
            },
            "A correlate is a suspect, not a culprit: change it in a run of its own and compare.",
        )


def _stands(row: Correlation, slow: set[str]) -> bool:
    """Strong, unlikely to be chance, and more than a difference of nodes - or a slow one's."""
    rank = row.spearman
    estimate, low, high = rank.estimate or 0.0, rank.low or 0.0, rank.high or 0.0
    if abs(estimate) < CORRELATION_LEAST or row.q_value > FALSE_DISCOVERY or low * high <= 0:
        return False
    within = row.within or 0.0
    return row.highest in slow or (within * estimate > 0 and abs(within) >= WITHIN_LEAST)


def _next_step(evidence: Evidence) -> Iterator[Finding]:
    """What would help: the k-th of n that leaves the slow ones behind."""
    best: dict[str, Any] | None = None
    for last in evidence.groups:
        if last.level != "all" or last.p99 is None:
            continue
        for early in evidence.groups:
            same = (early.cell, early.op, early.size) == (last.cell, last.op, last.size)
            if same and early.level == "first" and early.p99 and last.p99 >= 2 * early.p99:
                gain = last.p99 / early.p99
                if best is None or gain > best["gain"]:
                    best = {"gain": gain, "first": early, "all": last}
    if best is None:
        return
    early, last = best["first"], best["all"]
    yield Finding(
        "first-reply",
        "help",
        "informs",
        0,
        f"the first of {last.size} replies would cut the p99 of {last.op} by {best['gain']:.1f} x",
        f"The p99 of the first reply is {latency(early.p99)}, of all {last.size} "
        f"{latency(last.p99)}, on these very requests.",
        {
            "cell": last.cell,
            "op": last.op,
            "size": last.size,
            "first_p99_ns": early.p99,
            "all_p99_ns": last.p99,
        },
        "Use the first correct reply where the operation allows it, a majority where it does not.",
    )


RULES: Final[tuple[Callable[[Evidence], Iterator[Finding]], ...]] = (
    rules_rate.not_reached,
    _nothing_measured,
    _rows_dropped,
    rules_generator.stalled,
    _run_cut_off,
    _run_stopped,
    _failures,
    _steal_high,
    _samples_late,
    _kernel_stamps_missing,
    _times_made_up,
    _promise_made,
    _few_rows,
    _drift,
    _abstained,
    _run_tail_heavy,
    _cells_unruly,
    _p99_bound,
    _two_modes,
    _factor_effect,
    _slow_node,
    _slow_seen_alike,
    _slow_columns,
    rules_warmup.warmup_short,
    rules_time.p99_moved,
    rules_time.outage,
    rules_time.recovery,
    rules_time.throughput_unsteady,
    rules_time.arrivals_bursty,
    rules_causes.slow_because,
    rules_store.target,
    rules_store.extreme_tail,
    rules_store.fault_hurts,
    rules_store.knee,
    rules_store.generator_limit,
    rules_stream.unaccounted,
    rules_stream.load_off_target,
    rules_stream.realtime_refused,
    rules_stream.failed,
    rules_stream.unstable,
    rules_stream.slow,
    rules_stream.one_core,
    rules_stream.saturated,
    rules_stream.left_beside,
    rules_stream.hypothesis,
    rules_runtime.tail,
    rules_runtime.collector,
    _correlate,
    _disk_dominates,
    _next_step,
)
CODES: Final = (
    "rate-not-reached",
    "nothing-measured",
    "rows-dropped",
    "generator-stalled",
    "run-cut-off",
    "run-stopped",
    "failures",
    "steal-high",
    "samples-late",
    "kernel-stamps-missing",
    "times-made-up",
    "promise-made",
    "few-rows",
    "drift",
    "abstained",
    "run-tail-heavy",
    "cells-unruly",
    "p99-beyond-bound",
    "more-than-one-mode",
    "factor-effect",
    "slow-node",
    "slow-seen-alike",
    "slow-columns",
    "warmup-short",
    "p99-moved",
    "outage",
    "recovery",
    "throughput-unsteady",
    "arrivals-bursty",
    "slow-because",
    "target",
    "extreme-tail",
    "fault-hurts",
    "knee",
    "generator-limit",
    "stream-unaccounted",
    "load-off-target",
    "realtime-refused",
    "stream-failed",
    "stream-unstable",
    "stream-slow",
    "stream-one-core",
    "stream-saturated",
    "stream-loses",
    "stream-hypothesis",
    "runtime-tail",
    "runtime-collector",
    "correlate",
    "disk-dominates",
    "first-reply",
)
"""Every code that a rule can raise, in the order of the rules."""
