"""The view of a matrix finds the planted effects, and gives reasons for absent values."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

import unruly
from synthetic import write_run
from test_findings import MATRIX, ODD
from unruly.__main__ import main
from unruly.drawing.view import views_of
from unruly.html import write_report
from unruly.output.summary import summary
from unruly.stats import Interval, line_fit
from unruly.topics.factors import figures as matrix
from unruly.topics.factors import statistics as magical
from unruly.topics.factors import systems
from unruly.topics.factors.figures_systems import systems as systems_table


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Twice as slow when large, and a tail in one cell."""
    root = write_run(
        tmp_path_factory.mktemp("matrix") / "run",
        **{
            **MATRIX,
            "repeats": 4,
            "cell_scale": {"size=large load=low": 2.0, ODD: 2.0},
            "cell_tails": {ODD: (0.005, 100.0)},
        },
    )
    return unruly.analyse(unruly.open_run(root), causes=False)


@pytest.mark.slow
def test_an_interaction_is_told_on_request_only(planted, tmp_path, capsys):
    """Planted: large is slower under high load only, which neither factor alone explains."""
    root = write_run(
        tmp_path / "run", **{**MATRIX, "repeats": 4, "cell_scale": {ODD: 4.0}}, tag="interaction"
    )
    found = unruly.analyse(unruly.open_run(root), interactions=True)
    effects = {it.factor: it for it in found.magical.explained[0].effects}
    (name,) = set(effects) - {"drive.payload", "drive.clients", "residual"}
    assert set(name.split(":")) == {"drive.payload", "drive.clients"}
    assert effects[name].p_value < 1e-6
    assert not any(":" in it.factor for it in planted.magical.explained[0].effects)
    assert main(["verdict", str(root), "--interactions", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["magical"]["explained"][0]["effects"]
    assert name in [it["factor"] for it in told]


def test_cells_beyond_the_most_that_a_view_holds_are_told(planted, tmp_path, monkeypatch):
    monkeypatch.setattr(magical, "CELLS_MAX", 3)
    cut = unruly.analyse(planted.run)
    assert len(cut.magical.cells) == 3
    assert cut.magical.notes == ("1 cells beyond the first 3 are left out",)
    page = write_report([cut], tmp_path / "report.html").read_text()
    assert "1 cells beyond the first 3 are left out." in page
    assert planted.magical.notes == ()


def rows_of(analysis, cell):
    table = analysis.run.requests
    frame = table.filter(table.cell == cell).to_pandas()
    return np.sort((frame["received_ns"] - frame["intended_ns"]).to_numpy(dtype=float))


def test_the_haircut_of_every_cell_is_that_of_its_rows(planted):
    for cell in planted.magical.cells:
        values = rows_of(planted, cell.cell)
        left = values[values <= np.quantile(values, 0.99)]
        assert cell.mean_after == pytest.approx(left.mean())
        assert cell.p99_after == pytest.approx(np.quantile(left, 0.99))
        assert cell.largest_after == left[-1]
        share = cell.smallest_haircut
        rest = values[: values.size - round(share * values.size)]
        assert rest[-1] <= 10.2 * rest.mean()
    odd = next(cell for cell in planted.magical.cells if cell.cell == ODD)
    assert 0.002 < odd.smallest_haircut < 0.01
    assert all(c.smallest_haircut == 0 for c in planted.magical.cells if c.cell != ODD)


def test_the_factor_that_was_planted_explains_the_mean_and_the_other_does_not(planted):
    by_measure = {it.measure: it for it in planted.magical.explained}
    effects = {it.factor: it for it in by_measure["mean"].effects}
    assert by_measure["mean"].observations == 16
    assert effects["drive.payload"].share > 0.6
    assert effects["drive.payload"].p_value < 1e-4
    assert effects["drive.clients"].share < 0.25
    outliers = {it.factor: it for it in by_measure["outliers"].effects}
    assert outliers["drive.payload"].p_value is not None


def test_outliers_and_their_streaks_are_those_of_the_rows_in_order(tmp_path):
    # stalls, so that outliers come in streaks
    root = write_run(
        tmp_path / "run", **{**MATRIX, "stalls_hz": 0.5, "stall_mean_ns": 150e6, "rate_hz": 50}
    )
    planted = unruly.analyse(unruly.open_run(root), causes=False)
    odd = next(cell for cell in planted.magical.cells if cell.cell == ODD)
    table = planted.run.requests
    frame = table.filter(table.cell == ODD).to_pandas()
    frame["taken"] = frame["received_ns"] - frame["intended_ns"]
    limit = frame["taken"].mean() + 3 * frame["taken"].std()
    frame = frame.sort_values(["repeat", "intended_ns", "client", "connection", "request"])
    above = (frame["taken"] > limit).to_numpy()
    begins = above & np.r_[True, ~above[:-1] | (np.diff(frame["repeat"].to_numpy()) != 0)]
    assert odd.streak.estimate == pytest.approx(above.sum() / begins.sum())
    assert odd.streak.estimate > 1.5
    assert odd.outlier_share == pytest.approx(above.mean())
    assert odd.over_3_sigma == above.sum()
    size = frame["taken"].to_numpy()[above].mean() / frame["taken"].mean()
    assert odd.outlier_size == pytest.approx(size)


def test_curves_of_a_level_are_quantiles_of_its_rows(planted):
    large = np.concatenate([rows_of(planted, "size=large load=low"), rows_of(planted, ODD)])
    curve = planted.magical.curves["drive.payload"]["large"]
    assert curve[49] == pytest.approx(np.quantile(large, 0.5))
    assert curve[-1] == pytest.approx(np.quantile(large, 0.999))


def test_the_view_is_in_the_summary_the_verdict_and_the_report(planted, schema, tmp_path):
    from unruly.html import write_report

    told = json.loads(json.dumps(summary(planted)))
    schema.validate(told)
    assert len(told["magical"]["cells"]) == 4
    assert "cells-unruly" in unruly.verdict(planted)
    page = write_report([planted], tmp_path / "page.html").read_text(encoding="utf-8")
    for figure in ("haircut-0", "ratios-0", "p99-on-mean-0", "explained-0", "by-level-0"):
        assert f'id="figure-{figure}"' in page


def test_a_run_of_one_cell_has_no_such_view(clean):
    assert clean.magical is None


def test_an_unbalanced_matrix_with_failures_and_one_level_is_computed_as_far_as_it_goes(tmp_path):
    cells = ("a", "b", "c")
    factors = [{"x": "1", "y": "p"}, {"x": "2", "y": "p"}, {"x": "2", "y": "p"}]
    manifest = {"cells": [{"name": n, "factors": f} for n, f in zip(cells, factors, strict=True)]}
    root = write_run(
        tmp_path / "run", cells=cells, ops=("null",), agents=2, kind="drive", duration_s=10.0,
        failed_share=0.01, manifest=manifest,
    )  # fmt: skip
    view = unruly.analyse(unruly.open_run(root), causes=False).magical
    assert all(cell.mean is None and cell.mean_after is None for cell in view.cells)
    assert view.notes == ("3 cells have failed requests, and no mean",)
    assert view.lines["*"].reason
    reasons = {it.measure: it.reason for it in view.explained}
    assert "fewer than two" in reasons["mean"]


def test_a_factor_of_one_level_is_named_and_the_others_are_computed(tmp_path):
    cells = ("a", "b", "c", "d")
    manifest = {
        "cells": [
            {"name": n, "factors": {"x": str(i % 2), "same": "1"}} for i, n in enumerate(cells)
        ]
    }
    root = write_run(
        tmp_path / "run", cells=cells, ops=("null",), agents=2, kind="drive", duration_s=10.0,
        stalls_hz=0.0, manifest=manifest,
    )  # fmt: skip
    view = unruly.analyse(unruly.open_run(root), causes=False).magical
    effects = {it.factor: it for it in view.explained[0].effects}
    assert effects["same"].reason == "it has one level"
    assert effects["x"].f is not None


PLANS = Path(__file__).resolve().parents[2] / "plans"


def matrix_of(plan):
    """The factors of a shipped plan, each with its values."""
    return tomllib.loads((PLANS / plan).read_text(encoding="utf-8"))["matrix"]


def analysis_of(root, factors):
    """Write a run whose cells have these factors, and analyse it."""
    names = [" ".join(it.values()) for it in factors]
    manifest = {"cells": [{"name": n, "factors": f} for n, f in zip(names, factors, strict=True)]}
    scale = {name: 1.0 + place for place, name in enumerate(names)}
    write_run(
        root, cells=tuple(names), ops=("read",), agents=1, kind="drive", duration_s=2.0,
        stalls_hz=0.0, rate_hz=100, cell_scale=scale, manifest=manifest,
    )  # fmt: skip
    return unruly.analyse(unruly.open_run(root), causes=False)


def test_a_matrix_over_seven_stores_has_seven_systems_with_a_line_each(tmp_path):
    stores = matrix_of("stores.toml")["drive.store"]
    clients = ("1", "4", "16")
    factors = [{"drive.store": store, "drive.clients": n} for store in stores for n in clients]
    view = analysis_of(tmp_path / "run", factors).magical
    assert len(stores) == 7
    assert view.systems == tuple(stores)
    assert set(view.lines) == {*stores, "*"}
    for store in stores:
        assert view.lines[store].n == len(clients)
        assert view.lines[store].slope.estimate is not None
    assert view.lines["*"].n == len(factors)


def test_a_store_of_a_single_cell_has_no_line_and_the_reason_is_given(tmp_path):
    stores = matrix_of("stores.toml")["drive.store"]
    view = analysis_of(tmp_path / "run", [{"drive.store": it} for it in stores]).magical
    assert view.systems == tuple(stores)
    for store in stores:
        assert view.lines[store].slope is None
        assert view.lines[store].reason == "1 points; 3 are needed"


@pytest.mark.parametrize(
    ("plan", "key"),
    [
        ("store-levels.toml", "drive.store"), ("store-faults.toml", "drive.store"),
        ("echo.toml", "drive.transport"), ("stream-slow-reader.toml", "stream.protocol"),
        ("throughput-stability.toml", "stream.protocol"),
    ],
)  # fmt: skip
def test_the_systems_of_a_shipped_plan_are_its_stores_its_transports_or_its_protocols(plan, key):
    factors = matrix_of(plan)
    rest = {name: str(values[0]) for name, values in factors.items() if name != key}
    assert [magical.system_of({key: level, **rest}) for level in factors[key]] == factors[key]


def test_an_address_and_a_transport_name_a_system_together():
    factors = {"drive.transport": "udp", "drive.clients": "4", "drive.address": "b:7"}
    assert magical.system_of(factors) == "b:7 udp"
    assert magical.system_of({"drive.clients": "4", "mesh.runtime": "jvm"}) == "all"


def test_an_application_is_a_system_whatever_its_platform_and_its_replication():
    factors = {"service.application": "ftex", "service.platform": "rmi"}
    assert magical.system_of({**factors, "service.replication": "active"}) == "ftex"


def cell(system, mean, p99, largest, *, haircut=0.001, outliers=2, failed=0):
    ratio = Interval(p99 / mean, 0.9 * p99 / mean, 1.1 * p99 / mean, 0.95, 1_000, None, "given")
    fine = failed == 0
    return magical.MatrixCell(
        cell=f"{system} {mean}", factors={"drive.system": system}, system=system, n=1_000,
        failed=failed, mean=mean if fine else None, median=mean / 2, p99=p99 if fine else None,
        largest=largest if fine else None, over_10x_mean=outliers // 2 if fine else None,
        over_3_sigma=outliers if fine else None, p99_over_mean=ratio if fine else None,
        smallest_haircut=haircut if fine else None, outlier_share=0.5, outlier_size=5.0,
    )  # fmt: skip


def test_systems_stand_side_by_side_with_what_their_cells_have_in_common():
    cells = [
        cell("rmi", 10.0, 20.0, 50.0, outliers=0),
        cell("ejb", 10.0, 90.0, 900.0, outliers=30),
        cell("rmi", 20.0, 50.0, 300.0, haircut=0.004),
        cell("rmi", 40.0, 110.0, 200.0),
        cell("ejb", 30.0, 80.0, 200.0, failed=1),
        cell("udp", 5.0, 6.0, 7.0, failed=9),
    ]
    line = line_fit([10, 20, 40], [20, 50, 110])
    rmi, ejb, udp = systems.by_system(cells, {"rmi": line})
    assert (rmi.system, rmi.cells, rmi.failing_cells) == ("rmi", 3, 0)
    # three cells are too few for an interval of their median
    assert (rmi.median.estimate, rmi.median.low) == (10.0, None)
    assert rmi.p99_over_mean == (2.0, 2.75)
    assert rmi.most_p99_over_mean.high == pytest.approx(1.1 * 2.75)
    assert (rmi.maximum_over_mean, rmi.unruly_cells) == (15.0, 1)
    # a cell without outliers counts as one, whatever their size elsewhere
    assert (rmi.over_10x_share, rmi.outlier_share) == ((0.0, 0.001), (0.0, 0.002))
    assert (rmi.smallest_haircut, rmi.outlier_size.estimate) == (0.004, 5.0)
    assert rmi.median_haircut.estimate == 0.001
    assert rmi.median_outlier_share.estimate == 0.002
    assert (rmi.unruly_share.estimate, rmi.unruly_share.n) == (pytest.approx(1 / 3), 3)
    assert (udp.unruly_share.estimate, udp.median_haircut.estimate) == (None, None)
    assert rmi.line.slope.estimate == pytest.approx(3.0)
    assert (ejb.unruly_cells, ejb.cells, ejb.failing_cells) == (1, 2, 1)
    # a cell with failed requests has no haircut, and then the system has none
    assert (ejb.smallest_haircut, ejb.line) == (None, None)
    assert (udp.p99_over_mean, udp.maximum_over_mean, udp.failing_cells) == (None, None, 1)
    # a failure never makes a system look better
    order = sorted([udp, ejb, rmi], key=systems.predictable_first)
    assert [it.system for it in order] == ["rmi", "ejb", "udp"]


def test_the_medians_of_six_cells_have_intervals():
    cells = [cell("rmi", 10.0 * it, 20.0 * it, 900.0 * it, haircut=it / 1e3) for it in range(1, 7)]
    (row,) = systems.by_system(cells, {})
    assert (row.median.low, row.median.high) == (5.0, 30.0)
    assert (row.median_haircut.low, row.median_haircut.high) == (0.001, 0.006)
    assert (row.unruly_cells, row.unruly_share.high) == (6, 1.0)
    assert row.unruly_share.low == pytest.approx(0.541, abs=0.001)


def test_the_page_has_the_most_predictable_system_first(planted, tmp_path):
    names = ["size=large", "size=small"]
    assert systems_table(views_of([planted])[0]) is None, "one system is no comparison"
    factors = [{"drive.system": name, "drive.clients": str(it)} for name in names
               for it in (1, 4, 8)]  # fmt: skip
    (view,) = views_of([analysis_of(tmp_path / "run", factors)])
    table = systems_table(view)
    worst = [max(it.p99_over_mean.estimate for it in view.analysis.magical.cells
                 if it.system == row[0].text) for row in table.rows]  # fmt: skip
    assert sorted(row[0].text for row in table.rows) == names
    assert worst == sorted(worst)
    assert "counts from the stamp that its caller takes" in table.note


@pytest.mark.slow
def test_more_systems_than_colours_are_drawn_in_one_colour_and_have_their_lines_in_the_table(
    tmp_path,
):
    protocols = matrix_of("throughput-stability.toml")["stream.protocol"]
    factors = [{"stream.protocol": it, "compete.kind": load} for it in protocols
               for load in ("none", "cpu", "gc")]  # fmt: skip
    (view,) = views_of([analysis_of(tmp_path / "run", factors)])
    figure = matrix.p99_on_mean(view)
    assert [key.label for key in figure.legend] == [*protocols[:7], "other systems"]
    assert [row[0].text for row in figure.tables[0].rows] == [*protocols, "all"]
