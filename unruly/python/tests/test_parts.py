"""Parts of requests: planted spans, how long each part took, and which requests waited."""

from __future__ import annotations

import duckdb
import ibis
import pytest

import unruly
from explained import assert_like_its_example
from synthetic import Segments, write_run
from unruly.base.context import lay_out
from unruly.output.verdict import verdict
from unruly.tables import requests as request_tables
from unruly.tables import spans as span_tables
from unruly.topics.parts import tables as part_tables
from unruly.topics.parts.model import parts_of

RAISED_BY_PARTS = {"opens-connections", "generator-reads-late"}
CONNECT_NS, TLS_NS = 200_000, 1_000_000
EVERY = 3


def planted(root, *, ahead=False, secure=True):
    """A run whose every third request opened a connection, which took 0.2 ms and 1 ms.

    With ``ahead`` each of them was opened a second before its request was scheduled.
    """
    path = write_run(
        root, kind="drive", agents=1, ops=("get",), rate_hz=100, duration_s=30, stalls_hz=0
    )
    requests = duckdb.sql(
        "select cell, repeat, 'host-0' as host, 'drive-0' as process, client, server, request,"
        f" attempt, intended_ns from read_parquet('{path}/requests/*.parquet')"
        f" where request % {EVERY} = 0"
    )
    began = f"intended_ns - {1_000_000_000 if ahead else 0}"
    parts = [
        f"select *, 'connect' as layer, {began} as started_ns, {began} + {CONNECT_NS} as ended_ns"
    ]
    if secure:
        start = f"{began} + {CONNECT_NS}"
        parts.append(
            f"select *, 'tls' as layer, {start} as started_ns, {start} + {TLS_NS} as ended_ns"
        )
    union = " union all ".join(f"{part} from requests" for part in parts)
    spans = requests.query("requests", f"select * exclude intended_ns from ({union})")
    run = unruly.open_run(path).id
    segments = Segments(path, run, "synthetic")
    segments.count = 1000
    segments.write("spans", spans.to_arrow_table())
    return path, len(requests)


def analyse(path):
    return unruly.analyse(unruly.open_run(path), causes=False, pictures=False)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    path, n = planted(tmp_path_factory.mktemp("connections") / "run")
    return analyse(path), n


def test_each_part_took_as_long_as_was_planted(opened):
    analysis, n = opened
    found = parts_of(analysis)
    assert [(it.layer, it.n) for it in found.layers] == [("connect", n), ("tls", n)]
    for layer, took in zip(found.layers, (CONNECT_NS, TLS_NS), strict=True):
        assert (layer.p50, layer.p99, layer.max) == (took, took, took)
        assert layer.p50_interval.low <= took <= layer.p50_interval.high


def test_the_requests_that_waited_are_counted(opened):
    analysis, n = opened
    (found,) = parts_of(analysis).openings
    assert (found.op, found.opened) == ("get", n)
    assert found.share.estimate == n / found.n
    assert found.share.low < 1 / EVERY < found.share.high


def test_a_run_whose_requests_waited_has_a_finding(opened):
    (finding,) = [it for it in opened[0].findings if it.code in RAISED_BY_PARTS]
    assert_like_its_example(finding)
    assert "TCP took 200 µs and the TLS handshake took 1 ms (medians)" in finding.title
    assert finding.evidence["opened"] == opened[1]


def test_parts_that_were_opened_ahead_delay_nobody(tmp_path):
    path, n = planted(tmp_path / "run", ahead=True, secure=False)
    analysis = analyse(path)
    found = parts_of(analysis)
    assert [(it.layer, it.n) for it in found.layers] == [("connect", n)]
    assert [it.opened for it in found.openings] == [0]
    assert not {it.code for it in analysis.findings} & RAISED_BY_PARTS


def test_a_run_without_spans_says_nothing_of_connections(clean):
    assert parts_of(clean) is None


