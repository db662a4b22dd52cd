"""The list of the runs in a directory."""

import json
from dataclasses import replace

import pytest

from unruly.errors import UnrulyError
from unruly.listing import runs_in
from unruly.output.listing import runs_json, runs_text

DAY_NS = 86_400 * 10**9
BASE_NS = 20_000 * DAY_NS


def step(name, high):
    return {"name": name, "promise": None if high is None else {"high": high}}


def cell(op, *steps, latency="response"):
    return {"cell": "all", "op": op, "latency": latency, "unit": "ns", "ladder": {"steps": steps}}


def write_run(folder, day, *, summary=True, cells=(), trustworthy=True, status="complete"):
    folder.mkdir(parents=True)
    manifest = {
        "run": folder.name, "name": "store", "tag": "night", "status": status,
        "started_ns": BASE_NS + day * DAY_NS, "hosts": [{"cpu_model": "AMD EPYC", "cores": 2}],
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest))
    if summary:
        document = {
            "status": status, "measured_ns": 60e9, "trustworthy": trustworthy,
            "worked": {"requests": 2_000, "failed": 10}, "cells": list(cells),
        }  # fmt: skip
        (folder / "summary.json").write_text(json.dumps(document))


def test_runs_are_listed_by_their_time_with_their_highest_promise(tmp_path):
    # the ladder is not monotone: a step without a promise may stand below one with it
    read = cell("read", step("p50", 2e6), step("p90", None), step("p99", 9e6), step("p99.9", None))
    write_run(
        tmp_path / "later", 2, cells=[read, cell("read", step("p50", 1e6), latency="service")]
    )
    write_run(tmp_path / "a" / "b" / "first", 1, cells=[cell("read", step("p50", None))])
    first, later = runs_in(tmp_path)
    assert (first.run, later.run) == ("first", "later")
    assert [(it.percentile, it.bound) for it in later.promises] == [("p99", 9e6)]
    assert [it.percentile for it in first.promises] == [None]
    text = runs_text([first, later], width=200)
    assert "p99 < 9 ms" in text
    assert "store [night]" in text
    assert "0.5 %" in text
    assert "2024-10-06 00:00" in text


def test_runs_in_an_object_store_are_listed_as_on_a_disk(tmp_path):
    """The store is one of pyarrow, over files: the S3 of a server is in unruly/tests/services."""
    for place, day in (("later", 2), ("a/b/first", 1), ("a/b/c/too-deep", 3)):
        write_run(tmp_path / place, day, cells=[cell("read", step("p99", day * 1e6))])
    (tmp_path / "later" / "requests").mkdir()
    on_disk, address = runs_in(tmp_path), f"file://{tmp_path}"
    stored = runs_in(address)
    assert [it.run for it in stored] == ["first", "later"]
    assert [it.directory for it in stored] == [f"{address}/a/b/first", f"{address}/later"]
    assert [replace(it, directory="") for it in stored] == [
        replace(it, directory="") for it in on_disk
    ]


@pytest.mark.parametrize(
    ("address", "wrong"),
    [
        ("file:///nowhere/at/all", "is not one"),
        ("ftp://host/runs", "cannot be read: Unrecognized filesystem type"),
        ("s3://", "names no bucket"),
        (
            "s3://key:secret@runs/a?endpoint_override=127.0.0.1:9&scheme=http&region=x",
            "s3://runs/a",
        ),
    ],
)
def test_a_store_that_cannot_be_read_is_an_error_without_its_secret(address, wrong):
    with pytest.raises(UnrulyError) as told:
        runs_in(address)
    assert wrong in str(told.value)
    assert "secret" not in str(told.value)


def test_a_run_of_several_operations_says_how_many_have_a_promise(tmp_path):
    cells = [cell("read", step("p99", 1e6)), cell("write", step("p99", None))]
    write_run(tmp_path / "run", 1, cells=cells)
    assert "p99 for 1 of 2" in runs_text(runs_in(tmp_path), width=200)


def test_a_run_that_was_not_analysed_or_is_damaged_is_listed_with_the_reason(tmp_path):
    write_run(tmp_path / "raw", 1, summary=False, status="stopped")
    write_run(tmp_path / "odd", 2)
    (tmp_path / "odd" / "summary.json").write_text("{")
    raw, odd = runs_in(tmp_path)
    assert (raw.note, raw.trustworthy, raw.status) == ("not analysed", None, "stopped")
    assert odd.note == "summary.json cannot be read"
    text = runs_text([raw, odd], width=200)
    assert "(stopped)" in text
    assert "next: unruly verdict DIRECTORY" in text


def test_what_is_no_run_is_left_out_and_links_are_not_followed(tmp_path):
    write_run(tmp_path / "run", 1)
    (tmp_path / "other").mkdir()
    (tmp_path / "again").symlink_to(tmp_path / "run")
    write_run(tmp_path / "a" / "b" / "c" / "too-deep", 1)
    assert [it.run for it in runs_in(tmp_path)] == ["run"]
    assert runs_text([]).startswith("no run here")


def test_a_narrow_terminal_loses_columns_and_keeps_trust_and_promise(tmp_path):
    write_run(tmp_path / "run", 1, cells=[cell("read", step("p99", 9e6))], trustworthy=False)
    found = runs_in(tmp_path)
    head = runs_text(found, width=40).splitlines()[0].split()
    assert head == ["plan", "trust", "failed", "promise", "directory"]


def test_a_directory_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(UnrulyError, match="check the path"):
        runs_in(tmp_path / "nowhere")


def test_the_list_is_json_that_every_reader_takes(tmp_path):
    write_run(tmp_path / "run", 1, cells=[cell("read", step("p99", 9e6))])
    (run,) = json.loads(json.dumps(runs_json(runs_in(tmp_path)), allow_nan=False))["runs"]
    assert run["promises"] == [
        {"cell": "all", "op": "read", "percentile": "p99", "bound": 9e6, "unit": "ns"}
    ]
    assert run["directory"] == str(tmp_path / "run")


def test_a_run_whose_source_had_no_times_has_no_date(tmp_path):
    write_run(tmp_path / "counted", -20_000)
    (found,) = runs_in(tmp_path)
    assert found.started_ns is None
    assert "1970" not in runs_text([found], width=200)
