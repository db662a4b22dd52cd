"""What runs of n-tier applications say of the claims about bursts.

Only cells whose bottleneck is the tier under study count: the tier that has the busiest core for
itself. A claim compares cells that differ in one factor alone.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import hypot
from typing import TYPE_CHECKING, Final

from unruly.papers.judgement import (
    HOLDS,
    NOT,
    UNDECIDED,
    Judgement,
    all_of,
    beside_line,
    unknown,
)
from unruly.stats import Interval, ProfitPeak, interval_of_ratio, profit_peak

if TYPE_CHECKING:
    from collections.abc import Callable

    from unruly.papers.chains import Loaded
    from unruly.papers.evidence import Evidence

STUDIED: Final = "app"
BURSTS, POOL, SIZE, COLLECTOR = (
    "drive.dispersion", "service.pool", "service.pool_size", "service.collector",
)  # fmt: skip


def _cells(evidence: Evidence) -> list[Loaded]:
    """The cells with the intended bottleneck, by their load."""
    own = [it for it in evidence.chains if it.bottleneck == STUDIED]
    return sorted(own, key=lambda it: it.clients)


def _marked(found: Judgement, evidence: Evidence) -> Judgement:
    """Name the cells that do not count."""
    others = len(evidence.chains) - len(_cells(evidence))
    if not others:
        return found
    left_out = (
        f"{others} of {len(evidence.chains)} cells are left out: {STUDIED} is not the bottleneck"
    )
    return replace(found, sentence=f"{found.sentence}; {left_out}")


def _ratio(first: Interval | None, second: Interval | None) -> Interval | None:
    """One over the other; None where either has no bounds above nothing."""
    if not (first and second and first.estimate and second.estimate):
        return None
    if first.low is None or second.low is None or first.high is None or second.high is None:
        return None
    one = (first.estimate, first.low, first.high)
    ratio, low, high = interval_of_ratio((second.estimate, second.low, second.high), one)
    return Interval(ratio, low, high, first.level, 0, None, "both intervals")


def _minus(first: Interval | None, second: Interval | None) -> Interval | None:
    """One less the other, by the halves of both intervals that face each other."""
    if first is None or second is None:
        return None
    held = (first.estimate, first.low, first.high, second.estimate, second.low, second.high)
    if any(it is None for it in held):
        return None
    at, low, high, other, other_low, other_high = (float(it or 0.0) for it in held)
    return Interval(
        at - other,
        at - other - hypot(at - low, other_high - other),
        at - other + hypot(high - at, other - other_low),
        first.level, 0, None, "both intervals",
    )  # fmt: skip


def _sides(evidence: Evidence, factor: str) -> tuple[list[Loaded], list[Loaded], str, str]:
    """The cells at the calm and at the wild end of a factor, in the order of their load."""
    values = {it.factors[factor] for it in _cells(evidence) if factor in it.factors}
    if len(values) < 2:
        return [], [], "", ""
    words = {"local": 0.0, "global": 1.0, "Z": 0.0, "G1": 1.0, "Serial": 1.5, "Parallel": 2.0}
    ordered = sorted(values, key=lambda it: words.get(it, _number(it)))
    calm, wild = ordered[0], ordered[-1]
    ends = (
        [it for it in _cells(evidence) if it.factors.get(factor) == end] for end in (calm, wild)
    )
    low, high = ends
    return low, high, calm, wild


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _pairs(evidence: Evidence, factor: str) -> list[tuple[Loaded, Loaded, str]]:
    """The pairs of cells that differ in a factor alone, at the highest load that has one."""
    low, high, calm, wild = _sides(evidence, factor)

    def others(it: Loaded) -> dict[str, str]:
        return {name: value for name, value in it.factors.items() if name != factor}

    pairs = [(one, other) for one in low for other in high if others(one) == others(other)]
    most = max((one.clients for one, _ in pairs), default=0)
    name = factor.rsplit(".", 1)[-1]
    return [
        (one, other, f"at {most} clients{_fixed(others(one))} {name} {wild} against {calm}")
        for one, other in pairs
        if one.clients == most
    ]


def _fixed(factors: dict[str, str]) -> str:
    """The levels of the other factors, in words."""
    held = [f"{name.rsplit('.', 1)[-1]} {value}" for name, value in factors.items()]
    held = [it for it in held if not it.startswith("clients ")]
    return f" with {', '.join(held)}" if held else ""


def _compared(
    evidence: Evidence,
    factor: str,
    what: Callable[[Loaded], Interval | None],
    words: str,
) -> Judgement:
    """Judge that something is larger at the wild end of a factor, whatever the others are."""
    pairs = _pairs(evidence, factor)
    if not pairs:
        return unknown(f"no two cells differ in {factor} alone")
    parts = []
    for calm, wild, place in pairs:
        found = _ratio(what(wild), what(calm))
        if found is None:
            parts.append(unknown(f"{place}: {words} is not known of both"))
        else:
            told = f"{place}: {words} is {found.estimate:.2f} x"
            parts.append(beside_line(found, 1.0, told, above=True))
    return all_of(parts)


def _swing(it: Loaded) -> Interval | None:
    return it.swing


def profit_falls_first(evidence: Evidence) -> Judgement:
    """As load grows profit falls while the throughput still grows."""
    cells = [it for it in _cells(evidence) if it.per_hour and it.rate]
    if len(cells) < 2:
        return unknown("fewer than two loads have a profit")
    peak = profit_peak([it.clients for it in cells], [it.per_hour for it in cells if it.per_hour])
    if peak.falls_at is None:
        return _marked(unknown("profit does not surely fall up to the highest load"), evidence)
    at = next(it for it in cells if it.clients == peak.falls_at)
    top = next(it for it in cells if it.clients == peak.load)
    found = _ratio(at.rate, top.rate)
    if found is None:
        return unknown("the throughput has no interval")
    sentence = (
        f"profit is largest at {top.clients} clients and surely less from {at.clients} on, where "
        f"the throughput is {found.estimate:.3f} x"
    )
    return _marked(beside_line(found, 1.0, sentence, above=True), evidence)


def bursts_swing(evidence: Evidence) -> Judgement:
    """Burstier arrivals make the response time swing more at the same load."""
    words = "the variance of the response time"
    return _marked(_compared(evidence, BURSTS, _swing, words), evidence)


def _peak(cells: list[Loaded]) -> ProfitPeak | None:
    """Where profit is largest and falls; None with fewer than two loads that have a profit."""
    earned = [it for it in cells if it.per_hour]
    loads = [it.clients for it in earned]
    if len(earned) < 2 or any(one >= other for one, other in pairwise(loads)):
        return None
    return profit_peak(loads, [it.per_hour for it in earned if it.per_hour])


def _falls_earlier(evidence: Evidence, factor: str) -> Judgement:
    """Judge that profit falls from a lower load on at the wild end of a factor.

    Only loads that were measured at both ends count. "At no load" is known only where profit rises
    up to the highest one and no cell was left out.
    """
    low, high, calm, wild = _sides(evidence, factor)
    common = {it.clients for it in low} & {it.clients for it in high}
    late, early = (_peak([it for it in end if it.clients in common]) for end in (low, high))
    name = factor.rsplit(".", 1)[-1]
    if late is None or early is None or late.falls is None or early.falls is None:
        return unknown(f"where profit falls is not known both with {name} {calm} and with {wild}")
    one, other = (it.falls_at if it.falls else None for it in (late, early))
    if one is None and other is None:
        return unknown(f"profit falls neither with {name} {calm} nor with {wild}")
    if (one is None or other is None) and len(_cells(evidence)) < len(evidence.chains):
        return unknown("profit falls at one end alone, and cells of high load are left out")
    told = [f"from {it:.0f} clients on" if it else "at no load" for it in (one, other)]
    sentence = f"profit surely falls {told[0]} with {name} {calm}, and {told[1]} with {wild}"
    never = float("inf")
    first, second = one or never, other or never
    verdict = HOLDS if second < first else NOT if first < second else UNDECIDED
    # two falls, of which one is significant and the other is not, may be the same
    at, deeper, other_end = (second, high, low) if verdict == HOLDS else (first, low, high)
    if verdict != UNDECIDED and not _falls_deeper(deeper, other_end, at, common):
        verdict = UNDECIDED
        sentence += "; but there the two falls do not surely differ"
    return Judgement(verdict, None, None, None, sentence)


def _falls_deeper(
    cells: list[Loaded], others: list[Loaded], clients: float, common: set[int]
) -> bool:
    """Return whether profit at a load has surely fallen deeper from its peak than others' has."""
    falls = [_fall([it for it in end if it.clients in common], clients) for end in (cells, others)]
    if falls[0] is None or falls[1] is None:
        return False
    (deep, below, _), (shallow, _, above) = falls[0], falls[1]
    return deep - shallow > hypot(below, above)


