"""Rules about time: the p99 moved, something was gone, a throughput or arrivals are unsteady."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.base import worked
from unruly.base.asked import has_foreign_arrivals
from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.base.worked import failure_step
from unruly.quantity import count, duration, percent, rate, significant
from unruly.stats import break_even
from unruly.stats.blocks import DRIFTS
from unruly.topics.over_time import recoveries, statistics
from unruly.topics.over_time.recoveries import period
from unruly.topics.over_time.statistics import over_time_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis
    from unruly.stats import Interval, Recoveries
    from unruly.topics.over_time.recoveries import FaultRecovery
    from unruly.topics.over_time.statistics import OverTime, Steadiness

VARIATION_LEAST: Final = 0.25
"""The lower end of the variation of a second's throughput."""
REPLIES_LEAST_HZ: Final = 20.0
"""With fewer replies a second chance alone makes seconds differ."""
DISPERSION_LEAST: Final = 4.0
"""The lower end of the index of dispersion; Poisson arrivals have 1."""
WINDOWS_LEAST: Final = 51
"""With fewer the standard error is above a fifth: `unruly.stats.Dispersion.doubt`."""
POINTS_SHOWN: Final = 3
OUTAGES_SHOWN: Final = 3


def p99_moved(analysis: Analysis) -> Iterator[Finding]:
    """The p99 changed during the run and stayed changed.

    Example: the p99 of null moved once, first at 15 s (14:13:34 UTC) to 1.4 x [1.2, 1.7] of its
    level before

    Raised: Latency drifted during the run, and the p99 has no promise for that reason (see
    [drift]). The change-point method finds a split with a p value below {statistics.ALPHA:percent},
    shared among all operations of the run. It uses the p99 of up to {statistics.BLOCKS_MOST:count}
    blocks of equal time, with at least {statistics.BLOCK_REQUESTS:count} requests each. The rule is
    silent in a cell with an [outage].

    Means: The tail changed at that time and stayed changed. A garbage collector started, a
    neighbour began to work, or a cache was full. One p99 for the whole run describes neither side.

    Next: Look in the timeline, and in the service's log, at what happened at that time. The finding
    gives the time since the first measured request and the time of day. See the method [change
    points](../methods/change-points.md).

    Numbers: `over_time.rows[].changes` in `summary.json`.
    """
    drifted = {
        (it.cell, it.op)
        for it in analysis.responses
        if it.abstained in DRIFTS and it.cell not in analysis.outage_cells
    }
    clock = analysis.clock
    for place, row in enumerate(_rows(analysis)):
        # the drift test speaks for the whole run: a change that it does not see is no headline
        if row.changes is None or not row.changes.points or (row.cell, row.op) not in drifted:
            continue
        told = [
            f"at {clock.moment(at)} to {_times(point.ratio)} of its level before"
            for point, at in zip(row.changes.points, row.changed_ns, strict=True)
        ]
        more = f" (and {len(told) - POINTS_SHOWN} more)" if len(told) > POINTS_SHOWN else ""
        label = _label(analysis, row)
        yield Finding(
            "p99-moved",
            "where",
            "warns",
            100 + place,
            f"the p99 of {label} moved {_often(len(told))}, first {told[0]}",
            f"The p99 of {label} moved {', then '.join(told[:POINTS_SHOWN])}{more}. One number "
            "for the whole run mixes the time before with the time after.",
            {
                "cell": row.cell,
                "op": row.op,
                "changed_ns": list(row.changed_ns),
                "ratios": [point.ratio.estimate for point in row.changes.points],
                "p_values": [point.p_value for point in row.changes.points],
            },
            "Look in the timeline, and in the service's log, at what happened at that time.",
        )


def outage(analysis: Analysis) -> Iterator[Finding]:
    """In some span of time every request failed.

    Example: from 8 s (14:13:28 UTC) to 9 s (14:13:29 UTC) every request was refused

    Raised: In some span of the run every request of a cell failed, or every request to one
    receiver. At least {worked.REQUESTS_LEAST:count} requests failed in a row. They are too many for
    chance: failures scattered over the run would make such a span in fewer than
    {worked.CHANCE_MOST:percent} of runs. At most {worked.OUTAGES_MOST:count} spans are listed:
    those with most failures. Labels of injected faults are not read.

    Means: A service died or was unreachable. The span begins at the scheduled time of its first
    failed request. It ends at the scheduled time of the first request that was answered again.

    Times count from the first measured request, as in the pictures of the report. The time of day
    stands beside them, so that you can compare with the server's log.

    Next: Read the server's log at that time of day. Start the server again, and repeat the run.

    Numbers: `worked.outages` in `summary.json`.
    """
    outages = analysis.worked.outages
    if not outages:
        return
    worst = max(outages, key=lambda it: it.failed)
    rest = [it.words for it in outages if it is not worst]
    more = f" {' '.join(rest[:OUTAGES_SHOWN])}" if rest else ""
    if len(rest) > OUTAGES_SHOWN:
        more += f" And {len(rest) - OUTAGES_SHOWN} more."
    yield Finding(
        "outage",
        "where",
        "warns",
        0,
        worst.words[:1].lower() + worst.words[1:].rstrip("."),
        f"{count(worst.failed)} requests failed in it, and none that was scheduled in it was "
        f"answered well.{more}",
        {"failed": worst.failed, "outages": [it.words for it in outages]},
        failure_step(analysis.worked),
    )


