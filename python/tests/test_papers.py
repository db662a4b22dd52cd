"""What the papers found: every claim has a place, and a judge says what the run says."""

from __future__ import annotations

from pathlib import Path

import pytest

import unruly
from synthetic import write_run
from test_findings import MATRIX, ODD
from unruly.errors import PaperError
from unruly.papers import claims, judges, kept, page, papers, remember

PAGE = Path(__file__).parents[2] / "docs" / "papers.md"


def matrix(place, **changes):
    root = write_run(place, **{**MATRIX, "repeats": 3, **changes})
    return unruly.analyse(unruly.open_run(root), causes=False)


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    return matrix(tmp_path_factory.mktemp("calm") / "run")


def test_the_page_in_the_repository_is_what_the_claims_and_verdicts_say():
    assert PAGE.read_text(encoding="utf-8") == page(kept())


def test_every_judge_that_a_claim_wants_exists_and_none_is_idle():
    wanted = {claim.judge for paper in papers() for claim in paper.claims if claim.judge}
    assert wanted == set(judges.JUDGES)


def test_every_verdict_that_is_kept_is_of_a_claim_and_has_its_run():
    known = {f"{paper.number}.{claim.id}" for paper in papers() for claim in paper.claims}
    assert set(kept()) <= known
    assert all(row["run"] and row["date"] and row["sentence"] for row in kept().values())


@pytest.mark.parametrize("name", claims.FILES)
def test_every_document_that_a_claim_is_shown_in_exists(name):
    (paper,) = (it for it in papers() if it.name == name)
    for claim in paper.claims:
        assert not claim.shown or (PAGE.parents[1] / claim.shown.partition("#")[0]).exists()


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"id": "fig1", "what": "x"}, "neither judged, shown"),
        ({"id": "fig1", "what": "x", "state": "not built yet"}, "nor excused with a reason"),
        ({"id": "fig1", "what": "x", "judge": "haircut", "shown": "y"}, "neither judged, shown"),
        ({"id": "fig1", "what": "x", "verdict": "holds"}, "unknown key"),
    ],
)
def test_a_claim_without_a_place_is_refused(row, wanted):
    with pytest.raises(PaperError, match=wanted):
        claims._claim("made-up", row)


def test_a_run_of_another_plan_is_refused_with_the_plans_that_are_judged(calm):
    with pytest.raises(PaperError, match="which no claim is judged by; a run of demo or thr"):
        remember([calm])


def test_a_tail_within_25_means_holds_and_one_far_beyond_does_not(calm, tmp_path):
    assert judges.JUDGES["p99_bound"](calm).verdict == "holds"
    # 15 of 1,000 requests 5,000 times slower: the p99 is dozens of means away.
    wild = matrix(tmp_path / "run", duration_s=60, rate_hz=100, cell_tails={ODD: (0.015, 5000.0)})
    assert judges.JUDGES["p99_bound"](wild).verdict == "does not hold"


def test_a_verdict_follows_the_interval_of_the_share_and_not_the_share():
    assert judges._share(6, 10, "x").verdict == "undecided"
    assert judges._share(70, 100, "x").verdict == "holds"
    assert judges._share(30, 100, "x").verdict == "does not hold"
    assert judges._share(0, 0, "x").estimate is None


def test_a_run_without_a_matrix_is_undecided_and_never_raises(clean):
    for name, judge in judges.JUDGES.items():
        found = judge(clean)
        assert found.verdict in ("holds", "does not hold", "undecided"), name
        assert found.sentence, name
