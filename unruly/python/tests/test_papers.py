"""What the papers found: every claim has a place, and a judge says what the run says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

import unruly
from changed import analysis_of
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
        assert not claim.shown or (PAGE.parents[2] / claim.shown.partition("#")[0]).exists()


def test_no_claim_about_a_service_that_is_shipped_is_called_not_built():
    shipped = {path.stem for path in (PAGE.parents[1] / "services").glob("*.toml")}
    called = {
        claim.id: f"{claim.living} {claim.what} {claim.why}".lower()
        for paper in papers()
        for claim in paper.claims
        if claim.state == "not built yet"
    }
    assert "memcached" in shipped
    assert not {name: text for name, text in called.items() if any(it in text for it in shipped)}


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


def seen_by_pairs(*overlaps):
    """An analysis in which each pair of observers agreed on slow nodes by so much."""
    frame = pd.DataFrame({"jaccard": overlaps})
    mean = frame["jaccard"].mean() if overlaps else None
    return SimpleNamespace(slow_nodes=SimpleNamespace(jaccard=frame, jaccard_mean=mean))


def test_slowness_is_of_nodes_only_as_far_as_pairs_of_observers_agree():
    judge = judges.JUDGES["slow_seen_alike"]
    agreed = judge(seen_by_pairs(0.8, 0.9, 0.7, 0.8))
    assert agreed.verdict == "holds"
    # Mean 0.8, standard deviation 0.0816 over four pairs: 1.96 x 0.0408 either way.
    assert (agreed.low, agreed.high) == (
        pytest.approx(0.72, abs=1e-3),
        pytest.approx(0.88, abs=1e-3),
    )
    assert judge(seen_by_pairs(0.1, 0.2, 0.0, 0.1)).verdict == "does not hold"
    # The mean is above a half, and pairs differ too much to say so.
    apart = judge(seen_by_pairs(1.0, 0.1, 0.9, 0.3))
    assert apart.verdict == "undecided"
    assert apart.low < 0.5 < apart.high
    assert judge(seen_by_pairs(0.9)).verdict == "undecided"
    assert judge(seen_by_pairs()).verdict == "undecided"


def correlated(*rows):
    """Return an analysis of a matrix whose resources correlate with latency by (rho, q value)."""
    resources = tuple(
        SimpleNamespace(of="p99", against="CPU", cells=30, rho=rho, q_value=q) for rho, q in rows
    )
    return analysis_of(magical=SimpleNamespace(resources=resources))


def test_resources_are_not_silent_where_one_correlates_beyond_chance():
    judge = judges.JUDGES["resources_silent"]
    assert judge(correlated((0.1, 0.6), (-0.2, 0.3))).verdict == "holds"
    loud = judge(correlated((0.1, 0.6), (-0.8, 0.001)))
    assert loud.verdict == "does not hold"
    assert loud.sentence.startswith("1 of 2 correlations stand beyond chance")
    # The strongest is shown, whatever its sign, with the interval of its own cells.
    assert loud.estimate == -0.8
    assert loud.low < -0.8 < loud.high < 0
    assert judge(correlated()).verdict == "undecided"


WORKLOADS = ("null", "crypto", "network", "disk")


def of_workloads(place, **scales):
    root = write_run(place, ops=WORKLOADS, op_scale=scales, stalls_hz=0.2)
    return unruly.analyse(unruly.open_run(root), causes=False, pictures=False)


def test_the_slower_of_disk_and_network_is_the_one_that_was_planted(tmp_path):
    # Medians of 120 us, 150 us, 330 us and 1.4 ms.
    analysis = of_workloads(tmp_path / "run")
    found = judges.JUDGES["disk_costs_most"](analysis)
    assert found.verdict == "holds"
    assert found.estimate == pytest.approx(4.3, rel=0.1)
    assert 1 < found.low < found.estimate < found.high
    below = judges.JUDGES["network_below_disk"](analysis)
    assert below.verdict == "holds"
    assert below.estimate == pytest.approx(1 / found.estimate, rel=0.01)
    assert judges.JUDGES["crypto_costs_little"](analysis).verdict == "holds"


def test_the_claims_about_workloads_fail_where_network_and_crypto_are_slower(tmp_path):
    analysis = of_workloads(tmp_path / "run", network=40.0, crypto=3.0)
    for name in ("disk_costs_most", "network_below_disk", "crypto_costs_little"):
        assert judges.JUDGES[name](analysis).verdict == "does not hold", name
    found = judges.JUDGES["disk_costs_most"](analysis)
    assert found.estimate == pytest.approx(4.3 / 40, rel=0.1)
    assert found.high < 1
