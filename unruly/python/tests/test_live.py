"""The figures of a run while it goes on: counts, state, exports and their listeners."""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
import threading

import numpy as np
import pytest

from unruly.errors import ParameterError
from unruly.live.metrics import histograms, metrics
from unruly.live.otlp import Exporter
from unruly.live.prometheus import CONTENT_TYPE, exposition
from unruly.live.server import CONNECTIONS_MOST, Server, page
from unruly.live.state import State
from unruly.live.tally import PIECES_MOST, Tally, percentile
from unruly.quantity import DASH
from unruly.stats.blocks import BLOCKS, block_interval
from unruly.stats.histogram import FAILED_BUCKET, bucket_index

TRIAL = {
    "number": 1, "of": 1, "cell": "all", "warmup_ns": 0, "duration_ns": 60_000_000_000,
    "rate": 200.0, "processes": 1,
}  # fmt: skip


def second(values_ns, op="read", failed=0, process=0, place=None):
    buckets, counts = np.unique(bucket_index(values_ns), return_counts=True)
    bins = [[op, int(b), int(n)] for b, n in zip(buckets, counts, strict=True)]
    if failed:
        bins.append([op, FAILED_BUCKET, failed])
    return {
        "second": {
            "process": process, "place": place, "sent": len(values_ns) + failed,
            "failed": {"timeout": failed}, "open": 1, "lag_ns": 50_000, "dropped": 0, "bins": bins,
        }
    }  # fmt: skip


def heard(*lines):
    state = State(clock=lambda: 0.0)
    begun: list = [{"run": {"name": "r", "id": "r-1", "directory": "runs/r"}}, {"trial": TRIAL}]
    for number, line in enumerate(lines):
        if "second" in line and line["second"]["place"] is None:
            line["second"]["place"] = number
    for line in [*begun, *lines]:
        state.hear(line)
    return state


def latencies(seconds, a_second=200, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.lognormal(14, 0.5, a_second) for _ in range(seconds)]


def test_the_bounds_are_those_of_the_block_method_on_the_same_seconds():
    values = latencies(60)
    (op,) = heard(*map(second, values)).operations()
    index = [bucket_index(it) for it in values]
    buckets = np.unique(np.concatenate(index))
    blocks = [np.concatenate(index[2 * it : 2 * it + 2]) for it in range(BLOCKS)]
    counts = np.array([[(block == b).sum() for block in blocks] for b in buckets])
    wanted = block_interval(buckets, counts, 0.99, estimate=op.estimates["p99"])
    found = op.ladder.step("p99").interval
    assert (found.low, found.high) == (wanted.interval.low, wanted.interval.high)
    assert op.estimates["p99"] == pytest.approx(np.quantile(np.concatenate(values), 0.99), rel=0.01)
    assert (op.n, op.failed) == (60 * 200, 0)


def test_lines_of_the_wait_for_late_replies_are_no_measured_time():
    lines = [*map(second, latencies(40)), *(second([], place=39) for _ in range(10))]
    assert heard(*lines).tally.seconds == 40


def test_processes_that_start_late_or_were_stopped_stand_at_their_time():
    tally = Tally()
    for place in range(30):
        tally.hear(0, [("read", 100, 1)], place)
    for place in (20, 29):
        tally.hear(1, [("read", 200, 1)], place)
    buckets, counts = tally.over_time()
    assert buckets.tolist() == [100, 200]
    assert np.flatnonzero(counts[1]).tolist() == [20, 29]


def test_before_thirty_seconds_there_are_percentiles_and_no_bounds():
    state = heard(*map(second, latencies(12)))
    (op,) = state.document()["ops"]
    p99 = next(it for it in op["steps"] if it["name"] == "p99")
    assert not p99["known"]
    assert p99["text"] == "an interval needs 18 s more"
    assert p99["value"].endswith("ms")


def test_a_percentile_beyond_the_requests_so_far_has_no_value():
    (op,) = heard(*map(second, latencies(2))).document()["ops"]
    assert {it["name"]: it["value"] for it in op["steps"]}["p99.9"] == DASH


