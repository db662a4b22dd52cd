"""What a run says of a claim: holds, does not hold, or undecided, with its interval.

Each judge takes an analysis and returns a judgement; it is undecided where the run has not what it
needs. A share over cells is judged by the exact binomial interval, a ratio of two operations by the
interval that survives stalls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np
import scipy

from unruly.base.cells import histograms_of
from unruly.base.context import Context
from unruly.papers import judges_streams as of_streams
from unruly.papers.claims import papers
from unruly.papers.judgement import (
    HOLDS,
    LEVEL,
    NOT,
    UNDECIDED,
    Judgement,
    beside_line,
    unknown,
)
from unruly.quantity import duration
from unruly.stats import Interval, block_interval, interval_of_ratio
from unruly.topics.factors.statistics import factors_of

if TYPE_CHECKING:
    from unruly.base.analysis import Analysis
    from unruly.topics.factors.statistics import MatrixCell

MOST: Final = 0.5


Judge = Callable[["Analysis"], Judgement]


def judge_run(analysis: Analysis) -> dict[str, Judgement]:
    """Judge every claim that this run's plan can say something of: ``paper.claim`` to judgement."""
    found = {}
    for paper in papers():
        for claim in paper.claims:
            if claim.judge and (claim.plan or paper.plan) == analysis.run.name:
                found[f"{paper.number}.{claim.id}"] = JUDGES[claim.judge](analysis)
    return found


def _share(hits: int, of: int, words: str) -> Judgement:
    """A claim about most cells: holds when the share is surely above a half."""
    if of == 0:
        return unknown("no cell can be judged: requests failed in all of them")
    bounds = scipy.stats.binomtest(hits, of).proportion_ci(LEVEL)
    verdict = HOLDS if bounds.low > MOST else NOT if bounds.high < MOST else UNDECIDED
    sentence = f"{hits} of {of} configurations {words}"
    return Judgement(verdict, hits / of, float(bounds.low), float(bounds.high), sentence)


def _cells(analysis: Analysis) -> list[MatrixCell]:
    found = factors_of(analysis)
    return [c for c in found.cells if c.mean] if found else []


def _haircut(analysis: Analysis) -> Judgement:
    known = [c for c in _cells(analysis) if c.mean_after and c.largest_after is not None]
    calm = [c for c in known if (c.largest_after or 0) <= 10 * (c.mean_after or 0)]
    return _share(len(calm), len(known), "have a maximum within 10 x the mean without their 1 %")


def _maximum_unruly(analysis: Analysis) -> Judgement:
    known = [c for c in _cells(analysis) if c.largest is not None]
    wild = [c for c in known if (c.largest or 0) > 10 * (c.mean or 0)]
    worst = max(((c.largest or 0) / (c.mean or 1) for c in known), default=0.0)
    return _share(len(wild), len(known), f"exceed 10 x their mean, the worst {worst:.0f} x")


def _outliers_few(analysis: Analysis) -> Judgement:
    known = [c for c in _cells(analysis) if c.over_3_sigma is not None]
    few = [c for c in known if (c.over_3_sigma or 0) < 0.01 * c.n]
    return _share(len(few), len(known), "have under 1 % of outliers")


def _p99_bound(analysis: Analysis) -> Judgement:
    known = [c for c in _cells(analysis) if c.p99 is not None]
    if not known:
        return unknown("no cell has a p99 and a mean")
    within = sum((c.p99 or 0) <= 25 * (c.mean or 0) for c in known)
    bounds = scipy.stats.binomtest(within, len(known)).proportion_ci(LEVEL)
    worst = max((c.p99 or 0) / (c.mean or 1) for c in known)
    surely = [c for c in known if c.p99_over_mean and (c.p99_over_mean.low or 0) > 25]
    verdict = HOLDS if within == len(known) else NOT if surely else UNDECIDED
    sentence = (
        f"{within} of {len(known)} configurations stay within 25 x, the worst is {worst:.1f} x"
    )
    low, high = float(bounds.low), float(bounds.high)
    return Judgement(verdict, within / len(known), low, high, sentence)


def _p99_on_mean(analysis: Analysis) -> Judgement:
    line = held.lines["*"] if (held := factors_of(analysis)) else None
    if line is None or line.slope is None or line.r is None or line.n < 4:
        return unknown(line.reason if line else "the run has no matrix")
    reach = scipy.stats.norm.ppf((1 + LEVEL) / 2) / np.sqrt(line.n - 3)
    low, high = np.tanh(np.arctanh(line.r) - reach), np.tanh(np.arctanh(line.r) + reach)
    verdict = HOLDS if low > MOST else NOT if high < MOST else UNDECIDED
    intercept = line.intercept.estimate if line.intercept else None
    sentence = (
        f"r = {line.r:.2f}; p99 = {line.slope.estimate:.2f} × mean + "
        f"{duration(intercept or 0)} over {line.n} configurations"
    )
    return Judgement(verdict, line.r, float(low), float(high), sentence)


