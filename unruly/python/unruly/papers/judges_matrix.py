"""What a run over many configurations says of the claims of the unruly 1 %."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import scipy

from unruly.papers.judgement import (
    HOLDS,
    LEVEL,
    NOT,
    UNDECIDED,
    Judgement,
    all_of,
    beside_line,
    between,
    every,
    linear_interval,
    most,
    rank_interval,
    unknown,
)
from unruly.papers.three_tier import APPLICATION, MEASURED, NAME
from unruly.topics.factors.statistics import SYSTEM_FACTORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from unruly.papers.evidence import Cell, Evidence, Rank
    from unruly.stats import Interval

ORDER: Final = 10.0
"""An order of magnitude."""
THREE_ORDERS: Final = 1_000.0
LENGTH_OF_STUDY: Final = 10_000
"""Requests of a configuration in the study: fewer cannot refute what a maximum reaches."""
FEW: Final = 0.01
BOUND_OF_STUDY: Final = 25.0
CONFIDENCE_OF_STUDY: Final = 0.99
ALSO: Final = (15.0, 25.0)
"""What is reported beside an order of magnitude: the study's text and its figure 11 say these."""
STRONG: Final = 0.5
"""A correlation beyond this, either way, is strong."""
REGULATES: Final = 0.25
"""A factor that explains surely more of a measure than this gives it a trend, one that explains
surely less does not. There is one bound for all measures, so that 16 % of one and 14 % of another
are read alike."""
SLOPE: Final = 1.04
SLOPE_WITHIN: Final = 2.0
"""A slope is that of the study's line if it is surely within this factor of it."""
CHANCE: Final = 0.05
ONE_MODE: Final = 0.01
"""A distribution whose dip is at most this is within 1 % of one that has a single mode."""


def _cells(evidence: Evidence) -> list[Cell]:
    return [it for it in evidence.matrix.cells if it.mean] if evidence.matrix else []


def _systems(cells: list[Cell]) -> tuple[str, ...]:
    """Return the systems of cells; all three-tier applications are one, as in the study."""
    names = [NAME if APPLICATION in it.factors else it.system for it in cells]
    return tuple(dict.fromkeys(names))


def _on(found: Judgement, cells: list[Cell]) -> Judgement:
    """Name the systems that a claim was judged on: none, if the run has not what it needs."""
    return replace(found, systems=_systems(cells) if found.estimate is not None else ())


def _mean(cell: Cell) -> float:
    assert cell.mean is not None
    return cell.mean


def haircut(evidence: Evidence) -> Judgement:
    """Without their 1 % the maximum of most configurations is of the order of their p99.

    Only configurations whose maximum was beyond that before are cases: the others had no need.
    """
    known = [it for it in _cells(evidence) if it.p99_after and it.largest_after is not None]
    cells = [it for it in known if (it.largest or 0) > ORDER * (it.p99 or 0)]
    if known and not cells:
        return unknown("no configuration has a maximum beyond 10 x its p99, with its 1 %")
    calm = [it for it in cells if (it.largest_after or 0) <= ORDER * (it.p99_after or 0)]
    words = (
        "configurations with a maximum beyond 10 x the p99 have it within that without their 1 %"
    )
    return _on(most(len(calm), len(cells), words), cells)


def haircut_everywhere(evidence: Evidence) -> Judgement:
    """Without its 1 % each configuration is predictable: its maximum is within ten means."""
    cells = [it for it in _cells(evidence) if it.mean_after and it.largest_after is not None]
    calm = [it for it in cells if (it.largest_after or 0) <= ORDER * (it.mean_after or 0)]
    words = "configurations have a maximum within 10 x the mean without their 1 %"
    unjudged = len(evidence.matrix.cells if evidence.matrix else ()) - len(cells)
    return _on(every(len(calm), len(cells), words, unjudged=unjudged), cells)


