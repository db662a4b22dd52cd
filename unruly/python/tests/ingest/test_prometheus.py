"""Histograms of Prometheus: counts between scrapes, which a client library wrote."""

from __future__ import annotations

import math

import pytest

from unruly import IngestError
from unruly.ingest.formats import FORMATS
from unruly.ingest.source import Sample

MS, S = 1_000_000, 1_000_000_000
BINS = "op, low_ns, high_ns, count"
ORDER = "true order by op, started_ns, low_ns"
HEAD = "# HELP rpc_seconds Duration\n# TYPE rpc_seconds histogram\n"


def scrape(counts, total, labels='path="/a"', at="", name="rpc_seconds"):
    """The text of a scrape, with counts up to 10 ms, 100 ms and beyond."""
    more = f",{labels}" if labels else ""
    alone = f"{{{labels}}}" if labels else ""
    lines = [
        f'{name}_bucket{{le="{edge}"{more}}} {count}{at}\n'
        for edge, count in zip(("0.01", "0.1", "+Inf"), counts, strict=True)
    ]
    lines += [f"{name}_sum{alone} {total}{at}\n", f"{name}_count{alone} {counts[-1]}{at}\n"]
    return "".join(lines)


def bins(made):
    return made.rows(BINS, "histograms", ORDER)


def spans(made):
    return made.rows("distinct started_ns, ended_ns", "histograms", "true order by 1")


FIRST, SECOND = scrape((10, 12, 12), 0.2), scrape((25, 32, 33), 1.0)
GROWN = [
    ("path=/a", 0, 10 * MS, 15), ("path=/a", 10 * MS, 100 * MS, 5),
    # the sum grew by 0.8 s, and five others took 10 ms or more
    ("path=/a", 100 * MS, 750 * MS, 1),
]  # fmt: skip


def test_the_text_is_recognised_by_no_other_format():
    for text in (HEAD + FIRST, FIRST):
        sample = Sample(text.encode(), True)
        fit = [it.name for it in FORMATS if it.recognises(sample) and not it.fallback]
        assert fit == ["prometheus"]


def test_two_scrapes_give_what_was_counted_between_them(bring):
    made = bring(HEAD + FIRST, HEAD + SECOND)
    assert bins(made) == [(op, low, pytest.approx(high), n) for op, low, high, n in GROWN]
    assert spans(made) == [(0, 1)]
    assert any("the scrapes have no times" in it for it in made.missing)
    assert [it["lines"] for it in made.manifest["provenance"]] == [3, 3]
    # one file may have both, with or without the end that OpenMetrics writes
    for between in ("", "# EOF\n"):
        assert bins(bring(HEAD + FIRST + between + HEAD + SECOND)) == bins(made)


def test_one_scrape_has_the_counts_since_the_process_began(bring):
    made = bring(HEAD + FIRST)
    assert [row[3] for row in bins(made)] == [10, 2]
    assert any("since the process began" in it for it in made.missing)


@pytest.mark.parametrize("times", [(" 1795925435000", " 1795925445000", " 1795925455500"),
                                   (" 1795925435", " 1795925445.0", " 1795925455.5")])  # fmt: skip
def test_scrapes_with_times_give_a_span_each(bring, times):
    parts = [((10, 12, 12), 0.2), ((25, 32, 32), 0.6), ((25, 33, 33), 0.7)]
    text = "".join(
        scrape(counts, total, at=at) for (counts, total), at in zip(parts, times, strict=True)
    )
    made = bring(HEAD + text)
    start = 1_795_925_435 * S
    assert spans(made) == [
        (start, start + 10 * S), (start + 10 * S, start + 20_500 * MS),
    ]  # fmt: skip
    assert [row[3] for row in bins(made)] == [15, 5, 1]
    late = scrape(*parts[1], at=times[1]) + scrape(*parts[0], at=times[0])
    with pytest.raises(IngestError, match="older than the one before"):
        bring(HEAD + late)


