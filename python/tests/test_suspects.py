"""What is held against whom: no evidence hides other, and a host is not blamed by another's."""

from __future__ import annotations

import pyarrow.parquet as pq

from planted import LOST, MS, add_rows, as_repeats, looked_at, write_planted
from synthetic import NS, STARTED_NS
from unruly.findings import suspects


def _named(path, cell):
    """The causes of a cell, that which explains most first."""
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
