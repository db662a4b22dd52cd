"""Tools that keep histograms or percentiles: what they kept arrives as it was."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import assume, given
from hypothesis import strategies as st

import unruly
from unruly.errors import IngestError
from unruly.ingest import Options, import_files
from unruly.ingest.hdr import V0, V1, decode, edges, encode

SECOND = 1_000_000_000


def brought(folder, files, **options):
    """Import texts by name and return the run."""
    paths = []
    for name, text in files.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        paths.append(str(path))
    return unruly.open_run(import_files(paths, folder / "run", Options(**options)).directory)


def bins_of(run):
    return run.histograms.order_by("started_ns", "low_ns").to_pyarrow().to_pylist()


def other_decoder(text):
    """What an independent library reads: lowest equivalent values and their counts."""
    found = HdrHistogram.decode(text)
    return {
        found.get_lowest_equivalent_value(it.value_iterated_to): it.count_at_value_iterated_to
        for it in found.get_recorded_iterator()
    }


def encoded_old(counts, version, *, digits=3, word=8, highest=3_600_000_000_000):
    """Write counts as versions 0 and 1 of the format did."""
    body = b"".join(int(count).to_bytes(word, "big", signed=True) for count in counts)
    if version == 0:
        head = struct.pack(">iiqqq", V0 | word << 4, digits, 1, highest, int(sum(counts)))
        outer = 0x1C849309
    else:
        head = struct.pack(">iiiiqqd", V1 | word << 4, len(body), 0, digits, 1, highest, 1.0)
        outer = 0x1C849302
    packed = zlib.compress(head + body)
    return base64.b64encode(struct.pack(">ii", outer | word << 4, len(packed)) + packed).decode()


def test_the_sample_log_decodes_to_what_an_independent_decoder_reads(shared_data):
    path = shared_data / "hdr" / "jHiccup-2.0.7S.logV2.hlog"
    total = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(("#", '"')):
            continue
        text = line.split(",")[-1]
        found = decode(text)
        assert dict(zip(found.low.astype(int).tolist(), found.count.tolist(), strict=True)) == (
            other_decoder(text)
        )
        total += found.n
    assert total == 48_761


def test_the_sample_log_imports_with_its_unit_and_its_percentiles(shared_data, tmp_path):
    path = shared_data / "hdr" / "jHiccup-2.0.7S.logV2.hlog"
    run = unruly.open_run(import_files([str(path)], tmp_path / "run", Options()).directory)
    assert run.manifest["provenance"][0]["unit"] == "ns"
    whole = HdrHistogram(1, 3_600_000_000_000, 3)
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith(("#", '"')):
            whole.add(HdrHistogram.decode(line.split(",")[-1]))
    found = unruly.analyse(run).cell("request")
    assert (found.n, found.kept) == (48_761, "histogram")
    for name, percent in (("p50", 50), ("p90", 90), ("p99", 99), ("p99_9", 99.9)):
        low, high = found.edges[name]
        assert low <= whole.get_value_at_percentile(percent) <= high
        assert low <= getattr(found, name) <= high
    assert found.max == pytest.approx(whole.get_max_value(), rel=0.01)
    assert found.promise_p99 is None
    assert found.ladder.step("p99").drifted
    assert found.ladder.step("p99").details


@pytest.mark.slow
@given(
    st.dictionaries(st.integers(0, 30_000), st.integers(1, 2**40), min_size=1, max_size=60),
    st.sampled_from([1, 2, 3]),
)
def test_what_is_encoded_is_decoded_by_us_and_by_others(counts, digits):
    place = np.array(sorted(counts))
    number = np.array([counts[index] for index in sorted(counts)])
    assume(place.max() < 45 << max(2, round(np.log2(10**digits))))
    low, _ = edges(place, digits)
    text = encode(place, number, digits=digits, highest=2**53)
    found = decode(text)
    assert found.count.tolist() == number.tolist()
    assert found.low.tolist() == low.tolist()
    assert list(other_decoder(text).values()) == number.tolist()


@pytest.mark.parametrize(("version", "word"), [(0, 2), (0, 4), (0, 8), (1, 2), (1, 8)])
def test_older_versions_are_read_too(version, word):
    counts = np.zeros(5000, int)
    counts[[0, 7, 2047, 2048, 4999]] = [3, 1, 30_000 if word == 2 else 70_000, 2, 9]
    found = decode(encoded_old(counts, version, word=word))
    low, _ = edges(np.flatnonzero(counts), 3)
    assert found.low.tolist() == low.tolist()
    assert found.count.tolist() == counts[counts > 0].tolist()


def test_a_log_of_version_0_written_by_jhiccup_is_read():
    # from HdrHistogram's own test resources (CC0): 2 digits from 20 us; its maximum is 0.115 ms
    found = decode(
        "HISTiQAAAEV42pNpmdzBwMDAxAAGfgoMDMxuBjsWQLgMQt4QmrkKQvNugkq8g9KKUJoHSjMzoAJGhlEwCkbBKBgF"
        "o2AUDDkAANEpBrU="
    )
    assert (found.n, found.significant_digits) == (4683, 2)
    assert found.low.max() <= 115_000 <= found.high.max()


@pytest.mark.parametrize(
    "text",
    [
        "not base64!",
        base64.b64encode(b"short").decode(),
        base64.b64encode(struct.pack(">ii", 0x1C849314, 1000) + b"x" * 10).decode(),
        base64.b64encode(struct.pack(">ii", 0x1C849314, 4) + b"abcd").decode(),
        base64.b64encode(struct.pack(">iiiiqqd", V1 | 0x80, 16, 0, 99, 1, 10, 1.0)).decode(),
        encoded_old([-5], 1),
        encode(np.array([70 << 10]), np.array([1]), digits=3, highest=2**53),
        base64.b64encode(struct.pack(">i", 0x0C72124F) + b"x" * 60).decode(),
    ],
)
def test_what_is_no_histogram_says_what_is_wrong(text):
    with pytest.raises(IngestError, match="histogram: "):
        decode(text)


def test_a_histogram_that_inflates_without_end_is_refused():
    packed = zlib.compress(bytes(200 << 20))
    text = base64.b64encode(struct.pack(">ii", 0x1C849314, len(packed)) + packed).decode()
    with pytest.raises(IngestError, match="inflates to more"):
        decode(text)


def hlog(rows, *, head="#[Logged with jHiccup version 2.0.10]\n"):
    lines = [head + "#[StartTime: 1700000000.000 (seconds since epoch)]", '"StartTimestamp"']
    for start, values, tag in rows:
        counts = encode(
            np.array(sorted(values)), np.array([values[k] for k in sorted(values)]), digits=3,
            highest=3_600_000_000_000,
        )  # fmt: skip
        lines.append(f"{f'Tag={tag},' if tag else ''}{start},1.000,0.5,{counts}")
    return "\n".join(lines)


def test_tags_of_a_log_are_operations_and_starts_count_from_its_start(tmp_path):
    text = hlog([(0.5, {1000: 5}, ""), (1.5, {1000: 2}, "read"), (2.5, {1001: 3}, "write")])
    found = bins_of(brought(tmp_path, {"a.log": text}))
    assert [(it["op"], it["count"]) for it in found] == [("request", 5), ("read", 2), ("write", 3)]
    assert found[0]["started_ns"] == 1_700_000_000_500_000_000
    assert found[0]["ended_ns"] - found[0]["started_ns"] == SECOND
    assert (found[0]["low_ns"], found[0]["high_ns"]) == (1000, 1000)


def test_a_log_that_does_not_say_its_unit_asks_for_it(tmp_path):
    text = hlog([(0.5, {1000: 5}, "")], head="")
    with pytest.raises(IngestError, match=r"a unit is never guessed") as refused:
        brought(tmp_path, {"a.hlog": text})
    assert "--unit" in str(refused.value)
    found = bins_of(brought(tmp_path, {"a.hlog": text}, unit="us"))
    assert found[0]["low_ns"] == 1_000_000


def test_a_line_that_is_broken_is_counted_and_many_are_an_error(tmp_path):
    rows = [(i * 1.0, {1000 + i: 5}, "") for i in range(200)]
    lines = hlog(rows).split("\n")
    broken = [*lines[:50], lines[50][:-30], *lines[51:]]
    run = brought(tmp_path, {"a.hlog": "\n".join(broken)})
    (file,) = run.manifest["provenance"]
    assert (file["lines"], file["refused"]) == (200, 1)
    assert file["first_refused"][0]["line"] == 51
    worse = [line[:-30] if i > 3 and i % 9 == 0 else line for i, line in enumerate(lines)]
    (tmp_path / "b").mkdir()
    with pytest.raises(IngestError, match="cannot be read"):
        brought(tmp_path / "b", {"b.hlog": "\n".join(worse)})


HGRM = """       Value     Percentile TotalCount 1/(1-Percentile)

       1.000 0.000000000000          5           1.00
       2.000 0.500000000000         60           2.00
       4.000 0.900000000000         90          10.00
       8.000 0.990000000000         99         100.00
      16.000 1.000000000000        100