def maximum_unruly(evidence: Evidence) -> Judgement:
    """The maximum reaches three orders of magnitude over the mean, and follows no trend."""
    cells = [it for it in _cells(evidence) if it.largest is not None]
    if not cells:
        return unknown("no configuration has a mean and a maximum")
    worst = max((it.largest or 0) / _mean(it) for it in cells)
    long = all(it.n >= LENGTH_OF_STUDY for it in cells)
    verdict = HOLDS if worst >= THREE_ORDERS else NOT if long else UNDECIDED
    sentence = f"the largest of {len(cells)} maxima is {worst:.0f} x its mean"
    if verdict == UNDECIDED:
        sentence += f", and some configuration has fewer than {LENGTH_OF_STUDY:,} requests"
    reaches = Judgement(verdict, worst, None, None, sentence)
    return _on(all_of([reaches, maximum_unexplained(evidence)]), cells)


def outliers_few(evidence: Evidence) -> Judgement:
    """Under 1 % of the requests of most configurations are outliers."""
    cells = [it for it in _cells(evidence) if it.over_3_sigma is not None]
    few = [it for it in cells if (it.over_3_sigma or 0) < FEW * it.n]
    return _on(most(len(few), len(cells), "configurations have under 1 % of outliers"), cells)


def _at_level(found: Interval, level: float) -> tuple[float, float] | None:
    """Return the bounds of a ratio at another level, on logarithms; None without both."""
    if not (found.estimate and found.low and found.high):
        return None
    wider = scipy.stats.norm.ppf((1 + level) / 2) / scipy.stats.norm.ppf((1 + found.level) / 2)
    low, high = ((it / found.estimate) ** wider for it in (found.low, found.high))
    return float(found.estimate * low), float(found.estimate * high)


def _p99_within(evidence: Evidence, line: float, level: float) -> Judgement:
    """The p99 of each configuration is surely within this many of its means."""
    cells = [it for it in _cells(evidence) if it.p99 is not None]
    if not cells:
        return unknown("no configuration has a p99 and a mean")
    found = [_at_level(it.p99_over_mean, level) if it.p99_over_mean else None for it in cells]
    within = sum(it is not None and it[1] <= line for it in found)
    beyond = sum(it is not None and it[0] > line for it in found)
    verdict = NOT if beyond else HOLDS if within == len(cells) else UNDECIDED
    ratios = [(it.p99 or 0) / _mean(it) for it in cells]
    sentence = (
        f"the p99 is surely ({100 * level:.0f} %) within {line:g} x the mean in {within} of "
        f"{len(cells)} configurations and surely beyond it in {beyond}; the worst is "
        f"{max(ratios):.1f} x"
    )
    others = [f"{sum(it <= also for it in ratios)} within {also:g} x" for also in ALSO]
    if line not in ALSO:
        sentence += f", and by their estimates {' and '.join(others)}"
    return _on(Judgement(verdict, max(ratios), None, None, sentence), cells)


def p99_within_order(evidence: Evidence) -> Judgement:
    """The p99 is within about an order of magnitude of the mean, and depends on the workload."""
    parts = [_p99_within(evidence, ORDER, LEVEL), _explained(evidence, "p99", explains=True)]
    return _on(all_of(parts), _cells(evidence))


def p99_bound(evidence: Evidence) -> Judgement:
    """The p99 of every configuration is at most 25 means, with 99 % confidence."""
    return _p99_within(evidence, BOUND_OF_STUDY, CONFIDENCE_OF_STUDY)


def _of_each_system(evidence: Evidence, judge: Callable[[str], Judgement]) -> Judgement:
    """A claim about the line of each system: cells of two systems are on two lines."""
    lines = evidence.matrix.lines if evidence.matrix else {}
    systems = sorted(it for it in lines if it != "*") or list(lines)
    if not systems:
        return unknown("the run has no matrix")
    found = replace(all_of([judge(it) for it in systems]), systems=tuple(systems))
    cells = _cells(evidence)
    of_cells = systems == ["*"] or NAME in _systems(cells)
    return _on(found, cells) if of_cells else found


