"""Each format: recognised by its content, read as its tool's documentation says."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unruly import IngestError, ParameterError
from unruly.ingest import Options, formats, import_files
from unruly.ingest.formats import FORMATS
from unruly.ingest.model import Format, failure
from unruly.ingest.source import Sample

MS, US, S = 1_000_000, 1_000, 1_000_000_000
ROW = "op, status, sent_ns, received_ns - sent_ns"

VEGETA_CSV = (
    "1620000000000000001,200,1500000,10,2000,,Ym9keQ==,first,0,GET,http://a/,\n"
    '1620000000100000000,0,30000000000,0,0,"Get ""http://a/"": context deadline exceeded",,first,1,'
    "GET,http://a/,\n"
    "1620000000200000000,503,2500000,10,20,503 Service Unavailable,,first,2,POST,http://a/b,\n"
)
VEGETA_JSON = "".join(
    json.dumps(
        {"attack": "", "seq": seq, "code": code, "timestamp": stamp, "latency": latency,
         "bytes_out": 3, "bytes_in": 4, "error": error, "body": None, "method": "GET",
         "url": "http://a/", "headers": {}}
    )
    for seq, code, stamp, latency, error in (
        (0, 200, "2021-05-03T02:00:00.000000001+02:00", 1_500_000, ""),
        (1, 0, "2021-05-03T00:00:00.1Z", 9_000, "dial tcp 127.0.0.1:1: connection refused"),
    )
)  # fmt: skip
OHA = (
    "request-start,DNS,DNS+dialup,Response-delay,request-duration,bytes,status\n"
    "0.000125,0.001,0.002,0.003,0.0035,12,200\n0.5,0,0,0.003,0.004,12,500\n"
)
K6_CSV = (
    "metric_name,timestamp,metric_value,check,error,error_code,expected_response,group,method,"
    "name,proto,scenario,service,status,subproto,tls_version,url,extra_tags\n"
    "http_reqs,1633706790500,1,,,,true,,GET,home,HTTP/1.1,default,,200,,,http://a/,\n"
    "http_req_duration,1633706790500,245.5,,,,true,,GET,home,HTTP/1.1,default,,200,,,http://a/,\n"
    "http_req_duration,1633706791000,3.25,,,1404,false,,GET,gone,HTTP/1.1,default,,404,,,http://a/,\n"
    "http_req_duration,1633706792000,0,,request timeout,1050,false,,GET,home,,default,,0,,,u,\n"
    "vus,1633706793000,1,,,,,,,,,,,,,,,\n"
)
K6_JSON = "\n".join(
    json.dumps(it)
    for it in (
        {"type": "Metric", "metric": "http_req_duration", "data": {"type": "trend"}},
        {"type": "Point", "metric": "http_req_duration", "data": {
            "time": "2021-10-08T17:26:30.5+02:00", "value": 245.5,
            "tags": {"method": "GET", "name": "home", "status": "200",
                     "expected_response": "true"}}},
        {"type": "Point", "metric": "http_req_waiting", "data": {
            "time": "2021-10-08T17:26:30.5+02:00", "value": 1, "tags": {}}},
        {"type": "Point", "metric": "http_req_duration", "data": {
            "time": "2021-10-08T15:26:31Z", "value": 3.25,
            "tags": {"method": "GET", "name": "gone", "status": "404",
                     "expected_response": "false"}}},
    )
)  # fmt: skip
GATLING_35 = (
    "RUN\tSim\t\tsim-1\t1549411934496\t \t3.5.1\n"
    "USER\tAll\tSTART\t1549411935145\t1549411935145\n"
    "REQUEST\t\thome\t1549411935251\t1549411935474\tOK\t \n"
    "REQUEST\tcart,pay\tcard\t1549411936000\t1549411936100\tKO\t"
    "status.find.in(200), but actually found 503\n"
    "GROUP\tcart\t1549411936000\t1549411936100\t100\tKO\n"
)
GATLING_30 = (
    "RUN\tSim\t\tsim\t1549411934496\t \t3.0.0\n"
    "REQUEST\t7\t\thome\t1549411935251\t1549411935474\tOK\t \n"
)
GATLING_23 = (
    "RUN\tSim\t\tsim\t1549411934496\t \t2.0\n"
    "REQUEST\tAll\t7\t\thome\t1549411935251\t1549411935474\tOK\t \n"
)
GATLING_21 = (
    "Sim\t\tRUN\t1549411934496\t \t2.0\n"
    "All\t7\tREQUEST\t\thome\t1549411935251\t1549411935260\t1549411935400\t1549411935474\tOK\t \n"
)
JTL_CSV = (
    "timeStamp,elapsed,label,responseCode,responseMessage,threadName,success,bytes,sentBytes,"
    "Hostname\n"
    '1532376558110,1623,"pay, now",500,Internal Server Error,Group 1-15,false,8735,100,gen-a\n'
    "1532376558105,1514,home,200,OK,Group 1-3,true,8745,100,gen-b\n"
    "1532376558200,60000,home,Non HTTP response code: java.net.SocketTimeoutException,"
    "Non HTTP response message: Read timed out,Group 1-3,false,0,0,gen-b\n"
)
JTL_XML = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<testResults version="1.2">\n'
    '<httpSample t="40" lt="3" ts="1301920709163" s="true" lb="page" rc="200" rm="OK" by="580">\n'
    '  <httpSample t="30" ts="1301920709170" s="true" lb="picture" rc="200" rm="OK" by="5"/>\n'
    "  <responseData>&lt;html&gt;</responseData>\n</httpSample>\n"
    '<sample t="10027" ts="1301920709200" s="false" lb="udp" rc="500" '
    'rm="java.net.SocketTimeoutException: Timeout exceeded"/>\n</testResults>\n'
)
MOLOTOV = (
    '{"ts": 1645712661.5, "type": "workers", "value": 0}\n'
    '{"ts": 1645712661.7488089, "type": "request", "label": "http://a/", "elapsed": 0.251,'
    ' "responseCode": "200", "responseMessage": "OK"}\n'
    '{"ts": 1645712661.5, "wid": "worker-0", "type": "scenario_success", "name": "one",'
    ' "duration": 0.496}\n'
    '{"ts": 1645712662, "type": "request", "label": "http://a/", "elapsed": 0.1,'
    ' "responseCode": "404", "responseMessage": "Not Found"}\n'
)
PGBENCH = "0 1 2500 0 1662132851 580065\n1 1 900 1 1662132852 000100\n"
SOCKPERF = (
    "sockperf: == version #3.10 ==\nsockperf: [Valid Duration] RunTime=1.0 sec\n"
    "------------------------------\n"
    "packet, txTime(sec), rxTime(sec), latency(usec)\n"
    "0, 12.000000100, 12.000020300, 10.100\n1, 12.500000000, 12.500030001, 15.001\n"
    "------------------------------\n"
)
MATRIX = "0\t1.5\t30\t\n1.6\t0\t40\t\n29\t41\t0\t\n"
ZIPKIN = json.dumps(
    [
        {"traceId": "t", "id": "a", "kind": "SERVER", "name": "get /", "timestamp": 1_000_000,
         "duration": 900, "localEndpoint": {"serviceName": "front"}},
        {"traceId": "t", "id": "b", "parentId": "a", "kind": "CLIENT", "name": "query",
         "timestamp": 1_000_100, "duration": 500, "localEndpoint": {"serviceName": "front"}},
        {"traceId": "t", "id": "b", "parentId": "a", "kind": "SERVER", "shared": True,
         "name": "query", "timestamp": 900_200, "duration": 300,
         "localEndpoint": {"serviceName": "store"}},
        {"traceId": "t", "id": "c", "parentId": "b", "name": "parse", "timestamp": 900_210,
         "duration": 10, "localEndpoint": {"serviceName": "store"}},
        {"traceId": "t", "id": "d", "parentId": "a", "kind": "CLIENT", "name": "cache",
         "timestamp": 1_000_700, "duration": 50, "localEndpoint": {"serviceName": "front"},
         "remoteEndpoint": {"serviceName": "memcache"}, "tags": {"error": "timeout"}},
    ]
)  # fmt: skip

JAEGER = json.dumps(
    {
        "data": [
            {
                "traceID": "t",
                "processes": {"p1": {"serviceName": "front"}, "p2": {"serviceName": "store"}},
                "spans": [
                    {"traceID": "t", "spanID": "a", "operationName": "get /", "references": [],
                     "startTime": 1_000_000, "duration": 900, "processID": "p1",
                     "tags": [{"key": "span.kind", "type": "string", "value": "server"}]},
                    {"traceID": "t", "spanID": "b", "operationName": "query",
                     "references": [{"refType": "CHILD_OF", "traceID": "t", "spanID": "a"}],
                     "startTime": 1_000_100, "duration": 500, "processID": "p1",
                     "tags": [{"key": "span.kind", "type": "string", "value": "client"},
                              {"key": "http.status_code", "type": "int64", "value": 503}]},
                    {"traceID": "t", "spanID": "c", "operationName": "query",
                     "references": [{"refType": "CHILD_OF", "traceID": "t", "spanID": "b"}],
                     "startTime": 900_200, "duration": 300, "processID": "p2",
                     "tags": [{"key": "span.kind", "type": "string", "value": "server"},
                              {"key": "error", "type": "bool", "value": True}]},
                    {"traceID": "t", "spanID": "d", "operationName": "parse",
                     "references": [{"refType": "CHILD_OF", "traceID": "t", "spanID": "c"}],
                     "startTime": 900_210, "duration": 0, "processID": "p2", "tags": []},
                ],
            }
        ]
    }
)  # fmt: skip


def _otlp_span(name, span, parent, kind, start_us, duration_us, **more):
    start = start_us * 1_000
    times = {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + duration_us * 1_000)}
    return {"traceId": "t", "spanId": span, "parentSpanId": parent, "name": name, "kind": kind,
            **times, **more}  # fmt: skip


def _otlp(service, *spans):
    name = {"key": "service.name", "value": {"stringValue": service}}
    secret = {"key": "process.command_line", "value": {"stringValue": "run --password=s3cr3t"}}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": [secret, name]},
                "scopeSpans": [{"scope": {}, "spans": list(spans)}],
            }
        ]
    }


CODE_503 = [{"key": "http.response.status_code", "value": {"intValue": "503"}}]
OTLP = "\n".join(
    json.dumps(it)
    for it in (
        _otlp("front", _otlp_span("get /", "a", "", 2, 1_000_000, 900),
              _otlp_span("query", "b", "a", 3, 1_000_100, 500, attributes=CODE_503)),
        _otlp("store", _otlp_span("query", "c", "b", "SPAN_KIND_SERVER", 900_200, 300,
                                  status={"code": 2}),
              _otlp_span("parse", "d", "c", 1, 900_210, 0)),
    )
)  # fmt: skip

SAMPLES = {
    "vegeta-csv": VEGETA_CSV,
    "vegeta-json": VEGETA_JSON,
    "oha": OHA,
    "k6-csv": K6_CSV,
    "k6-json": K6_JSON,
    "gatling": GATLING_35,
    "jmeter-csv": JTL_CSV,
    "jmeter-xml": JTL_XML,
    "molotov": MOLOTOV,
    "pgbench": PGBENCH,
    "sockperf": SOCKPERF,
    "matrix": MATRIX,
    "zipkin": ZIPKIN,
    "jaeger": JAEGER,
    "otlp": OTLP,
    "csv": "t;wert_ms\n1;2,5\n",
}


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_format_is_recognised_by_its_content_and_by_no_other(name):
    sample = Sample(SAMPLES[name].encode(), True)
    own = next(it for it in FORMATS if it.name == name)
    assert own.recognises(sample)
    others = [it.name for it in FORMATS if it.recognises(sample) and not it.fallback]
    assert others in ([name], []) if own.fallback else others == [name]


def test_no_two_formats_have_one_name_and_only_tables_are_a_fallback():
    assert len({it.name for it in FORMATS}) == len(FORMATS)
    assert [it.name for it in FORMATS if it.fallback] == ["csv"]
    assert {it.gives for it in FORMATS} <= {"latencies", "context"}


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - {"matrix", "csv"}))
def test_a_file_that_ends_in_the_middle_is_no_traceback(bring, name):
    """Wherever a file is cut off, the import keeps its whole rows or raises an `IngestError`."""
    text = SAMPLES[name]
    for cut in range(1, len(text), 7):
        try:
            made = bring(text[:cut], unit=None)
        except IngestError:
            continue
        assert made.rows("count(*)")[0][0] > 0


def test_vegeta_csv_succeeds_from_200_to_399(bring):
    made = bring(VEGETA_CSV)
    assert made.rows(ROW) == [
        ("first", "ok", 1_620_000_000_000_000_001, 1_500_000),
        ("first", "timeout", 1_620_000_000_100_000_000, None),
        ("first", "error:503", 1_620_000_000_200_000_000, 2_500_000),
    ]
    assert made.rows("sent_bytes, received_bytes")[0] == (10, 2000)
    assert {row[0] for row in bring(VEGETA_CSV, op="url").rows("op")} == {"http://a/", "http://a/b"}


def test_vegeta_json_is_read_without_separators(bring):
    assert "\n" not in VEGETA_JSON
    made = bring(VEGETA_JSON)
    assert made.rows(ROW) == [
        ("attack", "ok", 1_620_000_000_000_000_001, 1_500_000),
        ("attack", "refused", 1_620_000_000_100_000_000, None),
    ]


def test_pretty_printed_objects_are_read_too(bring):
    objects = [json.dumps(json.loads(line), indent=2) for line in K6_JSON.split("\n")]
    assert bring("\n".join(objects)).rows(ROW) == bring(K6_JSON).rows(ROW)


def test_oha_has_seconds_and_says_that_the_unanswered_are_not_there(bring):
    made = bring(OHA)
    assert made.rows(ROW) == [
        ("request", "ok", 125_000, 3_500_000),
        ("request", "error:500", 500_000_000, 4_000_000),
    ]
    assert any("not in oha's CSV" in sentence for sentence in made.missing)


def test_the_time_of_k6_is_the_end_of_a_request(bring):
    end = 1_633_706_790_500 * MS
    made = bring(K6_CSV)
    assert made.rows(f"{ROW}, received_ns") == [
        ("GET home", "ok", end - 245_500_000, 245_500_000, end),
        ("GET gone", "error:404", end + 500 * MS - 3_250_000, 3_250_000, end + 500 * MS),
        ("GET home", "timeout", end + 1_500 * MS, None, None),
    ]
    assert bring(K6_JSON).rows(ROW) == made.rows(ROW)[:2]
    assert "looking up names and connecting are not in these latencies" in made.missing


def test_the_status_0_of_k6_is_a_success_of_grpc_and_no_reply_of_http(bring):
    head = "metric_name,timestamp,metric_value,error,expected_response,method,name,status,url\n"
    rows = [("0", "ok"), ("14", "error:failed"), ("4", "timeout")]
    text = head + "".join(
        f"grpc_req_duration,1633706790,{5 + place}.0,,,,call,{code},grpc://h\n"
        for place, (code, _) in enumerate(rows)
    )
    made = bring(text)
    assert made.rows("status, received_ns - sent_ns") == [
        (status, (5 + place) * MS) for place, (_, status) in enumerate(rows)
    ]
    points = "".join(
        json.dumps(
            {"type": "Point", "metric": "grpc_req_duration",
             "data": {"time": "2026-11-23T18:11:20Z", "value": 5.0, "tags": {"status": code}}}
        ) + "\n"
        for code, _ in rows
    )  # fmt: skip
    assert [row[0] for row in bring(points).rows("status")] == [status for _, status in rows]


def test_k6_times_have_the_unit_of_their_digits(bring):
    rows = {bring(K6_CSV.replace("500,245.5", f"500{more},245.5")).rows("received_ns")[0]
            for more in ("", "000", "000000")}  # fmt: skip
    assert rows == {(1_633_706_790_500 * MS,)}


def test_k6_whole_seconds_are_said(bring):
    made = bring(K6_CSV.replace("500,", ",").replace("000,", ","))
    assert made.rows("received_ns")[0] == (1_633_706_790 * S,)
    assert any("whole seconds" in sentence for sentence in made.missing)


def test_gatling_of_every_version_gives_the_same_row(bring):
    row = ("home", "ok", 1_549_411_935_251 * MS, 223 * MS)
    for text in (GATLING_35, GATLING_30, GATLING_23, GATLING_21):
        assert bring(text).rows(ROW)[0] == row
    made = bring(GATLING_35)
    assert made.rows(ROW)[1] == (
        "cart,pay / card", "error:503", 1_549_411_936_000 * MS, 100 * MS
    )  # fmt: skip
    assert made.file["lines"] == 2


def test_jmeter_csv_has_starts_in_ms_and_generators_as_clients(bring):
    made = bring(JTL_CSV)
    assert made.rows(ROW) == [
        ("pay, now", "error:500", 1_532_376_558_110 * MS, 1_623 * MS),
        ("home", "ok", 1_532_376_558_105 * MS, 1_514 * MS),
        ("home", "timeout", 1_532_376_558_200 * MS, 60_000 * MS),
    ]
    assert made.rows("client, received_bytes, sent_bytes")[:2] == [(0, 8735, 100), (1, 8745, 100)]
    drives = [it["name"] for it in made.manifest["processes"] if it["kind"] == "drive"]
    assert drives == ["gen-a", "gen-b"]


def test_jmeter_csv_may_have_dates_and_semicolons(bring):
    text = JTL_CSV.replace("1532376558110", "2018/07/23 20:09:18.110")
    text = text.replace("1532376558105", "2018/07/23 20:09:18.105")
    text = text.replace("1532376558200", "2018/07/23 20:09:18.200")
    made = bring(text)
    assert made.rows("sent_ns")[0] == (1_532_376_558_110 * MS,)
    assert any("taken as UTC" in sentence for sentence in made.missing)


def test_of_nested_jmeter_samples_the_outermost_counts(bring):
    made = bring(JTL_XML)
    assert made.rows(ROW) == [
        ("page", "ok", 1_301_920_709_163 * MS, 40 * MS),
        ("udp", "timeout", 1_301_920_709_200 * MS, 10_027 * MS),
    ]


def test_xml_in_utf_16_is_read(bring):
    text = JTL_XML.replace("UTF-8", "UTF-16")
    assert len(bring(text.encode("utf-16")).rows("op")) == 2


def test_xml_that_declares_entities_is_refused_before_they_grow(bring):
    laughs = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 30))
    text = JTL_XML.replace("<testResults", f'<!DOCTYPE t [<!ENTITY a0 "ha">{laughs}]><testResults')
    with pytest.raises(IngestError, match="declares entities"):
        bring(text.replace('lb="page"', 'lb="&a29;"'))


def test_molotov_counts_requests_and_not_the_scenarios_around_them(bring):
    made = bring(MOLOTOV)
    assert made.rows(ROW) == [
        ("http://a/", "ok", 1_645_712_661_748_809_000, 251 * MS),
        ("http://a/", "error:404", 1_645_712_662 * S, 100 * MS),
    ]
    only = "".join(line + "\n" for line in MOLOTOV.split("\n") if "scenario" in line)
    made = bring(only)
    assert made.rows("op, (received_ns - sent_ns) // 1000000") == [("one", 496)]
    assert "no requests, only whole scenarios" in made.missing


def test_pgbench_logs_the_end_of_a_transaction(bring):
    made = bring(PGBENCH)
    end = 1_662_132_851 * S + 580_065 * US
    assert made.rows(f"{ROW}, received_ns, connection")[0] == (
        "script 0", "ok", end - 2_500 * US, 2_500 * US, end, 0
    )  # fmt: skip
    assert made.rows("op, connection")[1] == ("script 1", 1)
    assert any("no intended times" in sentence for sentence in made.missing)


def test_pgbench_with_a_rate_has_intended_times(bring):
    text = "0 1 2500 0 1662132851 580065 700 0\n0 2 skipped 0 1662132852 0 0 0\n" + "".join(
        f"0 {n} failed 0 1662132853 {n} 500 2\n" for n in range(2)
    )
    made = bring(text)
    end = 1_662_132_851 * S + 580_065 * US
    assert made.rows("intended_ns, sent_ns, received_ns, status, attempt") == [
        (end - 2_500 * US, end - 1_800 * US, end, "ok", 0),
        (1_662_132_852 * S, 1_662_132_852 * S, None, "shed", 0),
        (1_662_132_853 * S, 1_662_132_853 * S, None, "error:failed", 2),
        (1_662_132_853 * S + US, 1_662_132_853 * S + US, None, "error:failed", 2),
    ]
    assert not any("no intended times" in sentence for sentence in made.missing)


def test_a_seventh_field_of_pgbench_is_said_to_be_read_as_what_it_looks_like(bring):
    lagged = bring("0 1 2500 0 1662132851 580065 700\n0 2 2500 0 1662132851 590065 0\n")
    assert lagged.rows("sent_ns - intended_ns") == [(700 * US,), (0,)]
    assert any("read as the schedule lag" in sentence for sentence in lagged.missing)
    retried = bring("0 1 2500 0 1662132851 580065 1\n0 2 2500 0 1662132851 590065 0\n")
    assert retried.rows("sent_ns - intended_ns, attempt") == [(0, 1), (0, 0)]


def test_sockperf_counts_the_whole_round_trip_between_its_times(bring):
    made = bring(SOCKPERF)
    assert made.rows("sent_ns, received_ns - sent_ns") == [
        (12_000_000_100, 20_200),
        (12_500_000_000, 30_001),
    ]
    assert any("half the round trip" in sentence for sentence in made.missing)
    whole = bring(SOCKPERF.replace("latency(usec)", "rtt(usec)"))
    assert not any("half the round trip" in sentence for sentence in whole.missing)


def test_a_matrix_is_from_row_to_column_without_its_diagonal(bring):
    made = bring(MATRIX, unit="ms")
    names = {(it["kind"], it["id"]): it["name"] for it in made.manifest["processes"]}
    found = {
        (names["drive", a], names["service", b]): taken
        for a, b, taken in made.rows("client, server, received_ns - sent_ns")
    }
    assert found["node-0", "node-1"] == 1_500_000
    assert found["node-1", "node-0"] == 1_600_000
    assert found["node-2", "node-1"] == 41 * MS
    assert len(found) == 6
    with pytest.raises(IngestError, match="does not say in which unit its durations are"):
        bring(MATRIX)


def test_a_matrix_that_is_not_square_is_refused(bring):
    with pytest.raises(IngestError, match="has 2 rows of 3 columns"):
        bring("0\t1\t2\n1\t0\t2\n", unit="ms", format="matrix")
    with pytest.raises(IngestError, match="row 3 has 2 columns"):
        bring("0\t1\t2\n1\t0\t2\n1\t2\n", unit="ms", format="matrix")


def test_zipkin_ties_the_halves_of_a_call_and_leaves_clocks_apart(bring):
    made = bring(ZIPKIN)
    assert made.rows("op, status, sent_ns, server_received_ns, server_sent_ns, request") == [
        ("front get /", "ok", 1_000_000 * US, None, None, 0),
        ("store query", "ok", 1_000_100 * US, 900_200 * US, 900_500 * US, 1),
        ("memcache cache", "timeout", 1_000_700 * US, None, None, 2),
    ]
    columns = "request, service, layer, kind, failed, started_ns, ended_ns - started_ns"
    assert made.rows(columns, "spans") == [
        (0, "front", "get /", "server", False, 1_000_000 * US, 900 * US),
        (0, "front", "query", "client", False, 1_000_100 * US, 500 * US),
        (0, "store", "query", "server", False, 900_200 * US, 300 * US),
        (1, "store", "query", "server", False, 900_200 * US, 300 * US),
        (1, "store", "parse", None, False, 900_210 * US, 10 * US),
        (0, "front", "cache", "client", True, 1_000_700 * US, 50 * US),
    ]
    # of a call its service's half is the first span, and the spans of that service are below it
    assert made.rows("span_id, parent_id", "spans", "request = 1") == [(11, 10), (12, 11)]
    # both halves have one id in this file: in the request that calls they are two spans
    halves = made.rows("span_id, parent_id", "spans", "request = 0 and layer = 'query'")
    assert halves == [(11, 10), (~11, 11)]
    names = {(it["kind"], it["name"]) for it in made.manifest["processes"]}
    assert names == {
        ("drive", "outside"), ("drive", "front"), ("service", "front"), ("service", "store"),
        ("service", "memcache"),
    }  # fmt: skip


@pytest.mark.parametrize("text", [JAEGER, OTLP], ids=["jaeger", "otlp"])
def test_traces_of_jaeger_and_otlp_have_the_calls_and_their_parts(bring, text):
    made = bring(text)
    assert made.rows("op, status, sent_ns, server_received_ns, server_sent_ns, request") == [
        ("front get /", "ok", 1_000_000 * US, None, None, 0),
        ("store query", "error:503", 1_000_100 * US, 900_200 * US, 900_500 * US, 1),
    ]
    columns = "request, service, layer, kind, failed, span_id, parent_id, started_ns"
    found = made.rows(columns, "spans")
    internal = "internal" if text is OTLP else None
    assert found == [
        (0, "front", "get /", "server", False, 10, None, 1_000_000 * US),
        (0, "front", "query", "client", False, 11, 10, 1_000_100 * US),
        (0, "store", "query", "server", True, 12, 11, 900_200 * US),
        (1, "store", "query", "server", True, 12, 11, 900_200 * US),
        (1, "store", "parse", internal, False, 13, 12, 900_210 * US),
    ]
    for file in made.path.rglob("*"):
        assert not file.is_file() or b"s3cr3t" not in file.read_bytes()


def test_a_batch_that_was_sent_twice_counts_once(bring):
    made = bring(OTLP + "\n" + OTLP)
    assert made.rows("count(*)") == bring(OTLP).rows("count(*)")
    assert made.rows("count(*)", "spans") == bring(OTLP).rows("count(*)", "spans")


def test_a_name_of_a_span_cannot_steer_a_terminal(bring):
    spans = [_otlp_span("get\x1b[31m\nx", "a", "", 2, 1_000, 5)]
    assert bring(json.dumps(_otlp("fr\x07ont", *spans))).rows("layer, service", "spans") == [
        ("get\ufffd[31m\ufffdx", "fr\ufffdont")
    ]


@pytest.mark.parametrize(
    "times", [("5", "4"), ("0", "9"), ("x", "9"), (None, "9"), ("1e9", "9"), ("9" * 30, "9" * 31)]
)
def test_a_span_of_otlp_without_a_time_is_refused(bring, times):
    spans = [_otlp_span("get", f"{it:x}", "", 2, 1_000 + it, 5) for it in range(1, 300)]
    spans[7] |= {"startTimeUnixNano": times[0], "endTimeUnixNano": times[1]}
    made = bring(json.dumps(_otlp("front", *spans)))
    assert made.file["refused"] == 1
    assert made.rows("count(*)")[0][0] == 298


@pytest.mark.parametrize(
    "text",
    [
        '{"data": 5, "traceID": "spanID", "operationName": 1}',
        '{"data": [5, {"spans": [7], "processes": 3}], "traceID": "spanID", "operationName": 1}',
        '{"resourceSpans": [{"scopeSpans": [{"spans": [7, {}]}], "resource": 3}, 9]}',
    ],
)
def test_traces_of_another_shape_are_no_traceback(bring, text):
    with pytest.raises(IngestError):
        bring(text)


@pytest.mark.parametrize("shape", ["lines", "traces", "pretty"])
def test_zipkin_comes_in_several_shapes(bring, shape):
    spans = json.loads(ZIPKIN)
    text = {
        "lines": "\n".join(json.dumps(span) for span in spans),
        "traces": json.dumps([spans[:3], spans[3:]]),
        "pretty": json.dumps(spans, indent=2),
    }[shape]
    assert bring(text).rows("op, sent_ns") == bring(ZIPKIN).rows("op, sent_ns")


def test_a_server_span_that_is_the_child_of_a_call_is_its_half(bring):
    spans = json.loads(ZIPKIN)
    spans[2] |= {"id": "b2", "parentId": "b"}
    spans[2].pop("shared")
    assert bring(json.dumps(spans)).rows("op, server_received_ns")[1] == (
        "store query", 900_200 * US
    )  # fmt: skip


def test_zipkin_spans_without_time_are_counted_and_no_reason_to_refuse_a_file(bring):
    spans = [span for _ in range(60) for span in json.loads(ZIPKIN)]
    for place in range(7, 300, 5):
        spans[place].pop("duration")
    spans[8]["timestamp"] = 0
    spans[9]["duration"] = -5
    made = bring(json.dumps(spans))
    assert (made.file["lines"], made.file["refused"]) == (300, 1)
    assert "60 spans have no time or no duration, and are left out" in made.missing


def test_what_is_in_no_format_lists_those_that_are_known_and_the_nearest(bring):
    with pytest.raises(IngestError) as error:
        bring('{"traceId": 1, "timestamp": 2, "duration": 3}\n')
    assert "is in no format known here; one of gatling," in str(error.value)
    assert "it looks most like zipkin" in str(error.value)


@pytest.mark.parametrize(
    "data", [bytes(range(256)) * 40, b"\x00" * 4096, b"\x89PNG\r\n\x1a\n\x00" * 9]
)
def test_binary_garbage_is_said_to_be_no_text(bring, data):
    with pytest.raises(IngestError, match="holds no text that is known here"):
        bring(data)


def test_two_formats_that_fit_are_an_error(bring):
    both = [Format(name, "", "latencies", (), lambda _: True, lambda *_: iter(())) for name in "ab"]

    class Named:
        sample, where = Sample(b"x", True), "file"

    with pytest.raises(IngestError, match=r"file: could be a or b; .* hint: say which: --format a"):
        formats.recognise(Named(), Options(), tuple(both))


def test_a_format_may_be_named_and_a_wrong_name_is_met_with_the_nearest(bring):
    assert (
        bring(K6_CSV, format="csv", value="metric_value", unit="ms", time="none").file["format"]
        == "csv"
    )
    with pytest.raises(ParameterError, match=r"--format: is 'jmetr-csv'.*--format jmeter-csv"):
        bring(JTL_CSV, format="jmetr-csv")


def test_naming_a_column_makes_it_a_plain_table(bring):
    made = bring(JTL_CSV, value="bytes", unit="us", time="timeStamp", time_unit="ms", op="label")
    assert made.file["format"] == "csv"
    assert made.rows("op, received_ns - sent_ns")[0] == ("pay, now", 8_735 * US)


def test_a_flag_that_a_format_does_not_take_is_refused(bring):
    with pytest.raises(
        IngestError, match="jmeter-csv knows its own columns and units and takes no --unit"
    ):
        bring(JTL_CSV, unit="s")
    with pytest.raises(ParameterError, match=r"--unit: is 'sec'; one of ns, us, ms, s"):
        bring("latency\n1\n", unit="sec")


@pytest.mark.parametrize(
    ("code", "message", "status"),
    [
        ("500", "", "error:500"),
        ("408", "", "timeout"),
        ("", "Read timed out", "timeout"),
        ("0", "dial tcp: connect: connection refused", "refused"),
        ("Non HTTP response code: java.net.SocketException", "Connection reset", "error:reset"),
        ("", "x509: certificate has expired", "error:tls"),
        ("", "lookup a: no such host", "error:name"),
        ("", "unexpected EOF", "error:disconnected"),
        ("", "user 1234 not found in 0x33", "error:failed"),
    ],
)
def test_the_status_of_a_failure_is_one_of_few(code, message, status):
    assert failure(code, message) == status


@pytest.mark.parametrize("name", sorted(SAMPLES))
@settings(max_examples=60)
@given(
    changes=st.lists(
        st.tuples(
            st.integers(0, 10_000),
            st.sampled_from([b"", b"\n", b"\t", b",", b'"', b"-", b"\x00", b"\xff", b"NaN",
                             b"1e999", b"99999999999999999999", b"{", b"}",
                             b"\xc2\xb2", b"null", b"<!--"]),
        ),
        min_size=1, max_size=4,
    )
)  # fmt: skip
def test_a_damaged_file_is_read_or_refused_and_never_a_traceback(tmp_path_factory, name, changes):
    data = bytearray(SAMPLES[name].encode())
    for place, put in changes:
        at = place % len(data)
        data[at : at + 1] = put
    where = tmp_path_factory.mktemp("damaged")
    (where / "file").write_bytes(data)
    try:
        import_files(
            [str(where / "file")],
            where / "run",
            Options(unit="ms" if name == "matrix" else None, format=name),
        )
    except IngestError as error:
        assert "; " in str(error)  # noqa: PT017 - the form of a message
        assert sorted(path.name for path in where.iterdir()) == ["file"]
    else:
        assert (where / "run" / "manifest.json").is_file()


def test_traces_that_interleave_too_long_are_taken_as_they_are(bring, monkeypatch):
    monkeypatch.setattr("unruly.ingest.spans.HELD_MAX", 3)
    made = bring(ZIPKIN)
    assert made.rows("count(*)")[0][0] >= 3
    assert made.file["lines"] == 5


def test_numbers_beyond_64_bits_are_complaints(bring):
    good = '{"ts": 1.0, "type": "request", "label": "a", "elapsed": 1, "responseCode": "200"}\n'
    made = bring(
        good * 300 + good.replace("1.0", "1e300") + good.replace('elapsed": 1', 'elapsed": NaN')
    )
    assert made.file["refused"] == 2
    line = "REQUEST\t\thome\t1549411935251\t1549411935474\tOK\n"
    far = line.replace("1549411935474", "9549411935474000000")
    made = bring("RUN\tSim\n" + line * 200 + far)
    assert made.file["refused"] == 1


def test_sizes_that_no_column_can_hold_are_the_largest_that_it_can(bring):
    made = bring(VEGETA_JSON.replace('"bytes_in": 4', '"bytes_in": 99999999999999999999'))
    assert made.rows("received_bytes")[0] == (2**32 - 1,)
