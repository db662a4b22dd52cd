"""Over time: planted changes, outages and bursts are found where they were planted."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from planted import rewrite
from quick import numbers
from synthetic import NS, STARTED_NS, write_run
from unruly import stats
from unruly.__main__ import main
from unruly.topics.over_time import statistics as steadiness

DRIVE = {"kind": "drive", "agents": 1, "ops": ("read",), "rate_hz": 300, "duration_s": 40}


def _only(analysis):
    (row,) = analysis.over_time.rows
    return row


def _requests(run):
    return pq.read_table(run / "requests").to_pandas()


def test_throughput_is_that_of_good_replies_by_the_second_they_came(tmp_path):
    """Oracle: pandas over the raw rows."""
    run = write_run(tmp_path / "run", **DRIVE, failed_share=0.01)
    rows = _requests(run)
    first, last = rows["intended_ns"].min(), rows["intended_ns"].max()
    good = rows[(rows["status"] == "ok") & (rows["received_ns"] <= last)]
    seconds = int((last - first + 1) // NS)
    counts = np.bincount(((good["received_ns"].astype("int64") - first) // NS), minlength=seconds)
    wanted = stats.stability(counts[:seconds])
    found = _only(numbers(run)).throughput
    assert found == wanted
    assert found.mean.low < 297 < found.mean.high


def test_dispersion_is_one_for_a_schedule_of_chance_and_large_for_bursts(tmp_path):
    plain = _only(numbers(write_run(tmp_path / "plain", **DRIVE)))
    # one in each 1 / 300 s: more regular than chance
    assert plain.dispersion.index.high < 1
    bursts = write_run(tmp_path / "bursts", **DRIVE, clusters_hz=2.0)
    found = _only(numbers(bursts)).dispersion
    # a Poisson number of clusters of some 150 requests each
    assert found.index.low < 151 < found.index.high


def test_copies_of_one_request_are_one_arrival(tmp_path):
    shape = {"agents": 6, "ops": ("null",), "rate_hz": 40, "duration_s": 30, "clusters_hz": 2_000}
    found = _only(numbers(write_run(tmp_path / "run", **shape))).dispersion
    # all but independent; six copies of each would be six at once
    assert 0.5 < found.index.low < found.index.high < 2


def test_a_change_of_the_p99_is_dated(tmp_path):
    run = write_run(tmp_path / "run", **DRIVE, shift_factor=1.5, stalls_hz=0)
    row = _only(numbers(run))
    (point,), (at,) = row.changes.points, row.changed_ns
    assert point.ratio.low < 1.5 < point.ratio.high
    block_ns = 40 * NS / 60
    low, high = (STARTED_NS + (edge - 1) * block_ns for edge in (point.place.low, point.place.high))
    assert low <= STARTED_NS + 20 * NS <= high + 2 * block_ns
    assert abs(at - (STARTED_NS + 20 * NS)) < 2 * NS


def test_a_change_in_the_second_repeat_is_dated_there(tmp_path):
    run = write_run(tmp_path / "run", **DRIVE, repeats=2, stalls_hz=0, warmup_s=20)
    (path,) = (run / "requests").glob("*.parquet")
    table = pq.read_table(path)
    received, intended = (
        table[name].to_numpy().astype(np.int64) for name in ("received_ns", "intended_ns")
    )
    # measured time goes on from the first repeat to the second: the change comes 30 s into that
    measured = np.asarray(table["phase"].to_pylist()) == "measured"
    planted = intended[measured & (table["repeat"].to_numpy() == 1)].min() + 30 * NS
    slower = np.where(intended > planted, received + (received - intended), received)
    place = table.schema.get_field_index("received_ns")
    table = table.set_column(place, table.schema.field(place), pa.array(slower))
    pq.write_table(table, path)
    row = _only(numbers(run))
    (at,) = row.changed_ns
    assert abs(at - planted) < 3 * NS


def test_times_of_whole_seconds_leave_too_few_blocks_to_find_a_change(tmp_path):
    shape = {**DRIVE, "rate_hz": 3_000, "duration_s": 8}
    run = write_run(tmp_path / "run", **shape)

    def in_seconds(requests):
        due = pc.multiply(pc.divide(requests["intended_ns"], NS), NS)
        place = requests.schema.get_field_index("intended_ns")
        return requests.set_column(place, requests.schema.field(place), due)

    rewrite(run, "requests", in_seconds)
    row = _only(numbers(run))
    assert row.changes is None
    assert row.absent["changes"] == "requests were due in 8 of 60 blocks; 10 are needed"


@pytest.mark.slow
def test_a_run_without_a_change_keeps_its_level(tmp_path):
    for seed in range(5):
        run = write_run(tmp_path / str(seed), **DRIVE, seed=seed, stalls_hz=0)
        assert _only(numbers(run)).changes.points == ()


def test_the_recovery_of_a_stopped_process_is_as_long_as_its_stop(tmp_path):
    run = write_run(
        tmp_path / "run", agents=3, ops=("null",), rate_hz=50, duration_s=30, stalls_hz=0,
        stopped=((1, 8.0, 2.0), (1, 20.0, 0.5)),
    )  # fmt: skip
    (found,) = numbers(run).over_time.recoveries
    assert found.process == "agent-1"
    assert found.fault_ns == (STARTED_NS + 8 * NS, STARTED_NS + 20 * NS)
    totals = [one.total_ns for one in found.recoveries.faults]
    assert totals == pytest.approx([2e9, 0.5e9], abs=5e6)
    assert found.recoveries.fault_free_max_ns < 5e6


@pytest.mark.slow
@pytest.mark.parametrize("failed_share", [0.0, 0.02, 0.6])
def test_recoveries_are_those_of_the_raw_rows(tmp_path, failed_share):
    """Oracle: `stats.recovery` over the rows of the server, faults with and without a recovery."""
    run = write_run(
        tmp_path / "run", agents=3, ops=("null",), rate_hz=40, duration_s=30, stalls_hz=0.5,
        failed_share=failed_share, late_share=0.5, tail_factor=30.0,
        stopped=((1, 8.0, 2.0), (1, 9.0, 0.5), (1, 20.0, 0.05), (1, 20.01, 0.3)),
    )  # fmt: skip
    table = pq.read_table(run / "requests")
    # a column with nulls would become doubles, which hold no wall clock in ns
    received = table["received_ns"].fill_null(0).to_numpy()
    rows = table.drop_columns(["received_ns"]).to_pandas()
    took = (received - rows["intended_ns"]).astype(float).where(rows["status"] == "ok", np.inf)
    rows, took = rows[rows["server"] == 1], took[rows["server"] == 1]
    (found,) = numbers(run).over_time.recoveries
    wanted = stats.recovery(rows["intended_ns"], took, found.fault_ns)
    assert found.recoveries == wanted
    assert wanted.never > 0
    assert wanted.fault_free > 1_000


def test_short_windows_are_those_of_the_raw_rows(tmp_path):
    run = write_run(tmp_path / "run", **DRIVE)
    rows = _requests(run)
    found = numbers(run, pictures=True).over_time.windows
    first, last = int(rows["intended_ns"].min()), int(rows["intended_ns"].max())
    width = int(found["started_ns"].diff().iloc[1])
    assert width % 100_000_000 == 0
    wanted = stats.short_windows(
        rows["intended_ns"], (rows["received_ns"].astype("int64") - first).astype(float),
        start_ns=first, end_ns=last + 1, width_ns=width,
    )  # fmt: skip
    assert found["due"].tolist() == wanted.due.tolist()
    assert found["response_ns"].to_numpy() == pytest.approx(wanted.response_ns, rel=1e-9)
    assert found["completed_hz"].tolist() == wanted.completed_hz.tolist()
    assert found["in_flight"].to_numpy() == pytest.approx(wanted.in_flight, rel=1e-6, abs=1e-6)


def test_a_request_that_never_came_back_leaves_after_the_longest_answered(tmp_path):
    run = write_run(tmp_path / "run", **DRIVE, failed_share=0.3)
    found = numbers(run, pictures=True).over_time.windows
    assert found["failed"].sum() > 1_000
    assert found["in_flight"].iloc[-1] < 300 * 0.1


def test_the_faults_of_an_unknown_process_are_compared_with_all_clients(tmp_path):
    run = write_run(
        tmp_path / "run", agents=2, ops=("null",), duration_s=10, stopped=((7, 3.0, 1.0),)
    )
    (found,) = numbers(run).over_time.recoveries
    assert found.all_clients
    assert found.recoveries.fault_free > 300
    assert found.absent == {"break_even": "1 recovery; 6 are needed"}


def test_a_short_run_says_what_it_lacks(tmp_path):
    run = write_run(tmp_path / "run", **{**DRIVE, "duration_s": 4, "rate_hz": 20})
    row = _only(numbers(run))
    assert row.throughput is None
    assert row.absent["throughput"] == "3 whole seconds; 6 are needed"
    assert row.absent["dispersion"].endswith(" requests; 200 are needed")
    assert row.absent["changes"] == "80 requests; 2,000 are needed"


def test_less_than_a_reply_a_second_has_no_steadiness_of_seconds(tmp_path):
    run = write_run(tmp_path / "run", **{**DRIVE, "rate_hz": 0.5})
    row = _only(numbers(run))
    assert row.throughput is None
    assert "fewer than one good reply a second" in row.absent["throughput"]
    failed = write_run(tmp_path / "failed", **DRIVE, failed_share=1.0)
    assert _only(numbers(failed)).throughput is None


def test_requests_of_a_closed_loop_are_no_arrivals(tmp_path):
    run = write_run(tmp_path / "run", **DRIVE)
    (run / "plan.toml").write_text('[drive]\narrivals = "closed"\n')
    row = _only(numbers(run))
    assert row.dispersion is None
    assert "closed loop" in row.absent["dispersion"]


def test_users_who_think_by_one_clock_have_an_index_of_dispersion(tmp_path):
    run = write_run(tmp_path / "run", **DRIVE)
    (run / "plan.toml").write_text('[drive]\narrivals = "closed"\ndispersion = 100.0\n')
    row = _only(numbers(run))
    # the planted schedule is regular, whatever its plan asked for
    assert row.dispersion.index.estimate < 1
    assert "dispersion" not in row.absent


def test_a_load_that_changes_in_stages_has_no_index_of_dispersion(tmp_path):
    run = write_run(tmp_path / "run", **DRIVE)
    (run / "plan.toml").write_text('[drive]\narrivals = "poisson"\nramp = "9s:5"\n')
    row = _only(numbers(run))
    assert (row.throughput, row.dispersion, row.changes) == (None, None, None)
    told = "the load changed in stages, as its plan asked"
    assert row.absent == dict.fromkeys(("throughput", "dispersion", "changes"), told)


@pytest.mark.slow
def test_closed_and_open_arrivals_of_one_plan_are_judged_by_cell(tmp_path):
    ways = ("constant", "closed")
    cells = [{"name": it, "factors": {"drive.arrivals": it}} for it in ways]
    run = write_run(tmp_path / "run", **DRIVE, cells=ways, manifest={"cells": cells})
    for base in ways:
        (run / "plan.toml").write_text(f'[drive]\narrivals = "{base}"\n')
        rows = numbers(run).over_time.rows
        by_cell = {row.cell: row for row in rows}
        assert by_cell["constant"].dispersion is not None
        assert by_cell["closed"].dispersion is None
        assert "closed loop" in by_cell["closed"].absent["dispersion"]


def test_a_run_whose_times_are_made_up_has_no_steadiness(tmp_path):
    run = write_run(tmp_path / "run", **DRIVE, manifest={"timeless": ["base"]})
    over_time = numbers(run).over_time
    assert over_time.rows == ()
    assert over_time.note == "its source kept no times"


def test_a_large_matrix_is_not_looked_at_over_time(tmp_path, monkeypatch):
    monkeypatch.setattr(steadiness, "KEYS_MOST", 1)
    run = write_run(tmp_path / "run", agents=2, ops=("null", "disk"), duration_s=10)
    over_time = numbers(run).over_time
    assert over_time.rows == ()
    assert "2 cells and operations, where at most 1 are looked at" in over_time.note


@pytest.mark.slow
def test_the_summary_and_the_verdict_tell_it(tmp_path, capsys, schema):
    run = write_run(tmp_path / "run", **DRIVE, shift_factor=1.5, stopped=((0, 8.0, 2.0),))
    assert main(["verdict", str(run), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    schema.validate(document)
    (row,) = document["over_time"]["rows"]
    assert row["throughput_hz"]["mean"]["estimate"] > 290
    assert row["throughput_hz"]["quantiles"]["0.5"] > 290
    assert row["changes"][0]["at_ns"] > STARTED_NS
    assert document["over_time"]["recoveries"][0]["process"] == "agent-0"
    assert main(["verdict", str(run)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "over time: read: " in text
    assert "answered, seconds vary by" in text
    assert "the p99 moved once" in text
