"""A verdict on a claim, as all judges give it, and the rules that they share.

A verdict follows an interval. *Holds* needs the whole interval on the side of the claim, *does not
hold* the whole of it on the other side, and everything else is *undecided*. So a missing
significance decides nothing, and "no correlation" holds only if the interval lies inside a bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import scipy

from unruly.stats import Interval, independent_share

if TYPE_CHECKING:
    from collections.abc import Sequence

LEVEL: Final = 0.95
HOLDS, NOT, UNDECIDED = "holds", "does not hold", "undecided"
VERDICTS: Final = (HOLDS, NOT, UNDECIDED)
MOST: Final = 0.5
"""A claim about most cases: more than half of them."""
SURELY_ALL: Final = 0.9
"""All of so few cases that a tenth of them may be otherwise are not every case."""
NEARLY_ALL: Final = 0.95
"""A claim about every case is refuted if surely a smaller share than this is as it says."""
SPEARMAN: Final = 1.06
"""The variance of Fisher's z of Spearman's coefficient, times n - 3 (Fieller, 1957)."""


@dataclass(frozen=True)
class Judgement:
    """``verdict`` with its estimate and bounds (None: not there), and a sentence.

    ``systems`` are those that it was judged on, where a claim is about several.
    """

    verdict: str
    estimate: float | None
    low: float | None
    high: float | None
    sentence: str
    systems: tuple[str, ...] = ()


def unknown(why: str) -> Judgement:
    """Return that the run has not what the claim needs."""
    return Judgement(UNDECIDED, None, None, None, why)


def beside_line(found: Interval, line: float, sentence: str, *, above: bool) -> Judgement:
    """Judge a claim that something is above, or below, a line: as far as its whole interval is."""
    higher = found.low is not None and found.low > line
    lower = found.high is not None and found.high < line
    verdict = UNDECIDED
    if higher or lower:
        verdict = HOLDS if higher is above else NOT
    return Judgement(verdict, found.estimate, found.low, found.high, sentence)


def between(found: Interval, least: float, most: float, sentence: str) -> Judgement:
    """Judge a claim that something lies between two bounds, which may be an equivalence."""
    low, high = found.low, found.high
    verdict = UNDECIDED
    if low is not None and high is not None and least < low and high < most:
        verdict = HOLDS
    elif (low is not None and low > most) or (high is not None and high < least):
        verdict = NOT
    return Judgement(verdict, found.estimate, low, high, sentence)


def share(hits: int, of: int) -> Interval:
    """Return a share of independent cases with its exact binomial interval; `of` is above 0."""
    return independent_share(hits, of, LEVEL)


def most(hits: int, of: int, words: str) -> Judgement:
    """Judge a claim about most cases: it holds when the share is surely above a half."""
    if of == 0:
        return unknown("no configuration can be judged: requests failed in all of them")
    return beside_line(share(hits, of), MOST, f"{hits} of {of} {words}", above=True)


def every(hits: int, of: int, words: str, *, unjudged: int = 0) -> Judgement:
    """Judge a claim about every case: it holds when all are so, and not if surely many are not.

    It needs enough cases that surely nine of ten are so, and none that could not be judged.
    """
    if of == 0:
        return unknown("no configuration can be judged: requests failed in all of them")
    found = share(hits, of)
    surely = hits == of and (found.low or 0.0) > SURELY_ALL and not unjudged
    surely_not = found.high is not None and found.high < NEARLY_ALL
    verdict = HOLDS if surely else NOT if surely_not else UNDECIDED
    told = f"{hits} of {of} {words}"
    if unjudged:
        told += f"; {unjudged} more cannot be judged: requests failed, or there are too few"
    return Judgement(verdict, found.estimate, found.low, found.high, told)


def all_of(parts: Sequence[Judgement]) -> Judgement:
    """Judge a claim of several parts: one that does not hold refutes it, and it holds if all do.

    The estimate is that of the part that the verdict rests on.
    """
    by_weight = sorted(parts, key=lambda it: (NOT, UNDECIDED, HOLDS).index(it.verdict))
    decides = by_weight[0]
    sentence = "; ".join(dict.fromkeys(it.sentence for it in parts))
    systems = tuple(dict.fromkeys(name for it in parts for name in it.systems))
    return Judgement(
        decides.verdict, decides.estimate, decides.low, decides.high, sentence, systems
    )


def rank_interval(rho: float, cells: int, *, together: int = 1) -> Interval:
    """Return Spearman's coefficient over independent cells with its interval, by Fisher's z.

    The interval holds at once with those of `together` - 1 others (Bonferroni). It is the whole
    range where even a perfect order of so few cells comes by chance more often than that.
    """
    level = 1 - (1 - LEVEL) / together
    if 2 / math.factorial(cells) > 1 - level:
        return Interval(rho, -1.0, 1.0, level, cells, float(cells), "too few cells to decide")
    return _correlation(rho, cells, SPEARMAN, together)


def linear_interval(r: float, cells: int) -> Interval:
    """Return Pearson's coefficient over independent cells with its interval, by Fisher's z."""
    return _correlation(r, cells, 1.0, 1)


def _correlation(value: float, cells: int, variance: float, together: int) -> Interval:
    level = 1 - (1 - LEVEL) / together
    reach = scipy.stats.norm.ppf((1 + level) / 2) * np.sqrt(variance / max(1, cells - 3))
    middle = np.arctanh(np.clip(value, -0.999, 0.999))
    low, high = float(np.tanh(middle - reach)), float(np.tanh(middle + reach))
    return Interval(value, low, high, level, cells, float(cells), "Fisher's z")
