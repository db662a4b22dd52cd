"""Traces: the slowest requests, their ids, and the links of a plan."""

from __future__ import annotations

import duckdb
import pyarrow.parquet as pq
import pytest

import unruly
from synthetic import Segments, write_run
from unruly.base.trace_ids import id_of
from unruly.html import write_report
from unruly.topics.traces.model import traces_of

KEY = 0x5A3C_9E7F_01B2_D4C6
PLAN = 'name = "t"\n[drive]\ntrace = true\ntrace_url = "{url}"\n'


def planted(root, *, url="http://h/{trace_id}", told=f"0 {KEY:016x}"):
    """A run whose plan names traces, and whose client 0 wrote the key of its own."""
    path = write_run(root, kind="drive", agents=1, ops=("get",), rate_hz=100, duration_s=20)
    (path / "plan.toml").write_text(PLAN.format(url=url), encoding="utf-8")
    template = pq.read_table(next((path / "events").glob("*.parquet"))).slice(0, 1)
    row = {**template.to_pylist()[0], "kind": "trace key", "detail": told}
    cells = duckdb.sql(
        f"select distinct cell, repeat from read_parquet('{path}/requests/*.parquet')"
    ).fetchall()
    rows = [{**row, "cell": cell, "repeat": repeat} for cell, repeat in cells]
    segments = Segments(path, unruly.open_run(path).id, "synthetic")
    segments.count = 1000
    segments.write("events", type(template).from_pylist(rows, schema=template.schema))
    return path


def analyse(path):
    return unruly.analyse(unruly.open_run(path), causes=False, pictures=False)


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    path = planted(tmp_path_factory.mktemp("traces") / "run")
    return path, analyse(path)


def test_the_ten_slowest_requests_have_the_ids_of_their_traces(traced):
    path, analysis = traced
    found = traces_of(analysis).slowest
    wanted = duckdb.sql(
        "select client, request, received_ns - intended_ns as response from"
        f" read_parquet('{path}/requests/*.parquet') where phase != 'warmup' and status = 'ok'"
        " order by response desc limit 10"
    ).fetchall()
    assert [it.response for it in found] == [response for _, _, response in wanted]
    assert {(it.client, it.request) for it in found} == {(c, r) for c, r, _ in wanted}
    assert all(it.trace_id == id_of(KEY, it.request) for it in found)
    assert found[0].url == f"http://h/{found[0].trace_id}"


def test_the_report_links_them(traced, tmp_path):
    _, analysis = traced
    write_report([analysis], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('<a href="http://h/') == 10


@pytest.mark.parametrize("url", ["javascript:alert(1)//{trace_id}", "data:text/html,{trace_id}"])
def test_a_plan_of_a_stranger_leads_nowhere(tmp_path, url):
    found = traces_of(analyse(planted(tmp_path / "run", url=url)))
    assert {it.url for it in found.slowest} == {None}


@pytest.mark.parametrize("more", [{"told": "0 no-key"}, {"told": "7 0000000000000001"}])
def test_without_traces_or_their_key_there_is_nothing_to_show(tmp_path, more):
    assert traces_of(analyse(planted(tmp_path / "run", **more))) is None