def test_a_counter_that_was_set_back_counts_from_zero(bring):
    made = bring(HEAD + SECOND, HEAD + FIRST)
    assert [row[3] for row in bins(made)] == [10, 2]
    assert any("was set back between two scrapes" in it for it in made.missing)
    # a set of labels that is new since the last scrape was at zero
    more = bring(HEAD + FIRST, HEAD + SECOND + scrape((1, 1, 1), 0.001, 'path="/new"'))
    assert bins(more)[-1] == ("path=/new", 0, 10 * MS, 1)


def test_the_last_bucket_without_a_sum_is_a_failure_and_said(bring):
    text = HEAD + SECOND.replace("rpc_seconds_sum", "other")
    made = bring(text)
    assert bins(made)[-1] == ("path=/a", math.inf, math.inf, 1)
    assert any("nothing bounds them" in it for it in made.missing)


def test_labels_name_operations_and_failures(bring):
    both = scrape((5, 6, 6), 0.1, 'path="/a",code="200"') + scrape(
        (2, 2, 2), 0.01, 'path="/a",code="503"'
    )
    made = bring(HEAD + both)
    assert {row[0] for row in bins(made)} == {"code=200 path=/a", "code=503 path=/a"}
    assert any("which requests failed" in it for it in made.missing)
    for flags in ({"status": "code"}, {"failed_if": ("code>=500",)}):
        made = bring(HEAD + both, op="path", **flags)
        assert [(row[0], row[3]) for row in bins(made)] == [("/a", 5), ("/a", 1), ("/a", 2)]
        assert bins(made)[-1][1] == math.inf
    with pytest.raises(IngestError, match="has no label 'route'; one of code, path"):
        bring(HEAD + both, op="route")


def test_a_condition_on_what_is_no_number_is_refused(bring):
    text = HEAD + scrape((5, 6, 6), 0.1, 'code="5xx"')
    with pytest.raises(IngestError, match="code is '5xx', which is no number"):
        bring(text, failed_if=("code>=500",))


def test_histograms_of_other_things_are_left_out(bring):
    size = scrape((5, 6, 6), 100, name="reply_bytes")
    made = bring(HEAD + FIRST + size)
    assert {row[0] for row in bins(made)} == {"path=/a"}
    assert "the histogram reply_bytes names no unit of time, and was left out" in made.missing
    with pytest.raises(IngestError, match="--unit ns, us, ms or s"):
        bring(HEAD + scrape((1, 2, 2), 3, name="took"))
    made = bring(HEAD + FIRST + scrape((1, 2, 2), 3, name="took"), value="took", unit="ms")
    assert bins(made)[0][1:] == (0, 10_000, 1)
    with pytest.raises(IngestError, match="has no histogram 'toock'; one of rpc_seconds"):
        bring(HEAD + FIRST, value="toock")


def test_buckets_that_lag_behind_and_exemplars_are_read(bring):
    text = FIRST.replace('path="/a"} 12\n', 'path="/a"} 9 # {trace_id="a\\"} 1"} 0.5 1.5\n', 1)
    assert [row[3] for row in bins(bring(HEAD + text))] == [10, 2]


@pytest.mark.parametrize(
    "text",
    ["# HELP a b\n# TYPE a counter\na_total 1\n",
     '# TYPE a summary\na{quantile="0.99"} 1\na_sum 2\na_count 3\n'],
)  # fmt: skip
def test_counters_without_a_histogram_are_refused(bring, text):
    with pytest.raises(IngestError, match="has counters and no histogram") as raised:
        bring(text)
    assert "unruly watch" in raised.value.hint


def test_two_scrapes_between_which_nothing_happened_are_refused(bring):
    with pytest.raises(IngestError, match="counts nothing between its scrapes"):
        bring(HEAD + FIRST, HEAD + FIRST)


def test_a_file_that_is_cut_off_or_changed_is_no_traceback(bring):
    text = HEAD + FIRST + SECOND
    for damaged in [text[:cut] for cut in range(1, len(text), 40)] + [
        text.replace('"', "", 3), text.replace("1", "x", 4), text.replace("0.01", "nan"),
        text.replace(" 12", " -12"), text.replace(" 12", " 1e400"),
    ]:  # fmt: skip
        try:
            bring(damaged)
        except IngestError:
            continue