def recovery(analysis: Analysis) -> Iterator[Finding]:
    """A process needed some time to answer again after an injected fault.

    Example: agent-1 answered again 2 s after its fault

    Raised: The plan stopped or killed a process (`fault stop`, `fault kill`), at most
    {recoveries.FAULTS_MOST:count} times, and that process had requests.

    Means: The recovery is the time from the fault to the first good reply to a request that was
    scheduled after it. It has three parts: the client detects the fault, it fails over to a server
    that works, and the request is answered. The parts come from the events of clients that fail
    over inside a call, or from the requests that failed. The finding reports how many requests
    failed meanwhile, and how many requests in fault-free time took longer than the median recovery.
    A timeout cannot separate those from a fault. With at least {break_even.FAULTS_LEAST:count}
    recoveries it reports the rate of faults below which outliers cost a client more time than
    faults do.

    Next: Compare the recovery with the slowest fault-free request. A timeout between the two
    detects this fault without false alarms. See the method [recovery](../methods/recovery.md). What
    faults did to all clients is [fault-hurts]; spans without any good reply are [outage].

    Numbers: `over_time.recoveries[]` in `summary.json`.
    """
    over_time = over_time_of(analysis)
    for place, it in enumerate(over_time.recoveries if over_time else ()):
        found = it.recoveries
        if found is None:
            continue
        back = sorted(one.total_ns for one in found.faults if one.total_ns is not None)
        failed = sum(one.failed for one in found.faults)
        # where no request names the process, any of its group may have answered
        who = "clients were" if it.all_clients else it.process
        whose = f"the fault of {it.process}" if it.all_clients else "its fault"
        if not back:
            title = f"{it.process}: no request was answered between its fault and the end"
        elif len(found.faults) == 1:
            title = f"{who} answered again {duration(back[0])} after {whose}"
        else:
            whose = whose.replace("fault", f"{len(found.faults)} faults")
            title = (
                f"{who} answered again {duration(back[0])} to {duration(back[-1])} after {whose}"
                + (f", {found.never} not before the end" if found.never else "")
            )
        longer = (
            f" {found.longer} of {found.fault_free} requests in fault-free time took longer than "
            "the median recovery."
            if found.longer
            else ""
        )
        yield Finding(
            "recovery",
            "where",
            "informs",
            200 + place,
            title,
            f"That is the time from the fault to the first good reply to a request scheduled after "
            f"it{_whose(it)}. {failed} requests scheduled in between failed."
            f"{_parts(found)}{longer}{_break_even(it)}",
            _recovery_evidence(it, found, failed),
            "Compare the recovery with the slowest fault-free request"
            + (
                "."
                if found.longer
                else ": a timeout between them detects this fault without false alarms."
            ),
        )


def _whose(it: FaultRecovery) -> str:
    return ", over all clients of the cell because no request names the process" * it.all_clients


def _parts(found: Recoveries) -> str:
    detection, failover, request = found.detection_ns, found.failover_ns, found.request_ns
    if detection is None or failover is None or request is None:
        return ""
    over = f" (medians of {detection.n} faults)" if detection.n > 1 else ""
    return (
        f" Detection took {duration(detection.estimate)}, the fail-over "
        f"{duration(failover.estimate)} and the request {duration(request.estimate)}{over}."
    )


def _break_even(it: FaultRecovery) -> str:
    if it.break_even is None:
        return ""
    return (
        " Fault-free outliers cost a client more time than faults do, if there is less than one "
        f"fault in {period(it.break_even.faults_hz)}."
    )


def _recovery_evidence(it: FaultRecovery, found: Recoveries, failed: int) -> dict[str, object]:
    parts = {
        f"{name}_ns": None if median is None else median.estimate
        for name, median in (
            ("detection", found.detection_ns),
            ("failover", found.failover_ns),
            ("request", found.request_ns),
        )
    }
    return {
        "cell": it.cell,
        "repeat": it.repeat,
        "process": it.process,
        "all_clients": it.all_clients,
        "fault_ns": list(it.fault_ns),
        "recovery_ns": [one.total_ns for one in found.faults],
        **parts,
        "split_from": it.split_from,
        "failed": failed,
        "fault_free_max_ns": found.fault_free_max_ns,
        "longer": found.longer,
        "break_even_hz": it.break_even.faults_hz.estimate if it.break_even else None,
    }


