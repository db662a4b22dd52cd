"""Trace context: every request names its trace, and its row finds it again."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from grpc_house import Shop, grpc_server
from house import call
from http_house import server
from test_https import drive, refused, statuses

if TYPE_CHECKING:
    from pathlib import Path

    from http_house import Connection

FORM = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-01")
LINK = "http://traces.invalid/trace/{trace_id}"


def test_the_slowest_requests_lead_to_the_traces_that_the_server_was_told(tmp_path: Path) -> None:
    """One request in fifty takes 50 ms, and the server writes down which traces these are."""
    told: list[str] = []
    slow: list[str] = []

    def sometimes_slow(connection: Connection) -> None:
        while connection.request():
            told.append(connection.headers["traceparent"])
            if len(told) % 50 == 0:
                slow.append(told[-1])
                # what the server takes to answer, and no wait for anything
                time.sleep(0.05)
            connection.reply()

    with server(sometimes_slow) as url:
        flags = ["--trace", "--trace-url", LINK]
        run = drive(tmp_path, url, "-n", "300", "-c", "1", *flags)
        again = drive(tmp_path, url, "-n", "50", "-c", "1", "--trace")
    assert statuses(run) == {("ok", 200): 300}
    found = [FORM.fullmatch(it) for it in told]
    ids = [it[1] for it in found if it]
    assert len(ids) == len(set(ids)) == 350
    assert len({it[2] for it in found if it}) == 350
    slowest = run.verdict()["traces"]["slowest"]
    assert len(slowest) == 10
    planted = {it.split("-")[1] for it in slow[:6]}
    assert {it["trace_id"] for it in slowest[:6]} == planted
    assert slowest[0]["url"] == LINK.format(trace_id=slowest[0]["trace_id"])
    assert [it["response"] for it in slowest] == sorted(it["response"] for it in slowest)[::-1]
    said = call("report", run.path, "-o", tmp_path / "report.html")
    assert said.returncode in (0, 1), said.stderr
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f'<a href="{slowest[0]["url"]}"' in page
    shown = call("verdict", run.path)
    assert f"slowest trace: {slowest[0]['url']}" in shown.stdout
    assert again.verdict()["traces"]["slowest"][0]["url"] is None


def test_a_request_that_is_tried_again_stays_in_its_trace_with_another_span(tmp_path: Path) -> None:
    told: list[str] = []

    def fails_first(connection: Connection) -> None:
        while connection.request():
            told.append(connection.headers["traceparent"])
            connection.reply("no", "HTTP/1.1 500 No" if len(told) % 2 else "HTTP/1.1 200 OK")

    with server(fails_first) as url:
        drive(tmp_path, url, "-n", "20", "-c", "1", "--trace", "--retries", "1")
    found = [FORM.fullmatch(it) for it in told]
    pairs = [(one, two) for one, two in zip(found[::2], found[1::2], strict=True) if one and two]
    assert len(pairs) == 20
    assert all(one[1] == two[1] and one[2] != two[2] for one, two in pairs)


def test_calls_of_grpc_name_their_traces_too(tmp_path: Path) -> None:
    shop = Shop()
    with grpc_server(shop) as place:
        run = drive(tmp_path, f"grpc://{place}/shop.v1.Orders/Place", "-n", "40", "--trace")
    told = {it["traceparent"].split("-")[1] for it in shop.metadata}
    assert len(told) == 40
    assert {it["trace_id"] for it in run.verdict()["traces"]["slowest"]} <= told


def test_a_link_without_its_place_or_without_traces_is_an_error(tmp_path: Path) -> None:
    url = "http://127.0.0.1:1/"
    assert "with {trace_id}" in refused(tmp_path, url, "--trace", "--trace-url", "http://h/")
    assert "with {trace_id}" in refused(
        tmp_path, url, "--trace", "--trace-url", "javascript:{trace_id}"
    )
    assert "--trace" in refused(tmp_path, url, "--trace-url", LINK)
    assert "--headers: " in refused(tmp_path, url, "--trace", "-H", "traceparent: x")