FIRST_NS, GAP_NS = 50_000_000, 10_000_000


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return analyse(streamed(tmp_path_factory.mktemp("tokens") / "run"))


def streamed(path, delays=()):
    """A run whose replies had four tokens each; those of every fifth are twice as far apart.

    ``delays``: of every how many requests the second token was read how late, ns.
    """
    path = write_run(
        path,
        kind="drive", agents=1, ops=("chat",), rate_hz=50, duration_s=60, warmup_s=5,
    )  # fmt: skip
    requests = duckdb.sql(
        "select cell, repeat, 'host-0' as host, 'drive-0' as process, client, server, request,"
        f" attempt, intended_ns, if(request % 5 = 0, {2 * GAP_NS}, {GAP_NS}) as gap"
        f" from read_parquet('{path}/requests/*.parquet')"
    )
    first = f"intended_ns + {FIRST_NS}"
    parts = [f"select *, 'first token' as layer, intended_ns as started_ns, {first} as ended_ns"]
    parts += [
        f"select *, 'token' as layer, {first} + {place} * gap as started_ns,"
        f" {first} + {place + 1} * gap as ended_ns"
        for place in range(3)
    ]
    queries = [f"{part} from requests" for part in parts]
    queries += [
        f"select *, 'read delay' as layer, {first} + gap - {delay} as started_ns,"
        f" {first} + gap as ended_ns from requests where request % {every} = 0"
        for every, delay in delays
    ]
    union = " union all ".join(queries)
    spans = requests.query("requests", f"select * exclude (intended_ns, gap) from ({union})")
    segments = Segments(path, unruly.open_run(path).id, "synthetic")
    segments.count = 1000
    segments.write("spans", spans.to_arrow_table())
    return path


def test_the_first_token_counts_from_the_schedule_and_each_other_from_the_one_before_it(tokens):
    first, gap = parts_of(tokens).layers
    measured = sum(it.n for it in tokens.cells if it.latency == "response" and it.op == "chat")
    assert (first.layer, first.n, first.p50) == ("first token", measured, FIRST_NS)
    assert (gap.layer, gap.n, gap.p50, gap.p99) == ("token", 3 * measured, GAP_NS, 2 * GAP_NS)
    assert gap.p50_interval.low <= GAP_NS <= gap.p50_interval.high


def test_the_verdict_has_a_line_for_each(tokens):
    said = verdict(tokens, width=100)
    assert "first token: p50 50 ms" in said
    assert "gap between tokens: p50 10 ms" in said
    assert not {it.code for it in tokens.findings} & RAISED_BY_PARTS


@pytest.mark.parametrize(
    ("every", "delay_ns", "severity"),
    [
        (20, 11_000_000, "spoils"),
        (100, 11_000_000, "warns"),
        (700, 11_000_000, "informs"),
        (20, 9_900_000, None),
    ],
)
def test_tokens_that_waited_unread_are_told_apart_from_those_of_the_server(
    every, delay_ns, severity, tmp_path
):
    found = analyse(streamed(tmp_path / "run", [(every, delay_ns)]))
    (tokens,) = (it for it in found.self_distrust.unread if it.what == "tokens")
    measured = sum(it.n for it in found.cells if it.latency == "response" and it.op == "chat")
    assert tokens.n == 4 * measured
    assert tokens.longest_ns == (delay_ns if severity else 0)
    raised = [it for it in found.findings if it.code == "generator-reads-late"]
    assert [it.severity for it in raised] == ([severity] if severity else [])
    assert tokens.share == pytest.approx(1 / every / 4 if severity else 0, rel=0.3)
    assert found.trustworthy == (severity != "spoils")
    for finding in raised:
        assert_like_its_example(finding)


def test_a_delay_of_less_than_half_of_the_time_is_no_late_read():
    delays = ibis.memtable({"response": [90e6, 30e6, 15e6, 18e6], "delay": [40e6, 16e6, 9e6, 0.0]})
    (row,) = request_tables.unread(delays, 10e6).execute().to_dict("records")
    assert row == {"late": 1, "longest": 16e6}


