"""Runs that lack data: the analysis names the missing data in a sentence and computes the rest."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import unruly
from synthetic import write_run
from test_findings import MATRIX, ODD
from unruly.__main__ import main


def _keep(run, mask):
    """Keep only the rows of a run for which ``mask`` of the table holds; count them anew."""
    rows = 0
    for path in sorted((run / "requests").glob("*.parquet")):
        table = pq.read_table(path)
        table = table.filter(mask(table))
        rows += table.num_rows
        pq.write_table(table, path)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["counts"] = None
    for process in manifest["processes"]:
        process["counts"] = None
    (run / "manifest.json").write_text(json.dumps(manifest))
    return rows


def _every_verb(run, tmp_path):
    """All verbs that read a run end well on it."""
    assert main(["verdict", str(run)]) == 0
    assert main(["report", str(run), "-o", str(tmp_path / "report.html")]) == 0
    assert main(["advise", str(run)]) == 0
    assert main(["export", str(run), "-o", str(tmp_path / "rows.csv")]) == 0
    limits = tmp_path / "limits.toml"
    limits.write_text('[[limit]]\nstatistic = "p99"\nat_most = "10s"\n')
    assert main(["gate", str(run), str(limits)]) in (0, 1, 3)


@pytest.mark.slow
def test_an_empty_cell_is_left_out_and_the_others_are_computed(tmp_path):
    run = write_run(tmp_path / "run", **MATRIX)
    _keep(run, lambda table: pc.not_equal(table["cell"], ODD))
    found = unruly.analyse(unruly.open_run(run))
    assert {row.cell for row in found.cells} == set(MATRIX["cells"]) - {ODD}
    assert len(found.magical.cells) == 3
    _every_verb(run, tmp_path)


@pytest.mark.slow
def test_a_cell_of_one_row_has_its_value_and_reasons_for_the_rest(tmp_path):
    run = write_run(tmp_path / "run", **MATRIX)

    def mask(table):
        place = pa.array(range(table.num_rows))
        odd = pc.equal(table["cell"], ODD)
        first = pc.index(odd, value=True).as_py()
        return pc.or_(pc.invert(odd), pc.equal(place, first))

    _keep(run, mask)
    found = unruly.analyse(unruly.open_run(run))
    (alone,) = [row for row in found.cells if row.cell == ODD and row.latency == "response"
                and row.op != "*"]  # fmt: skip
    assert alone.n == 1
    assert alone.p50 == alone.max
    assert alone.p99 is None
    assert alone.absent["p99"]
    assert alone.promise_p99 is None
    _every_verb(run, tmp_path)


@pytest.mark.slow
def test_a_run_of_one_row_is_read_by_every_verb(tmp_path):
    run = write_run(tmp_path / "run", kind="drive", agents=1, ops=("read",), duration_s=2)
    assert _keep(run, lambda table: pc.equal(pa.array(range(table.num_rows)), 0)) == 1
    found = unruly.analyse(unruly.open_run(run))
    assert {row.n for row in found.cells} == {1}
    _every_verb(run, tmp_path)


@pytest.mark.slow
def test_rows_that_are_all_equal_are_read_by_every_verb(tmp_path):
    run = write_run(tmp_path / "run", kind="drive", agents=1, ops=("read",), rate_hz=50)
    for path in (run / "requests").glob("*.parquet"):
        table = pq.read_table(path)
        for name, later in (("sent_ns", 0), ("received_ns", 1_000_000)):
            place = table.schema.get_field_index(name)
            values = pc.add(table["intended_ns"], later)
            table = table.set_column(place, table.schema.field(place), values)
        pq.write_table(table, path)
    found = unruly.analyse(unruly.open_run(run))
    row = found.cell("read")
    assert (row.min, row.p50, row.p99, row.max) == (1e6, 1e6, 1e6, 1e6)
    assert row.sd == 0
    _every_verb(run, tmp_path)


@pytest.mark.slow
def test_a_run_without_resources_says_so_and_computes_the_rest(tmp_path):
    run = write_run(tmp_path / "run", agents=3, ops=("null",), duration_s=20)
    shutil.rmtree(run / "resources")
    found = unruly.analyse(unruly.open_run(run))
    assert found.correlations.rows == ()
    assert found.correlations.note == "no resource samples were taken"
    assert found.cell("null").p99 is not None
    _every_verb(run, tmp_path)


def test_runs_with_nothing_in_common_are_not_compared(tmp_path, capsys):
    one = write_run(tmp_path / "one", kind="drive", agents=1, ops=("read",), duration_s=20)
    other = write_run(tmp_path / "other", kind="drive", agents=1, ops=("write",), duration_s=20)
    assert main(["compare", str(one), str(other)]) == 2
    assert "hint: " in capsys.readouterr().err


def test_a_run_of_another_schema_is_named_and_the_other_is_not_blamed(tmp_path, capsys):
    one = write_run(tmp_path / "one", kind="drive", agents=1, ops=("read",), duration_s=20)
    newer = write_run(tmp_path / "newer", kind="drive", agents=1, ops=("read",), duration_s=20)
    manifest = json.loads((newer / "manifest.json").read_text())
    (newer / "manifest.json").write_text(json.dumps({**manifest, "schema": 99}))
    assert main(["compare", str(one), str(newer)]) == 2
    error = capsys.readouterr().err
    assert "newer" in error
    assert "99" in error
    assert str(one) not in error


@pytest.mark.parametrize("statistic", ["p98.7.6", "happiness", ""])
def test_a_limit_on_an_unknown_statistic_is_refused_with_what_there_is(
    clean_run, tmp_path, statistic, capsys
):
    limits = tmp_path / "limits.toml"
    limits.write_text(f'[[limit]]\nstatistic = "{statistic}"\nat_most = "10ms"\n')
    assert main(["gate", str(clean_run), str(limits)]) == 2
    error = capsys.readouterr().err
    assert f"'{statistic}'" in error or f'"{statistic}"' in error
    assert "p99" in error
