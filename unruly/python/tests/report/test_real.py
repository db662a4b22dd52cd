"""The report of a real analysis: a synthetic run directory, read by `unruly.analyse`."""

from __future__ import annotations

import re

import pytest

import unruly
from arrival_logs import Operation, three, write_log
from planted import write_planted
from report.test_page import drawn, sections_of, whole_on_a_phone
from synthetic import write_run
from unruly.html import write_report


def report_of(tmp_path, *shapes):
    analyses = []
    for number, shape in enumerate(shapes):
        root = write_run(tmp_path / f"run-{number}", **shape)
        analyses.append(unruly.analyse(unruly.open_run(root)))
    return write_report(analyses, tmp_path / "report.html")


SHAPES = {
    "a mesh with a slow agent": {"slow_agent": 3, "duration_s": 60, "failed_share": 0.001},
    "one op and one agent": {"agents": 1, "ops": ("null",), "kind": "drive", "duration_s": 20},
    "two cells, repeated": {"cells": ("a", "b"), "repeats": 2, "duration_s": 20},
    "stolen by a late generator": {"generator_stalls_hz": 0.5, "duration_s": 40},
    "all failed": {"failed_share": 1.0, "duration_s": 10},
    "hardly a row": {"agents": 1, "ops": ("null",), "kind": "drive", "duration_s": 0.3},
    "all warm-up": {"warmup_s": 5, "duration_s": 0.0},
    "a hostile tag": {"tag": "</script><script>alert(1)</script>", "duration_s": 10},
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_real_analysis_is_drawn_whole_on_a_phone(tmp_path, look, name):
    path = report_of(tmp_path, SHAPES[name])
    whole_on_a_phone(look, path)


def test_what_made_requests_slow_is_drawn(tmp_path, look):
    run = write_planted(tmp_path / "run", ["hog beside the server", "gc pause", None], 3)
    path = write_report([unruly.analyse(unruly.open_run(run))], tmp_path / "report.html")
    whole_on_a_phone(look, path)
    seen = look(path)
    text = seen.page.inner_text("#slow")
    # of all cells, not of the first one
    assert re.search(r"(GC pause|CPU wait), store-", seen.page.inner_text(".statements"))
    assert "GC pause, store-" in text
    assert "waited for a CPU" in text
    assert "explains the 12 slow requests of read (clean 2)" in text


def test_a_planted_slow_agent_is_named_on_the_page(tmp_path, look):
    seen = look(report_of(tmp_path, SHAPES["a mesh with a slow agent"]))
    assert "agent-3 is the slowest receiver in the eyes of all 5" in seen.page.inner_text("#where")
    assert sections_of(seen)[:4] == ["trust", "promise", "unruly", "where"]


def test_real_environments_stand_side_by_side(tmp_path, look):
    seen = look(
        report_of(
            tmp_path,
            {"tag": "one", "duration_s": 20},
            {"tag": "two", "seed": 5, "slow_agent": 1, "duration_s": 20},
        )
    )
    assert "overlaid" in drawn(seen)


def test_an_arrival_log_is_drawn_whole_on_a_phone_under_its_own_heading(tmp_path, look):
    operations = [
        Operation(op, three(1 + n % 3, 2 + n % 5, 4 + n % 7 if n % 50 else None))
        for n in range(300)
        for op in ("read", "write")
    ]
    run = write_log(tmp_path / "run", operations)
    path = write_report([unruly.analyse(unruly.open_run(run))], tmp_path / "report.html")
    whole_on_a_phone(look, path)
    seen = look(path)
    assert "arrivals" in sections_of(seen)
    assert "arrivals-0" in drawn(seen)
    heading = seen.page.inner_text("#arrivals h2")
    assert heading == "First, quorum and all on the same operations"