def p99_follows_mean(evidence: Evidence) -> Judgement:
    """The p99 is strongly correlated with the mean."""

    def one(system: str) -> Judgement:
        line = evidence.matrix.lines[system] if evidence.matrix else None
        if line is None or line.r is None or line.n < 4:
            return unknown(line.reason if line and line.reason else "too few configurations")
        words = f"r = {line.r:.2f} over {line.n} configurations of {_called(system)}"
        return beside_line(linear_interval(line.r, line.n), STRONG, words, above=True)

    return _of_each_system(evidence, one)


def p99_slope(evidence: Evidence) -> Judgement:
    """The p99 grows about as fast as the mean: the slope is that of the study, within a factor."""

    def one(system: str) -> Judgement:
        slope = evidence.matrix.lines[system].slope if evidence.matrix else None
        if slope is None or slope.estimate is None:
            return unknown("too few configurations")
        words = f"the slope is {slope.estimate:.2f} for {_called(system)}"
        return between(slope, SLOPE / SLOPE_WITHIN, SLOPE * SLOPE_WITHIN, words)

    return _of_each_system(evidence, one)


def _called(system: str) -> str:
    return "all" if system in ("*", "all") else system


def counts_against_sizes(evidence: Evidence) -> Judgement:
    """The more outliers, the smaller they are."""
    found = evidence.matrix.count_against_size if evidence.matrix else None
    if found is None:
        return unknown("too few configurations with outliers")
    sentence = f"Spearman {found.rho:.2f} over {found.cells} configurations"
    independent = found.cells
    alike = _subjects(_cells(evidence))
    if alike > 1:
        # configurations of one system resemble each other
        independent = min(alike, found.cells)
        sentence += f" of {alike} systems, which are worth {independent} independent ones"
    judged = beside_line(rank_interval(found.rho, independent), 0.0, sentence, above=False)
    return _on(judged, _cells(evidence))


def _subjects(cells: list[Cell]) -> int:
    """How many systems or applications there are."""
    return len({it.factors.get(APPLICATION, it.system) for it in cells})


def _resources_silent(evidence: Evidence, against: str) -> Judgement:
    """No resource has a strong correlation: each interval lies inside the bound.

    One that surely is beyond it refutes the claim; its interval holds at once with all others.
    """
    held = evidence.matrix.resources if evidence.matrix else ()
    rows = [it for it in held if it.against == against]
    if not rows:
        return unknown("no resource was sampled in enough configurations")

    def bounds(row: Rank, together: int) -> tuple[float, float]:
        found = rank_interval(row.rho, row.cells, together=together)
        assert found.low is not None
        assert found.high is not None
        return found.low, found.high

    weak = [all(abs(it) < STRONG for it in bounds(row, 1)) for row in rows]
    strong = [row for row in rows if _beyond(bounds(row, len(rows)))]
    verdict = NOT if strong else HOLDS if all(weak) else UNDECIDED
    strongest = max(rows, key=lambda row: abs(row.rho))
    low, high = bounds(strongest, 1)
    sentence = (
        f"{sum(weak)} of {len(rows)} correlations with the {against} are surely weaker than "
        f"{STRONG}; the strongest is {strongest.of}, Spearman {strongest.rho:.2f}"
    )
    return Judgement(verdict, strongest.rho, low, high, sentence)


def _beyond(bounds: tuple[float, float]) -> bool:
    return bounds[0] > STRONG or bounds[1] < -STRONG


def resources_and_number(evidence: Evidence) -> Judgement:
    """No resource is strongly correlated with the number of outliers."""
    return _on(_resources_silent(evidence, "number of outliers"), _cells(evidence))


def resources_and_size(evidence: Evidence) -> Judgement:
    """No resource is strongly correlated with the size of outliers."""
    return _on(_resources_silent(evidence, "size of outliers"), _cells(evidence))


