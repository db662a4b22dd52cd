"""The targets that a run was given with ``--slo``: held, broken or undecided."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from unruly.base.judging import Outcome, judge
from unruly.base.limits import Limit
from unruly.quantity import parse_duration

if TYPE_CHECKING:
    from unruly.base.model import Judged
    from unruly.run import Run

FAILED: Final = "failed"
_SLO: Final = re.compile(
    r"(?:(\S+)\s+)?(\S+)\s+<\s+([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(%|ns|us|ms|s|min|h|d)"
)


def slos(run: Run) -> list[Limit]:
    """Return the targets that the plan of a run has, as limits.

    The plan's parser has checked them; a line of a newer plan that is not understood is left out.
    """
    found = (_SLO.fullmatch(text) for text in run.plan.slo)
    limits = (_limit(it) for it in found if it is not None)
    return [it for it in limits if it is not None]


def _limit(found: re.Match[str]) -> Limit | None:
    op, statistic, number, unit = found.groups()
    if statistic == FAILED:
        return Limit(found[0], "failed_share", float(number) / 100, op=op)
    try:
        return Limit(found[0], statistic, float(parse_duration(number + unit)), op=op)
    except ValueError:
        return None


def judged(analysis: Judged) -> tuple[Outcome, ...]:
    """Hold a run to its targets.

    A target about an operation that was not measured is undecided.
    """
    limits = slos(analysis.run)
    if not limits or not analysis.cells:
        return ()
    known = {None, *(row.op for row in analysis.cells)}
    outcomes = judge(analysis, [it for it in limits if it.op in known])
    # the failures of the whole run have their own place in the verdict
    given = [it for it in outcomes if not it.limit.built_in]
    return (*given, *(_not_measured(it) for it in limits if it.op not in known))


def _not_measured(limit: Limit) -> Outcome:
    sentence = f"no request of {limit.op} was measured"
    return Outcome(limit, "", str(limit.op), "undecided", None, None, None, None, sentence)