REQUEST = {"cell": "all", "repeat": 0, "client": 0, "attempt": 0}


def absence(request, since_ns, until_ns):
    return {
        **REQUEST, "request": request, "layer": "read delay", "started_ns": since_ns,
        "ended_ns": until_ns,
    }  # fmt: skip


def test_a_reply_waits_from_the_stamp_of_the_kernel_on_while_the_generator_was_away():
    """The third reply came with a gap, the stamp of the fourth is of before a step of the clock."""
    replies = [(20, 5, 10), (30, 25, 10), (60, 20, None), (90, -5, 70), (95, None, 70)]
    rows = ibis.memtable(
        [
            {**REQUEST, "request": number, "ok": True, "sent_ns": 0, "received_ns": received,
             "kernel_received_ns": stamp, "response": float(received)}
            for number, (received, stamp, _) in enumerate(replies)
        ]
    )  # fmt: skip
    spans = ibis.memtable(
        [
            absence(number, since, received)
            for number, (received, _, since) in enumerate(replies)
            if since is not None
        ]
    )
    found = span_tables.replies_unread(spans, rows).execute().sort_values("response")
    assert found.to_dict("list") == {"response": [20.0, 30.0], "delay": [10.0, 5.0]}


def test_of_tokens_that_came_with_one_look_the_first_one_waited():
    def token(started_ns, ended_ns, attempt=0):
        times = {"started_ns": started_ns, "ended_ns": ended_ns}
        return {**REQUEST, "request": 7, "layer": "token", "attempt": attempt, **times}

    tokens = [token(0, 10), token(10, 40), token(40, 40), token(40, 40), token(0, 9, attempt=-1)]
    spans = ibis.memtable([*tokens, absence(7, 15, 40)])
    rows = ibis.memtable([{**REQUEST, "request": 7}])
    found = span_tables.parts_unread(spans, rows, ("token",), retried=True).execute()
    assert list(zip(found["response"], found["delay"], strict=True)) == [(30.0, 25.0)]
    counts = span_tables.streamed_parts(spans, rows, retried=True).execute()
    assert counts.to_dict("records") == [{"layer": "token", "n": 4}]


def test_the_tokens_of_a_request_that_was_tried_again_are_those_of_its_last_try():
    request = {"cell": "all", "repeat": 0, "client": 0, "request": 7}
    began = {"attempt": 0, "layer": "first token", "started_ns": 0, "ended_ns": 5}
    spans = ibis.memtable(
        [
            {**request, **began},
            {**request, **began, "attempt": 1, "ended_ns": 9},
            {**request, **began, "attempt": 0, "layer": "connect", "ended_ns": 2},
            {**request, **began, "request": 8, "ended_ns": 6},
        ]
    )
    rows = ibis.memtable([{**request, "attempt": 0}])
    found = span_tables.parts(spans, rows, retried=True).execute()
    assert sorted(zip(found["layer"], found["response"], strict=True)) == [
        ("connect", 2.0),
        ("first token", 9.0),
    ]


def test_repeats_are_laid_end_to_end():
    """The hours between two repeats are no time of the cell, so they hold no empty blocks."""
    request = {"cell": "all", "client": 0, "attempt": 0, "layer": "token"}
    frame = [
        {**request, "repeat": repeat, "request": number, "started_ns": at, "ended_ns": at + 1}
        for repeat in range(2)
        for number in range(100)
        for at in [number * 1_000_000 + repeat * 3_600_000_000_000]
    ]
    spans = span_tables.parts(ibis.memtable(frame), ibis.memtable(frame), retried=False)
    extents = part_tables.extents(spans).execute()
    places = lay_out(extents, ["cell", "layer"], "first_ns", "last_ns", "", 20).assign(number=0)
    blocks = part_tables.placed(spans, ibis.memtable(places), 20).execute()["block"]
    assert set(blocks.value_counts()) == {10}
