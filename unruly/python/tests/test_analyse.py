"""The analysis against plain numpy over the same rows, and against planted values."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import unruly
from synthetic import write_run
from unruly import stats
from unruly.__main__ import main
from unruly.base.context import Context
from unruly.base.receivers import correlate, pair
from unruly.base.synchrony import _Cube
from unruly.errors import ParameterError
from unruly.output.summary import summary
from unruly.tables import fetch
from unruly.tables.resources import METRICS


def _rows(path):
    """Read with plain pyarrow; subtract as integers, since a wall clock does not fit a double."""
    table = pq.read_table(path / "requests")
    for name, since in (("response", "intended_ns"), ("service", "sent_ns")):
        table = table.append_column(name, pc.subtract(table["received_ns"], table[since]))
    frame = table.to_pandas()
    frame = frame[frame["phase"] != "warmup"]
    frame["ok"] = frame["status"] == "ok"
    for name in ("response", "service"):
        frame[name] = frame[name].where(frame["ok"], np.inf).astype(float)
    return frame


@pytest.mark.parametrize("latency", ["response", "service"])
def test_every_number_of_a_cell_is_that_of_numpy(clean_run, clean, latency):
    rows = _rows(clean_run)
    checked = 0
    for op, part in [*rows.groupby("op"), ("*", rows)]:
        found, values = clean.cell(op, latency), part[latency].to_numpy()
        assert found.n == values.size
        assert found.failed == 0
        assert found.mean == pytest.approx(values.mean(), rel=1e-12)
        assert found.sd == pytest.approx(values.std(ddof=1), rel=1e-9)
        assert (found.min, found.max) == (values.min(), values.max())
        for name, p in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999)):
            assert getattr(found, name) == pytest.approx(np.quantile(values, p), rel=1e-12)
        assert found.over_10x_mean == (values > 10 * values.mean()).sum()
        assert found.over_3_sigma == (values > values.mean() + 3 * values.std(ddof=1)).sum()
        iid = stats.quantile_interval_iid(values, 0.99)
        assert found.p99_interval_iid.low == iid.low
        assert found.p99_interval_iid.high == iid.high
        assert found.p99_interval_iid.low_rank == iid.low_rank
        checked += 1
    assert checked == 4


def test_the_block_interval_of_a_cell_is_that_of_the_bare_arrays(clean_run, clean):
    rows = _rows(clean_run)
    part = rows[rows["op"] == "null"]
    first, last = part["intended_ns"].min(), part["intended_ns"].max()
    block = ((part["intended_ns"] - first) / ((last - first + 1) / 30)).astype(int).clip(0, 29)
    index = stats.bucket_index(part["response"])
    buckets, place = np.unique(index, return_inverse=True)
    counts = np.zeros((buckets.size, 30))
    np.add.at(counts, (place, block.to_numpy()), 1)
    wanted = stats.block_interval(
        buckets, counts, 0.99, estimate=float(np.quantile(part["response"], 0.99))
    )
    found = clean.cell("null")
    assert found.p99_interval.low == pytest.approx(wanted.interval.low)
    assert found.p99_interval.high == pytest.approx(wanted.interval.high)
    # one-sided at 97.5 %, which is the upper end of the two-sided interval
    assert found.promise_p99.high == pytest.approx(wanted.interval.high)
    assert found.promise_p99.level == 0.975


def test_a_failed_request_ranks_above_all_and_takes_the_mean_away(slow_run, slow):
    rows = _rows(slow_run)
    for op in ("null", "disk"):
        part = rows[rows["op"] == op]
        found = slow.cell(op)
        failed = int((~part["ok"]).sum())
        assert found.failed == failed > 0
        assert found.mean is None
        assert "failed" in found.absent["mean"]
        assert found.max is None
        assert found.mean_ok == pytest.approx(part.loc[part["ok"], "response"].mean())
        assert found.p99 == pytest.approx(stats.quantile(part["response"], 0.99), rel=1e-12)
        assert found.p99_9 is None
        assert "falls among the" in found.absent["p99_9"]
        assert found.over_10x_mean is None


def test_a_late_reply_is_a_failure_and_not_a_latency(slow_run, slow):
    rows = _rows(slow_run)
    late = rows[(rows["status"] == "timeout") & rows["received_ns"].notna()]
    assert len(late) > 0
    assert slow.cell("*").max_ok < 1e9  # a late reply took over a second


def test_a_percentile_with_no_row_beyond_it_is_absent_with_the_reason(analysed):
    found = analysed(agents=3, ops=("null",), rate_hz=2, duration_s=10).cell("null")
    assert found.n == 180
    assert found.p99 is not None
    assert found.p99_9 is None
    assert found.absent["p99_9"] == "180 rows; 1000 are needed so that one lies beyond it"
    assert found.p99_interval_iid.high is None


@pytest.mark.parametrize("before", ["warmup", "load"])
def test_warm_up_and_what_was_loaded_count_in_nothing_but_conservation(analysed, before):
    shape = {"warmup_s": 5, "before": before}
    found = analysed(agents=3, ops=("null",), **shape, duration_s=20, rate_hz=10)
    assert found.conservation.rows == 3 * 3 * 250
    assert found.cell("null").n == 3 * 3 * 200
    assert found.conservation.checked


def test_the_kth_of_n_is_that_of_numpy(slow_run, slow):
    rows = _rows(slow_run)
    part = rows[rows["op"] == "null"]
    table = np.vstack([g.to_numpy() for _, g in part.groupby(["client", "request"])["response"]])
    assert table.shape[1] == 5
    for group in slow.groups:
        if group.op != "null":
            continue
        kth = stats.kth_of_n(table, group.k)
        assert group.n == len(table)
        assert group.failed == np.isinf(kth).sum()
        assert group.p50 == pytest.approx(stats.quantile(kth, 0.5))
        if group.failed > 0.01 * group.n:
            assert group.p99 is None
            assert "falls among the" in group.absent["p99"]
        else:
            assert group.p99 == pytest.approx(stats.quantile(kth, 0.99))
    assert {group.p99 is None for group in slow.groups} == {True, False}
    levels = [group.level for group in slow.groups if group.op == "null"]
    assert levels == ["first", "", "majority", "", "all"]


@pytest.mark.slow
@pytest.mark.parametrize("late_ns", [np.nan, 200_000_000])
def test_a_retry_counts_from_the_first_attempts_intended_time(tmp_path, late_ns):
    """Whether the failed copy is never answered, or late, which is no answer."""
    path = write_run(tmp_path / "run", agents=3, ops=("null",), duration_s=5, rate_hz=10)
    before = unruly.analyse(unruly.open_run(path), causes=False)
    file = sorted((path / "requests").glob("*.parquet"))[0]
    table = pq.read_table(file)
    frame = table.to_pandas()
    # copy 0 of one request times out, and its retry is answered a second later
    first = frame.iloc[[0]].copy()
    frame["received_ns"] = frame["received_ns"].astype("Int64")
    late = pd.NA if np.isnan(late_ns) else int(first["received_ns"].iloc[0]) + late_ns
    frame.loc[0, "status"], frame.loc[0, "received_ns"] = "timeout", late
    first["attempt"] = 1
    for name in ("intended_ns", "sent_ns", "received_ns"):
        first[name] = first[name] + 1_000_000_000
    schema = table.schema
    changed = pa.Table.from_pandas(
        pd.concat([frame, first], ignore_index=True), schema=schema, preserve_index=False
    )
    pq.write_table(changed.replace_schema_metadata(schema.metadata), file)
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"complete"', '"cut off"'))
    after = unruly.analyse(unruly.open_run(path), causes=False)
    last = next(group for group in after.groups if group.k == 3)
    was = next(group for group in before.groups if group.k == 3)
    assert last.n == was.n
    assert last.failed == 0
    assert 1.0e9 < last.max < 1.1e9


@pytest.mark.slow
def test_a_request_of_one_server_that_was_tried_again_is_one_from_its_first_try(tmp_path):
    path = write_run(tmp_path / "run", kind="drive", agents=2, ops=("read",), duration_s=5)
    before = unruly.analyse(unruly.open_run(path), causes=False).cell("read")
    file = sorted((path / "requests").glob("*.parquet"))[0]
    table = pq.read_table(file)
    frame = table.to_pandas()
    again = frame.iloc[[0]].copy()
    frame.loc[0, ["status", "received_ns"]] = ["error:store", np.nan]
    # it is tried a second later, and answered
    again["attempt"] = 1
    for name in ("sent_ns", "received_ns"):
        again[name] = again[name] + 1_000_000_000
    changed = pa.Table.from_pandas(
        pd.concat([frame, again], ignore_index=True), schema=table.schema, preserve_index=False
    )
    pq.write_table(changed.replace_schema_metadata(table.schema.metadata), file)
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"complete"', '"cut off"'))
    run = unruly.open_run(path)
    after = unruly.analyse(run, causes=False)
    assert len(run.measured.to_pyarrow()) == before.n == len(run.requests.to_pyarrow()) - 1
    assert (after.cell("read").n, after.cell("read").failed) == (before.n, 0)
    assert 1.0e9 < after.cell("read").max < 1.1e9
    assert after.cell("read", "service").max < 1.0e9


def test_breakdowns_and_timeline_are_those_of_pandas(clean_run, clean):
    rows = _rows(clean_run)
    pairs = clean.by["pairs"]
    assert len(pairs) == 2 * 3 * 25
    one = pairs[
        (pairs["latency"] == "service")
        & (pairs["op"] == "disk")
        & (pairs["sender"] == "agent-1")
        & (pairs["receiver"] == "agent-2")
    ].iloc[0]
    part = rows[(rows["op"] == "disk") & (rows["client"] == 1) & (rows["server"] == 2)]
    assert one["n"] == len(part)
    assert one["p90"] == pytest.approx(part["service"].quantile(0.9))
    assert one["max"] == part["service"].max()
    assert set(clean.by["by_size"]["size"]) == {5}
    assert clean.by["by_op"]["n"].sum() == clean.by["by_size"]["n"].sum() == 2 * len(rows)
    assert clean.by["by_receiver"]["n"].sum() == 2 * len(rows)
    assert clean.timeline["n"].sum() == len(rows)
    assert clean.timeline["bin"].max() < 600
    assert clean.timeline["max"].max() == rows["response"].max()


def test_the_outliers_are_the_slowest_rows_and_bounded(clean_run, clean):
    rows = _rows(clean_run)
    assert len(clean.outliers) <= 2_000
    wanted = rows["response"].nlargest(1_000).to_numpy()
    assert clean.outliers["response"].head(1_000).to_numpy() == pytest.approx(wanted)


def test_the_distribution_counts_every_row_once(slow_run, slow):
    rows = _rows(slow_run)
    part = slow.distribution
    null = part[(part["op"] == "null") & (part["latency"] == "response")]
    assert null["count"].sum() == (rows["op"] == "null").sum()
    failed = null[np.isinf(null["low_ns"])]
    assert failed["count"].sum() == slow.cell("null").failed
    finite = null[np.isfinite(null["low_ns"])]
    assert (finite["high_ns"] / finite["low_ns"]).to_numpy() == pytest.approx(1.005**4)
    group = slow.group_distribution
    first = group[(group["op"] == "null") & (group["k"] == 1)]
    assert first["count"].sum() == 3_000


def test_a_planted_slow_node_is_named_for_every_workload_by_all_others(slow):
    named = slow.slow_nodes.named
    assert [node.node for node in named] == ["agent-3"]
    assert set(named[0].ops) == {"null", "crypto", "disk"}
    assert named[0].observers == 4
    assert slow.slow_nodes.jaccard_mean > 0.9
    assert len(slow.slow_nodes.sensitivity) == 12
    by = slow.decomposition.set_index("op")
    assert by.loc["null", "receiver_share"] > 0.9


def test_a_node_that_reads_every_reply_late_is_named_though_to_itself_all_look_alike(analysed):
    found = analysed(ops=("null",), slow_agent=2, slow_reads=True).slow_nodes
    own = found.pairs[(found.pairs["sender"] == "agent-2") & (found.pairs["receiver"] == "agent-2")]
    assert not own["slow"].all()
    assert [node.node for node in found.named] == ["agent-2"]


@pytest.mark.slow
def test_on_clean_runs_nobody_is_named_in_at_least_19_of_20(tmp_path):
    """Multi-modal disks and shared stalls make outliers, not slow nodes."""
    named = 0
    for seed in range(20):
        path = write_run(tmp_path / str(seed), seed=100 + seed, ops=("null", "disk"), stalls_hz=3)
        named += bool(
            unruly.analyse(unruly.open_run(path), pictures=False, causes=False).slow_nodes.named
        )
    assert named <= 1


def test_pairs_with_few_rows_are_left_out_and_counted(analysed):
    found = analysed(agents=3, ops=("null",), rate_hz=2, duration_s=10).slow_nodes
    assert found.left_out == 27  # 3 windows x 9 pairs, 6 or 7 rows each
    assert len(found.pairs) == 0
    assert found.named == ()


@pytest.mark.slow
def test_windows_are_as_asked_for(clean_run):
    run = unruly.open_run(clean_run)
    found = unruly.analyse(run, causes=False, window=20_000_000_000).slow_nodes
    assert found.windows == 3
    regrouped = clean_run / "plan.toml"
    regrouped.write_text('[mesh]\nregroup = "30s"\n')
    try:
        assert unruly.analyse(unruly.open_run(clean_run)).options.window_ns == 30_000_000_000
    finally:
        regrouped.unlink()


@pytest.mark.slow
def test_a_sweep_of_the_regroup_period_gives_each_cell_its_own_windows(tmp_path, schema):
    periods = {"regroup=10s": "10s", "regroup=40s": "40s"}
    cells = [{"name": it, "factors": {"mesh.regroup": period}} for it, period in periods.items()]
    root = write_run(
        tmp_path / "run", agents=3, ops=("null",), rate_hz=20, duration_s=40,
        cells=tuple(periods), manifest={"cells": cells},
    )  # fmt: skip
    (root / "plan.toml").write_text(
        '[mesh]\nregroup = "20s"\n[matrix]\n"mesh.regroup" = ["10s", "40s"]\n'
    )
    found = unruly.analyse(unruly.open_run(root), causes=False)
    windows = found.slow_nodes.pairs.groupby("cell")["window"].nunique()
    assert windows.to_dict() == {"regroup=10s": 4, "regroup=40s": 1}
    told = json.loads(json.dumps(summary(found)))
    schema.validate(told)
    assert told["slow_nodes"]["window_ns"] == 40_000_000_000
    assert told["slow_nodes"]["cell_windows_ns"] == {
        "regroup=10s": 10_000_000_000, "regroup=40s": 40_000_000_000,
    }  # fmt: skip
    asked = unruly.analyse(unruly.open_run(root), causes=False, window=20_000_000_000)
    assert set(asked.slow_nodes.pairs.groupby("cell")["window"].nunique()) == {2}
    told = summary(asked)["slow_nodes"]
    assert told["window_ns"] == 20_000_000_000
    assert "cell_windows_ns" not in told


def test_the_correlate_of_a_planted_slow_node_is_its_wait_for_a_cpu(slow):
    first = slow.correlations.rows[0]
    assert (first.metric, first.scope, first.highest) == ("run_queue_wait_ns", "process", "agent-3")
    assert first.words == "CPU wait"
    assert first.pearson.estimate > 0.8
    assert first.within > 0.1
    assert first.q_value < 0.01
    assert slow.correlations.paired_share > 0.99
    assert slow.correlations.largest_distance_ns < 1.1e9
    assert len(slow.correlations.scatter) == 6
    assert max(map(len, slow.correlations.scatter.values())) <= 1_500


def test_what_follows_the_latency_by_size_comes_before_what_does_by_rank_alone():
    generator = np.random.default_rng(3)
    latency = generator.pareto(2.0, 400)
    metrics = {
        # as memory that grows while a run gets later
        "rss_bytes": np.argsort(np.argsort(latency)).astype(float),
        "run_queue_wait_ns": latency + 0.1 * generator.random(400),
    }
    frame = pd.DataFrame(
        {"receiver": "agent-1", "cell": 0, "block": np.arange(400) % 20, "latency": latency}
    ).assign(raw=latency, **{name: metrics.get(name, np.nan) for name in METRICS})
    rows, _ = correlate({"process": frame})
    wait, memory = rows
    assert (wait.metric, memory.metric) == ("run_queue_wait_ns", "rss_bytes")
    assert wait.spearman.estimate < memory.spearman.estimate
    assert wait.pearson.estimate > memory.pearson.estimate


def test_a_reply_is_paired_with_the_sample_nearest_to_its_arrival(clean_run):
    """Oracle: search each stamp among the midways between the middles of neighbouring samples."""
    rows = _rows(clean_run)
    rows = rows[rows["server"] == 2]
    resources = pq.read_table(clean_run / "resources").to_pandas()
    own = resources[resources["watched"] == "agent-2"].sort_values("started_ns")
    middle = (own["started_ns"] + own["ended_ns"]) // 2
    edges = (middle.to_numpy()[1:] + middle.to_numpy()[:-1]) // 2
    nearest = np.searchsorted(edges, rows["server_received_ns"].to_numpy(dtype=np.int64), "right")
    wanted = pd.Series(nearest).value_counts().sort_index()
    context = Context.of(unruly.open_run(clean_run), lambda _: None)
    samples, sums = pair(context).scopes["host"]
    paired = sums.join(samples.filter(samples.server == 2), "sample").group_by("started_ns")
    found = fetch(paired.agg(n=lambda t: t["n"].sum()).order_by("started_ns"))
    assert found["n"].tolist() == wanted.tolist()


def test_on_a_clean_run_no_metric_is_called_a_correlate(clean):
    assert [f.code for f in clean.findings if f.code == "correlate"] == []
    assert len(clean.correlations.rows) > 5


def test_repeats_and_cells_are_told_apart(analysed):
    found = analysed(
        agents=3, cells=("calm", "busy"), repeats=2, ops=("null", "disk"), duration_s=20
    )
    assert {(c.cell, c.op) for c in found.cells} == {
        (cell, op) for cell in ("calm", "busy") for op in ("null", "disk", "*")
    }
    assert found.measured_ns == pytest.approx(80e9, rel=0.02)
    assert found.cell("null", cell="calm").duration_ns == pytest.approx(40e9, rel=0.02)
    assert found.cell("*", cell="busy").n == 2 * found.cell("null", cell="busy").n
    assert {g.cell for g in found.groups} == {"calm", "busy"}


def test_a_run_of_single_copies_has_no_groups_and_no_slow_nodes(analysed):
    found = analysed(kind="drive", agents=2, ops=("null",), rate_hz=50, duration_s=30)
    assert found.groups == []
    assert found.slow_nodes.windows == 0
    assert found.cell("null").promise_p99 is not None


@pytest.mark.parametrize(
    "options", [{"window": 0}, {"factor": 1.0}, {"percentile": 1.0}, {"floor_ns": -1}]
)
def test_options_out_of_range_are_refused(clean_run, options):
    with pytest.raises(ParameterError, match=next(iter(options))):
        unruly.analyse(unruly.open_run(clean_run), **options)


@pytest.mark.slow
def test_an_imported_matrix_of_round_trips_names_who_is_slow_to_everybody(shared_data, tmp_path):
    """Known answer: 24 of 490 nodes, by the third rule."""
    source = shared_data / "rtt_matrix" / "planetlab_1.tsv"
    run = tmp_path / "run"
    assert main(["import", str(source), "--unit", "ms", "-o", str(run)]) == 0
    found = unruly.analyse(unruly.open_run(run), causes=False)
    (matrix,) = found.bare_matrices
    assert matrix.nodes == 490
    assert len(matrix.slow) == 24
    finding = next(it for it in found.findings if it.code == "slow-columns")
    assert finding.title.startswith("24 of 490 nodes are slow for every sender: ")
    assert "measured" not in unruly.verdict(found).splitlines()[0]


def test_what_a_node_takes_for_requests_of_itself_makes_it_slow_to_nobody(tmp_path):
    run = write_run(tmp_path / "run", agents=5, ops=("null",), rate_hz=0.1, duration_s=10)
    (path,) = (run / "requests").glob("*.parquet")
    table = pq.read_table(path)
    assert table.num_rows == 25
    own = pc.and_(pc.equal(table["client"], 2), pc.equal(table["server"], 2))
    slower = pc.if_else(own, pc.add(table["received_ns"], 50_000_000), table["received_ns"])
    place = table.schema.get_field_index("received_ns")
    pq.write_table(table.set_column(place, table.schema.field(place), slower), path)
    (matrix,) = unruly.analyse(unruly.open_run(run), factor=20.0).bare_matrices
    assert matrix.nodes == 5
    assert matrix.slow == ()


def test_observers_agree_on_the_nodes_that_both_of_them_ask():
    """Groups keep an observer from the slow node: it calls nobody slow, and is no dissent."""
    names = ["a", "b", "c"]
    groups = {"a": ["x", "y"], "b": ["x", "y"], "c": ["z", "w"]}
    pairs = pd.DataFrame(
        [
            {"cell": "base", "repeat": 0, "window": 0, "op": "null", "sender": who,
             "receiver": to, "p90": 50.0 if to == "x" else 1.0}
            for who in names
            for to in groups[who]
        ]
    )  # fmt: skip
    cube = _Cube.of(pairs)
    found, wanted = cube.overlaps(cube.judge(0.9, 2.0, 0.0))
    assert wanted.sum() == 1
    assert found[wanted] == [1.0]
