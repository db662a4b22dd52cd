"""Did it work: failures by kind, and when nothing was answered, with times of day."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unruly
from synthetic import NS, STARTED_NS, write_run

STORE = {"kind": "drive", "agents": 1, "ops": ("read",), "rate_hz": 100, "duration_s": 12,
         "stalls_hz": 0}  # fmt: skip


def worked(root, **shape):
    run = write_run(root / "run", **{**STORE, **shape})
    return unruly.analyse(unruly.open_run(run), causes=False, pictures=False).worked


def of_day(ns):
    return datetime.fromtimestamp(ns // NS, tz=UTC).strftime("%H:%M:%S UTC")


def test_a_run_without_failures_worked(tmp_path):
    found = worked(tmp_path)
    assert found.ok
    assert (found.failed, found.share, found.kinds, found.outages) == (0, 0.0, (), ())
    assert found.sentence == "Yes: all 1,200 requests were answered."


def test_a_few_failures_leave_a_run_that_worked(tmp_path):
    found = worked(tmp_path, failed_share=0.005)
    assert found.ok
    assert 0 < found.failed < 12
    assert found.outages == ()
    assert found.sentence.startswith(f"Yes, but {found.failed} of 1,200 requests failed (")
    assert found.sentence.endswith(f"%): {found.failed} timed out.")


def test_a_server_killed_half_way_is_an_outage_to_the_end(tmp_path):
    found = worked(tmp_path, faults=(("base", "kill", "store-0", 5.6, 99.0),))
    (outage,) = found.outages
    assert not found.ok
    assert outage.kind == "refused"
    assert outage.end_ns is None
    assert outage.receiver is None
    assert outage.failed == found.failed == found.kinds[0][1]
    assert outage.begin_ns == pytest.approx(STARTED_NS + 5.6 * NS, abs=0.03 * NS)
    assert outage.begin_wall == of_day(outage.begin_ns)
    assert outage.words.startswith(("From 5.5", "From 5.6"))
    assert outage.words.endswith(f"s ({outage.begin_wall}) to the end every request was refused.")
    assert found.sentence.startswith(f"No: {found.failed} of 1,200 requests failed (53")


def test_an_outage_begins_with_its_first_failure_and_ends_with_the_first_good_request(tmp_path):
    run = write_run(tmp_path / "run", **STORE, faults=(("base", "kill", "store-0", 4.0, 2.0),))
    (outage,) = unruly.analyse(unruly.open_run(run), causes=False, pictures=False).worked.outages
    rows = pq.read_table(run / "requests", columns=["intended_ns", "status"]).to_pylist()
    refused = [row["intended_ns"] for row in rows if row["status"] == "refused"]
    good = [row["intended_ns"] for row in rows if row["status"] == "ok"]
    assert outage.begin_ns == min(refused)
    assert outage.end_ns == min(at for at in good if at > min(refused))
    assert outage.failed == len(refused)


def test_a_run_in_which_everything_failed_is_one_outage(tmp_path):
    found = worked(tmp_path, failed_share=1.0)
    (outage,) = found.outages
    assert (found.share, outage.end_ns, outage.kind) == (1.0, None, "timeout")
    assert outage.words.startswith("From 0 s (")
    assert outage.words.endswith("to the end every request timed out.")
    assert found.sentence == "No: all 1,200 requests failed (100 %): 1,200 timed out."


@pytest.mark.parametrize("share", [0.53, 0.94])
def test_failures_scattered_over_a_run_are_no_outage(tmp_path, share):
    found = worked(tmp_path, failed_share=share)
    assert not found.ok
    assert found.share == pytest.approx(share, abs=0.05)
    assert found.outages == ()


def test_an_outage_of_two_kinds_lists_both(tmp_path):
    run = write_run(tmp_path / "run", **STORE, faults=(("base", "kill", "store-0", 4.0, 2.0),))
    (path,) = (run / "requests").glob("*.parquet")
    table = pq.read_table(path)
    refused = table["status"].to_pylist()
    reset = {place for place, it in enumerate(refused) if it == "refused"}
    reset = set(sorted(reset)[: len(reset) // 2])
    status = ["error:reset" if place in reset else it for place, it in enumerate(refused)]
    at = table.schema.get_field_index("status")
    table = table.set_column(at, table.schema.field(at), pa.array(status, pa.string()))
    pq.write_table(table, path)
    manifest = run / "manifest.json"
    text = manifest.read_text(encoding="utf-8")
    text = text.replace(f'"refused": {2 * len(reset)}', f'"refused": {len(reset)}')
    text = text.replace('"error": 0', f'"error": {len(reset)}')
    manifest.write_text(text, encoding="utf-8")
    found = unruly.analyse(unruly.open_run(run), causes=False, pictures=False).worked
    (outage,) = found.outages
    assert outage.kind == "mixed"
    assert f"{len(reset)} connection reset" in outage.words
    assert f"{len(reset)} refused" in outage.words


def test_one_dead_receiver_of_a_group_is_named(tmp_path):
    run = write_run(tmp_path / "run", agents=3, ops=("null",), rate_hz=50, duration_s=12)
    for path in (run / "requests").glob("*.parquet"):
        table = pq.read_table(path)
        rows = table.select(["server", "intended_ns", "status"]).to_pylist()
        since = STARTED_NS + 6 * NS
        dead = [it["server"] == 1 and it["intended_ns"] >= since for it in rows]
        status = ["refused" if d else it["status"] for d, it in zip(dead, rows, strict=True)]
        at = table.schema.get_field_index("status")
        table = table.set_column(at, table.schema.field(at), pa.array(status, pa.string()))
        pq.write_table(table, path)
    manifest = run / "manifest.json"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace('"status": "complete"', '"status": "cut off"'))
    found = unruly.analyse(unruly.open_run(run), causes=False, pictures=False).worked
    (outage,) = found.outages
    assert outage.receiver == "agent-1"
    assert outage.end_ns is None
    assert "to the end every request to agent-1 was refused." in outage.words


def test_an_outage_of_one_cell_of_several_names_the_cell(tmp_path):
    found = worked(
        tmp_path, cells=("small", "large"), faults=(("large", "kill", "store-0", 4.0, 2.0),)
    )
    (outage,) = found.outages
    assert outage.cell == "large"
    assert outage.words.endswith("every request was refused (large).")


def test_a_source_without_times_has_no_outages_and_no_time_of_day(tmp_path):
    found = worked(tmp_path, failed_share=1.0, manifest={"timeless": ["base"]})
    assert not found.ok
    assert found.outages == ()


def test_a_run_without_a_measured_row_did_not_work(tmp_path):
    found = worked(tmp_path, warmup_s=20, duration_s=0)
    assert not found.ok
    assert found.sentence == "No: nothing was measured."
    assert found.share is None
