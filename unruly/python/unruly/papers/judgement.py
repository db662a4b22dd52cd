"""A verdict on a claim, as all judges give it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from unruly.stats import Interval

LEVEL: Final = 0.95
HOLDS, NOT, UNDECIDED = "holds", "does not hold", "undecided"


@dataclass(frozen=True)
class Judgement:
    """``verdict`` with its estimate and bounds (None: not there), and a sentence."""

    verdict: str
    estimate: float | None
    low: float | None
    high: float | None
    sentence: str


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