#[Mean    =        2.100, StdDeviation   =        1.500]
#[Max     =       16.000, Total count    =          100]
#[Buckets =           20, SubBuckets     =         2048]
"""


def test_a_percentile_distribution_becomes_bins_between_its_lines(tmp_path):
    with pytest.raises(IngestError, match="--unit"):
        brought(tmp_path, {"a.hgrm": HGRM})
    run = brought(tmp_path, {"a.hgrm": HGRM}, unit="ms")
    found = [(it["low_ns"] / 1e6, it["high_ns"] / 1e6, it["count"]) for it in bins_of(run)]
    assert found == [(1, 1, 5), (1, 2, 55), (2, 4, 30), (4, 8, 9), (8, 16, 1)]
    summary = unruly.analyse(run).cell("request")
    assert (summary.mean, summary.sd, summary.max) == (2.1e6, 1.5e6, 16e6)


def test_wrk2_is_in_milliseconds_and_ends_where_its_report_goes_on(tmp_path):
    text = "Running 10s test\n  Detailed Percentile spectrum:\n" + HGRM + "-----\n  99 requests\n"
    run = brought(tmp_path, {"wrk.txt": text})
    assert bins_of(run)[-1]["high_ns"] == 16e6
    assert run.manifest["provenance"][0]["unit"] == "ms"


def test_failures_below_the_spectrum_of_wrk2_are_counted(tmp_path):
    """Half of 198 requests failed; the spectrum has the 99 after the calibration."""
    text = (
        "Running 10s test\n  Detailed Percentile spectrum:\n" + HGRM + "-----\n"
        "  198 requests in 10.00s, 1.2MB read\n"
        "  Socket errors: connect 0, read 1, write 0, timeout 2\n"
        "  Non-2xx or 3xx responses: 99\n"
    )
    run = brought(tmp_path, {"wrk.txt": text})
    n = sum(it["count"] for it in bins_of(brought(_made(tmp_path), {"plain.txt": WRK2_PLAIN})))
    found = bins_of(run)
    failed = sum(it["count"] for it in found if np.isinf(it["high_ns"]))
    # a timeout of wrk2 is two seconds of a connection, and no request
    assert failed == pytest.approx(n * (0.5 + 1 / 198))
    assert any("reports timeouts" in it for it in run.missing)
    assert sum(it["count"] for it in found) - failed == pytest.approx(n / 2)
    assert any("each bin loses the same share" in it for it in run.missing)


WRK2_PLAIN = "Running 10s test\n  Detailed Percentile spectrum:\n" + HGRM


def _made(folder):
    (folder / "plain").mkdir()
    return folder / "plain"


def test_cassandra_stress_keeps_its_mean_its_maximum_and_its_stalls(shared_data, tmp_path):
    path = shared_data / "foreign" / "cassandra_stress_read_100k.csv"
    run = unruly.open_run(import_files([str(path)], tmp_path / "run", Options()).directory)
    found = unruly.analyse(run).cell("total")
    assert found.n == 100_000
    assert found.max == pytest.approx(290.9e6)
    assert found.mean == pytest.approx(1.2e6, rel=0.1)
    assert found.edges["p50"][0] >= 1.0e6
    assert found.edges["p50"][1] <= 1.3e6
    assert found.p99 is not None
    assert found.p50 is not None


def test_rows_of_two_runs_of_cassandra_stress_in_one_file_are_refused(shared_data, tmp_path):
    path = shared_data / "foreign" / "cassandra_stress_read_100k.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    with pytest.raises(IngestError, match="two runs in one file"):
        brought(tmp_path, {"twice.csv": "\n".join([*lines, *lines[1:]])})


def test_errors_and_collections_of_cassandra_stress_are_kept(tmp_path):
    head = (
        "type,       total ops,    op/s,    pk/s,   row/s,    mean,     med,     .95,     .99,    "
        ".999,     max,   time,   stderr, errors,  gc: #,  max ms,  sum ms,  sdv ms,      mb\n"
    )
    rows = [
        "total,   1000, 1000, 1000, 1000, 1.0, 0.9, 2.0, 3.0, 4.0, 5.0, 1.0, 0.1, 0, 0, 0, 0, 0, 0",
        "total,   2000, 1000, 1000, 1000, 1.0, 0.9, 2.0, 3.0, 4.0, 9.0, 2.0, 0.1, 7, 1, 6, 6, 0, 9",
        "total,   3000, 1000, 1000, 1000, 1.0, 0.9, 2.0, 3.0, 4.0, 9.0, 3.0, 0.1, 5, 0, 0, 0, 0, 0",
    ]
    run = brought(tmp_path, {"stress.log": head + "\n".join(rows)})
    failed = [it for it in bins_of(run) if np.isinf(it["high_ns"])]
    # the total counts from the start, and the errors of each second by themselves
    assert [it["count"] for it in failed] == [7, 5]
    (pause,) = run.events.to_pyarrow().to_pylist()
    assert pause["ended_ns"] - pause["started_ns"] == 6_000_000


def test_the_sum_of_several_operations_counts_nothing_twice(tmp_path):
    head = "type,total ops,op/s,mean,med,.95,.99,.999,max,time\n"
    rows = [
        f"{op},{n},1,1.0,0.9,2.0,3.0,4.0,5.0,1.0\n"
        for op, n in (("READ", 600), ("WRITE", 400), ("total", 1_000))
    ]
    run = brought(tmp_path, {"stress.log": head + "".join(rows)})
    assert {it["op"] for it in bins_of(run)} == {"READ", "WRITE"}
    assert unruly.analyse(run).worked.requests == 1_000


def test_histostat_gives_each_tag_its_interval_count_and_extremes(shared_data, tmp_path):
    path = shared_data / "foreign" / "histostat.csv"
    run = unruly.open_run(import_files([str(path)], tmp_path / "run", Options()).directory)
    found = unruly.analyse(run).cell("initialize.tokenfiller")
    assert found.n == 2028 + 4614 + 4452
    assert (found.min, found.max) == (1_011_200, 28_835_839)
    assert found.edges["p50"][0] >= 1_059_839
    assert found.promise_p99 is None
    assert "pieces" in found.absent["p99_interval"]


def test_fortio_bins_are_in_seconds_and_its_errors_failed(tmp_path):
    told = {
        "Labels": "a",
        "StartTime": "2024-01-02T03:04:05.123456789Z",
        "ActualQPS": 10.0,
        "ActualDuration": 2_000_000_000,
        "DurationHistogram": {
            "Count": 100, "Min": 0.001, "Max": 0.02, "Sum": 0.3, "Avg": 0.003, "StdDev": 0.001,
            "Data": [
                {"Start": 0.001, "End": 0.002, "Percent": 60, "Count": 60},
                {"Start": 0.002, "End": 0.02, "Percent": 100, "Count": 40},
            ],
        },
        "ErrorsDurationHistogram": {"Count": 10},
        "RetCodes": {"200": 90, "500": 10},
    }  # fmt: skip
    run = brought(tmp_path, {"f.json": json.dumps(told)})
    found = bins_of(run)
    assert sum(it["count"] for it in found) == pytest.approx(100)
    assert found[0]["high_ns"] == pytest.approx(2e6)
    assert found[0]["ended_ns"] - found[0]["started_ns"] == 2 * SECOND
    summary = unruly.analyse(run).cell("request")
    assert summary.failed == 10
    assert summary.mean_ok == pytest.approx(3e6)


def memtier(log):
    return json.dumps(
        {
            "configuration": {},
            "ALL STATS": {
                "Runtime": {"Start time": 1_700_000_000_000, "Finish time": 1_700_000_010_000},
                "Sets": {"Count": 0, "Ops/sec": 0.0},
                "Gets": {
                    "Count": 100,
                    "Ops/sec": 10.0,
                    "Average Latency": 1.5,
                    "Min Latency": 0.5,
                    "Max Latency": 9.0,
                    "Percentile Latencies": {"p50.00": 1.0, "p99.00": 5.0, **log},
                },
                "Totals": {"Count": 100, "Ops/sec": 10.0},
            },
        }
    )


def test_memtier_histograms_are_in_microseconds_and_without_them_its_percentiles_serve(tmp_path):
    text = encode(np.array([500, 1500]), np.array([60, 40]), digits=3, highest=10**6)
    log = {"Histogram log format": {"Compressed Histogram": text}}
    found = bins_of(brought(tmp_path, {"m.json": memtier(log)}))
    assert [(it["op"], it["low_ns"], it["count"]) for it in found] == [
        ("get", 500_000, 60),
        ("get", 1_500_000, 40),
    ]
    (tmp_path / "b").mkdir()
    found = bins_of(brought(tmp_path / "b", {"m.json": memtier({})}))
    assert [(it["low_ns"] / 1e6, it["high_ns"] / 1e6, it["count"]) for it in found] == [
        (0.5, 1, 50),
        (1, 5, 49),
        (5, 9, 1),
    ]


def test_latte_reports_each_cycle_once_in_nanoseconds(tmp_path):
    text = encode(np.array([1000]), np.array([7]), digits=3, highest=10**12)
    told = {
        "conf": {},
        "result": {
            "start_time": "2024-01-02T03:04:05+00:00",
            "elapsed_time_s": 5.0,
            "cycle_count": 7,
            "cycle_latency": {"mean": {}, "percentiles": [], "histogram": text},
            "request_latency": {"histogram": text},
        },
    }
    run = brought(tmp_path, {"l.json": json.dumps(told)})
    assert {it["op"] for it in bins_of(run)} == {"cycle"}
    assert any("execution" in sentence for sentence in run.missing)
    assert any("request_latency has the same time" in sentence for sentence in run.missing)
    told["result"]["cycle_latency_by_fn"] = {"read": {"histogram": text}}
    run = brought(_made(tmp_path), {"l.json": json.dumps(told)})
    assert {it["op"] for it in bins_of(run)} == {"read"}


@pytest.mark.parametrize(
    "text",
    [
        '{"ALL STATS": {"Gets": {"Count": 5, "Ops/sec": 1}}}',
        '{"ALL STATS": 3, "Ops/sec": 1}',
        '{"DurationHistogram": {}, "Percent": 1}',
        '{"DurationHistogram": {"Data": [{"Start": 1}]}, "Percent": 1}',
        '{"result": {}, "cycle_latency": 1}',
        '{"result": {"cycle_latency": {"histogram": "HISTnonsense"}}, "cycle_count": 1}',
        '{"ALL STATS": {"Ops/sec": ',
        HGRM.split("\n", maxsplit=1)[0],
    ],
)
def test_a_document_without_what_it_should_hold_is_an_error(text, tmp_path):
    with pytest.raises(IngestError) as refused:
        brought(tmp_path, {"x": text}, unit=None)
    assert "hint: " in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_segments_hold_what_the_contract_says(tmp_path):
    run = brought(tmp_path, {"a.hgrm": HGRM}, unit="ms")
    (path,) = (Path(run.path) / "histograms").glob("*.parquet")
    assert pq.read_metadata(path).metadata[b"unruly.table"] == b"histograms"
