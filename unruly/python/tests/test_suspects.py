"""What is held against whom: no evidence hides other, and a host is not blamed by another's."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from planted import LOST, MS, add_rows, as_repeats, looked_at, write_planted
from synthetic import NS, STARTED_NS
from unruly.base import suspects


def _named(path, cell):
    """Return the causes of a cell, the one that explains most first."""
    (row,) = (it for it in looked_at(path).rows if it.cell == cell)
    return [(it.cause, it.process) for it in row.causes]


def _events(path, kind):
    (file,) = (path / "events").glob("*.parquet")
    return [row for row in pq.read_table(file).to_pylist() if row["kind"] == kind]


def test_many_short_pauses_do_not_hide_a_death(tmp_path, monkeypatch):
    """An instant is as long as nothing: by its length alone it is the first to be left out."""
    monkeypatch.setattr(suspects, "EVENTS_MOST", 300)
    path = write_planted(tmp_path / "run", ["server killed"], 2)
    dead = _events(path, "process died")[0]["process"]
    pauses = [
        {"process": dead, "kind": "safepoint", "started_ns": at, "ended_ns": at + 200_000}
        for at in range(STARTED_NS, STARTED_NS + 50 * NS, 50 * MS)
    ]
    add_rows(path, "events", pauses)
    assert _named(path, "server killed") == [("process died", dead)]
    (told,) = looked_at(path).left_out
    assert told.endswith("events of causes only 300 were looked at: of each process the longest")


def test_a_process_that_died_lives_in_the_next_repeat(tmp_path):
    """Every leg starts its processes anew, and no event says so."""
    path = as_repeats(write_planted(tmp_path / "run", [LOST, None, None], 2))
    (death,) = _events(path, "process died")
    assert _named(path, LOST) == [("process died", death["process"])]


def test_long_pauses_before_it_was_measured_do_not_hide_those_meanwhile(tmp_path):
    path = write_planted(tmp_path / "run", ["gc pause"], 2)
    wanted = _named(path, "gc pause")
    assert wanted[0][0] == "gc pause"
    begun = STARTED_NS - 500 * NS
    pauses = [
        {"process": wanted[0][1], "kind": "gc", "started_ns": at, "ended_ns": at + 400 * MS}
        for at in range(begun, begun + 450 * NS, NS)
    ]
    add_rows(path, "events", pauses)
    assert _named(path, "gc pause") == wanted


@pytest.mark.slow
def test_samples_of_earlier_cells_do_not_hide_those_of_later_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(suspects, "SAMPLES_MOST", 300)
    path = write_planted(tmp_path / "run", ["hog beside the server", None], 2)
    assert _named(path, "hog beside the server")[0][0] == "cpu wait"
    assert looked_at(path).left_out == ()
    monkeypatch.setattr(suspects, "SAMPLES_MOST", 5)
    (told,) = looked_at(path).left_out
    assert told.endswith(
        "samples with a metric that was high only 5 were looked at, as chance chose"
    )


def test_a_sample_of_no_length_hides_no_other(tmp_path):
    path = write_planted(tmp_path / "run", ["hog beside the server"], 2)
    wanted = _named(path, "hog beside the server")
    assert wanted[0][0] == "cpu wait"
    at = STARTED_NS + 30 * NS
    empty = {"watched": wanted[0][1], "run_queue_wait_ns": 1, "started_ns": at, "ended_ns": at}
    add_rows(path, "resources", [empty])
    assert _named(path, "hog beside the server") == wanted


def test_a_host_is_held_against_those_alone_who_ask_what_runs_on_it(tmp_path):
    """Another host had its CPUs stolen whenever the way to a server of this one was slow."""
    path = write_planted(tmp_path / "run", ["delay on the way"], 2)
    wanted = _named(path, "delay on the way")
    assert wanted[0][0] == "network and queue"
    slow = [it["started_ns"] for it in _events(path, "fault delay on the way")]
    stolen = [
        {
            "host": "host-1", "watched": None, "started_ns": at, "ended_ns": at + NS,
            "cpu_steal_share": 0.9 if any(abs(at - it) < NS for it in slow) else 0.0,
        }
        for at in range(STARTED_NS, STARTED_NS + 60 * NS, NS)
    ]  # fmt: skip
    add_rows(path, "resources", stolen)
    document = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    other = next(
        it
        for it in document["processes"]
        if it["name"].startswith("store-") and it["name"] != wanted[0][1]
    )
    other["host"] = "host-1"
    (path / "manifest.json").write_text(json.dumps(document), encoding="utf-8")
    assert _named(path, "delay on the way") == wanted