def test_a_long_run_is_counted_in_bounded_memory_and_loses_nothing():
    tally = Tally()
    for it in range(5 * PIECES_MOST):
        tally.hear(0, [("read", 100 + it % 7, 3)])
    buckets, counts = tally.over_time()
    assert tally.width_s == 8
    assert counts.shape == (7, 5 * PIECES_MOST // 8)
    assert counts.sum() == 15 * PIECES_MOST
    assert set(counts.sum(axis=0)) == {24}
    assert buckets.tolist() == list(range(100, 107))


def test_requests_that_failed_are_beyond_every_percentile():
    (op,) = heard(*[second(it, failed=10) for it in latencies(31)]).operations()
    assert op.failed == 310
    assert np.isinf(op.estimates["p99"])
    assert np.isfinite(op.estimates["p90"])
    assert op.ladder.step("p99").interval is None


def test_a_percentile_of_counts_is_the_value_at_its_rank():
    buckets = np.array([10, 20, 30])
    counts = np.array([[98, 0], [1, 0], [1, 0]])
    low = 1.005**20
    assert percentile(buckets, counts, 0.99)[0] == pytest.approx(low, rel=0.005)
    assert np.isnan(percentile(buckets, counts, 0.99)[1])


def test_each_trial_starts_anew_and_the_last_one_is_kept():
    state = heard(*map(second, latencies(31)))
    state.hear({"trial": {**TRIAL, "number": 2}})
    assert state.operations() == []
    (done,) = state.done
    assert (done["number"], done["op"], done["n"]) == (1, "read", "6,200")
    assert done["between"].startswith("between ")


def test_a_run_that_a_person_stopped_is_not_shown_as_one_that_ended():
    for stopped, phase in ((False, "ended"), (True, "stopped")):
        state = State()
        state.hear({"end": {"stopped": stopped}})
        assert (state.ended, state.phase) == (True, phase)


def test_the_exposition_has_each_request_once_at_bounds_that_are_exact():
    values = latencies(40)
    state = heard(*[second(it, failed=1) for it in values])
    (found,) = histograms(state)
    every = np.concatenate(values)
    assert found.n == every.size
    assert found.sum_s == pytest.approx(every.sum() / 1e9, rel=0.002)
    for bound, count in zip(found.bounds_s, found.up_to, strict=True):
        assert count == (bucket_index(every) < bucket_index([bound * 1e9 * 1.0001])[0]).sum()
    lines = exposition(state).splitlines()
    assert f'unruly_response_seconds_count{{cell="all",trial="1",op="read"}} {every.size}' in lines
    assert 'unruly_requests_total{cell="all",trial="1",op="read",outcome="failed"} 40' in lines
    assert 'unruly_failures_total{cell="all",trial="1",status="timeout"} 40' in lines


def test_a_name_cannot_forge_a_line_of_the_exposition():
    state = heard(second([1e6] * 5, op='a"} 1\nunruly_forged 1\n#\\'))
    lines = exposition(state).splitlines()
    assert not [it for it in lines if it.startswith("unruly_forged")]
    assert any(r'op="a\"} 1\nunruly_forged 1\n#\\"' in it for it in lines)


def test_both_exports_have_the_same_figures():
    state = heard(*map(second, latencies(31)))
    document = Exporter("http://127.0.0.1:1").document(state)
    (resource,) = document["resourceMetrics"]
    exported = {it["name"]: it for it in resource["scopeMetrics"][0]["metrics"]}
    (point,) = exported["unruly_response_seconds"]["histogram"]["dataPoints"]
    assert sum(map(int, point["bucketCounts"])) == int(point["count"]) == 31 * 200
    assert len(point["bucketCounts"]) == len(point["explicitBounds"]) + 1
    names = {it.name for it in metrics(state)}
    assert names | {"unruly_response_seconds"} == set(exported)
    lines = exposition(state)
    for metric in metrics(state):
        name = f"{metric.name}_total" if metric.kind == "counter" else metric.name
        assert lines.count(f"\n{name}") == len(metric.values)


def test_an_address_that_holds_a_password_is_refused_without_it():
    with pytest.raises(ParameterError, match="holds a password") as error:
        Exporter("http://user:hidden@127.0.0.1:4318")
    assert "hidden" not in str(error.value)
    for wrong in ("http://[::1", "http://127.0.0.1/v1 x", "ftp://h", "http://"):
        with pytest.raises(ParameterError, match="is no address"):
            Exporter(wrong)


def test_a_header_that_cannot_be_sent_is_named_and_not_printed(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hidden%0A")
    with pytest.raises(ParameterError, match="authorization") as error:
        Exporter("http://127.0.0.1:4318")
    assert "hidden" not in str(error.value)


def test_a_receiver_that_does_not_speak_http_is_a_sentence():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            link, _ = listener.accept()
            with link:
                link.recv(65_536)
                link.sendall(b"hello there\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        exporter = Exporter(f"http://127.0.0.1:{listener.getsockname()[1]}")
        exporter.send({})
        thread.join(5)
    assert exporter.trouble is not None
    assert "does not speak HTTP" in exporter.trouble


def test_a_receiver_that_is_not_there_is_a_sentence_and_no_failure():
    exporter = Exporter("http://127.0.0.1:1")
    exporter.send({})
    assert exporter.trouble is not None
    assert exporter.trouble.startswith("http://127.0.0.1:1/v1/metrics cannot be reached")
    with pytest.raises(ParameterError, match="a URL of HTTP"):
        Exporter("127.0.0.1:4318")


@pytest.fixture
def server():
    html, policy = page()
    routes = {"/": ("text/html", lambda: html), "/metrics": (CONTENT_TYPE, lambda: "x 1\n")}
    found = Server("--live", "127.0.0.1:0", routes, policy)
    found.start()
    yield found
    found.shutdown()
    found.server_close()


def get(server, path="/", host=None):
    port = server.server_address[1]
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    link.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
    reply = link.getresponse()
    body = reply.read().decode()
    link.close()
    return reply, body


def test_the_page_asks_nobody_but_its_own_server(server):
    reply, body = get(server)
    assert reply.status == 200
    assert "connect-src 'self'" in reply.headers["Content-Security-Policy"]
    assert "/*STYLE*/" not in body
    assert "/*SCRIPT*/" not in body
    assert not [
        it
        for it in ("http://", "https://", "src=")
        if it in body.replace("http://www.w3.org/2000/svg", "")
    ]


def test_a_page_of_another_site_cannot_read_it_through_a_name_that_leads_here(server):
    assert get(server, host="evil.example:80")[0].status == 403
    assert get(server, host="localhost:1")[0].status == 200
    assert get(server, host="[::1]:1")[0].status == 200
    assert get(server, "/nowhere")[0].status == 404


def test_a_page_for_everybody_is_asked_for_by_an_address_or_by_the_hosts_own_name():
    html = {"/": ("text/html", lambda: "x")}
    scrape = {"/metrics": (CONTENT_TYPE, lambda: "x 1\n")}
    own = socket.gethostname()
    for routes, path, statuses in (
        (html, "/", {"evil.example": 403, "192.0.2.7:80": 200, own: 200, "localhost": 200}),
        (scrape, "/metrics", {"perf1.example:9100": 200}),
    ):
        found = Server("--live", "0.0.0.0:0", routes, "")
        found.start()
        try:
            for host, status in statuses.items():
                assert get(found, path, host)[0].status == status, host
        finally:
            found.shutdown()
            found.server_close()


def test_a_client_that_sends_a_byte_now_and_then_loses_its_place(server, monkeypatch):
    monkeypatch.setattr("unruly.live.server.TIMEOUT_S", 0.2)
    pace = threading.Event()
    with socket.create_connection(server.server_address[:2], timeout=5) as link:
        link.sendall(b"GET / HTTP/1.1\r\nX: ")
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 1_000 and not select.select([link], [], [], 0)[0]:
                link.sendall(b"a")
                sent += 1
                pace.wait(0.02)
        # well before the socket's own limit, which each byte begins anew
        assert sent < 1_000


def test_garbage_and_too_many_connections_leave_the_listener_alive(server):
    address = server.server_address[:2]
    for junk in (b"\0" * 1000, b"GET / HTTP/9.9\r\n\r\n", b"GET " + b"a" * 70_000 + b"\r\n\r\n"):
        with socket.create_connection(address, timeout=5) as link:
            link.sendall(junk)
            link.shutdown(socket.SHUT_WR)
            while link.recv(65_536):
                pass
    held = [socket.create_connection(address, timeout=5) for _ in range(CONNECTIONS_MOST)]
    with socket.create_connection(address, timeout=5) as refused:
        assert refused.recv(100) == b""
    for link in held:
        link.close()
    free = threading.Event()
    for _ in range(100):
        if server.places.acquire(blocking=False):
            server.places.release()
            free.set()
            break
        free.wait(0.05)
    assert get(server)[0].status == 200


def test_an_address_that_is_taken_or_none_is_an_error_with_a_next_step(server):
    port = server.server_address[1]
    with pytest.raises(ParameterError, match=f"cannot listen on 127.0.0.1:{port}"):
        Server("--metrics", f"127.0.0.1:{port}", {}, "")
    for text in ("8000", "127.0.0.1:", "127.0.0.1:99999", ":80"):
        with pytest.raises(ParameterError, match="HOST:PORT"):
            Server("--live", text, {}, "")


def test_the_state_is_json_that_a_browser_reads_even_without_a_request():
    for state in (State(), heard(), heard(second([], failed=3))):
        json.loads(json.dumps(state.document(), allow_nan=False))
