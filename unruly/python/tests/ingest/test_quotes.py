"""A lone quote costs its own line: each line is a row or a complaint."""

from __future__ import annotations

import pytest

import unruly
from unruly.ingest.delimited import BLOCK_BYTES
from unruly.ingest.quotes import OPEN_QUOTE, opened

JTL = "timeStamp,elapsed,label,responseCode,responseMessage,success\n"


def rows_and_missing(folder, text, **more):
    path = folder / "in.csv"
    path.write_text(text)
    unruly.import_file(path, folder / "run", **more)
    run = unruly.open_run(folder / "run")
    (source,) = run.manifest["provenance"]
    return run.measured.count().to_pandas(), source


@pytest.mark.parametrize("at", [500, 60_000, 99_999])
def test_one_lone_quote_costs_one_row(tmp_path, at):
    lines = [f"GET /a,{3 + place % 5}" for place in range(100_000)]
    lines[at] = f'"{lines[at]}'
    text = "path,latency_ms\n" + "\n".join(lines) + "\n"
    assert len(text) < BLOCK_BYTES
    rows, source = rows_and_missing(tmp_path, text)
    assert rows == 99_999
    assert source["refused"] == 1
    assert source["first_refused"] == [{"line": at + 2, "reason": OPEN_QUOTE}]


def test_two_lone_quotes_hide_nothing_between_them(tmp_path):
    lines = ["GET /a,3"] * 3_000
    lines[500], lines[520] = '"GET /p,3', 'x",3'
    rows, source = rows_and_missing(tmp_path, "path,latency_ms\n" + "\n".join(lines))
    assert (rows, source["refused"]) == (2_999, 1)


def test_a_lone_quote_hides_no_outage(tmp_path):
    lines = ["GET /a,3"] * 1_000 + ['"GET /a,3'] + ["GET /a,5000"] * 50_000
    _, source = rows_and_missing(tmp_path, "path,latency_ms\n" + "\n".join(lines))
    assert (source["lines"], source["refused"]) == (51_001, 1)


def test_a_lone_quote_in_a_jtl_costs_one_row(tmp_path):
    lines = [f"{1_700_000_000_000 + place},5,home,200,OK,true" for place in range(20_000)]
    lines[400] = lines[400].replace("home", '"home')
    rows, source = rows_and_missing(tmp_path, JTL + "\n".join(lines) + "\n")
    assert (rows, source["refused"]) == (19_999, 1)


def test_a_message_that_spans_lines_is_one_row_of_a_jtl(tmp_path):
    lines = [f"{1_700_000_000_000 + place},5,home,200,OK,true" for place in range(300)]
    lines[4] = lines[4].replace("OK", '"no\nroute, ""at"" all\n"').replace("true", "false")
    lines[7] = lines[7].replace(",5,", ",x,")
    rows, source = rows_and_missing(tmp_path, JTL + "\n".join(lines) + "\n")
    assert (rows, source["refused"]) == (299, 1)
    assert source["first_refused"][0]["line"] == 11, "lines are counted as in the file"


def test_a_row_may_span_two_blocks(tmp_path):
    message = "a trace\n" * 100
    line = f'1700000000000,5,home,500,"{message}",false\n'
    text = JTL + line * (3 * BLOCK_BYTES // len(line))
    rows, source = rows_and_missing(tmp_path, text)
    assert (rows, source["refused"]) == (text.count("1700000000000"), 0)


@pytest.mark.parametrize(
    ("line", "is_open"),
    [
        (b'a,"b', True), (b'"a""', True), (b'"a"",b', True), (b'a,"b,c', True),
        (b'a,"b"', False), (b'5" disk,3', False), (b'"a""b",c', False), (b'a,b"', False),
        (b'"",""', False), (b'5",6,"open', True),
    ],
)  # fmt: skip
def test_a_quote_opens_only_where_a_field_begins(line, is_open):
    assert bool(opened(",").search(line)) == is_open