def _explained(evidence: Evidence, measure: str, *, explains: bool) -> Judgement:
    """Some factor gives a measure a trend, or none does: the strongest factor decides.

    The claims are about workload and configuration. What is measured is neither: over several
    systems it explains much of everything, and says nothing of the claims. Application, platform
    and replication are measured, too.
    """
    rows = evidence.matrix.explained if evidence.matrix else ()
    all_effects = [
        (it.factor, it.partial)
        for row in rows
        if row.measure == measure
        for it in row.effects
        if it.partial and it.partial.estimate is not None
    ]
    effects = [it for it in all_effects if it[0] not in (*SYSTEM_FACTORS, *MEASURED)]
    several = sorted({it[0] for it in all_effects} & set(SYSTEM_FACTORS))
    if effects and several:
        # a factor may raise a measure of one system and lower it of another
        return unknown(
            f"the analysis of variance of the {measure} is over several systems at once "
            f"({several[0]}), where factors of one hide those of another"
        )
    if not effects:
        over = " over workload or configuration" if all_effects else ""
        return unknown(f"no analysis of variance of the {measure}{over}")
    # the claim that no factor has a trend needs that bound of each factor which is nearest to it
    factor, found = max(effects, key=lambda it: it[1].estimate or 0.0)
    highest = max((it[1].high if it[1].high is not None else 1.0) for it in effects)
    lowest = max(it[1].low or 0.0 for it in effects)
    words = f"{factor} explains most of the {measure}, {100 * (found.estimate or 0):.0f} %"
    all_factors = replace(found, low=lowest, high=highest)
    return beside_line(all_factors, REGULATES, words, above=explains)


def maximum_unexplained(evidence: Evidence) -> Judgement:
    """No factor regulates the maximum."""
    return _on(_explained(evidence, "maximum", explains=False), _cells(evidence))


def mean_but_not_maximum(evidence: Evidence) -> Judgement:
    """The mean follows a parameter, the maximum does not."""
    mean = _explained(evidence, "mean", explains=True)
    return _on(all_of([mean, maximum_unexplained(evidence)]), _cells(evidence))


def only_p99_has_trend(evidence: Evidence) -> Judgement:
    """The p99 has a trend over the factors, the maximum has none."""
    p99 = _explained(evidence, "p99", explains=True)
    return _on(all_of([p99, maximum_unexplained(evidence)]), _cells(evidence))


def two_modes(evidence: Evidence) -> Judgement:
    """A configuration has two modes; not so, if each is surely close to one that has a single."""
    cells = [it for it in _cells(evidence) if it.dip_q is not None and it.dip is not None]
    if not cells:
        return unknown("no configuration can be tested")
    two = sum((it.dip_q or 0) < CHANCE and (it.dip or 0) > ONE_MODE for it in cells)
    largest = float(np.max([it.dip for it in cells]))
    verdict = HOLDS if two else NOT if largest <= ONE_MODE else UNDECIDED
    sentence = (
        f"{two} of {len(cells)} configurations have more than one mode (dip above {ONE_MODE}, "
        f"q < {CHANCE}); the largest dip is {largest:.3f}"
    )
    return _on(Judgement(verdict, two / len(cells), None, None, sentence), cells)


JUDGES: Final = {
    "haircut": haircut,
    "haircut_everywhere": haircut_everywhere,
    "maximum_unruly": maximum_unruly,
    "outliers_few": outliers_few,
    "p99_within_order": p99_within_order,
    "p99_bound": p99_bound,
    "p99_follows_mean": p99_follows_mean,
    "p99_slope": p99_slope,
    "counts_against_sizes": counts_against_sizes,
    "resources_and_number": resources_and_number,
    "resources_and_size": resources_and_size,
    "maximum_unexplained": maximum_unexplained,
    "mean_but_not_maximum": mean_but_not_maximum,
    "only_p99_has_trend": only_p99_has_trend,
    "two_modes": two_modes,
}
