"""The rules about a matrix of cells: which are unruly, and which factor explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.base.words import named
from unruly.quantity import duration, p_value, percent, significant, times
from unruly.topics.factors.statistics import factors_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis

FALSE_DISCOVERY: Final = 0.05
P99_BOUND: Final = 25.0
FACTOR_P: Final = 0.01


def _cells_unruly(analysis: Analysis) -> Iterator[Finding]:
    """C1 over a matrix: in how many configurations the maximum is beyond ten times the mean."""
    view = factors_of(analysis)
    if view is None:
        return
    known = [cell for cell in view.cells if cell.mean and cell.largest is not None]
    wild = [cell for cell in known if (cell.largest or 0.0) > 10 * (cell.mean or 0.0)]
    if not wild:
        return
    worst = max(wild, key=lambda cell: (cell.largest or 0.0) / (cell.mean or 1.0))
    cuts = [c.smallest_haircut for c in wild if c.smallest_haircut is not None]
    needed = f" Without the slowest {percent(max(cuts))} no cell would be." if cuts else ""
    yield Finding(
        "cells-unruly",
        "unruly",
        "informs",
        1,
        f"the maximum exceeds 10 × the mean in {len(wild)} of {len(known)} cells",
        f"The worst is {worst.cell}: {times((worst.largest or 0.0) / (worst.mean or 1.0))} its "
        f"mean, with a p99 of {duration(worst.p99)}.{needed}",
        {
            "cells": len(known),
            "unruly": len(wild),
            "worst": worst.cell,
            "largest_over_mean": (worst.largest or 0.0) / (worst.mean or 1.0),
            "smallest_haircut": max(cuts) if cuts else None,
        },
        "Promise percentiles of such a system, not its maximum.",
    )


def _p99_bound(analysis: Analysis) -> Iterator[Finding]:
    """The study's bound on p99 over mean: reported where a cell is beyond it."""
    view = factors_of(analysis)
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
        f"the p99 exceeds {P99_BOUND:.0f} × the mean in {len(beyond)} of {len(known)} cells",
        f"A study of sixteen systems found it below that with 99 % confidence. Here it is not: "
        f"{named([cell.cell for cell in beyond])}. Even the p99 of such a cell cannot be predicted "
        "from its mean.",
        {"cells": {c.cell: c.p99_over_mean.estimate for c in beyond if c.p99_over_mean}},
        "Look at these cells one by one: something stalls there more than 1 % of the time.",
    )


def _two_modes(analysis: Analysis) -> Iterator[Finding]:
    view = factors_of(analysis)
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
        f"Their latencies gather around several values, so the mean is a latency that few requests "
        f"have: {named(bimodal)}.",
        {"cells": bimodal},
        "Look in their distributions for a cache, a second path or a timer.",
    )


def _factor_effect(analysis: Analysis) -> Iterator[Finding]:
    """C3: which factor explains the p99, when one does."""
    view = factors_of(analysis)
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
            f"Over {explained.observations} cells and repeats: F = {significant(best.f)}, "
            f"{p_value(best.p_value)}. It explains {percent(best.partial.estimate)} "
            f"[{percent(best.partial.low)}, {percent(best.partial.high)}] of the variance that "
            "the other factors leave.",
            {
                it.factor: {"f": it.f, "p_value": it.p_value, "variance_share": it.share}
                for it in effects
            },
            "Choose this factor first. The report shows the distribution for each of its levels.",
        )


RULES: Final = (
    Rule("cells-unruly", _cells_unruly),
    Rule("p99-beyond-bound", _p99_bound),
    Rule("more-than-one-mode", _two_modes),
    Rule("factor-effect", _factor_effect),
)
