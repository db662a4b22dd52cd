"""Why slow requests were slow, in one answer: causes first, correlates only as candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.base.words import named
from unruly.quantity import coefficient, percent
from unruly.topics.causes.model import causes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.base.analysis import Analysis
    from unruly.base.model import Correlation
    from unruly.base.operation import CellSummary
    from unruly.topics.causes.model import Causes, Slowness

EXPLAINED: Final = 0.5
"""Where causes explain so much of the slow requests, no candidates are named."""
CANDIDATES_SHOWN: Final = 3


def worst_explained(causes: Causes | None, cells: Sequence[CellSummary]) -> Slowness | None:
    """Return the causes of the (cell, op) with the largest p99 that has any."""
    found = {(row.cell, row.op): row for row in causes.rows if row.causes} if causes else {}
    ordered = sorted(cells, key=lambda row: -(row.p99 or 0.0))
    return next((found[it.cell, it.op] for it in ordered if (it.cell, it.op) in found), None)


def is_explained(causes: Causes | None, cells: Sequence[CellSummary]) -> bool:
    """Return whether causes explain most slow requests of the slowest operation."""
    row = worst_explained(causes, cells)
    if row is None or row.unknown is None or row.unknown.estimate is None:
        return False
    return row.unknown.estimate <= 1 - EXPLAINED


def rises_with(row: Correlation) -> str:
    """Return which way latency and a metric move: ``rises with the receiver's CPU wait``."""
    metric = metric_of(row)
    if (row.spearman.estimate or 0.0) < 0:
        return f"is lower when the {metric} is higher"
    return f"rises with the {metric}"


def metric_of(row: Correlation) -> str:
    """Return whose metric it is: ``receiver's CPU wait``."""
    whose = "receiver's" if row.scope == "process" else "receiving host's"
    return f"{whose} {row.words}"


def strength(row: Correlation) -> str:
    """Return a rank correlation with its interval: ``Spearman 0.76 [0.68, 0.81]``."""
    rank = row.spearman
    ends = f"{coefficient(rank.low)}, {coefficient(rank.high)}"
    return f"Spearman {coefficient(rank.estimate)} [{ends}]"


def sent_late(analysis: Analysis) -> str | None:
    """Return that the load generator itself made most of the tail slow; None when it did not."""
    share = analysis.self_distrust.tail_explained_share
    if share is None or share <= EXPLAINED:
        return None
    return (
        "the delay of the load generator made up most of the response time of "
        f"{percent(share)} of the requests beyond the p99"
    )


def because(analysis: Analysis) -> str | None:
    """Return the one answer to "why were slow requests slow?"; None when it was not asked."""
    candidates = [it.evidence for it in analysis.findings if it.code == "correlate"]
    names = [str(it["candidate"]) for it in candidates]
    row = worst_explained(causes_of(analysis), analysis.cells)
    if row is not None and row.unknown is not None:
        top, unknown = row.causes[0], row.unknown.estimate
        several = len({it.cell for it in analysis.cells}) > 1
        label = f"{row.op} ({row.cell})" if several else row.op
        left = f"; {percent(unknown)} is unexplained" if unknown else ""
        maybe = f" (candidates: {named(names, CANDIDATES_SHOWN)})" if unknown and names else ""
        share = percent(top.explained.estimate)
        return f"{share} of the slow requests of {label} {top.words}{left}{maybe}"
    if analysis.worked.outages and not analysis.worked.ok:
        return None
    return sent_late(analysis) or _slow_layer(analysis) or _unexplained(analysis, names)


def _slow_layer(analysis: Analysis) -> str | None:
    """Return which layer of the services took the time, as their own spans say."""
    titles = {it.code: it.title for it in reversed(analysis.findings)}
    return titles.get("slow-layer") or titles.get("repeated-calls")


def _unexplained(analysis: Analysis, names: list[str]) -> str | None:
    """Return which candidates there are where no cause was found."""
    if names:
        return f"unexplained; candidates, by correlation: {named(names, CANDIDATES_SHOWN)}"
    causes = causes_of(analysis)
    if causes is not None and any(row.unknown is not None for row in causes.rows):
        return "unexplained: nothing that was observed explains the slow requests"
    if causes is not None and causes.rows:
        return f"unexplained: {causes.rows[0].absent.get('unknown', 'no cause was tried')}"
    if analysis.correlations.rows:
        return "unexplained: no resource of the receivers correlates with latency"
    return None
