"""Status codes: which came, how often, and which of them count as success."""

from __future__ import annotations

import json
from pathlib import Path

import ibis
import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq

import unruly
from synthetic import write_run
from unruly.output.summary import summary
from unruly.output.verdict import verdict
from unruly.tables import fetch
from unruly.tables import requests as request_tables

SCHEMA = json.loads((Path(__file__).parents[2] / "schema" / "summary.schema.json").read_text())
STORE = {"kind": "drive", "agents": 1, "ops": ("read",), "rate_hz": 100, "duration_s": 12}


def with_codes(run, code_of, waited_of):
    """Give each row the code and the flag that these make of its number in the run."""
    first = 0
    for path in sorted(run.glob("requests/**/*.parquet")):
        rows = pq.read_table(path)
        numbers = range(first, first + len(rows))
        columns = {
            "code": pa.array([code_of(it) for it in numbers], pa.uint16()),
            "waited": pa.array([waited_of(it) for it in numbers]),
        }
        for name, column in columns.items():
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, name, column)
        pq.write_table(rows, path)
        first += len(rows)
    return run


def test_codes_are_counted_and_those_that_failed_are_marked():
    rows = ibis.memtable(
        {
            "cell": ["all"] * 8,
            "op": ["read"] * 8,
            "status": [
                "ok",
                "ok",
                "error:503",
                "wrong:lost",
                "timeout",
                "timeout",
                "ok",
                "refused",
            ],
            "ok": [True, True, False, False, False, False, True, False],
            "code": pa.array([200, 200, 503, 404, 200, 500, 404, None], pa.uint16()),
            "waited": [True, False, True, False, False, False, False, True],
        }
    )
    found = fetch(request_tables.codes(rows)).to_dict("records")
    seen = {(it["code"], bool(it["expected"])): (it["n"], it["waited"]) for it in found}
    assert seen == {
        (200, True): (3, 1),
        (404, True): (1, 0),
        (404, False): (1, 0),
        (500, False): (1, 0),
        (503, False): (1, 1),
    }


def test_a_run_of_http_says_its_codes(tmp_path):
    run = write_run(tmp_path / "run", **STORE)
    with_codes(run, lambda it: 404 if it % 10 == 0 else 200, lambda it: it % 100 == 0)
    analysis = unruly.analyse(unruly.open_run(run), causes=False, pictures=False)
    assert [(it.op, it.code, it.count, it.expected) for it in analysis.statuses] == [
        ("read", 200, 1080, True),
        ("read", 404, 120, True),
    ]
    assert analysis.connections.waited == 12
    assert "status codes: 200: 1,080, 404: 120; 12 requests were held in" in verdict(analysis)
    document = summary(analysis)
    jsonschema.validate(document, SCHEMA)
    assert document["connections"] == {"reopened": 0, "sent_again": 0, "waited": 12}
    assert document["statuses"][1]["code"] == 404


def test_a_run_without_codes_says_nothing_of_them(tmp_path):
    analysis = unruly.analyse(
        unruly.open_run(write_run(tmp_path / "run", **STORE)), causes=False, pictures=False
    )
    assert (analysis.statuses, analysis.connections) == ((), None)
    assert "status codes" not in verdict(analysis)
    jsonschema.validate(summary(analysis), SCHEMA)


def test_waiting_for_a_connection_is_no_lag_of_the_generator(tmp_path):
    shape = {**STORE, "generator_stalls_hz": 0.5, "generator_stall_ns": 200e6}
    late = unruly.open_run(write_run(tmp_path / "late", **shape))
    blamed = unruly.analyse(late, causes=False, pictures=False).self_distrust
    assert blamed.send_lag_ns["max"] > 10e6
    assert blamed.tail_explained_share > 0
    run = with_codes(write_run(tmp_path / "waited", **shape), lambda _: 200, lambda _: True)
    waited = unruly.analyse(unruly.open_run(run), causes=False, pictures=False).self_distrust
    assert waited.send_lag_ns == {}
    assert not waited.tail_explained_share
