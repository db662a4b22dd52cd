"""A run that is seen while it goes on: the page's state, a scrape and an export over OTLP."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import threading
import time
import urllib.request
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from house import UNRULY, Measured, call, spooled, wait_for
from redis_house import free_port

HOST = "127.0.0.1"
PLAN = """
name = "seen"
[run]
duration = "5s"
warmup = "500ms"
[drive]
rate = "400/s"
clients = 4
processes = 2
[[fault]]
kind = "stop"
process = "echo-0"
at = "2s"
duration = "400ms"
"""


class Receiver(BaseHTTPRequestHandler):
    """Takes exports as a collector does."""

    server: Any

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, json.loads(body)))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Any:
    server: Any = ThreadingHTTPServer((HOST, 0), Receiver)
    server.received = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def fetched(port: int, path: str) -> str:
    # The run may end while it answers.
    cut = (OSError, http.client.IncompleteRead)
    with suppress(*cut), urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=5) as it:
        return str(it.read().decode())
    return ""


def values(text: str) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def exported(message: dict[str, Any]) -> dict[str, Any]:
    (resource,) = message["resourceMetrics"]
    return {it["name"]: it for it in resource["scopeMetrics"][0]["metrics"]}


def test_page_scrape_and_export_end_with_the_figures_of_the_verdict(
    tmp_path: Path, receiver: Any
) -> None:
    plan, out = tmp_path / "plan.toml", tmp_path / "out"
    plan.write_text(PLAN)
    live, metrics = free_port(HOST), free_port(HOST)
    words = [UNRULY, "run", plan, "-o", out, f"--live={HOST}:{live}"]
    words += ["--metrics", f"{HOST}:{metrics}"]
    words += ["--otlp", f"http://{HOST}:{receiver.server_address[1]}"]
    run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    phases, last, document = set(), "", {}
    while run.poll() is None:
        text = fetched(live, "/state.json")
        document = json.loads(text) if text else document
        phases.add(document.get("phase"))
        last = fetched(metrics, "/metrics") or last
        time.sleep(0.2)
    said = run.communicate(timeout=30)
    # 1 where this machine is too busy for its run to be trusted.
    assert run.returncode in (0, 1), said
    assert f"live: http://{HOST}:{live}/" in said[1]
    assert {"measuring", "ended"} <= phases, phases

    cells = Measured(out).verdict()["cells"]
    (cell,) = (it for it in cells if (it["op"], it["latency"]) == ("echo", "response"))
    labels = '{cell="all",trial="1",op="echo"'
    scraped = values(last)
    assert scraped["unruly_run_ended"] == 1
    good = scraped[f'unruly_requests_total{labels},outcome="ok"}}']
    bad = scraped[f'unruly_requests_total{labels},outcome="failed"}}']
    assert (good + bad, bad) == (cell["n"], cell["failed"])
    assert scraped[f"unruly_response_seconds_count{labels}}}"] == good
    for share, name in (("0.5", "p50"), ("0.9", "p90"), ("0.99", "p99")):
        quantile = (
            f'unruly_response_percentile_seconds{labels},quantile="{share}",bound="estimate"}}'
        )
        assert scraped[quantile] == pytest.approx(cell[name] / 1e9, rel=0.006), name

    path, message = receiver.received[-1]
    found = exported(message)
    assert path == "/v1/metrics"
    assert found["unruly_run_ended"]["gauge"]["dataPoints"][0]["asDouble"] == 1
    (point,) = found["unruly_response_seconds"]["histogram"]["dataPoints"]
    assert int(point["count"]) == good
    shown = document["ops"][0]
    assert int(shown["n"].replace(",", "")) == cell["n"]
    # The stop was seen where it happened.
    assert max(it or 0 for it in document["series"]["max"]) > 0.35e9


def test_requests_that_time_out_are_counted_as_in_the_verdict(
    tmp_path: Path, receiver: Any
) -> None:
    plan, out = tmp_path / "plan.toml", tmp_path / "out"
    timed = PLAN.replace("clients = 4", 'clients = 4\ntimeout = "100ms"')
    plan.write_text(timed.replace('duration = "400ms"', 'duration = "1s"'))
    place = f"http://{HOST}:{receiver.server_address[1]}"
    said = call("run", plan, "-o", out, "--otlp", place)
    assert said.returncode in (0, 1), said.stderr
    cells = Measured(out).verdict()["cells"]
    (cell,) = (it for it in cells if (it["op"], it["latency"]) == ("echo", "response"))
    assert cell["failed"] > 100
    points = exported(receiver.received[-1][1])["unruly_requests"]["sum"]["dataPoints"]
    counts = {
        next(it["value"]["stringValue"] for it in point["attributes"] if it["key"] == "outcome"):
        point["asDouble"]
        for point in points
    }  # fmt: skip
    assert counts == {"ok": cell["n"] - cell["failed"], "failed": cell["failed"]}


def view_of(run: subprocess.Popen[str]) -> int | None:
    """Returns the process id of the view that a run has started, if it has."""
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
    for pid in map(int, children.read_text().split()):
        with suppress(OSError):
            if b"unruly.live" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return None


@pytest.mark.parametrize("trouble", [signal.SIGKILL, signal.SIGSTOP])
def test_a_view_that_dies_or_hangs_costs_the_run_nothing(tmp_path: Path, trouble: int) -> None:
    plan, out = tmp_path / "plan.toml", tmp_path / "out"
    plan.write_text(PLAN.replace("5s", "2s").replace('at = "2s"', 'at = "1s"'))
    words = [UNRULY, "run", plan, "-o", out, "-q", "--live"]
    run = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: spooled(out) > 0, "the first requests")
    pid = view_of(run)
    assert pid is not None
    os.kill(pid, trouble)
    try:
        assert run.wait(timeout=60) in (0, 1)
    finally:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    assert Measured(out).verdict()["cells"][0]["n"] == 800
    assert run.stderr is not None
    run.stderr.close()


def test_what_cannot_be_shown_is_refused_before_the_run(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    taken = ThreadingHTTPServer((HOST, 0), Receiver)
    port = taken.server_address[1]
    said = call("run", plan, "-o", tmp_path / "a", f"--live={HOST}:{port}")
    taken.server_close()
    assert said.returncode == 2
    assert f"--live: cannot listen on {HOST}:{port}" in said.stderr
    assert not (tmp_path / "a").exists()
    said = call("run", plan, "-o", tmp_path / "b", "--otlp", "somewhere")
    assert (said.returncode, "a URL of HTTP" in said.stderr) == (2, True)
    plan.write_text('name = "s"\n[run]\nduration = "1s"\n[stream]\nprotocol = "tcp"\n')
    said = call("run", plan, "-o", tmp_path / "c", "--live")
    assert said.returncode == 2
    assert "is a stream" in said.stderr