def throughput_unsteady(analysis: Analysis) -> Iterator[Finding]:
    """Throughput varies much from second to second.

    Example: the throughput of null varies by 60 % from second to second

    Raised: The standard deviation of the good replies in each second is above
    {VARIATION_LEAST:percent} of their mean, by the lower end of its interval, and the mean is at
    least {REPLIES_LEAST_HZ:number} a second. The rule is silent in a cell with an [outage].

    Means: Replies come in bunches, or the schedule varies. In about half of the seconds throughput
    is below the mean.

    Next: Look in the timeline whether the schedule or stalls cause it. See the method
    [stability](../methods/stability.md).

    Numbers: `over_time.rows[].throughput_hz` in `summary.json`.
    """
    for place, row in enumerate(_rows(analysis)):
        found = row.throughput
        if found is None or (found.variation.low or 0.0) <= VARIATION_LEAST:
            continue
        if row.cell in analysis.outage_cells:
            continue
        if (found.mean.estimate or 0.0) < REPLIES_LEAST_HZ:
            continue
        label = _label(analysis, row)
        stalled = (
            f" In {percent(found.stalled_share)} of them no reply came."
            if found.stalled_share
            else ""
        )
        yield Finding(
            "throughput-unsteady",
            "where",
            "informs",
            300 + place,
            f"the throughput of {label} varies by {percent(found.variation.estimate)} from second "
            "to second",
            f"Over {found.seconds} seconds the mean is {rate(found.mean.estimate)}, and the "
            "standard "
            f"deviation is {percent(found.variation.estimate)} of it "
            f"({_shares(found.variation)}).{stalled}",
            {
                "cell": row.cell,
                "op": row.op,
                "variation": found.variation.estimate,
                "stalled_share": found.stalled_share,
            },
            "See in the timeline whether the schedule varies, or replies come in bunches after a "
            "stall.",
        )


def arrivals_bursty(analysis: Analysis) -> Iterator[Finding]:
    """Arrivals that somebody else chose come in bursts.

    Example: the arrivals of null are bursty: index of dispersion 12.3

    Raised: The run is an import. The index of dispersion of its scheduled times is above
    {DISPERSION_LEAST:number}, by the lower end of its interval, over at least {WINDOWS_LEAST:count}
    windows. A request of several copies counts once. The rule ignores the schedule of a run of
    `unruly` itself, because its plan asked for it.

    Means: The variance of the counts in long windows is that many times the variance of a Poisson
    process. A queue grows with the rate inside a burst, not with the mean rate.

    Next: Plan for the rate inside a burst. See the method [dispersion](../methods/dispersion.md).

    Numbers: `over_time.rows[].dispersion` in `summary.json`.
    """
    if not has_foreign_arrivals(analysis.run):
        return
    for place, row in enumerate(_rows(analysis)):
        found = row.dispersion
        if found is None or (found.index.low or 0.0) <= DISPERSION_LEAST:
            continue
        if found.windows < WINDOWS_LEAST:
            continue
        label, index = _label(analysis, row), significant(found.index.estimate)
        doubt = f" But {found.doubt}." if found.doubt else ""
        yield Finding(
            "arrivals-bursty",
            "where",
            "informs",
            400 + place,
            f"the arrivals of {label} are bursty: index of dispersion {index}",
            f"The index of dispersion is {index} [{significant(found.index.low)}, "
            f"{significant(found.index.high)}], in windows of {duration(found.window_ns)}. "
            f"Independent arrivals have 1.{doubt}",
            {
                "cell": row.cell,
                "op": row.op,
                "index": found.index.estimate,
                "window_ns": found.window_ns,
                "switching_hz": found.switching_hz,
            },
            "Plan for the rate inside a burst: the mean rate says little here.",
        )


def _rows(analysis: Analysis) -> tuple[Steadiness, ...]:
    over_time: OverTime | None = over_time_of(analysis)
    return over_time.rows if over_time else ()


def _label(analysis: Analysis, row: Steadiness) -> str:
    several = len({other.cell for other in _rows(analysis)}) > 1
    return f"{row.op} ({row.cell})" if several else row.op


def _often(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _times(ratio: Interval) -> str:
    if ratio.estimate is None:
        return "failures"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.estimate:.2g} x"
    return f"{ratio.estimate:.2g} x [{ratio.low:.2g}, {ratio.high:.2g}]"


def _shares(interval: Interval) -> str:
    low = percent(interval.low) if interval.low is not None else "?"
    high = percent(interval.high) if interval.high is not None else "?"
    return f"{low} to {high}"


RULES: Final = (
    Rule("p99-moved", "where", ("warns",), p99_moved, (statistics,)),
    Rule("outage", "where", ("warns",), outage, (worked,)),
    Rule("recovery", "where", ("informs",), recovery, (recoveries, break_even)),
    Rule("throughput-unsteady", "where", ("informs",), throughput_unsteady),
    Rule("arrivals-bursty", "where", ("informs",), arrivals_bursty),
)
