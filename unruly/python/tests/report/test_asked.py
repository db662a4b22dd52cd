"""What a report leaves out unless somebody asks, and what it says first."""

from __future__ import annotations

import re

import pytest

import unruly
from synthetic import write_run
from unruly.__main__ import main
from unruly.base.comparison import Compared, Comparison, Moved
from unruly.drawing.since import Since
from unruly.drawing.view import views_of
from unruly.html import comparison_sections
from unruly.stats import Interval
from unruly.topics.over_time.figures import timeline

DRIVE = {"agents": 1, "ops": ("read", "write"), "kind": "drive", "duration_s": 20}
MANIFEST = {
    "target": "redis://h:1: 16 clients, 2k/s, evenly; write then read; 20s after 2s of warm-up",
    "command": ["unruly", "drive", "redis://h:1", "--until", "p99 within 10%"],
}
FACTS = ("false suspicion", "XFT", "by the default table", "Jaccard", "initiators", "Node or link?")


@pytest.fixture(scope="module")
def drive(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("drive") / "run", **DRIVE, manifest=MANIFEST)


def page_of(tmp_path, *arguments):
    output = tmp_path / "report.html"
    assert main(["report", *map(str, arguments), "-o", str(output)]) == 0
    page = output.read_text(encoding="utf-8")
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_a_page_says_what_was_measured_and_how_to_repeat_it(drive, tmp_path):
    page = page_of(tmp_path, drive)
    assert "<h1>redis://h:1</h1>" in page
    assert "16 clients, 2k/s, evenly; write then read; 20s after 2s of warm-up." in page
    assert "unruly drive redis://h:1 --until &#39;p99 within 10%&#39;" in page
    assert "2026-09-21 14:13:20 UTC" in page


def test_a_run_of_clients_and_a_server_holds_nothing_that_nobody_asked(drive, tmp_path):
    page = page_of(tmp_path, drive)
    assert [word for word in FACTS if word in page] == []
    assert "What would help?" not in page


def test_advice_is_there_when_somebody_asks(drive, tmp_path):
    page = page_of(tmp_path, drive, "--advice")
    assert "false suspicion" in page
    assert "by the default table" in page


@pytest.mark.slow
def test_a_group_has_advice_without_a_table_of_prices(tmp_path):
    page = page_of(tmp_path, write_run(tmp_path / "mesh", agents=4, duration_s=20))
    assert "false suspicion" in page
    assert "by the default table" not in page


@pytest.mark.slow
def test_a_spoiled_group_has_no_advice(tmp_path):
    run = write_run(tmp_path / "mesh", agents=3, duration_s=20, generator_stalls_hz=2.0)
    assert not unruly.analyse(unruly.open_run(run), causes=False, pictures=False).trustworthy
    assert "false suspicion" not in page_of(tmp_path, run)


@pytest.mark.slow
def test_a_server_that_died_is_the_first_answer(tmp_path):
    faults = (("base", "kill", "store-0", 5.6, 99.0),)
    page = page_of(tmp_path, write_run(tmp_path / "run", **DRIVE, faults=faults))
    first = page[page.index('<dl class="statements">') :][:600]
    assert '<div class="bad"><dt>Did it work?</dt>' in first
    assert re.search(r"7\d(\.\d)?\s% failed", first)
    assert "to the end every request was refused." in first
    assert "Next: Is the server running?" in page


@pytest.mark.slow
def test_named_runs_are_compared_before_each_of_them(drive, tmp_path):
    other = write_run(tmp_path / "other", **DRIVE, seed=5)
    page = page_of(tmp_path, f"before={drive}", f"after={other}")
    assert "<h1>after against before</h1>" in page
    assert "Does after differ from before?" in page
    assert page.index("Is it different?") < page.index('<details class="run"')
    assert page.count('<details class="run"') == 2


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("different", "b differs from a"),
        ("not shown", "b is not shown to differ from a"),
        ("undecided", "It is undecided whether b differs from a"),
    ],
)
def test_the_title_of_a_comparison_says_what_was_decided(outcome, words):
    moved = (
        Moved("p50", 1e6, 1.1e6, Interval(1.1, 0.9, 1.3, 0.95, 100, None, "blocks"), "not shown"),
    )
    none = Interval(0.0, None, None, 0.95, 100, None, "blocks")
    found = Compared("a", "b", "", "read", "", 0.5, moved, none, none, outcome, "so", "then")
    (section,) = comparison_sections(Comparison("response", 0.25, (found,), ()))
    (figure,) = section.parts[0].figures
    assert figure.title == words


def test_a_picture_over_time_has_times_of_day_and_claims_no_drift_that_was_not_found(drive):
    analysis = unruly.analyse(unruly.open_run(drive))
    (view,) = views_of([analysis])
    figure = timeline(view)
    assert "p99-moved" not in {it.code for it in analysis.findings}
    assert "moved" not in figure.title
    assert re.search(r"after the start \(14:13:\d\d UTC\)$", figure.title)
    axis = figure.panels[0].spec["layer"][-1]["encoding"]["x"]
    assert axis["title"] == "time since the start (s), and of day (UTC)"
    assert "utcFormat(1790000000" in axis["axis"]["labelExpr"]


def test_a_source_without_times_of_day_shows_none(tmp_path):
    run = write_run(tmp_path / "run", **DRIVE)
    (view,) = views_of([unruly.analyse(unruly.open_run(run))])
    since = Since.of(view, 5e9, 25e9)
    assert since.title == "time since the start (s)"
    assert since.when(2.57) == "2.57 s after the start"
