"""Opening a run: directories that are no run, broken files, and runs that were cut off."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unruly
from synthetic import write_run
from unruly import RecoveryError, RunError, TraceError, checksum
from unruly.tables import TABLES, fetch
from unruly.tables.columns import required_columns

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def run_path(tmp_path):
    return write_run(tmp_path / "run", duration_s=5, rate_hz=4, ops=("null",), agents=3)


def test_a_directory_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(RunError, match=r"none: no such directory; .*; hint: `unruly run PLAN`"):
        unruly.open_run(tmp_path / "none")


def test_a_directory_without_a_manifest_is_not_a_run(tmp_path):
    with pytest.raises(RunError, match=r"not a run: it has no manifest\.json"):
        unruly.open_run(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_broken_manifest_is_named(run_path, text):
    (run_path / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=r"manifest\.json: not (a )?JSON"):
        unruly.open_run(run_path)


def test_all_tables_exist_with_the_columns_of_the_schema(run_path):
    shutil.rmtree(run_path / "events")
    run = unruly.open_run(run_path)
    for name, columns in TABLES.items():
        assert run.table(name).columns == tuple(column for column, _, _ in columns)
    assert fetch(run.events.count().as_table()).iloc[0, 0] == 0
    assert fetch(run.spans.count().as_table()).iloc[0, 0] == 0
    with pytest.raises(RunError, match="nonsense: no such table"):
        run.table("nonsense")


def test_the_columns_are_those_of_the_written_schema():
    kinds = {"BINARY": "VARCHAR", "DOUBLE": "DOUBLE", "BOOLEAN": "BOOLEAN"}
    logical = {"16": "USMALLINT", "64": "UBIGINT", "8": "UTINYINT", "32": "UINTEGER"}
    for table, columns in TABLES.items():
        text = (REPOSITORY / "unruly" / "schema" / "trace" / f"{table}.schema").read_text(
            encoding="utf-8"
        )
        wanted = []
        for line in text.splitlines()[1:-1]:
            demand, physical, name = line.strip().rstrip(";").split()[:3]
            bits = line.split("INTEGER(")[1].split(",")[0] if "INTEGER(" in line else ""
            kind = logical[bits] if bits else kinds.get(physical, "BIGINT")
            wanted.append((name, kind, demand == "REQUIRED"))
        assert tuple(wanted) == columns


def test_a_newer_schema_asks_for_an_upgrade(run_path):
    path = _first(run_path)
    _rewrite(path, {"unruly.schema": "9"})
    with pytest.raises(TraceError) as error:
        unruly.open_run(run_path)
    assert str(error.value) == (
        f"{path}: trace schema is 9; this tool reads up to 1; hint: upgrade unruly"
    )


def test_a_foreign_parquet_file_is_refused(run_path):
    pq.write_table(pa.table({"x": [1]}), run_path / "requests" / "foreign.parquet")
    with pytest.raises(TraceError, match=r"foreign\.parquet: a Parquet file that unruly did not"):
        unruly.open_run(run_path)


def test_a_segment_that_lacks_a_required_column_is_refused(run_path):
    path = _first(run_path)
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["intended_ns"]), path)
    with pytest.raises(TraceError, match="lacks intended_ns; a segment of requests"):
        unruly.open_run(run_path)


def test_a_segment_of_another_run_is_refused(run_path):
    _rewrite(_first(run_path), {"unruly.run": "other-7"})
    with pytest.raises(TraceError, match="belongs to run other-7"):
        unruly.open_run(run_path)


def test_an_unknown_column_is_ignored_and_a_missing_optional_one_is_null(run_path):
    path = _first(run_path)
    table = pq.read_table(path).drop_columns(["key"])
    pq.write_table(table.append_column("mood", pa.nulls(table.num_rows, pa.string())), path)
    run = unruly.open_run(run_path)
    assert "mood" not in run.requests.columns
    assert "key" not in required_columns("requests")
    assert fetch(run.requests.select("key").limit(1))["key"].isna().all()


def test_a_flipped_bit_in_a_segment_is_noticed_and_the_segment_is_named(run_path):
    path = _first(run_path)
    _rewrite(path, {checksum.KEY: checksum.UNKNOWN})
    checksum.seal(path)
    whole = path.read_bytes()
    assert unruly.open_run(run_path).unreadable == []
    copy = path.with_name("zz-copy.parquet")
    places = np.random.default_rng(7).integers(0, len(whole) * 8, 200)
    for number, place in enumerate(places):
        bent = bytearray(whole)
        bent[place // 8] ^= 1 << (place % 8)
        copy.write_bytes(bent)
        copy.rename(copy.with_name(f"zz-{number:03}.parquet"))
    run = unruly.open_run(run_path)
    assert len(run.unreadable) == len(places)
    assert all("cannot be read and is left out" in it for it in run.unreadable)
    assert not run.whole


def test_a_segment_of_a_time_before_checksums_is_taken(run_path):
    path = _first(run_path)
    assert b"unruly.checksum" not in path.read_bytes()
    assert unruly.open_run(run_path).unreadable == []


@pytest.mark.parametrize("name", ["x[12]", "run*", "run?", "{a,b}"])
def test_a_directory_that_is_a_pattern_reads_its_own_rows_alone(tmp_path, name):
    for sibling in ("x1", "run1", "a"):
        write_run(tmp_path / sibling, agents=2, duration_s=2, rate_hz=40)
    run = unruly.open_run(write_run(tmp_path / name, agents=2, duration_s=1, rate_hz=10))
    alone = write_run(tmp_path / "alone", agents=2, duration_s=1, rate_hz=10)
    wanted = fetch(unruly.open_run(alone).requests.count().as_table()).iloc[0, 0]
    assert fetch(run.requests.count().as_table()).iloc[0, 0] == wanted


def test_a_table_that_is_a_link_and_a_segment_that_is_a_pipe_are_left_out_and_named(run_path):
    elsewhere = run_path.parent / "elsewhere"
    shutil.copytree(run_path / "requests", elsewhere)
    shutil.rmtree(run_path / "events", ignore_errors=True)
    (run_path / "events").symlink_to(elsewhere)
    os.mkfifo(run_path / "requests" / "zz.parquet")
    run = unruly.open_run(run_path)
    assert any("events is a link" in it for it in run.unreadable)
    assert any("no regular file" in it for it in run.unreadable)
    assert not run.whole


@pytest.mark.parametrize("harm", ["removed", "changed", "cut"])
def test_a_plan_that_is_not_the_one_that_ran_leaves_the_run_broken(run_path, harm):
    plan = run_path / "plan.toml"
    plan.write_text('name = "a"\n[run]\nslo = ["p50 < 1us"]\n')
    manifest = json.loads((run_path / "manifest.json").read_text())
    manifest["plan_sha256"] = hashlib.sha256(plan.read_bytes()).hexdigest()
    (run_path / "manifest.json").write_text(json.dumps(manifest))
    assert unruly.open_run(run_path).whole
    match harm:
        case "removed":
            plan.unlink()
        case "changed":
            plan.write_text(plan.read_text().replace("1us", "1min"))
        case _:
            plan.write_bytes(plan.read_bytes()[:-5])
    run = unruly.open_run(run_path)
    assert not run.whole
    assert any(it.startswith("plan.toml is ") for it in run.broken)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("op", pa.int64()), ("intended_ns", pa.string()),
        ("answered", pa.int8()), ("request", pa.float64()),
    ],
)  # fmt: skip
def test_a_column_of_another_type_is_an_error_that_names_the_file(run_path, column, kind):
    path = _first(run_path)
    footer = pq.read_metadata(path).metadata
    table = pq.read_table(path)
    place = table.schema.get_field_index(column)
    nothing = pa.nulls(table.num_rows, kind)
    table = table.set_column(place, column, nothing).replace_schema_metadata(footer)
    pq.write_table(table, path)
    with pytest.raises(TraceError, match=f"{path.name}: column {column} is of type {kind}"):
        unruly.open_run(run_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("counts", {"copies": {"scheduled": "x"}}), ("counts", {"copies": {"ok": float("nan")}}),
        ("counts", {"copies": [7]}), ("counts", []), ("hosts", "h"), ("cells", [7]),
        ("cells", [{"factors": {}}]), ("cells", [{"name": "a", "factors": {"x": 1}}]),
        ("processes", [{"name": "a", "cell": {}}]), ("processes", [{"name": "a", "id": 10**30}]),
        ("started_ns", "now"), ("started_ns", 10**30), ("missing", "much"), ("tool", []),
        ("processes", {}),
    ],
)  # fmt: skip
def test_a_manifest_of_another_shape_is_an_error_that_names_the_key(run_path, key, value):
    manifest = json.loads((run_path / "manifest.json").read_text())
    (run_path / "manifest.json").write_text(json.dumps({**manifest, key: value}))
    with pytest.raises(RunError, match=rf"manifest\.json: {key} is "):
        unruly.open_run(run_path)


def test_a_truncated_segment_is_left_out_and_named(run_path):
    path = _first(run_path)
    whole = path.read_bytes()
    torn = path.with_name("zz-torn.parquet")
    torn.write_bytes(whole[: len(whole) // 2])
    run = unruly.open_run(run_path)
    assert any("requests/zz-torn.parquet cannot be read and is left out" in m for m in run.missing)
    analysis = unruly.analyse(run)
    assert analysis.cells
    assert not analysis.conservation.checked


def test_a_run_of_which_no_segment_can_be_read_is_an_error(run_path):
    path = _first(run_path)
    path.write_bytes(b"PAR1")
    with pytest.raises(TraceError, match="no segment of the run can be read"):
        unruly.open_run(run_path)


def test_a_run_without_rows_opens_and_its_verdict_says_that_nothing_was_measured(run_path):
    shutil.rmtree(run_path / "requests")
    manifest = json.loads((run_path / "manifest.json").read_text())
    for counts in manifest["counts"].values():
        for key in counts:
            counts[key] = 0
    (run_path / "manifest.json").write_text(json.dumps(manifest))
    analysis = unruly.analyse(unruly.open_run(run_path), causes=False)
    assert analysis.cells == []
    assert not analysis.trustworthy
    assert analysis.doubts == ["nothing was measured"]
    assert "nothing was measured" in unruly.verdict(analysis)


def test_a_spool_without_the_binary_is_an_error_with_a_hint(run_path, monkeypatch):
    (run_path / "requests" / "agent.spool").write_bytes(b"")
    monkeypatch.setattr("unruly.run.find_binary", lambda: None)
    with pytest.raises(RecoveryError, match=r"agent\.spool: the run was cut off .* UNRULY_BINARY"):
        unruly.open_run(run_path)


def test_a_spool_is_recovered_by_the_binary(run_path, tmp_path, monkeypatch):
    spool = run_path / "requests" / "agent.spool"
    spool.write_bytes(b"")
    _binary(tmp_path / "unruly", f'test "$1" = recover && rm "$2/requests/{spool.name}"')
    monkeypatch.setenv("UNRULY_BINARY", str(tmp_path / "unruly"))
    assert unruly.open_run(run_path).status == "complete"
    assert not spool.exists()


def test_a_failed_recovery_is_an_error_with_what_the_binary_said(run_path, tmp_path, monkeypatch):
    (run_path / "agent.spool").write_bytes(b"")
    _binary(tmp_path / "unruly", "echo torn beyond repair >&2; exit 2")
    monkeypatch.setenv("UNRULY_BINARY", str(tmp_path / "unruly"))
    with pytest.raises(RecoveryError, match=r"ended with 2: torn beyond repair"):
        unruly.open_run(run_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ok": 1}, "copies scheduled are .* but the sum of their statuses are"),
        ({"scheduled": 1, "ok": 1}, r"copies scheduled are .* but recorded \+ dropped are"),
        ({"ok": -2, "timeout": 2}, "copies with status ok are .* but such rows are"),
        ({"scheduled": 3, "ok": 3, "recorded": 3}, "copies recorded are .* but the rows in"),
    ],
)
def test_counts_that_do_not_hold_are_an_error(run_path, change, words):
    _change_counts(run_path, "copies", change)
    with pytest.raises(TraceError, match=words):
        unruly.analyse(unruly.open_run(run_path), causes=False)


def test_requests_that_do_not_add_up_are_an_error(run_path):
    _change_counts(run_path, "requests", {"answered": -1})
    with pytest.raises(TraceError, match=r"requests scheduled are .* but answered \+ unanswered"):
        unruly.analyse(unruly.open_run(run_path), causes=False)
    _change_counts(run_path, "requests", {"unanswered": 1})
    with pytest.raises(TraceError, match=r"requests answered are .* but the rows that answered"):
        unruly.analyse(unruly.open_run(run_path), causes=False)


def test_a_run_that_was_cut_off_is_not_held_to_its_counts(run_path):
    _change_counts(run_path, "copies", {"ok": 1})
    manifest = json.loads((run_path / "manifest.json").read_text())
    (run_path / "manifest.json").write_text(json.dumps(manifest | {"status": "cut off"}))
    assert not unruly.analyse(unruly.open_run(run_path), causes=False).conservation.checked


def _change_counts(run_path, kind, change):
    path = run_path / "manifest.json"
    manifest = json.loads(path.read_text())
    for key, difference in change.items():
        manifest["counts"][kind][key] += difference
    path.write_text(json.dumps(manifest))


def _first(run_path):
    return sorted((run_path / "requests").glob("*.parquet"))[0]


def _rewrite(path, keys):
    table = pq.read_table(path)
    metadata = {**table.schema.metadata, **{k.encode(): v.encode() for k, v in keys.items()}}
    pq.write_table(table.replace_schema_metadata(metadata), path)


def _binary(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
