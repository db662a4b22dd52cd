"""What the report promises its reader, looked at in a real Chromium."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from report.conftest import DRAWN, LAPTOP, PHONE
from report.made import empty, made
from unruly.html import write_report

SIZE_MAX = 3_000_000
QUESTIONS = ["trust", "promise", "unruly", "where", "slow", "help"]
OVERFLOW = "document.documentElement.scrollWidth - window.innerWidth"
EMPTY_CHARTS = """
  [...document.querySelectorAll(".chart")].filter((chart) => {
    const svg = chart.querySelector("svg");
    const marks = svg ? svg.querySelectorAll(
      ".mark-line path, .mark-symbol path, .mark-rect path, .mark-rule line").length : 0;
    const width = svg ? svg.getBoundingClientRect().width : 0;
    return chart.dataset.drawn !== "yes" || marks === 0 || width < 100;
  }).map((chart) => chart.dataset.panel)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_report([made()], tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    runs = [
        made(),
        made(tag="cloud", speed=0.5, seed=2),
        made(tag="cluster", speed=2, seed=3, slow=None),
    ]
    return write_report(runs, tmp_path_factory.mktemp("several") / "report.html")


def sections_of(seen):
    return seen.ask("[...document.querySelectorAll('section.question')].map((s) => s.id)")


def whole_on_a_phone(look, path):
    """Every figure is drawn, nothing runs over the edge, no script of a run's has its way."""
    seen = look(path, PHONE)
    drawn(seen)
    assert seen.dialogs == []
    assert seen.ask(OVERFLOW) <= 0
    assert path.stat().st_size <= SIZE_MAX
    assert "NaN" not in seen.page.inner_text("main")


def drawn(seen):
    seen.ask("document.querySelectorAll('details.run').forEach((d) => { d.open = true; })")
    assert seen.errors == []
    assert seen.ask(EMPTY_CHARTS) == []
    assert seen.ask("document.querySelectorAll('.broken').length") == 0
    return seen.ask("[...document.querySelectorAll('figure')].map((f) => f.id.slice(7))")


def test_every_figure_is_really_drawn(whole, look):
    figures = drawn(look(whole))
    wanted = {
        "glance",
        "send-lag",
        "promises",
        "distribution",
        "workloads",
        "group-size",
        "kth",
        "timeline",
        "matrix",
        "members",
        "slow-windows",
        "slow-counts",
        "sensitivity",
        "correlations",
        "scatters",
    }
    assert {f"{name}-0" for name in wanted} == set(figures)


def test_every_figure_is_drawn_in_the_dark_scheme_in_other_colours(whole, look):
    light, dark = look(whole), look(whole, scheme="dark")
    drawn(dark)
    colour = (
        'getComputedStyle(document.querySelector(\'[data-panel="distribution-0-0"] '
        ".mark-line path')).stroke"
    )
    assert light.ask(colour) != dark.ask(colour)


def test_figures_follow_when_the_reader_changes_the_scheme(whole, look):
    seen = look(whole)
    label = (
        'getComputedStyle(document.querySelector(\'[data-panel="send-lag-0-0"] '
        ".role-axis-label text')).fill"
    )
    before = seen.ask(label)
    seen.page.emulate_media(color_scheme="dark")
    seen.page.wait_for_function(f"{label} !== '{before}'")
    seen.page.wait_for_function(DRAWN)
    drawn(seen)


COLOURS_ON_PAPER = """
  [...document.querySelectorAll(".chart .role-axis text, main h1, main td, main p, main dd")]
    .flatMap((mark) => { const style = getComputedStyle(mark);
      return [mark.closest("svg") ? style.fill : style.color]; })
"""


def luminance(colour):
    red, green, blue = (float(it) / 255 for it in re.findall(r"[\d.]+", colour)[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_paper_has_light_colours_also_when_the_screen_is_dark(whole, look):
    seen = look(whole, scheme="dark")
    seen.page.emulate_media(media="print")
    drawn_in = {it for it in seen.ask(COLOURS_ON_PAPER) if it.startswith("rgb(")}
    assert len(drawn_in) > 3
    assert max(luminance(it) for it in drawn_in) < 0.6


def test_printing_opens_every_table_and_closes_it_again(whole, look):
    seen = look(whole)
    closed = "document.querySelectorAll('details:not([open])').length"
    before = seen.ask(closed)
    assert before > 5
    seen.ask("dispatchEvent(new Event('beforeprint'))")
    assert seen.ask(closed) == 0
    seen.ask("dispatchEvent(new Event('afterprint'))")
    assert seen.ask(closed) == before


def test_nothing_is_fetched(whole, look):
    seen = look(whole)
    assert seen.requests == [whole.resolve().as_uri()]
    page = whole.read_text(encoding="utf-8")
    assert not re.search(r"<[^>]+\s(?:src|href|srcset|action)\s*=\s*[\"']?\s*(?:https?:)?//", page)
    assert not re.search(r"(?:fetch|importScripts|import)\(\s*[\"']https?://", page)
    assert not re.search(r"@import|url\(\s*[\"']?https?:", page)


def test_a_script_that_was_smuggled_in_does_not_run(whole, tmp_path, look):
    page = whole.read_text(encoding="utf-8")
    bad = tmp_path / "bad.html"
    smuggled = "<main><img src=x onerror='window.bad=1'><script>window.bad=1</script>"
    bad.write_text(page.replace("<main>", smuggled, 1), encoding="utf-8")
    assert look(bad).ask("window.bad === undefined")


def test_one_run_stays_within_three_megabytes(whole):
    assert whole.stat().st_size <= SIZE_MAX


@pytest.mark.slow
def test_several_runs_stay_within_three_megabytes(several):
    assert several.stat().st_size <= SIZE_MAX


def test_the_engine_is_embedded_once(several):
    page = several.read_text(encoding="utf-8")
    assert page.count("window.vegaEmbed=") == 1
    assert page.count("<script") == page.count("</script>") == 3


@pytest.mark.parametrize(
    "size", [LAPTOP, PHONE, {"width": 360, "height": 740}], ids=["laptop", "phone", "small"]
)
def test_the_page_never_scrolls_sideways(whole, look, size):
    seen = look(whole, size)
    seen.ask("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert seen.ask(OVERFLOW) <= 0
    drawn(seen)


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_several_environments_never_scroll_sideways(several, look, size):
    seen = look(several, size)
    assert seen.ask(OVERFLOW) <= 0
    drawn(seen)


def test_contents_stay_in_sight_on_a_laptop(whole, look):
    seen = look(whole)
    seen.ask("document.documentElement.style.scrollBehavior = 'auto'; window.scrollTo(0, 6000)")
    top = seen.ask("document.querySelector('nav').getBoundingClientRect().top")
    assert abs(top) < 1


def test_every_chart_has_words_for_those_who_cannot_see_it(whole, look):
    words = look(whole).ask(
        "[...document.querySelectorAll('.chart')].map((c) => c.getAttribute('aria-label'))"
    )
    assert words
    assert all(len(text) > 30 for text in words)


def test_sections_follow_the_questions_of_a_reader(whole, look):
    assert sections_of(look(whole)) == [*QUESTIONS, "reading"]


def test_sections_without_anything_to_say_are_absent(tmp_path, look):
    path = write_report([made(explained=False, helped=False)], tmp_path / "r.html")
    seen = look(path)
    assert sections_of(seen) == [*QUESTIONS[:4], "reading"]
    assert "What would help?" not in seen.page.content()


def test_an_empty_run_says_that_nothing_was_measured(tmp_path, look):
    path = write_report([empty()], tmp_path / "r.html")
    seen = look(path)
    assert drawn(seen) == []
    assert "No measured reply is in this run" in seen.page.inner_text("main")
    assert "NaN" not in seen.page.inner_text("main")


def test_an_empty_run_beside_a_whole_one_is_named_so(tmp_path, look):
    path = write_report([made(), empty(tag="nothing")], tmp_path / "r.html")
    seen = look(path)
    drawn(seen)
    assert "nothing" in seen.page.inner_text("#environments")


def test_one_op_and_one_agent_are_enough(tmp_path, look):
    run = made(ops=("echo",), agents=1, sizes=(1,), slow=None)
    seen = look(write_report([run], tmp_path / "r.html"))
    assert "distribution-0" in drawn(seen)


def test_a_run_in_which_everything_failed_shows_no_percentile(tmp_path, look):
    run = made(failed_share=0.3, ops=("null",))
    seen = look(write_report([run], tmp_path / "r.html"))
    drawn(seen)
    assert "failed or never came" in seen.page.inner_text(".counts")
    assert "slower than every reply that came" in seen.page.inner_text(".counts")


def test_many_cells_and_many_ops_do_not_break_the_page(tmp_path, look):
    cells = tuple(f"payload={2**i} clients={c}" for i in range(4) for c in (1, 4, 7, 10))
    run = made(
        cells=cells, ops=tuple(f"op-{i}" for i in range(12)), requests=15, agents=3, sizes=(3,)
    )
    path = write_report([run], tmp_path / "r.html")
    assert path.stat().st_size <= SIZE_MAX
    assert "cells-0" in drawn(look(path, PHONE))


def test_several_environments_stand_side_by_side(several, look):
    seen = look(several)
    figures = drawn(seen)
    assert sections_of(seen)[0] == "environments"
    assert {
        "overlaid",
        "environment-workloads",
        "environment-slow",
        "environment-correlations",
    } <= set(figures)
    head = seen.ask(
        "[...document.querySelectorAll('#environments thead th')].map((t) => t.innerText)"
    )
    assert head[1:] == ["laptop", "cloud", "cluster"]
    assert {"timeline-0", "timeline-1", "timeline-2"} <= set(figures)


def test_several_runs_are_one_table_and_closed_details(several, look):
    seen = look(several)
    rows = seen.ask(
        "[...document.querySelectorAll('#environments tbody th')].map((t) => t.innerText)"
    )
    assert rows[:5] == [
        "measured", "did it work", "can I trust it", "what can I promise", "why were some slow",
    ]  # fmt: skip
    runs = "[...document.querySelectorAll('details.run')].map((d) => d.open)"
    assert seen.ask(runs) == [False, False, False]
    assert seen.ask("document.documentElement.scrollHeight") < 6_000


def test_a_run_opens_when_its_name_is_followed(several, look):
    seen = look(several)
    seen.page.click("nav a[href='#run-1']")
    assert seen.ask("document.querySelector('#run-1').open")
    assert (
        seen.ask("document.querySelector('#figure-timeline-1 svg').getBoundingClientRect().width")
        > 600
    )


@pytest.mark.slow
def test_a_workload_of_one_run_only_has_no_picture_of_a_single_bar(tmp_path):
    runs = [made(ops=("read", "write")), made(ops=("read",), tag="other")]
    page = write_report(runs, tmp_path / "r.html").read_text(encoding="utf-8")
    assert 'data-panel="environment-workloads-0"' in page
    assert 'data-panel="environment-workloads-1"' not in page


def test_two_runs_of_one_environment_are_told_apart(tmp_path, look):
    seen = look(write_report([made(), made(seed=9)], tmp_path / "r.html"))
    head = seen.ask(
        "[...document.querySelectorAll('#environments thead th')].map((t) => t.innerText)"
    )
    assert len(set(head)) == len(head)


HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<!--<script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)\u2028\u2029",
    "<svg/onload=alert(1)>",
    "a\\' + alert(1) + \"\\",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_shown_as_text_and_does_nothing(tmp_path, look, name):
    run = made(
        tag=name,
        name=name,
        node=name,
        ops=("null", name),
        missing=(name,),
        requests=60,
        cells=(name,),
    )
    findings = [
        replace(f, title=name, text=name, suggestion=name, evidence={name: name})
        for f in run.findings
    ]
    path = write_report([replace(run, findings=findings)], tmp_path / "r.html")
    seen = look(path)
    drawn(seen)
    seen.page.hover("[data-panel='timeline-0-0'] svg")
    assert seen.dialogs == []
    assert (
        seen.ask(
            "document.querySelectorAll('main script, img, main [onerror], main "
            "[onmouseover]').length"
        )
        == 0
    )
    assert " ".join(name.split()) in " ".join(
        seen.ask("document.querySelector('h1').textContent").split()
    )
    assert path.read_text(encoding="utf-8").count("<script") == 3


def test_half_a_letter_in_a_manifest_does_not_stop_the_report(tmp_path, look):
    run = made(tag="\ud800 half", name="\udfff", requests=60)
    drawn(look(write_report([run, made(requests=60)], tmp_path / "r.html")))


def test_a_spoiled_run_says_so_first_and_promises_nothing(tmp_path, look):
    seen = look(write_report([made(spoiled=True)], tmp_path / "r.html"))
    answers = seen.ask("[...document.querySelectorAll('.answer')].map((a) => a.innerText)")
    assert answers[1:3] == ["No", "Nothing"]
    assert "The load generator itself was late" in seen.page.inner_text(".statements")


def test_the_verdict_gives_the_promise_with_its_level(whole, look):
    words = look(whole).page.inner_text(".statements")
    assert re.search(r"99\s%\s+within\s[\d.]+\s(µs|ms|s)", words)
    assert re.search(r"95\s% confidence", words)


def test_response_and_service_time_stand_side_by_side(whole, look):
    titles = look(whole).ask(
        "[...document.querySelectorAll('#figure-distribution-0 .panel-title')].map((t) => "
        "t.innerText)"
    )
    assert titles == ["Response time", "Service time"]


def test_an_absent_value_is_a_dash_with_its_reason(whole, look):
    seen = look(whole)
    reasons = seen.ask(
        "[...document.querySelectorAll('.absent')].map((a) => [a.firstChild.textContent, a.title])"
    )
    assert reasons
    assert all(text == "\u2013" and len(why) > 5 for text, why in reasons)
    everything = seen.ask("document.querySelector('main').textContent")
    assert not re.search(r"\b(NaN|None|nan|inf|Infinity|undefined)\b", everything)


def test_figures_title_what_they_show_in_one_sentence(whole, look):
    titles = look(whole).ask("[...document.querySelectorAll('.claim')].map((t) => t.innerText)")
    assert all(len(title) > 25 for title in titles)
    assert len(set(titles)) == len(titles)


@pytest.mark.slow
def test_the_same_run_gives_the_same_page(tmp_path):
    one = write_report([made(requests=60)], tmp_path / "a.html").read_bytes()
    assert one == write_report([made(requests=60)], tmp_path / "b.html").read_bytes()


def test_the_processes_that_a_cpu_limit_held_back_are_a_table(whole):
    page = whole.read_text(encoding="utf-8")
    assert "Processes that a CPU limit held back" in page
    assert "time throttled" in page


def test_no_run_at_all_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one run"):
        write_report([], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_a_hostile_environment_beside_another_is_inert(tmp_path, look):
    runs = [made(tag=HOSTILE[1], requests=60), made(tag=HOSTILE[4], requests=60)]
    seen = look(write_report(runs, tmp_path / "r.html"))
    drawn(seen)
    head = "[...document.querySelectorAll('#environments thead th')].map((t) => t.textContent)"
    assert seen.ask(head)[1:] == [HOSTILE[1], HOSTILE[4]]
    assert seen.dialogs == []
