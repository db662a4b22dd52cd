"""What a notebook shows of a run: the requests that count, numbers with intervals, short values."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from html import escape, unescape

import pandas as pd
import pytest

import unruly
from synthetic import write_run
from unruly.__main__ import main
from unruly.base.estimate import Estimate
from unruly.base.operation import FRAME, PERCENTILES
from unruly.drawing import distribution
from unruly.drawing.view import views_of
from unruly.errors import ComparisonError
from unruly.html.javascript import licences
from unruly.shown import LINE_MAX, ROWS_MAX, Sheet, html_of


@pytest.fixture(scope="module")
def warmed_up(tmp_path_factory):
    """A run with a warm-up, failures, and two cells that have the same operations."""
    root = tmp_path_factory.mktemp("warm") / "run"
    write_run(
        root, ops=("read", "write"), cells=("one", "two"), duration_s=20, warmup_s=5,
        failed_share=0.01, agents=3,
    )  # fmt: skip
    run = unruly.open_run(root)
    return run, unruly.analyse(run, causes=False)


def test_measured_requests_are_those_that_the_analysis_counts(warmed_up):
    run, analysis = warmed_up
    rows = run.measured.group_by("cell", "op").agg(
        n=lambda rows: rows.count(), failed=lambda rows: (~rows.ok).sum()
    )
    counted = {
        (it["cell"], it["op"]): (it["n"], it["failed"]) for it in rows.to_pyarrow().to_pylist()
    }
    assert len(counted) == 4
    for (cell, op), (n, failed) in counted.items():
        summary = analysis.cell(op, cell=cell)
        assert (summary.n, summary.failed) == (n, failed)
    assert int(run.requests.count().to_pyarrow().as_py()) > sum(n for n, _ in counted.values())


def test_an_estimate_prints_its_unit_once_and_its_interval():
    assert str(Estimate(4.93e6, 4.1e6, 5.96e6, 0.95)) == "4.9 ms [4.1, 6.0]"
    assert str(Estimate(4.93e6, 4.88e6, 4.99e6, 0.95)) == "4.93 ms [4.88, 4.99]"
    assert str(Estimate(1.23e9, 0.9e9, 1.9e9, 0.95)) == "1.2 s [0.9, 1.9]"
    assert str(Estimate(284e3, 271e3, 313e3, 0.95)) == "284 µs [271, 313]"
    assert str(Estimate(284.0, 250.0, 300.0, 0.95)) == "284 ns [250, 300]"
    assert str(Estimate(0.012, 0.004, 0.03, 0.95, unit="share")) == "1.2 % [0.4, 3.0]"
    assert str(Estimate(0.0, 0.0, 0.5e6, 0.95)) == "0 µs [0, 500]"
    assert str(Estimate(0.0, 0.0, 0.0, 0.95)) == "0 s [0, 0]"
    assert repr(Estimate(2e6)) == "2 ms"


def test_an_estimate_without_an_interval_says_why():
    reason = "not enough data; run about 3 min"
    assert str(Estimate(4.93e6, reason=reason)) == f"4.93 ms (no interval: {reason})"
    assert str(Estimate(None, reason="nothing was measured")) == "none (nothing was measured)"


def test_an_estimate_is_a_number_in_any_unit():
    found = Estimate(4.5e6, 4e6, 5e6, 0.95)
    assert (found.us, found.ms, found.s) == (4500.0, 4.5, 0.0045)
    assert float(found) == 4.5e6
    assert pd.isna(Estimate(None).ms)


def test_an_operation_has_the_numbers_of_its_summary(clean):
    summary, disk = clean.cell("disk"), clean["disk"]
    assert (disk.op, disk.cell, disk.n) == ("disk", summary.cell, summary.n)
    for name, field in PERCENTILES.items():
        assert disk.statistics()[name].value == getattr(summary, field)
    interval = summary.p99_interval
    assert (disk.p99.value, disk.p99.low, disk.p99.high) == (
        summary.p99, interval.low, interval.high,
    )  # fmt: skip
    assert disk.service.p99.value == clean.cell("disk", "service").p99
    assert disk.service.response.p99 == disk.p99
    assert float(disk.failed) == 0.0


def test_a_p99_of_a_run_that_is_too_short_says_how_long_would_do(analysed):
    p99 = analysed(agents=2, ops=("null",), duration_s=4)["null"].p99
    assert p99.low is None
    assert "(no interval: not enough data; run about" in str(p99)


def test_a_number_that_failures_hide_says_so(slow):
    mean = slow["null"].mean
    assert mean.value is None
    assert "requests failed" in str(mean)
    assert 0 < float(slow["null"].failed) < 0.1


def test_an_unknown_operation_lists_those_that_exist(clean):
    with pytest.raises(KeyError) as error:
        clean["disc"]
    assert isinstance(error.value, unruly.UnrulyError)
    assert str(error.value) == (
        "operation 'disc': does not exist; "
        "hint: did you mean 'disk'? this run has crypto, disk, null, *"
    )
    with pytest.raises(unruly.UnknownNameError, match=r"operation 'x'.*this run has crypto"):
        clean.cell("x")
    with pytest.raises(unruly.UnknownNameError, match=r"latency 'servise'.*mean 'service'"):
        clean.cell("disk", "servise")


def test_an_operation_of_several_cells_needs_the_cell(warmed_up):
    _, analysis = warmed_up
    with pytest.raises(
        unruly.UnknownNameError, match=r"one, two; hint: .*analysis\['read', 'one'\]"
    ):
        analysis["read"]
    assert analysis["read", "two"].summary == analysis.cell("read", cell="two")
    with pytest.raises(unruly.UnknownNameError, match="cell 'three': does not exist"):
        analysis["read", "three"]


def test_the_frame_has_a_row_for_each_statistic_with_the_numbers_of_the_summary(slow):
    frame = slow.frame()
    assert tuple(frame.columns) == FRAME
    assert not frame.duplicated(["cell", "op", "latency", "statistic"]).any()
    assert len(frame) == len(slow.cells) * frame["statistic"].nunique()
    for summary in slow.cells:
        rows = frame[(frame.cell == summary.cell) & (frame.op == summary.op)]
        rows = rows[rows.latency == summary.latency].set_index("statistic")
        assert rows.loc["p90", "estimate"] == summary.p90
        assert rows.loc["failed", "estimate"] == summary.failed / summary.n
        assert set(rows["n"]) == {summary.n}
    missing = frame[frame["estimate"].isna()]
    assert len(missing)
    assert missing["reason"].str.len().gt(0).all()


def test_what_a_notebook_prints_of_a_value_is_one_short_line(clean, slow):
    for value in (clean, clean.run, clean["disk"], *slow.cells, *slow.groups, *slow.findings):
        text = repr(value)
        assert "\n" not in text
        assert len(text) <= LINE_MAX + 30, text
        assert type(value).__name__ in text


def test_every_part_of_an_analysis_is_short(slow):
    for it in fields(slow):
        value = getattr(slow, it.name)
        if not isinstance(value, (dict, list, tuple, pd.DataFrame)):
            assert len(repr(value)) <= 500, it.name
    assert "named: 1" in repr(slow.slow_nodes)
    assert "pairs" in slow.slow_nodes._repr_html_()


def test_a_notebook_shows_a_small_table_of_a_value(clean):
    for value in (clean, clean.run, clean["disk"], clean.cells[0], clean.findings[0]):
        html = value._repr_html_()
        assert html.startswith("<div>")
        assert len(html) < 5_000
        assert "color" not in html
    assert clean["disk"].p99.__str__() in clean._repr_html_()


def test_text_of_a_run_cannot_become_markup(clean):
    evil = "<script>alert(1)</script>"
    run = replace(clean.run, manifest={**clean.run.manifest, "name": evil, "tag": evil})
    cells = [replace(row, op=evil, cell=evil) for row in clean.cells]
    analysis = replace(clean, run=run, cells=cells)
    for value in (run, analysis, cells[0], analysis[evil, evil] if len(cells) == 2 else cells[1]):
        html = value._repr_html_()
        assert "<script" not in html
        assert "&lt;script&gt;" in html


def test_a_long_table_is_cut_and_says_how_much_is_left():
    rows = [(str(number), "x") for number in range(ROWS_MAX + 3)]
    html = html_of(Sheet("many", ("number", "letter"), rows))
    assert html.count("<tr>") == ROWS_MAX + 1
    assert "and 3 more rows" in html


def test_a_function_takes_a_path_a_run_or_an_analysis(clean_run, clean, tmp_path):
    written = [
        unruly.export(given, tmp_path / f"{place}.hgrm", op="disk").read_text(encoding="utf-8")
        for place, given in enumerate((clean_run, clean.run, clean))
    ]
    assert len(set(written)) == 1


@pytest.mark.slow
def test_the_gate_of_a_program_judges_as_the_verb_does(clean_run, tmp_path, capsys):
    limits = tmp_path / "limits.toml"
    limits.write_text(
        '[[limit]]\nstatistic = "p99"\nop = "disk"\nat_most = "1us"\nname = "too fast"\n'
        '[[limit]]\nstatistic = "p99"\nat_most = "10min"\n',
        encoding="utf-8",
    )
    held = unruly.gate(clean_run, limits)
    assert held.outcome == "broken"
    code = main(["gate", str(clean_run), str(limits)])
    assert capsys.readouterr().out == f"{held}\n"
    assert code == held.exit_code() != 0
    assert "broken" in repr(held)
    assert len(repr(held)) <= LINE_MAX + 30
    assert "too fast" in held._repr_html_()
    easy = unruly.Limit("easy", "p99", at_most=60e9, op="disk")
    assert unruly.gate(clean_run, [easy]).outcome == "held"


def test_a_gate_says_that_the_run_is_spoiled_before_any_limit(analysed):
    spoiled = analysed(agents=3, ops=("null",), duration_s=20, dropped=5)
    limit = unruly.Limit("any", "p99", at_most=60e9, op="null")
    assert unruly.gate(spoiled, [limit]).outcome == "spoiled"


def test_a_comparison_of_a_program_is_that_of_the_verb(clean_run, slow_run, capsys):
    found = unruly.compare(clean_run, [slow_run], names=["old", "new"], op="disk")
    main(["compare", f"old={clean_run}", f"new={slow_run}", "--op", "disk"])
    assert capsys.readouterr().out == unruly.compare_text(found) + "\n"
    assert found.different
    assert "new against old" in repr(found)
    for value in (found, found.results[0]):
        assert len(repr(value)) <= LINE_MAX + 30
        assert "p99" in found.results[0]._repr_html_()


def test_a_comparison_names_its_mistakes(clean_run, slow_run):
    with pytest.raises(ComparisonError, match="names: are 1; 2"):
        unruly.compare(clean_run, slow_run, names=["one"])
    with pytest.raises(ComparisonError, match="names: are not unique: run, run"):
        unruly.compare(clean_run, slow_run)
    with pytest.raises(ComparisonError, match="factor: and several runs, 2"):
        unruly.compare(clean_run, slow_run, factor="size")


def test_an_imported_file_opens_as_a_run(tmp_path):
    file = tmp_path / "latencies.csv"
    file.write_text("ms\n" + "5\n7\n" * 50, encoding="utf-8")
    done = unruly.import_file(file, tmp_path / "run", value="ms", unit="ms", time="none")
    assert len(unruly.open_run(done).measured.to_pyarrow()) == 100
    assert "100 requests; 0 lines refused" in repr(done)
    with pytest.raises(unruly.IngestError):
        unruly.import_file(file, tmp_path / "run")


def test_advice_and_outcomes_are_short(clean):
    limit = unruly.Limit("any", "p99", at_most=60e9)
    for value in (unruly.advise(clean.run), *unruly.gate(clean, [limit]).outcomes):
        assert len(repr(value)) <= LINE_MAX + 30
        assert "\n" not in repr(value)


def test_a_plot_is_the_figure_of_the_report(clean):
    (view,) = views_of([clean])
    figure = distribution.distribution(view)
    plot = clean.plot.cdf()
    assert (plot.title, plot.caption) == (figure.title, figure.caption)
    assert len(plot.spec["concat"]) == len(figure.panels)
    panels = [panel.spec for panel in figure.panels]
    assert _data(plot.spec["concat"]) == _data(panels)


def test_a_plot_is_a_picture_with_the_units_of_the_page(clean):
    svg = clean.plot.cdf().svg
    assert svg.startswith("<svg")
    for text in ("1 ms", "10 ms", "p99", "disk", "crypto"):
        assert f">{text}<" in svg


@pytest.mark.slow
def test_every_plot_is_plain_vega_lite_or_says_why_it_is_none(slow):
    drawn = 0
    for name in (it for it in vars(type(slow.plot)) if not it.startswith("_")):
        assert "PlotError" in getattr(type(slow.plot), name).__doc__
        try:
            plot = getattr(slow.plot, name)()
        except unruly.PlotError:
            continue
        drawn += 1
        assert not {"latency", "size", "amount", "share"} & {
            it["formatType"] for it in _with(plot.spec, "formatType")
        }
        plot.chart.to_dict()  # Altair checks it against the schema
        assert "<svg" in plot._repr_html_()
        assert f"<figcaption>{escape(plot.caption)}</figcaption>" in plot._repr_html_()
        assert len(repr(plot)) < 300
    assert drawn >= 8


def test_a_plot_that_has_nothing_to_draw_says_why(clean_run):
    bare = unruly.analyse(unruly.open_run(clean_run), pictures=False, causes=False)
    with pytest.raises(unruly.PlotError, match="no request was answered, or the analysis was made"):
        bare.plot.cdf()


def test_a_plot_is_saved_in_the_form_that_its_name_ends_in(clean, tmp_path):
    plot = clean.plot.promises()
    assert plot.save(tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<svg")
    assert plot.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(plot.save(tmp_path / "a.json").read_text())["concat"]
    page = plot.save(tmp_path / "a.html").read_text(encoding="utf-8")
    assert licences() in page, "the licence of Vega demands it in every copy"
    with pytest.raises(unruly.PlotError, match=r"ends in '\.gif'"):
        plot.save(tmp_path / "a.gif")


def test_names_of_a_run_cannot_become_markup_in_a_plot(clean):
    evil = "<script>alert(1)</script>"
    frame = clean.distribution.replace({"op": {"disk": evil}})
    cells = [replace(row, op=evil) if row.op == "disk" else row for row in clean.cells]
    plot = replace(clean, cells=cells, distribution=frame).plot.cdf()
    assert evil in plot.title
    assert "<script" not in plot._repr_html_()


def test_a_promise_prints_what_it_promises(clean):
    promise = clean["disk"].promise
    assert promise is clean.cell("disk").ladder.highest
    assert "of requests within" in repr(promise)
    assert len(repr(clean.cell("disk").ladder)) <= LINE_MAX + 30


@pytest.mark.slow
def test_the_report_of_a_program_is_the_page_of_the_verb(clean_run, clean, tmp_path):
    mine = unruly.report(clean, tmp_path / "mine.html", names=["run"])
    assert licences() in unescape(mine.read_text(encoding="utf-8")), "Vega's licence demands it"
    assert main(["report", str(clean_run), "-o", str(tmp_path / "verb.html")]) == 0
    assert mine.read_text(encoding="utf-8") == (tmp_path / "verb.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_report_of_two_runs_compares_them(clean, slow, tmp_path):
    page = unruly.report([clean, slow], tmp_path / "both.html", names=["before", "after"])
    assert "after against before" in page.read_text(encoding="utf-8")


def _data(specs):
    """What the charts of some specifications draw."""
    return {json.dumps(it["data"], sort_keys=True) for it in _with(specs, "data")}


def _with(value, key):
    """Every part of a specification that has a key."""
    if isinstance(value, list):
        return [found for inner in value for found in _with(inner, key)]
    if not isinstance(value, dict):
        return []
    return ([value] if key in value else []) + _with(list(value.values()), key)
