"""What runs of the three-tier applications say of the claims of the unruly 1 %."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from unruly.papers.judgement import (
    HOLDS,
    MOST,
    NEARLY_ALL,
    NOT,
    UNDECIDED,
    Judgement,
    all_of,
    beside_line,
    every,
    share,
    unknown,
)
from unruly.papers.judges_matrix import ORDER, REGULATES
from unruly.papers.three_tier import APPLICATION, PLATFORM, REPLICATION
from unruly.stats import quantile_interval_iid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unruly.papers.evidence import Cell, Evidence
    from unruly.papers.three_tier import Layer, Recovered, SlowRequests
    from unruly.stats import Interval

MOST_OUTLIERS: Final = 0.06
"""What figure 9 of the study reaches. More than 10 % cannot be beyond the mean + 3 sd at all."""
UNNAMED: Final = "the application"
SOME: Final = 0.05
"""A layer is that of some slow requests if it surely has more of them than this: a single one
proves little, because its layer is found by comparison with a median."""
UNPREDICTABLE: Final = {"maximum": "maximum", "outliers": "share of outliers"}
PLACES: Final = {
    "call": "what {service} called",
    "between": "the way from {service} to a service that it called",
    "outside": "no span",
}


# Outliers of the applications ----------------------------------------------------------


def _cells(evidence: Evidence) -> list[Cell]:
    cells = evidence.matrix.cells if evidence.matrix else ()
    return [it for it in cells if APPLICATION in it.factors]


def _applications(factors: Iterable[dict[str, str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(it[APPLICATION] for it in factors if APPLICATION in it))


def outliers_of_applications(evidence: Evidence) -> Judgement:
    """Every configuration has fewer outliers than the most of the study's figure."""
    cells = [it for it in _cells(evidence) if it.over_3_sigma is not None and it.n]
    shares = [(it.factors[APPLICATION], (it.over_3_sigma or 0) / it.n) for it in cells]
    below = sum(value < MOST_OUTLIERS for _, value in shares)
    names = _applications(it.factors for it in cells)
    medians = {
        name: float(np.median([value for of, value in shares if of == name])) for name in names
    }
    told = [f"{name} {100 * value:.2g} %" for name, value in _by_value(medians)]
    words = (
        f"configurations have under {100 * MOST_OUTLIERS:g} % of outliers; the median of each "
        f"application: {', '.join(told)}"
    )
    unjudged = len(_cells(evidence)) - len(cells)
    return replace(every(below, len(cells), words, unjudged=unjudged), systems=names)


