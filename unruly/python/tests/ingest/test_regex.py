"""Lines of logs that no format knows, by the groups of a pattern."""

from __future__ import annotations

import time

import pytest

from unruly import IngestError, ParameterError

MS, S = 1_000_000, 1_000_000_000
START = 1_795_925_435 * S
LOG = (
    "2026-11-29 04:10:35,250 INFO [eu] read took 12.5 ms, ok\n"
    "2026-11-29 04:10:36,000 WARN [us] write took 3 ms, timeout\n"
)
PATTERN = (
    r"^(?P<time>\S+ \S+) \w+ \[(?P<zone>\w+)\] (?P<op>\w+) took (?P<value>[0-9.]+) ms, "
    r"(?P<status>\w+)$"
)
ROW = "op, status, sent_ns, received_ns - sent_ns"


def test_the_groups_of_a_pattern_are_the_columns(bring):
    made = bring(LOG, regex=PATTERN, unit="ms", factors=("zone",))
    assert made.rows(ROW) == [
        ("read", "ok", START + 250 * MS, 12_500_000),
        ("write", "timeout", START + S, 3 * MS),
    ]
    assert made.file["format"] == "regex"
    assert {cell["factors"]["zone"] for cell in made.manifest["cells"]} == {"eu", "us"}
    assert "its times name no time zone and were taken as UTC" in made.missing
    ends = bring(LOG, regex=PATTERN, unit="ms", time_is="end")
    assert ends.rows("received_ns")[0] == (START + 250 * MS,)


def test_flags_may_name_other_groups(bring):
    pattern = r"(?P<at>\d+)\.\d+ (?P<what>\w+) (?P<ms>\d+) (?P<code>\d+)"
    text = "1795925435.5 get 7 200\n1795925436.5 put 8 500\n"
    flags = {"regex": pattern, "value": "ms", "unit": "ms", "time": "at", "time_unit": "s"}
    made = bring(text, **flags, op="what", failed_if=("code>=500",))
    assert made.rows(ROW) == [
        ("get", "ok", START, 7 * MS), ("put", "error:500", START + S, 8 * MS),
    ]  # fmt: skip
    assert bring(text, **{**flags, "time": "none"}).manifest["timeless"] == ["all"]


@pytest.mark.parametrize(
    "written",
    ["29/Nov/2026:04:10:35 +0000", "29/Nov/2026:05:10:35 +0100", "2026-11-29T04:10:35Z",
     "2026-11-29 04:10:35.000+00:00"],
)  # fmt: skip
def test_a_time_may_be_iso_or_that_of_a_web_server(bring, written):
    made = bring(f"[{written}] 5\n", regex=r"\[(?P<time>[^\]]+)\] (?P<value>\d+)", unit="ms")
    assert made.rows("sent_ns") == [(START,)]


def test_a_line_that_does_not_match_is_refused_and_not_repeated(bring):
    made = bring(LOG * 60 + "secret_words\n", regex=PATTERN, unit="ms")
    assert (made.file["lines"], made.file["refused"]) == (121, 1)
    assert made.file["first_refused"] == [{"line": 121, "reason": "does not match --regex"}]
    with pytest.raises(IngestError, match="line 3: does not match --regex"):
        bring(LOG + "other\n", regex=PATTERN, unit="ms")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"regex": r"took (?P<ms>\d+)", "unit": "ms"}, "has no group 'value'"),
        ({"regex": r"took (?P<value>\d+)"}, "--unit ns, us, ms or s"),
        ({"regex": r"took (?P<value>\d+)", "unit": "ms", "op": "o"}, "no column 'o' for --op"),
        ({"regex": r"(?P<time>\d+).* took (?P<value>\d+)", "unit": "ms"}, "--time-unit s"),
        ({"format": "regex", "unit": "ms"}, "--regex PATTERN"),
    ],
)
def test_an_error_names_what_is_missing(bring, flags, words):
    with pytest.raises(IngestError) as raised:
        bring(LOG, **flags)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"took (?P<value>\d+", "is not read: missing )"),
        (r"(read|write) took (?P<value>\d+)", r"(?:...) groups without a name"),
        (r"(?P<value>\d+)(?=x)", "is not read: invalid perl operator"),
    ],
)
def test_a_pattern_that_is_not_read_is_an_error(bring, pattern, words):
    with pytest.raises(ParameterError) as raised:
        bring(LOG, regex=pattern, unit="ms")
    assert words in str(raised.value)


def test_a_pattern_that_would_backtrack_forever_takes_linear_time(bring):
    line = "a" * 200_000 + "\n"
    began = time.process_time()
    with pytest.raises(IngestError, match="does not match"):
        bring(line * 20, regex=r"(?:a+)+(?:a*)*b(?P<value>\d+)", unit="ms")
    assert time.process_time() - began < 10


def test_a_log_of_events_beside_the_lines_stays_one(bring):
    gc = (
        "[2026-11-29T04:10:35.300+0000] GC(0) Pause Young (Normal) (G1 Evacuation Pause) "
        "24M->4M(256M) 5.120ms\n"
    )
    made = bring(LOG, gc, regex=PATTERN, unit="ms")
    assert [it["format"] for it in made.manifest["provenance"]] == ["regex", "jvm-gc"]
