"""Spans that real services export: the slow layer is named, and no secret is kept."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from house import UNRULY, Measured, call, wait_for
from redis_house import free_port
from spans_house import listens, traced_shop
from test_https import drive

HOST = "127.0.0.1"
LAYERS = {
    ("front", "GET /view", "own"),
    ("front", "pool.get", "own"),
    ("front", "GET /stock", "between"),
    ("front", "render", "own"),
    ("stock", "GET /stock", "own"),
    ("stock", "lookup", "own"),
    ("", "", "outside"),
}


def measured(folder: Path, front: str = "", stock: str = "") -> Measured:
    port = free_port(HOST)
    with traced_shop(port, front, stock) as url:
        flags = ["--spans", f"{HOST}:{port}", "-r", "100", "-c", "64", "-d", "12s"]
        return drive(folder, url, *flags)


TROUBLES = {
    "pool": (("front", "pool.get", "own"), {"front": "pool"}),
    "lookup": (("stock", "lookup", "own"), {"stock": "lookup"}),
    "queue": (("front", "GET /stock", "between"), {"stock": "queue"}),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_the_layer_of_a_real_trouble_is_named(tmp_path: Path, trouble: str) -> None:
    wanted, where = TROUBLES[trouble]
    run = measured(tmp_path, **where)
    verdict = run.verdict()
    found = [it["evidence"] for it in verdict["findings"] if it["code"] == "slow-layer"]
    assert [(it["service"], it["layer"], it["role"]) for it in found] == [wanted]
    (row,) = verdict["layers"]["rows"]
    assert {(it["service"], it["name"], it["role"]) for it in row["layers"]} == LAYERS
    # all requests have their spans, and nothing else of the services is kept
    assert row["traced"] == row["slow"]
    received = verdict["layers"]["received"]
    assert received["kept"] == received["received"]
    assert (received["damaged"], received["early"], received["level"]) == (0, 0, 0)
    for file in Path(run.path).rglob("*"):
        assert not file.is_file() or b"s3cr3t" not in file.read_bytes()


def test_a_call_that_is_made_again_and_again_is_named(tmp_path: Path) -> None:
    run = measured(tmp_path, front="calls")
    (found,) = [it for it in run.verdict()["findings"] if it["code"] == "repeated-calls"]
    evidence = found["evidence"]
    assert (evidence["service"], evidence["layer"]) == ("front", "GET /stock")
    assert evidence["slow_calls"] > 20
    assert evidence["usual_calls"] < 2


def test_every_request_has_its_spans_and_they_are_the_whole_of_it(tmp_path: Path) -> None:
    run = measured(tmp_path)
    # without anything parallel the own times of a request and the time outside are its response
    (row,) = run.verdict()["layers"]["rows"]
    usual = sum(it["usual_ns"] for it in row["layers"])
    assert usual == pytest.approx(row["usual_ns"], rel=0.35)
    ((spans,),) = run.rows("select count(*) from spans where span_id is not null")
    ((requests,),) = run.rows("select count(*) from requests")
    # five spans and one for the call
    assert spans == 6 * requests
    columns = "select kind, failed, count(*) from spans where span_id is not null"
    assert run.rows(f"{columns} group by 1, 2 order by 1") == [
        ("client", False, requests), ("internal", False, 3 * requests),
        ("server", False, 2 * requests),
    ]  # fmt: skip
    said = call("report", run.path, "-o", tmp_path / "report.html")
    assert said.returncode in (0, 1), said.stderr
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Where slow requests spent their time" in page
    assert "The spans of the slowest “" in page


def test_where_no_service_exports_spans_the_next_step_is_said(tmp_path: Path) -> None:
    with traced_shop(free_port(HOST)) as url:
        flags = ["--spans", f"{HOST}:{free_port(HOST)}", "-n", "20"]
        run = drive(tmp_path, url, *flags)
    (finding,) = [it for it in run.verdict()["findings"] if it["code"] == "spans-missing"]
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in finding["suggestion"]


def test_a_port_that_is_in_use_is_an_error_with_the_next_step(tmp_path: Path) -> None:
    with socket.socket() as taken, traced_shop(1) as url:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = ["drive", url, "--spans", f"{HOST}:{port}", "-n", "5", "-o", tmp_path / "out"]
        said = call(*words)
    assert said.returncode == 2
    assert f"drive.spans: cannot listen on {HOST}:{port}" in said.stderr
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in said.stderr


def post(port: int, body: bytes, path: str = "/v1/traces", **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"http://{HOST}:{port}{path}", body, named)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_what_is_no_span_is_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    port = free_port(HOST)
    foreign = {"traceId": "1" * 32, "spanId": "2" * 16, "name": "x", "startTimeUnixNano": "5"}
    message = {"resourceSpans": [{"scopeSpans": [{"spans": [{**foreign, "endTimeUnixNano": 9}]}]}]}
    with traced_shop(1) as url:
        words = [UNRULY, "drive", url, "--spans", f"{HOST}:{port}", "-r", "20", "-d", "6s"]
        words += ["-w", "0s", "-q", "-o", tmp_path / "out"]
        load = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        wait_for(lambda: listens(port), "the receiver")
        codes = [
            post(port, b"\xff" * 500),
            post(port, b"{]", content_type="application/json"),
            post(port, b"x", content_encoding="gzip"),
            post(port, b"x", content_encoding="br"),
            *(post(port, b"0" * (5 << 20)) for _ in range(20)),
            post(port, b"", path="/nowhere"),
            post(port, b"anything", path="/v1/metrics"),
            post(port, json.dumps(message).encode(), content_type="application/json"),
        ]
        with socket.create_connection((HOST, port)) as link:
            link.sendall(b"\x00garbage\r\n\r\n" * 100)
        assert load.wait(timeout=60) in (0, 1), load.stderr
        load.stderr.close() if load.stderr else None
    assert codes == [400, 400, 400, 415, *[413] * 20, 404, 200, 200]
    received = Measured(tmp_path / "out").verdict()["layers"]["received"]
    assert (received["received"], received["foreign"], received["kept"]) == (1, 1, 0)
