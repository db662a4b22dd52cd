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
    """The maximum exceeds ten times the mean in some cells.

    Example: the maximum exceeds 10 × the mean in 1 of 4 cells

    Raised: The run has a matrix, and in at least one cell the slowest reply took more than ten
    times the mean.

    Means: The maximum of such a configuration cannot be predicted from its mean, and one more run
    would have another maximum. The finding reports how many of the slowest requests must be removed
    until no cell exceeds ten times its mean.

    Next: Promise percentiles. Look in the report at the haircut: how few requests make the maximum.
    See the method [haircut](../methods/haircut.md).

    Numbers: `magical.cells[]` (`largest`, `mean`, `smallest_haircut`) in `summary.json`.
    """
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
    """The p99 of some cells exceeds the bound that a study found.

    Example: the p99 exceeds 25 × the mean in 1 of 4 cells

    Raised: The run has a matrix, and the p99 of a cell is more than {P99_BOUND:number} times its
    mean.

    Means: In the sixteen systems of the study the p99 stayed below {P99_BOUND:number} times the
    mean, with 99 % confidence. This is not a law: 985 replies of 1 ms and 15 of 1 s have a p99 of
    62.6 times their mean. A cell beyond the bound stalls for more than 1 % of its requests.

    Next: Look at the timeline of the cell. A longer run separates a rare stall from a frequent one.

    Numbers: `magical.cells[].p99_over_mean` in `summary.json`.
    """
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
    """The latencies of some cells gather around several values.

    Example: 1 of 4 cells have more than one mode

    Raised: The run has a matrix, and the dip test of at least one cell has a q value below
    {FALSE_DISCOVERY:percent}, adjusted over all cells.

    Means: Latencies gather around more than one value. Possible reasons are a cache that is hit or
    missed, a path through another core, or a timer. Few requests have a latency near the mean.

    Next: Look at the distribution of the cell. See the method [dip](../methods/dip.md).

    Numbers: `magical.cells[]` (`dip`, `dip_p`, `dip_q`) in `summary.json`.
    """
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
    """One factor of the matrix explains much of the p99.

    Example: drive.payload explains 99.5 % of the variance of the p99

    Raised: The run has a matrix, and analysis of variance gives a factor a p value below
    {FACTOR_P:percent} for the p99.

    Means: This factor explains the reported share of the differences of the p99 between cells and
    repeats. Maxima and p99s do not have normal errors, so rely on the share, not on the last digit
    of the p value.

    Next: Choose this factor first. See the method [analysis of
    variance](../methods/analysis-of-variance.md).

    Numbers: `magical.explained[]` in `summary.json`.
    """
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
            f"[{percent(best.partial.low)}, {percent(best.partial.high)}] of the variance that the "
            "other factors leave.",
            {
                it.factor: {"f": it.f, "p_value": it.p_value, "variance_share": it.share}
                for it in effects
            },
            "Choose this factor first. The report shows the distribution for each of its levels.",
        )


RULES: Final = (
    Rule("cells-unruly", "unruly", ("informs",), _cells_unruly),
    Rule("p99-beyond-bound", "unruly", ("warns",), _p99_bound),
    Rule("more-than-one-mode", "unruly", ("informs",), _two_modes),
    Rule("factor-effect", "why", ("informs",), _factor_effect),
)
