"""Logs and tools with a request a line, and tools that keep counts alone.

The tools themselves wrote the lines: nginx 1.22, Apache httpd 2.4, HAProxy 2.6, PostgreSQL 15,
MariaDB 10.11, ab 2.3, hey, h2load 1.52, ghz, fio 3.33, ping of iputils, wrk 4.1, autocannon 9,
locust 2 and sysbench 1.0.20. Lines that fail were added in their form.
"""

from __future__ import annotations

import json
import time

import pytest

from unruly import IngestError
from unruly.ingest.by_line import exact_ns
from unruly.ingest.formats import FORMATS
from unruly.ingest.source import Sample

MS, US, S = 1_000_000, 1_000, 1_000_000_000
ROW = "op, status, sent_ns, received_ns - sent_ns"
NGINX = (
    '127.0.0.1 - - [23/Nov/2026:18:11:26 +0000] "GET /up/x HTTP/1.0" 200 3 "-" "ApacheBench/2.3" '
    'rt=0.031 uct="0.000" urt="0.030" msec=1795457486.790 conn=976 cr=1\n'
    '127.0.0.1 - - [23/Nov/2026:18:11:27 +0000] "POST /up/x HTTP/1.0" 500 3 "-" "-" '
    'rt=0.059 uct="-" urt="-" msec=1795457487.033 conn=1050 cr=1\n'
)
APACHE = (
    '127.0.0.1 - - [23/Nov/2026:18:01:04 +0000] "GET /1k HTTP/1.0" 200 1024 "-" "ApacheBench/2.3" '
    "3275\n"
    '127.0.0.1 - - [23/Nov/2026:18:01:05 +0000] "GET /no HTTP/1.0" 404 - "-" "ApacheBench/2.3" 69\n'
)
HAPROXY = (
    "127.0.0.1:37364 [23/Nov/2026:18:01:02.119] fe be/s1 0/0/0/10/10 200 1227 - - ---- 2/2/1/1/0 "
    '0/0 "GET /1k HTTP/1.0"\n'
    "127.0.0.1:37365 [23/Nov/2026:18:01:02.200] fe be/s1 0/0/0/-1/5000 504 194 - - sH-- 2/2/1/1/0 "
    '0/0 "GET /1k HTTP/1.0"\n'
    "127.0.0.1:37366 [23/Nov/2026:18:01:02.300] fe be/s1 0/0/0/-1/7 -1 0 - - CD-- 2/2/1/1/0 "
    '0/0 "GET /1k HTTP/1.0"\n'
)
POSTGRES = (
    "2026-11-23 17:59:24.100 UTC [27631] LOG:  starting PostgreSQL 15.20\n"
    "2026-11-23 17:59:24.127 UTC [27644] a@b LOG:  duration: 0.249 ms  statement: select 1\n"
    "2026-11-23 17:59:24.390 UTC [27659] a@b LOG:  duration: 58.362 ms  statement: CREATE\n"
    "\tDATABASE secret_words;\n"
    "2026-11-23 17:59:24.500 UTC [27659] a@c LOG:  duration: 1.000 ms  execute p1: UPDATE t\n"
)
SLOW_LOG = (
    "mariadbd, Version: 10.11.19-MariaDB. started with:\nTcp port: 13306\nTime\t\t    Id Command\n"
    "# Time: 261123 17:59:27\n# User@Host: root[root] @ localhost []\n"
    "# Thread_id: 3  Schema:   QC_hit: No\n"
    "# Query_time: 0.000101  Lock_time: 0.000000  Rows_sent: 1  Rows_examined: 0\n"
    "# Rows_affected: 0  Bytes_sent: 58\nSET timestamp=1795456767;\nselect 1;\n"
    "# User@Host: root[root] @ localhost []\n"
    "# Query_time: 1.500000  Lock_time: 0.000000  Rows_sent: 0  Rows_examined: 0\n"
    "SET timestamp=1795456769;\nupdate t set a = 'secret_words'\nwhere b = 1;\n"
)
AB = (
    "starttime\tseconds\tctime\tdtime\tttime\twait\n"
    "Mon Nov 23 17:59:51 2026\t1795456791\t0\t2\t3\t1\n"
    "Mon Nov 23 17:59:50 2026\t1795456790\t0\t9\t9\t8\n"
)
HEY = (
    "response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read,status-code,offset\n"
    "0.0004,0.0001,0.0000,0.0000,0.0002,0.0001,200,0.0010\n"
    "0.0006,0.0001,0.0000,0.0000,0.0005,0.0000,503,0.0009\n"
)
H2LOAD = "1795456791709497\t200\t6372\n1795456791709498\t-1\t6413\n1795456791709499\t404\t12\n"
GHZ = json.dumps(
    {
        "date": "2026-11-23T18:01:43Z", "count": 2, "statusCodeDistribution": {"OK": 1},
        "latencyDistribution": [],
        "details": [
            {"timestamp": "2026-11-23T18:01:43.613482653Z", "latency": 1_863_836, "error": "",
             "status": "OK"},
            {"timestamp": "2026-11-23T18:01:43.7Z", "latency": 250, "error": "rpc error",
             "status": "Unavailable"},
        ],
    }
)  # fmt: skip
GHZ_CSV = "\nduration (ms),status,error\n2.43,OK,\n0.39,Unavailable,rpc error: planted\n"
FIO_LOG = "0, 27711, 1, 4096, 0\n7, 24407, 0, 4096, 4096\n"
PING = (
    "PING 127.0.0.1 (127.0.0.1) 56(84) bytes of data.\n"
    "[1795456843.335650] 64 bytes from 127.0.0.1: icmp_seq=1 ttl=64 time=0.045 ms\n"
    "[1795456843.551662] 64 bytes from 127.0.0.1: icmp_seq=3 ttl=64 time=0.122 ms\n"
    "[1795456843.551670] 64 bytes from 127.0.0.1: icmp_seq=3 ttl=64 time=0.130 ms (DUP!)\n"
    "\n--- 127.0.0.1 ping statistics ---\n3 packets transmitted, 2 received, 33% packet loss\n"
)
FIO = json.dumps(
    {
        "fio version": "fio-3.33", "timestamp_ms": 1_795_456_794_755,
        "jobs": [
            {"jobname": "a", "job_runtime": 1_000, "read": {"total_ios": 0, "clat_ns": {}},
             "trim": {}, "write": {"lat_ns": {"N": 0}, "clat_ns": {
                 "min": 100, "max": 33_024, "mean": 20_000.0, "stddev": 5.0,
                 "bins": {"100": 1, "16512": 3}}}}
        ],
    }
)  # fmt: skip
WRK = (
    "Running 3s test @ http://127.0.0.1:18080/1k\n  1 threads and 8 connections\n"
    "  Thread Stats   Avg      Stdev     Max   +/- Stdev\n"
    "    Latency     1.09ms    2.81ms  24.19ms   92.07%\n"
    "    Req/Sec    34.00k    11.43k   45.53k    83.33%\n  Latency Distribution\n"
    "     50%  192.00us\n     75%  233.00us\n     90%    2.77ms\n     99%   14.73ms\n"
    "  101840 requests in 3.02s, 122.76MB read\n  Non-2xx or 3xx responses: 1840\n"
    "Requests/sec:  33752.87\n"
)
AUTOCANNON = json.dumps(
    {
        "url": "u", "connections": 4, "sampleInt": 1_000, "pipelining": 1, "errors": 2,
        "timeouts": 2, "non2xx": 6, "3xx": 5, "start": "2026-11-23T18:00:54.166Z",
        "finish": "2026-11-23T18:00:57.166Z", "requests": {"total": 98},
        "latency": {"min": 1, "max": 27, "p50": 0, "p97_5": 4, "p99": 8, "totalCount": 98},
    }
)  # fmt: skip
LOCUST = json.dumps(
    [
        {
            "name": "/tenth", "method": "GET", "last_request_timestamp": 1_795_457_211.5,
            "start_time": 1_795_457_208.0, "num_requests": 10, "num_failures": 2,
            "response_times": {"20": 5, "230": 5},
        }
    ]
)  # fmt: skip
SYSBENCH = (
    "sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)\n\nThreads started!\n\n"
    "Latency histogram (values are in milliseconds)\n"
    "       value  ------------- distribution ------------- count\n"
    "       0.768 |*                                        1\n"
    "       1.044 |************                             16\n \nSQL statistics:\n"
)
SAMPLES = {
    "nginx-log": NGINX, "apache-log": APACHE, "haproxy-log": HAPROXY, "postgres-log": POSTGRES,
    "mysql-slow-log": SLOW_LOG, "ab": AB, "hey": HEY, "h2load": H2LOAD, "ghz": GHZ,
    "ghz-csv": GHZ_CSV, "fio-log": FIO_LOG, "fio-json": FIO, "ping": PING, "wrk": WRK,
    "autocannon": AUTOCANNON, "locust": LOCUST, "sysbench": SYSBENCH,
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_a_tool_is_recognised_by_its_content_and_by_no_other(name):
    sample = Sample(SAMPLES[name].encode(), True)
    assert [it.name for it in FORMATS if it.recognises(sample) and not it.fallback] == [name]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_file_that_is_cut_off_or_changed_is_no_traceback(bring, name):
    text = SAMPLES[name]
    cuts = [text[:cut] for cut in range(1, len(text), max(len(text) // 12, 1))]
    for damaged in (
        *cuts,
        text.replace(":", "", 3),
        text.replace("1", "x", 4),
        text[len(text) // 2 :],
    ):
        try:
            bring(damaged, unit="us" if name == "apache-log" else None)
        except IngestError:
            continue


def test_the_time_of_nginx_is_the_end_of_a_request(bring):
    end, other = 1_795_457_486_790 * MS, 1_795_457_487_033 * MS
    made = bring(NGINX)
    assert made.rows(ROW) == [
        ("GET", "ok", end - 31 * MS, 31 * MS),
        ("POST", "error:500", other - 59 * MS, 59 * MS),
    ]
    # without msec the time of the line is known to the second
    whole = bring(NGINX.replace(" msec=1795457486.790", "").replace(" msec=1795457487.033", ""))
    assert whole.rows("received_ns")[0] == (1_795_457_486 * S,)
    assert any("whole seconds" in it for it in whole.missing)


def test_a_referer_says_nothing_and_a_request_that_nobody_could_read_is_one(bring):
    trap = NGINX.replace('"-" "ApacheBench/2.3" rt=', '"http://h/?rt=99.5" "a \\" b" rt=')
    assert bring(trap).rows(ROW) == bring(NGINX).rows(ROW)
    turned = NGINX.replace("rt=0.031 ", "").replace(
        "msec=1795457486.790", "msec=1795457486.790 rt=0.031"
    )
    assert bring(turned).rows(ROW)[0] == bring(NGINX).rows(ROW)[0]
    broken = NGINX.replace("POST /up/x HTTP/1.0", "\\x16\\x03")
    assert bring(broken).rows("op, status")[1] == ("other", "error:500")
    # a log that is being written ends in the middle of a line
    cut_off = bring(NGINX * 60 + NGINX.split(" msec=", 1)[0] + "\n")
    assert cut_off.file["refused"] == 1
    assert "127.0.0.1" not in json.dumps(cut_off.manifest["provenance"])


def test_a_line_that_is_made_to_harm_takes_no_time():
    for name, head in (
        ("postgres-log", "2026-11-23 17:59:24 UTC LOG:  duration: 1.0 ms  statement"),
        ("haproxy-log", "1.1.1.1:1 [23/Nov/2026:18:01:02.119] fe "),
        ("ping", "PING "),
        ("nginx-log", NGINX.split(" 200 ", maxsplit=1)[0]),
        ("h2load", ""),
        ("fio-log", ""),
    ):
        form = next(it for it in FORMATS if it.name == name)
        for filling in ("a", "/", " ", '"', "1 ", "[", ": "):
            line = head + filling * (60_000 // len(filling))
            began = time.process_time()
            form.recognises(Sample(f"{line}\n{line}\n".encode(), True))
            assert time.process_time() - began < 5


def test_apache_begins_at_its_time_and_has_no_unit_of_its_own(bring):
    with pytest.raises(IngestError, match=r"--unit us for %D"):
        bring(APACHE)
    assert bring(APACHE, unit="us").rows(ROW) == [
        ("GET", "ok", 1_795_456_864 * S, 3_275 * US),
        ("GET", "error:404", 1_795_456_865 * S, 69 * US),
    ]


def test_haproxy_says_who_ended_a_request(bring):
    start = 1_795_456_862_119 * MS
    assert bring(HAPROXY).rows(ROW) == [
        ("GET", "ok", start, 10 * MS),
        ("GET", "timeout", start + 81 * MS, 5_000 * MS),
        ("GET", "error:disconnected", start + 181 * MS, 7 * MS),
    ]
    # a reply that began well and was cut off is no success, and a time that is not final is none
    cut_off = HAPROXY.replace("504 194 - - sH--", "200 194 - - SD--")
    assert bring(cut_off).rows("status")[1] == ("error:disconnected",)
    early = bring(HAPROXY.replace("0/0/0/10/10", "0/0/0/10/+10") + HAPROXY * 60)
    assert early.file["refused"] == 1


@pytest.mark.parametrize("statement", ["SELECT 1", "/* app */ SELECT 1", "(SELECT 1)", "-- a", ""])
def test_steps_of_a_statement_are_left_out_however_it_begins(bring, statement):
    lines = [
        f"2026-11-23 17:59:24 UTC LOG:  duration: {took} ms  {step}: {statement}\n"
        for step, took in (("parse s1", "0.050"), ("bind s1", "0.060"), ("execute s1", "7.0"))
    ]
    made = bring("".join(lines * 3))
    assert made.rows("received_ns - sent_ns") == [(7_000_000,)] * 3


def test_a_statement_of_postgres_ends_at_its_time_and_is_not_kept(bring):
    made = bring(POSTGRES)
    end = 1_795_456_764_127 * MS
    assert made.rows(ROW)[0] == ("select", "ok", end - 249 * US, 249 * US)
    assert [row[0] for row in made.rows("op")] == ["select", "create", "update"]
    kept = json.dumps(made.manifest) + str(made.rows("*"))
    assert "secret_words" not in kept
    # the steps of the extended protocol are no statements
    steps = POSTGRES + POSTGRES.replace("execute p1", "bind p1").replace("statement:", "parse p1:")
    assert len(bring(steps).rows("op")) == 3
    prefix = POSTGRES.replace(" UTC [27644] a@b", " UTC:10.0.0.1(4):alice@bank:[1]:")
    assert "alice" not in json.dumps(bring(prefix).manifest)
    zone = bring(POSTGRES.replace(" UTC ", " +02 "))
    assert zone.rows("received_ns")[0] == (end - 7_200 * S,)


def test_a_slow_log_has_its_statements_by_their_first_word(bring):
    made = bring(SLOW_LOG)
    # MariaDB notes the end of a statement, and MySQL since 8.0.14 its beginning
    end = 1_795_456_769 * S
    assert made.rows(ROW) == [
        ("select", "ok", 1_795_456_767 * S - 101 * US, 101 * US),
        ("update", "ok", end - 1_500 * MS, 1_500 * MS),
    ]
    assert "secret_words" not in json.dumps(made.manifest) + str(made.rows("*"))
    newer = SLOW_LOG.replace("mariadbd, Version: 10.11.19-MariaDB", "mysqld, Version: 8.0.35")
    assert bring(newer).rows("sent_ns")[1] == (end,)
    unnamed = bring(SLOW_LOG.split("\n", 3)[3])
    assert unnamed.rows("received_ns")[1] == (end,)
    assert any("does not name its server" in it for it in unnamed.missing)


def test_an_entry_of_a_slow_log_is_read_in_each_form_or_counted(bring):
    entry = "# Query_time: 0.5  Lock_time: 0.0  Rows_sent: 0  Rows_examined: 0\n"
    more = (
        entry + "SET timestamp=1795456770;\n# administrator command: Quit;\n"
        + entry + "SET last_insert_id=3,insert_id=4,timestamp=1795456771;\ninsert into t;\n"
    )  # fmt: skip
    assert [row[0] for row in bring(SLOW_LOG + more).rows("op")][2:] == ["admin", "insert"]
    assert bring(SLOW_LOG + more * 60 + entry).file["refused"] == 1


def test_tables_of_load_generators_have_the_rows_of_their_tools(bring):
    assert bring(AB).rows(ROW, where="true order by sent_ns") == [
        ("request", "ok", 1_795_456_790 * S, 9 * MS),
        ("request", "ok", 1_795_456_791 * S, 3 * MS),
    ]
    assert bring(HEY).rows(ROW, where="true order by sent_ns") == [
        ("request", "error:503", 900 * US, 600 * US),
        ("request", "ok", 1_000 * US, 400 * US),
    ]
    assert bring(H2LOAD).rows(ROW) == [
        ("request", "ok", 1_795_456_791_709_497 * US, 6_372 * US),
        ("request", "error:failed", 1_795_456_791_709_498 * US, None),
        ("request", "error:404", 1_795_456_791_709_499 * US, 12 * US),
    ]
    assert bring(FIO_LOG).rows("op, received_ns, received_ns - sent_ns") == [
        ("write", 0, 27_711),
        ("read", 7 * MS, 24_407),
    ]


def test_a_call_of_ghz_ends_at_its_time_and_fails_by_its_status(bring):
    end = 1_795_456_903_613_482_653
    assert bring(GHZ).rows(ROW) == [
        ("call", "ok", end - 1_863_836, 1_863_836),
        ("call", "error:UNAVAILABLE", 1_795_456_903_700 * MS - 250, 250),
    ]
    made = bring(GHZ_CSV)
    assert made.rows("status, received_ns - sent_ns") == [
        ("ok", 2_430 * US),
        ("error:UNAVAILABLE", 390 * US),
    ]


def test_an_echo_whose_number_is_missing_was_lost(bring):
    first, third = 1_795_456_843_335_605 * US, 1_795_456_843_551_540 * US
    assert bring(PING).rows(ROW, where="true order by sent_ns") == [
        ("echo", "ok", first, 45 * US),
        ("echo", "timeout", first + (third - first) // 2, None),
        ("echo", "ok", third, 122 * US),
    ]
    plain = bring("\n".join(line.split("] ")[-1] for line in PING.split("\n")))
    assert sorted(row[0] for row in plain.rows("status")) == ["ok", "ok", "timeout"]
    assert any("end to end" in it for it in plain.missing)


def test_an_echo_that_came_late_was_not_lost_and_the_last_ones_may_have_been(bring):
    reply = "64 bytes from 127.0.0.1: icmp_seq={} ttl=64 time=0.1 ms\n"
    head, tail = PING.split("\n", maxsplit=1)[0] + "\n", "\n7 packets transmitted, 4 received\n"
    late = bring(head + "".join(map(reply.format, (1, 3, 2, 4))) + tail)
    assert sorted(row[0] for row in late.rows("status")) == ["ok"] * 4 + ["timeout"] * 3
    six = head.replace("PING 127.0.0.1 (127.0.0.1) 56(84) bytes of data.", "PING ::1 56 data bytes")
    again = [65_534, 65_535, 0, 1]
    wrapped = bring(six + reply.format(65_533) + "".join(map(reply.format, again)))
    # the first number of the file is far from 1: another ping sent those before
    assert {row[0] for row in wrapped.rows("status")} == {"ok"}


def bins(made):
    return made.rows("op, low_ns, high_ns, count", "histograms", "true order by op, low_ns")


def test_a_bin_of_fio_is_as_wide_as_fio_makes_it(bring):
    found = bring(FIO)
    assert bins(found) == [("write", 100, 100, 1), ("write", 16_384, 16_640, 3)]
    assert any("submission is not included" in it for it in found.missing)
    waits = json.loads(FIO)
    waits["jobs"][0]["sync"] = {"lat_ns": {"bins": {"100": 2}}}
    assert bins(bring(json.dumps(waits)))[0] == ("sync", 100, 100, 2)


def test_means_of_fio_are_refused_with_the_flag_that_writes_each_request(bring):
    with pytest.raises(IngestError, match="log_avg_msec=0"):
        bring(FIO_LOG.replace(" 4096, 0\n", " 0, 0\n").replace(" 4096, 4096", " 0, 0"))


def test_percentiles_of_wrk_bound_the_bins_and_failures_are_beyond_them(bring):
    made = bring(WRK)
    found = bins(made)
    assert [(low, high) for _, low, high, _ in found[:5]] == [
        (0, 192 * US), (192 * US, 233 * US), (233 * US, 2_770 * US), (2_770 * US, 14_730 * US),
        (14_730 * US, 24_190 * US),
    ]  # fmt: skip
    assert [round(count) for _, _, _, count in found] == [
        50_000,
        25_000,
        15_000,
        9_000,
        1_000,
        1_840,
    ]
    assert any("wrk adds values" in it for it in made.missing)


def test_autocannon_cuts_to_whole_milliseconds(bring):
    found = bins(bring(AUTOCANNON))
    assert [(low, high) for _, low, high, _ in found[:4]] == [
        (0, 1 * MS), (1 * MS, 5 * MS), (5 * MS, 9 * MS), (9 * MS, 28 * MS),
    ]  # fmt: skip
    # 98 replies, one of them no success, and two errors, which are timeouts
    assert sum(row[3] for row in found) == pytest.approx(100)
    assert found[-1][3] == pytest.approx(3)


def test_locust_rounds_to_two_digits_and_fails_some(bring):
    found = bins(bring(LOCUST))
    assert found[:2] == [
        ("GET /tenth", 19_500_000, 20_500_000, 4), ("GET /tenth", 225 * MS, 235 * MS, 4),
    ]  # fmt: skip
    assert found[2][3] == 2
    edges = json.loads(LOCUST)
    edges[0] |= {"num_failures": 0, "response_times": {"100": 1, "11000": 1}}
    assert [row[1:3] for row in bins(bring(json.dumps(edges)))] == [
        (99_500_000, 105 * MS), (10_500 * MS, 11_500 * MS),
    ]  # fmt: skip


def test_bars_of_sysbench_stand_in_the_middle_of_their_bins(bring):
    found = bins(bring(SYSBENCH))
    assert [row[3] for row in found] == [1, 16]
    for (_, low, high, _), value in zip(found, (0.768, 1.044), strict=True):
        assert low < value * MS < high
        # 1,023 steps between 1 us and 100 s
        assert high / low == pytest.approx(1.018170, abs=1e-6)


SUMMARIES = {
    "This is ApacheBench, Version 2.3\n": "ab -g FILE",
    "Percentage served,Time in ms\n0,0.041\n1,0.047\n": "ab -g FILE",
    "\nSummary:\n  Count:\t31950\n  Total:\t3.00 s\n": "ghz -O json",
    "\nSummary:\n  Total:\t0.2162 secs\n": "hey -o csv",
    "starting benchmark...\nspawning thread #0\n": "h2load --log-file",
    "Running 2s test @ http://127.0.0.1/1k\n4 connections\n": "autocannon --json",
    "Type,Name,Request Count,Failure Count\nGET,/1k,4976,0\n": "locust --json",
    "Bucket           #    %       Histogram\n[0s,     100us]  0    0.00%\n": "vegeta encode",
    "pgbench (15.20)\nstarting vacuum...end.\n": "pgbench --log",
    "1795456870 448 872467 2165 33 59 0 0\n1795456871 3 1 2 3 4 5 6\n": "without --aggregate",
    "# HELP a b\n# TYPE a counter\na_total 1\n": "unruly watch",
    "Linux 6.1.0-18-amd64 (host) \t11/29/2026 \t_x86_64_\t(4 CPU)\n\n": "sadf -d -- -A",
    "12:00:01 AM     CPU     %user     %nice\n12:00:02 AM     all      1.0       0.0\n": "sadf -d",
    "host;1;2026-11-29 18:11:26 UTC;-1;0.50;0.00;0.25\n": "# hostname;interval;timestamp",
    "host;1;1795457486;-1;0.50;0.00;0.25\n": "# hostname;interval;timestamp",
    '1.2.3.4 - - [23/Nov/2026:18:11:26 +0000] "GET / HTTP/1.0" 200 3\n': "rt=$request_time",
}


@pytest.mark.parametrize("text", SUMMARIES)
def test_a_summary_is_refused_with_the_flag_that_writes_more(bring, text):
    with pytest.raises(IngestError) as raised:
        bring(text)
    assert SUMMARIES[text] in raised.value.hint


@pytest.mark.parametrize(
    ("text", "unit", "ns"),
    [
        ("0.031", S, 31 * MS),
        ("3275", US, 3_275 * US),
        ("1795457486.790", S, 1_795_457_486_790 * MS),
    ],
)
def test_a_decimal_number_is_read_exactly(text, unit, ns):
    assert exact_ns(text, unit) == ns
