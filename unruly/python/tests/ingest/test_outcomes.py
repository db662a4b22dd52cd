"""Failed rows and times of the end, in tables and JSON rows of which nobody knows the tool."""

from __future__ import annotations

import json

import pytest

from unruly import IngestError, ParameterError

MS, S = 1_000_000, 1_000_000_000
ROW = "status, received_ns - sent_ns"
TABLE = (
    "time,latency_ms,status,error\n"
    "2026-11-29T04:10:35Z,12,200,\n"
    "2026-11-29T04:10:36Z,1,503,overloaded\n"
    "2026-11-29T04:10:37Z,30,302,\n"
    "2026-11-29T04:10:38Z,,408,no reply\n"
)
JSON = "".join(
    json.dumps({"ms": ms, "at": f"2026-11-29T04:10:3{place}Z", "reply": reply}) + "\n"
    for place, (ms, reply) in enumerate((
        (12, {"code": 200, "success": True}),
        (1, {"code": 503, "success": False, "error": "connection refused"}),
    ))
)  # fmt: skip
WANTED = [("ok", 12 * MS), ("error:503", MS), ("ok", 30 * MS), ("timeout", None)]


def statuses(made):
    return [row[0] for row in made.rows("status")]


@pytest.mark.parametrize(
    "flags", [{"status": "status"}, {"failed_if": ("status>=400",)}], ids=["status", "failed-if"]
)
def test_a_row_of_a_table_with_a_status_from_400_on_is_a_failure(bring, flags):
    made = bring(TABLE, **flags)
    assert made.rows(ROW) == WANTED
    assert made.file["refused"] == 0
    assert made.manifest["counts"]["requests"]["unanswered"] == 2


def test_a_table_without_either_flag_keeps_all_rows_as_successes(bring):
    text = TABLE.replace("38Z,,", "38Z,5,")
    assert statuses(bring(text)) == ["ok"] * 4


def test_a_row_of_json_fails_by_the_field_that_the_user_names(bring):
    flags = {"value": "ms", "unit": "ms", "time": "at"}
    for more, failed in (
        ({"status": "reply.code"}, "error:503"),
        ({"status": "reply.success"}, "error:failed"),
        ({"failed_if": ("reply.success=false",)}, "error:failed"),
        ({"failed_if": ("reply.code >= 500",)}, "error:503"),
        ({"failed_if": ("reply.error!=",)}, "refused"),
        ({"failed_if": ("reply.code>=500", "reply.error!=")}, "error:503"),
        ({"status": "reply.success", "failed_if": ("reply.error!=",)}, "refused"),
    ):
        assert statuses(bring(JSON, **flags, **more)) == ["ok", failed], more
    assert statuses(bring(JSON, **flags)) == ["ok", "ok"]


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("ok", "ok"), ("OK", "ok"), ("Success", "ok"), ("true", "ok"), ("200 OK", "ok"),
        ("HTTP/1.1 204 No Content", "ok"), ("304", "ok"), ("404", "error:404"),
        ("500 Internal Server Error", "error:500"), ("408", "timeout"), ("TIMEOUT", "timeout"),
        ("DEADLINE_EXCEEDED", "timeout"), ("UNAVAILABLE", "error:failed"),
        ("false", "error:failed"), ("KO", "error:failed"), ("connection reset", "error:reset"),
    ],
)  # fmt: skip
def test_words_mean_what_they_say(bring, word, status):
    assert statuses(bring(f"latency_ms,s\n1,{word}\n", status="s")) == [status]


