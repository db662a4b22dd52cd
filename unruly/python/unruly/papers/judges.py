"""Every judge by its name, and what the evidence of a run says of each claim.

A judge takes the evidence of a run and returns a judgement. It is undecided where the run has not
what it needs. A run that is not trustworthy decides nothing, whatever its judge says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from unruly.papers import (
    judges_chains,
    judges_groups,
    judges_matrix,
    judges_stores,
    judges_streams,
    judges_tiers,
)
from unruly.papers.claims import papers
from unruly.papers.evidence import Evidence
from unruly.papers.judgement import UNDECIDED, Judgement

if TYPE_CHECKING:
    from unruly.papers.evidence import Facts

Judge = Callable[[Evidence], Judgement]

JUDGES: Final[dict[str, Judge]] = {
    **judges_matrix.JUDGES,
    **judges_groups.JUDGES,
    **judges_stores.JUDGES,
    **judges_streams.JUDGES,
    **judges_chains.JUDGES,
    **judges_tiers.JUDGES,
}


def judge_run(evidence: Evidence) -> dict[str, Judgement]:
    """Judge every claim that this run's plan can say something of: ``paper.claim`` to judgement."""
    return {
        f"{paper.number}.{claim.id}": trusted(JUDGES[claim.judge](evidence), evidence.facts)
        for paper in papers()
        for claim in paper.claims
        if claim.judge and evidence.facts.plan in paper.plans_of(claim)
    }


def trusted(found: Judgement, facts: Facts) -> Judgement:
    """Return a judgement as it stands, or undecided if nobody can trust the run."""
    if facts.trustworthy or found.verdict == UNDECIDED:
        return found
    why = "the run is not trustworthy"
    if facts.trustworthy is None:
        why = "nobody knows whether the run is trustworthy"
    return replace(
        found, verdict=UNDECIDED, sentence=f"{found.sentence}; {why}, so that decides nothing"
    )