def _by_value(medians: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(medians.items(), key=lambda it: (it[1], it[0]))


# Platform and replication --------------------------------------------------------------


def infrastructure_explains_little(evidence: Evidence) -> Judgement:
    """Neither the platform nor the replication explains the maximum or the share of outliers."""
    parts = [part for it in UNPREDICTABLE for part in _explains_little(evidence, it)]
    found = all_of(parts)
    names = _applications(it.factors for it in _cells(evidence))
    return replace(found, systems=names if found.estimate is not None else ())


def _explains_little(evidence: Evidence, measure: str) -> list[Judgement]:
    rows = evidence.matrix.explained if evidence.matrix else ()
    effects = {
        it.factor: it.partial for row in rows if row.measure == measure for it in row.effects
    }
    what = UNPREDICTABLE[measure]
    known = [it for it in (effects.get(PLATFORM), effects.get(REPLICATION)) if it is not None]
    if len(known) < 2 or any(it.estimate is None for it in known):
        return [unknown(f"no analysis of variance of the {what} over platform and replication")]
    told = [
        f"{factor} {_percent(effects.get(factor))}"
        for factor in (PLATFORM, REPLICATION, APPLICATION)
    ]
    sentence = f"of the {what} {told[0]}, {told[1]} and {told[2]} explain what the others leave"
    return [beside_line(it, REGULATES, sentence, above=False) for it in known]


def _percent(found: Interval | None) -> str:
    if found is None or found.estimate is None:
        return "an unknown share"
    return f"{100 * found.estimate:.0f} %"


# Recovery ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Compared:
    """The recovery of a cell beside its longest fault-free latency.

    ``alike`` and ``unlike`` say that they surely are, or are not, of one order of magnitude.
    """

    application: str
    alike: bool
    unlike: bool


def recovery_like_longest(evidence: Evidence) -> Judgement:
    """In most applications the recovery is of the order of the longest fault-free latency."""
    by_cell: dict[str, list[Recovered]] = {}
    for it in evidence.recoveries:
        by_cell.setdefault(it.cell, []).append(it)
    found = [it for it in map(_compared, by_cell.values()) if it is not None]
    if not found:
        return unknown("no cell has both recoveries and a longest fault-free latency")
    everyone = (rows[0].factors.get(APPLICATION, UNNAMED) for rows in by_cell.values())
    # one of which nothing is known is neither alike nor unlike
    names = tuple(dict.fromkeys(everyone))
    alike = sum(_mostly(it.alike for it in found if it.application == name) for name in names)
    unlike = sum(_mostly(it.unlike for it in found if it.application == name) for name in names)
    # an application of which nobody knows may be either
    low, high = share(alike, len(names)).low, share(len(names) - unlike, len(names)).high
    verdict = UNDECIDED
    if low is not None and low > MOST:
        verdict = HOLDS
    elif high is not None and high < MOST:
        verdict = NOT
    slower = sum(any(it.longer for it in rows) for rows in by_cell.values())
    sentence = (
        f"in {alike} of {len(names)} applications the median recovery is surely within "
        f"{ORDER:g} x of the longest fault-free latency, either way, and in {unlike} surely not; "
        f"{slower} of {len(by_cell)} cells have fault-free requests slower than their median "
        "recovery"
    )
    left_out = len(by_cell) - len(found)
    if left_out:
        sentence += (
            f"; {_many(left_out, 'cell')} left out, where a fault-free request failed or nothing "
            "is known"
        )
    return Judgement(verdict, alike / len(names), low, high, sentence, names)


def _mostly(cells: Iterable[bool]) -> bool:
    held = list(cells)
    return bool(held) and float(np.mean(held)) > MOST


def _compared(rows: list[Recovered]) -> _Compared | None:
    """Compare the repeats of a cell; None if a fault-free request failed, or nothing is known.

    A crash that the next one followed before the recovery took longer than all others.
    """
    longest = max((it.fault_free_max_ns or 0.0 for it in rows), default=0.0)
    totals = [np.inf if it is None else it for row in rows for it in row.totals_ns]
    if not totals or not longest or any(it.fault_free_max_ns is None for it in rows):
        return None
    median = quantile_interval_iid(totals, 0.5)
    low = None if median.low is None else median.low / longest
    high = None if median.high is None else median.high / longest
    alike = low is not None and high is not None and low > 1 / ORDER and high < ORDER
    unlike = (low is not None and low > ORDER) or (high is not None and high < 1 / ORDER)
    return _Compared(rows[0].factors.get(APPLICATION, UNNAMED), alike, unlike)


# Layers --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Main:
    """A layer, and the share of the slow requests of one (cell, op) that it surely has."""

    words: str
    place: tuple[str, str]
    share: Interval
    sure: float


def outliers_from_any_layer(evidence: Evidence) -> Judgement:
    """Slow requests have most of their extra time in one layer or another, not always in one.

    Two layers count as different within one operation. Two layers of different operations do so
    only if their services or roles differ: the span of an operation may have its name.
    """
    rows = [(it, _mains(it)) for it in evidence.slow_requests]
    if not any(mains for _, mains in rows):
        return unknown("the slow requests have no spans, or too few")
    some = [[it for it in mains if it.sure > SOME] for _, mains in rows]
    places = {it.place for mains in some for it in mains}
    alone = all(mains and mains[0].sure > NEARLY_ALL for _, mains in rows)
    verdict = UNDECIDED
    if any(len(mains) > 1 for mains in some) or len(places) > 1:
        verdict = HOLDS
    elif alone:
        verdict = NOT
    # the second layer decides; an operation with one layer alone has none
    row, mains = max(rows, key=lambda it: (_second(it[1]), it[0].looked_at))
    decides = mains[1 if len(mains) > 1 and verdict != NOT else 0].share
    told = [f"{_share(it.share)} in {it.words}" for it in mains[:3]]
    sentence = (
        f"of {row.looked_at} slow “{row.op}” requests the main layer is {', '.join(told)}; in "
        f"{_many(len(rows), 'operation')} {_many(len(places), 'kind')} of layers surely had more "
        f"than {100 * SOME:g} % of the slow requests"
    )
    return Judgement(verdict, decides.estimate, decides.low, decides.high, sentence)


def each_layer_makes_slow(evidence: Evidence) -> Judgement:
    """Every layer that slow requests pass is the main one of some of them.

    It holds if each surely has more than a few of an operation's slow requests, and does not hold
    if one surely has fewer in all operations.
    """
    rows = [it for it in evidence.slow_requests if it.layers and it.covered]
    if not rows:
        return unknown("the slow requests have no spans, or too few")
    best: dict[tuple[str, str], tuple[float, float, float]] = {}
    for row in rows:
        for place, now in _of_places(row).items():
            held = best.get(place, (0.0, 0.0, 0.0))
            best[place] = (max(held[0], now[0]), max(held[1], now[1]), max(held[2], now[2]))
    surely = [place for place, (_, low, _) in best.items() if low > SOME]
    seldom = [place for place, (_, _, high) in best.items() if high < SOME]
    verdict = NOT if seldom else HOLDS if len(surely) == len(best) else UNDECIDED
    decides = min(best.values(), key=lambda it: it[2]) if seldom else min(best.values())
    sentence = (
        f"{len(surely)} of {len(best)} layers are surely the main one of more than "
        f"{100 * SOME:g} % of the slow requests of an operation, and {len(seldom)} surely of fewer"
    )
    return Judgement(verdict, *decides, sentence)


def _of_places(row: SlowRequests) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Return the share of each kind of layer: its estimate, and what it is at least and at most.

    All calls of a service are one: they have at least the share of the largest, and at most all
    together. Slow requests without spans may be of any.
    """
    found: dict[tuple[str, str], tuple[float, float, float]] = {}
    for it in row.layers:
        place = (it.service, it.role if it.role != "own" else it.name)
        estimate, low, high = found.get(place, (0.0, 0.0, 0.0))
        most = 1.0 if it.share.high is None else it.share.high
        found[place] = (
            min(1.0, estimate + (it.share.estimate or 0.0) * row.covered),
            max(low, (it.share.low or 0.0) * row.covered),
            min(1.0, high + most * row.covered),
        )
    free = 1 - row.covered
    return {place: (it[0], it[1], min(1.0, it[2] + free)) for place, it in found.items()}


def _second(mains: list[_Main]) -> float:
    return mains[1].sure if len(mains) > 1 else 0.0


def _mains(row: SlowRequests) -> list[_Main]:
    """Return the layers of a (cell, op), those that surely have most slow requests first.

    All calls of a service are one layer. Together they surely have the share of the largest. Slow
    requests without spans may be of any layer.
    """
    found: dict[tuple[str, str, str], _Main] = {}
    for it in row.layers:
        key = (it.service, it.role, it.name if it.role == "own" else "")
        sure = (it.share.low or 0.0) * row.covered
        if key not in found or sure > found[key].sure:
            found[key] = _Main(_words(it), (it.service, it.role), it.share, sure)
    return sorted(found.values(), key=lambda it: (-it.sure, -(it.share.estimate or 0.0)))


def _words(it: Layer) -> str:
    return PLACES.get(it.role, "{service}: {name}").format(service=it.service, name=it.name)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _share(found: Interval) -> str:
    bounds = [f"{100 * (it or 0.0):.0f} %" for it in (found.estimate, found.low, found.high)]
    return f"{bounds[0]} [{bounds[1]}, {bounds[2]}]"


JUDGES: Final = {
    "three_tier_outliers": outliers_of_applications,
    "three_tier_infrastructure": infrastructure_explains_little,
    "three_tier_recovery": recovery_like_longest,
    "three_tier_layers": outliers_from_any_layer,
    "three_tier_each_layer": each_layer_makes_slow,
}
