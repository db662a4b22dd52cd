"""JSON with an object for each request, as services and proxies log it."""

from __future__ import annotations

import json

import pytest

from unruly import IngestError

MS, S = 1_000_000, 1_000_000_000
ROW = "op, status, sent_ns, received_ns - sent_ns"
CADDY = "".join(
    json.dumps(
        {"level": "info", "ts": 1_795_457_486.5 + place, "logger": "http.log.access",
         "request": {"method": method, "uri": "/secret"}, "duration": taken, "status": status}
    ) + "\n"
    for place, (method, taken, status) in enumerate((("GET", 0.0125, 200), ("POST", 2, 502)))
)  # fmt: skip


def test_fields_are_named_by_their_paths(bring):
    flags = {"value": "duration", "unit": "s", "time": "ts", "time_unit": "s"}
    made = bring(CADDY, **flags, op="request.method")
    assert made.rows(ROW) == [
        ("GET", "ok", 1_795_457_486_500 * MS, 12_500_000),
        ("POST", "error:502", 1_795_457_487_500 * MS, 2 * S),
    ]
    assert made.file["format"] == "json"
    assert "the field status was read as the status of HTTP" in made.missing
    array = json.dumps([json.loads(line) for line in CADDY.splitlines()], indent=2)
    assert bring(array, **flags, op="request.method").rows(ROW) == made.rows(ROW)


def test_times_may_be_dates_units_may_stand_in_names_and_factors_make_cells(bring):
    text = "".join(
        json.dumps({"at": f"2026-11-23T18:11:2{place}.25Z", "took": {"total_ms": [place, 7]},
                    "node": node}) + "\n"
        for place, node in enumerate("aab")
    )  # fmt: skip
    made = bring(text, value="took.total_ms.0", unit="ms", time="at", factors=("node",))
    assert made.rows("sent_ns, received_ns - sent_ns")[1] == (1_795_457_481_250 * MS, MS)
    assert {cell["factors"]["node"] for cell in made.manifest["cells"]} == {"a", "b"}
    flat = '{"total_ms": 1.5}\n{"total_ms": "2.5"}\n'
    assert bring(flat, value="total_ms").rows("received_ns - sent_ns") == [
        (1_500_000,), (2_500_000,),
    ]  # fmt: skip


def test_a_status_that_the_first_object_lacks_is_found(bring):
    rows = [{"took_ms": 1}, {"took_ms": 2, "status": 200}, {"took_ms": 3, "status": 500}]
    made = bring("".join(json.dumps(row) + "\n" for row in rows), value="took_ms")
    # one that says nothing, beside others that do, is no success
    assert [row[0] for row in made.rows("status")] == ["error:failed", "ok", "error:500"]


def test_a_factor_that_no_object_has_is_refused(bring):
    with pytest.raises(IngestError, match="has no field 'nod' for --factor"):
        bring('{"took_ms": 1, "node": "a"}\n', value="took_ms", factors=("nod",))


def test_what_is_no_duration_or_time_is_refused_and_counted(bring):
    line = '{"ms": 1, "t": "2026-11-23T18:11:26Z"}\n'
    bad = (
        '{"ms": "NaN", "t": "2026-11-23T18:11:26Z"}\n{"ms": -1, "t": "2026-11-23T18:11:26Z"}\n'
        '{"t": "2026-11-23T18:11:26Z"}\n{"ms": true, "t": "2026-11-23T18:11:26Z"}\n'
        '{"ms": 1, "t": "yesterday"}\n{"ms": 1}\n{"ms": 1e300, "t": "2026-11-23T18:11:26Z"}\n'
    )
    made = bring(line * 1_000 + bad, value="ms", unit="ms", time="t")
    assert made.file["refused"] == 7
    assert made.rows("count(*)") == [(1_000,)]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"value": "durations", "unit": "s"}, "has no field 'durations' for --value"),
        ({"value": "duration"}, "field 'duration' does not say its unit"),
        ({"value": "duration", "unit": "s", "time": "ts"}, "field 'ts' holds numbers"),
        ({"value": "duration", "unit": "s", "op": "request.path"}, "no field 'request.path'"),
        ({"format": "json"}, "its fields are level, ts, logger, request.method"),
        ({}, "--value PATH --unit ms"),
    ],
)
def test_an_error_names_the_next_step(bring, flags, words):
    # without any flag, the log of a known proxy would be recognised
    text = CADDY if flags else CADDY.replace('"ts"', '"at"')
    with pytest.raises(IngestError) as raised:
        bring(text, **flags)
    assert words in str(raised.value)