def _counts_against_sizes(analysis: Analysis) -> Judgement:
    found = held.count_against_size if (held := factors_of(analysis)) else None
    if found is None:
        return unknown("too few configurations with outliers")
    reach = scipy.stats.norm.ppf((1 + LEVEL) / 2) / np.sqrt(max(1, found.cells - 3))
    rho = float(np.clip(found.rho, -0.999, 0.999))
    low, high = np.tanh(np.arctanh(rho) - reach), np.tanh(np.arctanh(rho) + reach)
    verdict = HOLDS if high < 0 else NOT if low > 0 else UNDECIDED
    sentence = f"Spearman {found.rho:.2f} over {found.cells} configurations"
    return Judgement(verdict, found.rho, float(low), float(high), sentence)


def _resources_silent(analysis: Analysis) -> Judgement:
    rows = held.resources if (held := factors_of(analysis)) else ()
    if not rows:
        return unknown("no resource was sampled in enough configurations")
    loud = [row for row in rows if row.q_value < 0.05]
    strongest = max(rows, key=lambda row: abs(row.rho))
    verdict = NOT if loud else HOLDS
    sentence = (
        f"{len(loud)} of {len(rows)} correlations stand beyond chance (q < 0.05); the strongest is "
        f"{strongest.of} with the {strongest.against}, Spearman {strongest.rho:.2f}"
    )
    reach = scipy.stats.norm.ppf((1 + LEVEL) / 2) / np.sqrt(max(1, strongest.cells - 3))
    middle = np.arctanh(np.clip(strongest.rho, -0.999, 0.999))
    low, high = float(np.tanh(middle - reach)), float(np.tanh(middle + reach))
    return Judgement(verdict, strongest.rho, low, high, sentence)


def _explained(analysis: Analysis, measure: str) -> tuple[str, Interval] | None:
    """The factor that explains most of a measure, and its partial share."""
    rows = held.explained if (held := factors_of(analysis)) else ()
    effects = [e for it in rows if it.measure == measure for e in it.effects if e.partial]
    if not effects:
        return None
    best = max(effects, key=lambda e: e.share or 0.0)
    return (best.factor, best.partial) if best.partial else None


def _maximum_unexplained(analysis: Analysis) -> Judgement:
    found = _explained(analysis, "maximum")
    if found is None:
        return unknown("no analysis of variance of the maximum")
    factor, share = found
    verdict = HOLDS if (share.high or 1) < MOST else NOT if (share.low or 0) > MOST else UNDECIDED
    sentence = f"{factor} explains most of the maximum, {100 * (share.estimate or 0):.0f} % of it"
    return Judgement(verdict, share.estimate, share.low, share.high, sentence)


def _p99_explained(analysis: Analysis) -> Judgement:
    found = _explained(analysis, "p99")
    if found is None:
        return unknown("no analysis of variance of the p99")
    factor, share = found
    verdict = HOLDS if (share.low or 0) > 0 else UNDECIDED
    sentence = f"{factor} explains {100 * (share.estimate or 0):.0f} % of what the others leave"
    return Judgement(verdict, share.estimate, share.low, share.high, sentence)


def _two_modes(analysis: Analysis) -> Judgement:
    known = [c for c in _cells(analysis) if c.dip_q is not None]
    if not known:
        return unknown("no configuration can be tested")
    two = sum((c.dip_q or 1) < 0.05 for c in known)
    bounds = scipy.stats.binomtest(two, len(known)).proportion_ci(LEVEL)
    sentence = f"{two} of {len(known)} configurations have more than one mode (dip, q < 0.05)"
    low, high = float(bounds.low), float(bounds.high)
    return Judgement(HOLDS if two else UNDECIDED, two / len(known), low, high, sentence)


def _ratio(analysis: Analysis, first: str, second: str, p: float) -> Interval | None:
    """A quantile of one operation over that of another, by the blocks of both."""
    bounds = {}
    for (_, op), buckets, counts in histograms_of(
        Context.of(analysis.run, lambda _: None), "response"
    ):
        if op in (first, second):
            found = block_interval(buckets, counts, p)
            if found.interval is None or found.interval.estimate is None:
                return None
            bounds[op] = (found.interval.estimate, found.interval.low, found.interval.high)
    if set(bounds) != {first, second}:
        return None
    ratio, low, high = interval_of_ratio(bounds[second], bounds[first])
    return Interval(ratio, low, high, LEVEL, 0, None, "block intervals")


