"""The pictures of advice, where a reader sees them: in the report, and on a page of their own."""

from __future__ import annotations

import pytest

import unruly
from report.made import made
from report.test_page import drawn, sections_of, whole_on_a_phone
from synthetic import write_run
from unruly.html import write_advice, write_report

FIGURES = {f"advice-{part}-0" for part in ("detection", "replicas", "xft", "profit", "hedge")}
SHAPES = {
    "a slow agent": {"slow_agent": 3, "slow_factor": 400.0, "agents": 7, "duration_s": 60},
    "everything failed": {"failed_share": 1.0, "duration_s": 10},
    "a drive": {"kind": "drive", "agents": 2, "ops": ("null",), "duration_s": 20},
    "two cells": {"cells": ("a", "b"), "duration_s": 20},
    "nothing": {"warmup_s": 5, "duration_s": 0.0},
    "a hostile op": {"ops": ("</script><script>alert(1)</script>",), "duration_s": 20},
}


def advised(root, **options):
    run = unruly.open_run(root)
    return unruly.analyse(run), unruly.advise(run, **options)


@pytest.mark.parametrize("name", SHAPES)
def test_advice_of_any_run_is_drawn_whole_on_a_phone(tmp_path, look, name):
    analysis, advice = advised(write_run(tmp_path / "run", **SHAPES[name]))
    path = write_advice(analysis, advice, tmp_path / "advice.html")
    whole_on_a_phone(look, path)


def test_a_page_of_advice_has_its_five_figures_and_no_other_question(tmp_path, look):
    analysis, advice = advised(write_run(tmp_path / "run", **SHAPES["a slow agent"]))
    seen = look(write_advice(analysis, advice, tmp_path / "advice.html"))
    assert set(drawn(seen)) == FIGURES | {"glance-0"}
    assert sections_of(seen) == ["help", "reading"]


def test_the_report_holds_the_same_figures_under_what_would_help(tmp_path, look):
    analysis, advice = advised(
        write_run(tmp_path / "run", **SHAPES["a slow agent"]), faults=2, confidence=0.9
    )
    seen = look(write_report([analysis], tmp_path / "report.html", [advice]))
    assert set(drawn(seen)) >= FIGURES
    inside = seen.ask("[...document.querySelectorAll('#help figure')].map((f) => f.id.slice(7))")
    assert set(inside) == FIGURES
    told = seen.page.inner_text("#help")
    assert "Fewer than 5 replicas are enough" in told
    assert "at most 1 of 4 peers was slower in 90 % of the windows" in told


def test_what_cannot_be_advised_is_a_table_of_reasons(tmp_path, look):
    analysis, advice = advised(write_run(tmp_path / "run", **SHAPES["a drive"]))
    seen = look(write_advice(analysis, advice, tmp_path / "advice.html"))
    assert "clients and servers are different" in seen.page.inner_text("#help table")
    assert set(drawn(seen)) == {"glance-0", "advice-detection-0", "advice-profit-0"}


def test_a_report_without_advice_is_as_it_was(tmp_path, look):
    plain = write_report([made(requests=60)], tmp_path / "a.html").read_bytes()
    assert plain == write_report([made(requests=60)], tmp_path / "b.html", [None]).read_bytes()
    assert b"advice-" not in plain
