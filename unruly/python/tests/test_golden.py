"""The golden files that the Rust side wrote are read here as what their JSON says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import unruly
from unruly.tables import TABLES

GOLDEN = Path(__file__).resolve().parents[2] / "schema" / "golden"


@pytest.fixture
def golden_run(tmp_path):
    shutil.copy(GOLDEN / "manifest.json", tmp_path)
    for table in TABLES:
        folder = tmp_path / table
        folder.mkdir()
        shutil.copy(GOLDEN / f"{table}.parquet", folder)
    return tmp_path


@pytest.mark.parametrize("table", sorted(TABLES))
def test_a_golden_segment_holds_what_its_json_says(table, golden_run):
    run = unruly.open_run(golden_run)
    expected = json.loads((GOLDEN / f"{table}.json").read_text(encoding="utf-8"))
    found = run.table(table).to_pyarrow().to_pylist()
    assert len(found) == len(expected) == 2
    for row in expected:
        assert {name: value for name, value in row.items() if name in found[0]} in found
        assert set(row) <= set(found[0])


def test_the_golden_manifest_is_that_of_a_run(golden_run):
    run = unruly.open_run(golden_run)
    assert (run.id, run.tag, run.status) == ("golden", "golden", "complete")
    assert run.missing == ["agent-1 was killed by signal 9 before its time"]
    assert run.command == ["unruly", "run", "demo"]
    assert run.target.startswith("7 agents in groups of 3 and 4")
    (killed,) = [it for it in run.manifest["processes"] if it["exit"] == {"signal": 9}]
    assert killed["name"] == "agent-1"