def _over(analysis: Analysis, first: str, second: str, line: float, *, above: bool) -> Judgement:
    found = _ratio(analysis, first, second, 0.5)
    if found is None or found.low is None or found.high is None:
        return unknown(f"the medians of {first} and {second} have no interval: latency drifted")
    sentence = f"the median of {first} is {found.estimate:.2f} times that of {second}"
    return beside_line(found, line, sentence, above=above)


def _long_tail(analysis: Analysis) -> Judgement:
    rows = [r for r in analysis.cells if r.latency == "response" and r.op not in ("*",) and r.p50]
    if not rows:
        return unknown("nothing was answered")
    worst = max(rows, key=lambda r: (r.p99 or 0) / (r.p50 or 1))
    interval = worst.p99_interval
    ratio = (worst.p99 or 0) / (worst.p50 or 1)
    if interval is None or interval.low is None or interval.high is None:
        words = f"p99 of {worst.op} is {ratio:.1f} x its median, without an interval"
        return Judgement(UNDECIDED, ratio, None, None, words)
    low, high = interval.low / (worst.p50 or 1), interval.high / (worst.p50 or 1)
    verdict = HOLDS if low > 2 else NOT if high < 2 else UNDECIDED
    return Judgement(verdict, ratio, low, high, f"p99 of {worst.op} is {ratio:.1f} x its median")


def _larger_groups_slower(analysis: Analysis) -> Judgement:
    last = [g for g in analysis.groups if g.level == "all" and g.p50 is not None]
    sizes = sorted({g.size for g in last})
    if len(sizes) < 2:
        return unknown("the run has one size of groups")
    ops = {g.op for g in last}
    hits = sum(
        next(g.p50 or 0 for g in last if (g.op, g.size) == (op, sizes[-1]))
        > next(g.p50 or 0 for g in last if (g.op, g.size) == (op, sizes[0]))
        for op in ops
        if {g.size for g in last if g.op == op} >= {sizes[0], sizes[-1]}
    )
    found = _share(hits, len(ops), f"wait longer in groups of {sizes[-1]} than of {sizes[0]}")
    return Judgement(
        found.verdict, found.estimate, found.low, found.high,
        found.sentence.replace("configurations", "workloads"),
    )  # fmt: skip


def _slow_seen_alike(analysis: Analysis) -> Judgement:
    slow = analysis.slow_nodes
    if slow.jaccard_mean is None or len(slow.jaccard) < 2:
        return unknown("no two observers saw a slow node in one window")
    values = slow.jaccard["jaccard"].to_numpy(dtype=float)
    reach = 1.96 * values.std(ddof=1) / np.sqrt(values.size)
    low, high = float(values.mean() - reach), float(values.mean() + reach)
    verdict = HOLDS if low > MOST else NOT if high < MOST else UNDECIDED
    sentence = f"two observers' slow sets overlap by {values.mean():.2f} over {values.size} pairs"
    return Judgement(verdict, float(values.mean()), max(0.0, low), min(1.0, high), sentence)


def _paired_share(analysis: Analysis) -> Judgement:
    share = analysis.correlations.paired_share
    if share is None:
        return unknown("no resource was sampled")
    verdict = HOLDS if share >= 0.15 else NOT
    return Judgement(verdict, share, None, None, f"{100 * share:.0f} % of the replies are paired")


JUDGES: Final[dict[str, Judge]] = {
    "haircut": _haircut,
    "maximum_unruly": _maximum_unruly,
    "outliers_few": _outliers_few,
    "p99_bound": _p99_bound,
    "p99_on_mean": _p99_on_mean,
    "counts_against_sizes": _counts_against_sizes,
    "resources_silent": _resources_silent,
    "maximum_unexplained": _maximum_unexplained,
    "p99_explained": _p99_explained,
    "two_modes": _two_modes,
    "long_tail": _long_tail,
    "larger_groups_slower": _larger_groups_slower,
    "slow_seen_alike": _slow_seen_alike,
    "paired_share": _paired_share,
    "disk_costs_most": lambda a: _over(a, "disk", "network", 1.0, above=True),
    "network_below_disk": lambda a: _over(a, "network", "disk", 1.0, above=False),
    "crypto_costs_little": lambda a: _over(a, "crypto", "null", 1.5, above=False),
    "streams_saturated": of_streams.saturated,
    "streams_java_costs_more": of_streams.java_costs_more,
    "streams_all_lose_beside_processors": of_streams.all_lose_beside_processors,
    "streams_udp_loses_least": of_streams.udp_loses_least,
    "streams_all_lose_beside_collector": of_streams.all_lose_beside_collector,
    "streams_jgroups_keeps_little": of_streams.jgroups_keeps_little,
    "streams_library_suffers_most": of_streams.library_suffers_most,
    "streams_nio_suffers_more": of_streams.nio_suffers_more,
}
