"""Access logs in a form of their own, read by the format string that wrote them."""

from __future__ import annotations

import pytest

import unruly
from unruly.errors import ParameterError
from unruly.ingest.log_format import with_format
from unruly.ingest.model import Options

FORMATS = {
    # the lines of each are as nginx and Apache httpd write this string
    "nginx": (
        '$request_time|$status|$remote_addr|"$request"|"$http_user_agent"|$msec',
        [
            '0.250|200|10.0.0.1|"GET /a?b=1 HTTP/1.1"|"curl|7"|1796000000.500',
            '1.500|503|10.0.0.2|"POST /b HTTP/1.1"|"-"|1796000003.000',
            '0.001|400|10.0.0.3|"-"|"-"|1796000004.000',
        ],
        [(1796000000.25, 250e6, "GET"), (1796000001.5, None, "POST"), (1796000003.999, None, "-")],
    ),
    "nginx-local": (
        '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
        "$request_time $upstream_response_time $pipe",
        ['10.0.0.1 - - [29/Nov/2026:04:10:35 +0000] "GET / HTTP/1.1" 200 5 2.000 1.9 .'] * 3,
        [(1795925433.0, 2e9, "GET")] * 3,
    ),
    "apache": (
        '%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-agent}i" %D',
        ['::1 - bob [29/Nov/2026:05:10:35 +0100] "GET /x y HTTP/1.0" 200 - "-" "a \\" b" 1234'] * 3,
        [(1795925435.0, 1_234_000, "GET")] * 3,
    ),
    "apache-ms": (
        "%m %s %{ms}T",
        ["GET 200 12", "PUT 404 7", "GET 200 13"],
        [(None, 12e6, "GET"), (None, None, "PUT"), (None, 13e6, "GET")],
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_lines_are_read_as_the_server_wrote_them(tmp_path, name):
    text, lines, wanted = FORMATS[name]
    log = tmp_path / "access.log"
    log.write_text("\n".join(lines) + "\n")
    made = unruly.import_file(log, tmp_path / "run", log_format=text)
    rows = unruly.open_run(made).requests.order_by("request").to_pyarrow().to_pylist()
    assert len(rows) == len(wanted)
    for row, (started_s, took_ns, op) in zip(rows, wanted, strict=True):
        assert row["op"] == op
        if took_ns is None:
            assert row["status"].startswith("error:")
        else:
            assert row["received_ns"] - row["sent_ns"] == took_ns
        if started_s is not None:
            assert row["sent_ns"] == round(started_s * 1e3) * 1_000_000


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        ("$remote_addr $status", {}, "logs no duration"),
        ("%h %t %>s", {}, "logs no duration"),
        ("nothing", {}, "logs no duration"),
        ("$request_time", {"regex": "(?P<value>.*)"}, "stands beside --regex"),
        ("$request_time", {"unit": "ms"}, "stands beside --unit"),
        ("$request_time", {"format": "csv"}, "stands beside --format"),
    ],
)
def test_a_string_that_cannot_be_used_is_refused(text, more, said):
    with pytest.raises(ParameterError, match=said):
        with_format(text, Options(**more))


def test_a_variable_that_stands_twice_is_read_once():
    found = with_format("$status $request_time $status ${request_time}", Options())
    assert found.regex.count("(?P<status>") == found.regex.count("(?P<value>") == 1
