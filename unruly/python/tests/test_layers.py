"""Layers: own times of spans, and which layer made requests slow."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unruly
from spans_world import STEPS, TROUBLES, write_traced
from unruly.html import write_report
from unruly.topics.layers.model import layers_of
from unruly.topics.layers.selves import DEEPEST, laid, with_parents

RAISED_BY_SPANS = {"slow-layer", "repeated-calls", "spans-missing"}
COLUMNS = ["number", "span_id", "parent_id", "started_ns", "ended_ns", "service"]


def laid_out(*rows, response=10_000):
    frame = pd.DataFrame(rows, columns=COLUMNS)
    numbers = sorted(set(frame["number"]))
    whole = pd.DataFrame({"number": numbers, "intended_ns": 0, "response": float(response)})
    return laid(with_parents(frame), whole)


def own_times(*rows, response=10_000):
    frame = laid_out(*rows, response=response)
    return dict(zip(frame["span_id"], frame["self_ns"].tolist(), strict=True))


def analyse(path):
    return unruly.analyse(unruly.open_run(path), causes=False, pictures=False)


def codes(analysis):
    return {it.code: it for it in analysis.findings}


def test_a_span_has_its_time_without_the_spans_below_it():
    assert own_times(
        (0, 1, 0, 100, 200, "a"), (0, 2, 1, 110, 130, "a"), (0, 3, 1, 150, 190, "a"),
        (0, 4, 3, 160, 165, "a"),
    ) == {1: 40, 2: 20, 3: 35, 4: 5}  # fmt: skip


def test_spans_below_that_overlap_count_once():
    found = own_times(
        (0, 1, 0, 0, 100, "a"), (0, 2, 1, 10, 60, "a"), (0, 3, 1, 20, 30, "a"),
        (0, 4, 1, 50, 80, "a"),
    )  # fmt: skip
    assert found[1] == 30


def test_a_span_that_goes_on_after_its_parent_counts_until_then():
    found = own_times((0, 1, 0, 0, 100, "a"), (0, 2, 1, 90, 500, "a"), (0, 3, 2, 95, 400, "a"))
    assert found == {1: 90, 2: 5, 3: 5}


def test_nobody_waited_for_work_after_the_reply():
    found = own_times((0, 1, 0, 10, 900, "a"), (0, 2, 1, 90, 500, "a"), response=100)
    assert found == {1: 80, 2: 10}


def test_calls_one_after_the_other_are_moved_together():
    found = own_times(
        (0, 1, 0, 0, 100, "a"), (0, 2, 1, 510, 550, "b"), (0, 3, 1, 555, 595, "b"),
        (0, 4, 3, 560, 570, "b"),
    )  # fmt: skip
    assert found == {1: 20, 2: 40, 3: 30, 4: 10}


def test_the_clock_of_another_service_does_not_move_its_time_out_of_the_call():
    found = own_times((0, 1, 0, 0, 100, "a"), (0, 2, 1, 700, 770, "b"), (0, 3, 2, 710, 720, "b"))
    assert found == {1: 30, 2: 60, 3: 10}
    # one that is longer than its call cannot have been in it
    assert own_times((0, 1, 0, 0, 100, "a"), (0, 2, 1, 700, 900, "b"))[1] == 100


def test_requests_have_ids_of_their_own_and_a_span_that_came_twice_counts_once():
    rows = [(0, 1, 0, 0, 9, "a"), (1, 1, 0, 0, 9, "a")] + [(1, 2, 1, 2, 5, "a")] * 2
    found = laid_out(*rows)
    assert found["above"].tolist() == [-1, -1, 1]
    assert found["self_ns"].tolist() == [9, 6, 3]


CIRCLE = [(0, 1, 2, 0, 9, "a"), (0, 2, 1, 0, 9, "a")]


@pytest.mark.parametrize(
    ("rows", "depth"), [([], []), ([(0, 1, 1, 0, 9, "a")], [0]), (CIRCLE, [-1, -1])]
)
def test_a_circle_of_parents_or_no_span_at_all_ends(rows, depth):
    found = laid_out(*rows)
    assert found["depth"].tolist() == depth
    assert found["self_ns"].sum() == 9 * depth.count(0)


def test_a_chain_of_spans_that_is_too_deep_ends():
    found = laid_out(*((0, it + 1, it, it, 9_000 - it, "a") for it in range(2_000)))
    assert found["depth"].max() == DEEPEST
    assert found["self_ns"].sum() == 9_000


def test_ids_of_64_bits_are_not_confused():
    large = (1 << 62) + 1
    found = own_times(
        (0, large, 0, 0, 100, "a"), (0, large + 1, 0, 0, 100, "a"), (0, -5, large + 1, 10, 20, "a")
    )
    assert found == {large: 100, large + 1: 90, -5: 10}


@pytest.mark.slow
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_planted_layer_is_named(tmp_path, trouble):
    analysis = analyse(write_traced(tmp_path / "run", trouble, 7))
    found = codes(analysis)["slow-layer"].evidence
    assert (found["service"], found["layer"], found["role"]) == TROUBLES[trouble]
    (row,) = layers_of(analysis).rows
    assert len(row.layers) == len(STEPS) + 1
    assert row.traced == row.slow
    # the usual times do not depend on which slow traces were kept
    usual = {it.name: it.usual_ns / 1e6 for it in row.layers}
    assert usual["render"] == pytest.approx(STEPS["render"][0], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_the_choice_of_the_receiver_does_not_change_who_is_blamed(tmp_path, seed):
    """Slow traces that were kept besides have long spans, and are no sample of the slow ones."""
    whole, part = (
        layers_of(analyse(write_traced(tmp_path / name, "half pool", seed, level=level))).rows[0]
        for name, level in (("whole", 0), ("part", 1))
    )
    shares = [next(it.share for it in row.layers if it.name == "pool.get") for row in (whole, part)]
    assert shares[0].estimate == pytest.approx(0.5, abs=0.2)
    assert shares[1].low < shares[0].estimate < shares[1].high
    assert part.looked_at < part.traced < part.slow == whole.slow == whole.traced


def test_nothing_is_blamed_without_a_trouble(tmp_path):
    assert not set(codes(analyse(write_traced(tmp_path / "run", None, 3)))) & RAISED_BY_SPANS


def test_the_layers_of_a_request_are_the_whole_of_it(tmp_path):
    (row,) = layers_of(analyse(write_traced(tmp_path / "run", None, 4))).rows
    assert sum(it.usual_ns for it in row.layers) == pytest.approx(row.usual_ns, rel=0.1)


def test_slow_requests_without_spans_are_counted(tmp_path):
    path = write_traced(tmp_path / "run", "pool", 5)
    # the third of the requests that was slow has lost its spans
    file = next((path / "spans").glob("*.parquet"))
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    kept = np.asarray(table["request"]) % 3 != 0
    pq.write_table(table.filter(kept).replace_schema_metadata(pq.read_schema(file).metadata), file)
    found = codes(analyse(path))["spans-missing"].evidence
    assert 0.2 < found["share"] < 0.5


def test_spans_of_requests_that_were_not_measured_blame_nobody(tmp_path):
    path = write_traced(tmp_path / "run", "pool", 5)
    file = next((path / "spans").glob("*.parquet"))
    table = pq.read_table(file)
    moved = pa.array(np.asarray(table["request"]) + np.uint64(1 << 40))
    place = table.column_names.index("request")
    changed = table.set_column(place, table.schema.field("request"), moved)
    pq.write_table(changed.replace_schema_metadata(pq.read_schema(file).metadata), file)
    (row,) = layers_of(analyse(path)).rows
    assert (row.traced, row.layers) == (0, ())
    assert "0 of" in row.absent["layers"]


def test_a_call_that_slow_requests_repeat_is_named(tmp_path):
    path = write_traced(tmp_path / "run", "database", 6)
    file = next((path / "spans").glob("*.parquet"))
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    frame = table.to_pandas()
    calls = frame[(frame["layer"] == "SELECT item")]
    long = calls[calls["ended_ns"] - calls["started_ns"] > 8_000_000]
    step = (long["ended_ns"] - long["started_ns"]) // 10
    pieces = [
        long.assign(
            started_ns=long["started_ns"] + step * at,
            ended_ns=long["started_ns"] + step * (at + 1),
            span_id=-long["span_id"] * 10 - at,
        )
        for at in range(10)
    ]
    whole = pd.concat([frame.drop(long.index), *pieces])
    made = pa.Table.from_pandas(whole, schema=table.schema, preserve_index=False)
    pq.write_table(made.replace_schema_metadata(pq.read_schema(file).metadata), file)
    found = codes(analyse(path))["repeated-calls"].evidence
    assert (found["service"], found["layer"]) == ("store", "SELECT item")
    assert found["slow_calls"] > 5
    assert found["usual_calls"] == pytest.approx(1.0, abs=0.1)


def test_the_report_has_the_layers(tmp_path):
    analysis = analyse(write_traced(tmp_path / "run", "pool", 8))
    write_report([analysis], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Where slow requests spent their time" in page
    assert "The spans of the slowest “" in page
    assert ">front: pool.get<" in page