def _fall(cells: list[Loaded], clients: float) -> tuple[float, float, float] | None:
    """Return how far profit at a load is below its peak, and how uncertain that is either way."""
    earned = [it for it in cells if it.per_hour and it.per_hour.estimate is not None]
    here = next((it.per_hour for it in earned if it.clients == clients), None)
    peak = max((it.per_hour for it in earned if it.per_hour), key=_estimate, default=None)
    if here is None or peak is None:
        return None
    ends = (peak.low, peak.high, here.low, here.high)
    if any(it is None for it in ends):
        return None
    peak_low, peak_high, low, high = map(float, ends)  # type: ignore[arg-type]
    top, value = _estimate(peak), _estimate(here)
    return (
        top - value,
        hypot(top - peak_low, high - value),
        hypot(peak_high - top, value - low),
    )


def _estimate(found: Interval) -> float:
    return found.estimate or 0.0


def bursts_lower_peak(evidence: Evidence) -> Judgement:
    """Profit falls from a lower load on when arrivals are burstier."""
    return _marked(_falls_earlier(evidence, BURSTS), evidence)


def global_pool_swings(evidence: Evidence) -> Judgement:
    """One pool for all pages makes the response time swing more than a pool for each."""
    words = "the variance of the response time"
    return _marked(_compared(evidence, POOL, _swing, words), evidence)