@pytest.mark.parametrize("word", ["0", "1", "done-ish", ""])
def test_a_word_that_can_mean_either_is_an_error_with_both_ways_out(bring, word):
    text = f"latency_ms,s,x\n1,ok,x\n2,{word},x\n"
    with pytest.raises(IngestError, match="can mean a success or a failure") as raised:
        bring(text, status="s")
    assert f"--failed-if 's={word}' if these rows failed" in raised.value.hint
    assert statuses(bring(text, failed_if=(f"s={word}",), status="s")) == ["ok", "error:failed"]
    assert statuses(bring(text, failed_if=(f"s={word}",))) == ["ok", "error:failed"]


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("n=1", [1]), ("n==1", [1]), ("n=1.0", [1]), ("n!=1", [0, 2]), ("n<1", [0]),
        ("n<=1", [0, 1]), ("n>1", [2]), ("n >= 1", [1, 2]), ("w=B", [1]), ("w!=b", [0, 2]),
        ("w=", [2]), ("w!=", [0, 1]),
    ],
)  # fmt: skip
def test_a_condition_compares_numbers_as_numbers_and_else_words(bring, text, failed):
    made = bring("latency_ms,n,w\n1,0,a\n2,1,b\n3,2,\n", failed_if=(text,))
    found = made.rows("received_ns - sent_ns", where="status <> 'ok' order by 1")
    assert [row[0] // MS - 1 for row in found] == failed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("status", r"is 'status'; COLUMN, one of = != < <= > >=, and a value"),
        (">=400", "is '>=400'"),
        ("status>=bad", r"orders by 'bad'; a number after >=; hint: --failed-if 'status=bad'"),
    ],
)
def test_a_text_that_is_no_condition_is_an_error(bring, text, words):
    with pytest.raises(ParameterError, match=words):
        bring(TABLE, failed_if=(text,))


def test_a_column_of_a_condition_must_be_there_and_hold_numbers_to_be_ordered(bring):
    with pytest.raises(IngestError, match="no column 'stat' for --failed-if"):
        bring(TABLE, failed_if=("stat>=400",))
    with pytest.raises(IngestError, match="no column 'state' for --status"):
        bring(TABLE, status="state")
    with pytest.raises(IngestError, match="has no field 'cod' for --failed-if"):
        bring(JSON, value="ms", unit="ms", failed_if=("cod>=400",))
    made = bring("latency_ms,s\n" + "1,200\n" * 200 + "1,-\n", failed_if=("s>=400",))
    assert made.file["first_refused"] == [{"line": 202, "reason": "s is '-': no number for s>=400"}]
    absent = bring(JSON, value="ms", unit="ms", failed_if=("eror!=",))
    assert "the first 2 objects have no field eror for --failed-if" in absent.missing


@pytest.mark.parametrize("which", [None, "start", "end"])
def test_a_time_of_the_end_is_moved_by_the_duration(bring, which):
    first = 1_795_925_435 * S
    moved = 12 * MS if which == "end" else 0
    flags = {"time_is": which}
    assert bring(TABLE, **flags, status="status").rows("sent_ns")[0] == (first - moved,)
    made = bring(JSON, value="ms", unit="ms", time="at", **flags)
    assert made.rows("sent_ns")[0] == (first - 5 * S - moved,)


def test_the_end_of_a_row_needs_a_time(bring):
    with pytest.raises(IngestError, match="has no times for --time-is end"):
        bring("latency_ms\n1\n2\n", time_is="end")
    with pytest.raises(ParameterError, match=r"--time-is.*is 'middle'; start or end"):
        bring(TABLE, time_is="middle")
    with pytest.raises(IngestError, match="takes no --status, --time-is"):
        bring("1.5 2\n" * 9, format="hlog", time_is="end", status="x")


def test_a_table_may_have_the_dates_of_web_servers_and_loggers(bring):
    text = "ts,latency_ms\n29/Nov/2026:04:10:35 +0100,5\n[29/Nov/2026:03:10:36.5 +0000],6\n"
    start = 1_795_921_835 * S
    assert bring(text).rows("sent_ns") == [(start,), (start + 1_500 * MS,)]
    comma = "ts;latency_ms\n2026-11-29 03:10:35,250;5\n"
    assert bring(comma).rows("sent_ns") == [(start + 250 * MS,)]
