"""Files that none of us made: one command each, and the numbers are those of the file."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import unruly
from unruly.html import write_report
from unruly.ingest import Options, import_files

FOREIGN = {
    "gatling-3.5.1_simulation.log": "gatling",
    "slow-stdev.jtl.csv": "jmeter-csv",
    "k6_kpi.csv": "k6-csv",
    "molotov-report.csv": "molotov",
    "short.jtl.xml": "jmeter-xml",
    "yelp.json": "zipkin",
    "skew.json": "zipkin",
}
LATENCY = ("latency", "ec2_request_latency_system_failure.csv")
MATRIX = ("rtt_matrix", "planetlab_1.tsv")


@pytest.fixture(scope="module")
def runs(shared_data, tmp_path_factory):
    """Import a sample once, with the one command that a user would give."""
    place, made = tmp_path_factory.mktemp("samples"), {}

    def of(folder, name, **options):
        if name not in made:
            path = shared_data / folder / name
            done = import_files([str(path)], place / name, Options(**options))
            analysis = unruly.analyse(unruly.open_run(place / name))
            made[name] = path, done, analysis
        return made[name]

    return of


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_a_sample_has_a_verdict_and_a_report(name, runs, tmp_path):
    _, done, analysis = runs("foreign", name)
    assert done.files[0]["format"] == FOREIGN[name]
    assert done.files[0]["refused"] == 0
    assert analysis.conservation.checked
    text = unruly.verdict(analysis)
    assert "imported" in text
    assert len(text.split("\n")) <= 40
    report = write_report([analysis], tmp_path / "report.html")
    assert "no intended times" in report.read_text(encoding="utf-8")


def test_gatling_counts_each_request_of_the_log(runs):
    path, _, analysis = runs("foreign", "gatling-3.5.1_simulation.log")
    lines = [line.split("\t") for line in path.read_text().split("\n")]
    wanted = {}
    for line in lines:
        if line[0] == "REQUEST":
            wanted.setdefault(line[2], []).append((int(line[4]) - int(line[3]), line[5]))
    assert {row.op: row.n for row in analysis.cells if row.op != "*"} == {
        op: len(found) for op, found in wanted.items()
    }
    for op, found in wanted.items():
        good = [taken for taken, status in found if status == "OK"]
        cell = analysis.cell(op)
        assert cell.failed == len(found) - len(good)
        assert cell.mean_ok == pytest.approx(np.mean(good) * 1e6)
        assert cell.max_ok == max(good) * 1e6


def test_jmeter_csv_agrees_with_its_own_columns(runs):
    path, _, analysis = runs("foreign", "slow-stdev.jtl.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    whole = next(r for r in analysis.cells if r.op == "*" and r.latency == "response")
    good = [int(row["elapsed"]) for row in rows if row["success"] == "true"]
    assert (whole.n, whole.failed) == (len(rows), len(rows) - len(good))
    assert whole.mean_ok == pytest.approx(np.mean(good) * 1e6)
    assert analysis.conservation.by_status["error:500"] == 61
    first = min(int(row["timeStamp"]) for row in rows)
    assert analysis.started_ns == first * 1_000_000


def test_jmeter_xml_whose_requests_all_timed_out_has_no_latency(runs):
    path, _, analysis = runs("foreign", "short.jtl.xml")
    count = len(ET.parse(path).getroot())
    assert analysis.conservation.by_status == {"timeout": count}
    cell = analysis.cell("jp@gc - UDP Request")
    assert (cell.n, cell.failed, cell.p50) == (count, count, None)


def test_k6_and_molotov_say_which_requests_failed(runs):
    _, _, k6 = runs("foreign", "k6_kpi.csv")
    assert k6.conservation.by_status == {"ok": 2, "error:name": 2}
    assert k6.cell("GET https://blazedemo.com/").max_ok == 245_591_442
    _, _, molotov = runs("foreign", "molotov-report.csv")
    assert molotov.conservation.by_status == {"ok": 4, "error:404": 4}


@pytest.mark.parametrize("name", ["yelp.json", "skew.json"])
def test_zipkin_has_a_request_for_each_call(name, runs):
    path, done, analysis = runs("foreign", name)
    spans = json.loads(path.read_text())
    clients = {span["id"] for span in spans if span.get("kind") == "CLIENT"}
    alone = [
        span for span in spans
        if span.get("kind") == "SERVER"
        and not {span["id"], span.get("parentId")} & clients
    ]  # fmt: skip
    assert done.rows["requests"] == len(clients) + len(alone)
    # every span is one of a request, and the calls within another request are spans of that one
    assert done.rows["spans"] >= len(spans) - len(clients)
    services = {span["localEndpoint"]["serviceName"] for span in spans}
    services |= {
        span["remoteEndpoint"]["serviceName"] for span in spans if "remoteEndpoint" in span
    }
    names = {process["name"] for process in analysis.run.manifest["processes"]}
    assert names <= services | {"outside"}
    asking = [span["localEndpoint"] for span in spans if span.get("kind") == "CLIENT"]
    assert {endpoint["serviceName"] for endpoint in asking} <= names


def test_the_latencies_of_a_server_keep_their_times(runs):
    path, done, analysis = runs(*LATENCY, unit="ms")
    with path.open(newline="") as file:
        values = [float(row["value"]) for row in csv.DictReader(file)]
    cell = analysis.cell("value")
    assert cell.n == 4_032
    assert cell.p50 == pytest.approx(np.median(values) * 1e6, abs=1)
    assert cell.max == round(max(values) * 1e6)
    assert analysis.measured_ns == pytest.approx(14 * 86_400e9, rel=0.01)
    assert "its times name no time zone and were taken as UTC" in done.missing


@pytest.mark.slow
def test_a_matrix_of_490_nodes_has_every_pair(runs, shared_data):
    path, done, analysis = runs(*MATRIX, unit="ms")
    values = np.array([line.split() for line in path.read_text().splitlines()], float)
    assert values.shape == (490, 490)
    off = values[~np.eye(490, dtype=bool)]
    assert done.rows["requests"] == 490 * 489
    cell = analysis.cell("round trip")
    assert cell.p50 == pytest.approx(np.median(off) * 1e6, abs=1)
    assert cell.max == pytest.approx(off.max() * 1e6, abs=1)
    assert analysis.processes == 490
    assert "times-made-up" in [finding.code for finding in analysis.findings]
    worst = int(np.median(values, axis=0).argmax())
    by = analysis.by["by_receiver"]
    service = by[by["latency"] == "service"].set_index("receiver")["p50"]
    assert service.idxmax() == f"node-{worst}"
