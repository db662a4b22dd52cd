"""Other readers understand exported files, and an import of an export has the same values."""

from __future__ import annotations

import csv
import json

import ibis
import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

import unruly
from unruly.__main__ import main
from unruly.ingest import Options, import_files
from unruly.ingest.hdr import edges
from unruly.tables.export import hdr_buckets


def exported(run, path, *flags):
    assert main(["export", str(run), "-o", str(path), *flags]) == 0
    return path.read_text(encoding="utf-8")


def test_a_log_holds_every_answered_request_in_its_second(slow_run, slow, tmp_path):
    text = exported(slow_run, tmp_path / "run.hlog")
    total: dict[str, HdrHistogram] = {}
    for line in text.splitlines():
        if line.startswith(("#", '"')):
            continue
        tag, start, length, most, data = line.split(",")
        found = HdrHistogram.decode(data)
        assert float(length) == 1.0
        assert float(start) < 61
        assert found.get_max_value() == pytest.approx(float(most) * 1e6, rel=0.002)
        op = tag.removeprefix("Tag=")
        total.setdefault(op, HdrHistogram(1, 2**53, 3)).add(found)
    for op, histogram in total.items():
        cell = slow.cell(op)
        assert histogram.get_total_count() == cell.n - cell.failed
        assert histogram.get_max_value() == pytest.approx(cell.max_ok, rel=0.002)
    assert set(total) == {"null", "crypto", "disk"}
    assert "copies that failed in the run are not in it" in text


def test_what_is_exported_comes_back_with_the_same_percentiles(clean_run, clean, tmp_path):
    exported(clean_run, tmp_path / "run.hlog")
    back = import_files([str(tmp_path / "run.hlog")], tmp_path / "back", Options())
    found = unruly.analyse(unruly.open_run(back.directory), causes=False)
    for op in ("null", "crypto", "disk"):
        was, now = clean.cell(op), found.cell(op)
        assert now.n == was.n
        for name in ("p50", "p90", "p99", "p99_9"):
            assert getattr(now, name) == pytest.approx(getattr(was, name), rel=0.002)
        assert now.mean == pytest.approx(was.mean, rel=0.001)


def test_a_distribution_counts_up_to_all_and_its_values_are_percentiles(clean_run, clean, tmp_path):
    text = exported(clean_run, tmp_path / "null.hgrm", "--op", "null")
    rows = [line.split() for line in text.splitlines() if line and line.strip()[0].isdigit()]
    values = [(float(row[0]), float(row[1]), int(row[2])) for row in rows]
    assert values[-1][2] == clean.cell("null").n
    assert [it[2] for it in values] == sorted(it[2] for it in values)
    ninety = next(value for value, share, _ in values if share == pytest.approx(0.9))
    assert ninety * 1e6 == pytest.approx(clean.cell("null").p90, rel=0.002)
    back = import_files([str(tmp_path / "null.hgrm")], tmp_path / "back", Options(unit="ms"))
    assert (
        unruly.analyse(unruly.open_run(back.directory), causes=False).cell("request").n
        == values[-1][2]
    )


def test_every_measured_row_is_in_the_table(slow_run, slow, tmp_path):
    exported(slow_run, tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == slow.cell("*").n
    failed = [row for row in rows if row["status"] != "ok"]
    assert len(failed) == slow.cell("*").failed
    assert all(row["response_ns"] == "" for row in failed)
    good = next(row for row in rows if row["status"] == "ok")
    assert int(good["response_ns"]) == int(good["received_ns"]) - int(good["intended_ns"])


def test_the_summary_is_that_of_the_verdict(clean_run, clean, schema, tmp_path):
    found = json.loads(exported(clean_run, tmp_path / "run.json"))
    schema.validate(found)
    assert found["cells"][0]["p99"] == clean.cells[0].p99


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["x.xlsx"], "names no format"),
        (["x.hlog", "--op", "nul"], "is 'nul'"),
        (["x.hlog", "--latency", "wall"], "is 'wall'"),
        (["no/such/x.csv"], "cannot be written"),
        (["x.csv", "--op", "null"], "are given with csv"),
        (["x.json", "--latency", "service"], "are given with json"),
    ],
)
def test_what_cannot_be_exported_is_said(flags, words, clean_run, tmp_path, capsys):
    path = tmp_path / flags[0]
    assert main(["export", str(clean_run), "-o", str(path), *flags[1:]]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.slow
@given(st.lists(st.integers(1, 2**52), min_size=1, max_size=50), st.sampled_from([0, 1, -1]))
def test_every_value_lies_in_the_bucket_that_it_is_given(values, beside):
    exact = [max(1, value) for value in values]
    exact += [max(1, 2**k + beside) for k in range(1, 52)]
    table = ibis.memtable(
        {
            "cell": ["a"] * len(exact),
            "op": [str(i) for i in range(len(exact))],
            "intended_ns": [0] * len(exact),
            "response": np.array(exact, dtype=float),
        }
    )
    frame = ibis.duckdb.connect().execute(hdr_buckets(table, "response"))
    frame = frame.sort_values("op", key=lambda names: names.astype(int))
    low, high = edges(frame["place"].to_numpy(), 3)
    truth = np.array(exact, dtype=float)
    assert ((low <= truth) & ((truth < high) | (low == high))).all()
    assert (low[low == high] == truth[low == high]).all()