def global_pool_earns_less(evidence: Evidence) -> Judgement:
    """One pool for all pages earns less than a pool for each."""
    pair = next(iter(_pairs(evidence, POOL)), None)
    found = _minus(pair[0].per_hour, pair[1].per_hour) if pair else None
    if pair is None or found is None:
        return _marked(unknown(f"no two cells differ in {POOL} alone and have a profit"), evidence)
    sentence = f"{pair[2]}: {found.estimate:.2f} dollars an hour less"
    return _marked(beside_line(found, 0.0, sentence, above=True), evidence)


def collector_grows(evidence: Evidence) -> Judgement:
    """The time in the collector grows faster with the load if the pools are large."""
    low, high, calm, wild = _sides(evidence, SIZE)
    common = {it.clients for it in low} & {it.clients for it in high}
    low = [it for it in low if it.clients in common]
    high = [it for it in high if it.clients in common]
    if len(low) < 2 or len(high) < 2:
        return _marked(unknown("no two sizes of the pool were measured at two loads"), evidence)
    small = _minus(low[-1].collecting, low[0].collecting)
    large = _minus(high[-1].collecting, high[0].collecting)
    found = _minus(large, small)
    if found is None:
        return _marked(unknown("the time in the collector is not known"), evidence)
    sentence = (
        f"from the lowest to the highest load the share of time in the collector grows by "
        f"{100 * (found.estimate or 0.0):.2f} % more with pools of {wild} than of {calm}"
    )
    return _marked(beside_line(found, 0.0, sentence, above=True), evidence)


def collector_swings(evidence: Evidence) -> Judgement:
    """Large pools make the response time swing more."""
    words = "the variance of the response time"
    return _marked(_compared(evidence, SIZE, _swing, words), evidence)


def large_pool_falls_first(evidence: Evidence) -> Judgement:
    """Profit falls from a lower load on if the pools are large."""
    return _marked(_falls_earlier(evidence, SIZE), evidence)


def each_matters(evidence: Evidence) -> Judgement:
    """Bursts, the pool and the collector each make the response time swing at one load."""
    words = "the variance of the response time"
    parts = [_compared(evidence, it, _swing, words) for it in (BURSTS, POOL, COLLECTOR)]
    return _marked(all_of(parts), evidence)


JUDGES: Final = {
    "tiers_profit_falls_first": profit_falls_first,
    "tiers_bursts_swing": bursts_swing,
    "tiers_bursts_lower_peak": bursts_lower_peak,
    "tiers_global_pool_swings": global_pool_swings,
    "tiers_global_pool_earns_less": global_pool_earns_less,
    "tiers_collector_grows": collector_grows,
    "tiers_collector_swings": collector_swings,
    "tiers_large_pool_falls_first": large_pool_falls_first,
    "tiers_each_matters": each_matters,
}
