"""Files made to break an importer: they are refused in words, in bounded memory and time."""

from __future__ import annotations

import base64
import gzip
import json
import resource
import struct
import subprocess
import sys
import zlib

import pytest

from unruly import IngestError
from unruly.ingest import Options, import_files
from unruly.ingest.hdr import decode, encode

MEMORY_BYTES = 1_500 << 20
"""Of the address space: the libraries alone map several hundred MB of it."""
CPU_SECONDS = 60


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))


def imported(path, *flags):
    """What the program says of a file, in bounded memory and time."""
    return subprocess.run(
        [sys.executable, "-m", "unruly", "import", path, "-o", path.with_suffix(".run"), *flags],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limited,
    )


def refused(said):
    """The one sentence of a refusal."""
    assert said.returncode == 2, said.stderr
    (line,) = [it for it in said.stderr.splitlines() if "hint" in it]
    assert "Traceback" not in said.stderr
    return line


def test_a_run_of_zeros_in_a_histogram_takes_no_memory():
    runs = b"".join(varint(-(1 << 20)) for _ in range(60))
    body = runs + varint(1)
    header = struct.pack(">iiiiqqd", 0x1C849303 | 0x10, len(body), 0, 3, 1, 1 << 40, 1.0)
    packed = zlib.compress(header + body)
    text = base64.b64encode(struct.pack(">ii", 0x1C849304 | 0x10, len(packed)) + packed).decode()
    with pytest.raises(IngestError, match=r"more than \d+ buckets"):
        decode(text)
    import tracemalloc

    tracemalloc.start()
    try:
        with pytest.raises(IngestError):
            decode(text)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_histogram_that_inflates_to_fill_memory_is_refused():
    body = varint(1) * (6 << 20)
    header = struct.pack(">iiiiqqd", 0x1C849303 | 0x10, len(body), 0, 5, 1, 1 << 62, 1.0)
    packed = zlib.compress(header + body, 9)
    text = base64.b64encode(struct.pack(">ii", 0x1C849304 | 0x10, len(packed)) + packed).decode()
    assert len(text) < 10_000
    with pytest.raises(IngestError, match="inflates to more than"):
        decode(text)


def varint(number):
    value = ((number << 1) ^ (number >> 63)) & ((1 << 64) - 1)
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    return bytes([*out, value])


def test_a_histogram_comes_back_as_it_was_written():
    import numpy as np

    place, count = np.array([3, 5, 2_000, 40_000]), np.array([1, 7, 2, 9])
    found = decode(encode(place, count, digits=3, highest=1 << 40))
    assert found.count.tolist() == count.tolist()
    assert found.low.tolist()[:2] == [3.0, 5.0]


def fortio(parts):
    return {
        "StartTime": "2026-01-01T00:00:00Z",
        "ActualDuration": 1_000_000_000,
        "DurationHistogram": {
            "Count": 10,
            "Min": 0.001,
            "Max": 0.002,
            "Avg": 0.0015,
            "StdDev": 0.0001,
            "Data": parts,
            "Percentiles": [{"Percentile": 50, "Value": 0.0015}],
        },
    }


PART = {"Start": 0.001, "End": 0.002, "Percent": 100, "Count": 10}


@pytest.mark.slow
def test_a_document_that_inflates_to_fill_memory_is_refused(tmp_path):
    path = tmp_path / "fortio.json.gz"
    text = json.dumps(fortio([PART])).replace("[{", "[" + json.dumps(PART) + ",", 1)
    bomb = text[:-3] + " " * (200 << 20) + text[-3:]
    path.write_bytes(gzip.compress(bomb.encode(), 9))
    said = refused(imported(path, "--format", "fortio"))
    assert "inflates to more than 50 times its size" in said


@pytest.mark.slow
def test_an_element_that_does_not_end_is_refused(tmp_path):
    path = tmp_path / "results.jtl.gz"
    head = b'<?xml version="1.0"?><testResults version="1.2"><sample t="1" ts="1" lb="'
    with gzip.open(path, "wb", 1) as file:
        file.write(head)
        for _ in range(400):
            file.write(b"a" * (1 << 20))
        file.write(b'"/></testResults>')
    said = refused(imported(path))
    assert "has an element of more than 8 MiB" in said


@pytest.mark.slow
def test_elements_without_end_in_each_other_are_refused(tmp_path):
    path = tmp_path / "results.jtl.gz"
    with gzip.open(path, "wb", 9) as file:
        file.write(b'<?xml version="1.0"?><testResults version="1.2"><sample t="1" ts="1" lb="a"/>')
        for _ in range(40):
            file.write(b"<a>" * (1 << 20))
    said = refused(imported(path))
    assert "has elements 100 deep" in said


@pytest.mark.slow
def test_an_object_of_endless_values_is_refused(tmp_path):
    path = tmp_path / "spans.json.gz"
    span = {"traceId": "1", "id": "b", "name": "q", "timestamp": 1, "duration": 5}
    with gzip.open(path, "wb", 9) as file:
        file.write(json.dumps([span])[:-2].encode() + b', "tags": [')
        for _ in range(100):
            file.write(b"1," * (1 << 20))
        file.write(b"1]}]")
    said = refused(imported(path, "--format", "zipkin"))
    assert "more than 1,000,000 values" in said


@pytest.mark.parametrize("code", ['" 500"', "", "-1", "0500", "3e9"])
def test_a_status_that_is_none_is_refused_and_never_taken_for_success(tmp_path, code):
    path = tmp_path / "oha.csv"
    head = "request-start,DNS,DNS+dialup,Response-delay,request-duration,bytes,status\n"
    rows = (f"{number / 100},0,0,0.001,0.002,7,200\n" for number in range(300))
    path.write_text(head + "".join(rows) + f"4.0,0,0,0.001,0.002,7,{code}\n")
    made = import_files([str(path)], tmp_path / "run", Options(format="oha"))
    assert [it["refused"] for it in made.files] == [1]


HISTOSTAT = (
    "#logging interval histograms for session a\n#[TimeUnit: NANOSECONDS]\n"
    "#Tag,Interval_Start,Interval_Length,count,min,p25,p50,p75,p90,p95,p98,p99,p999,p9999,max\n"
)
SECOND = "Tag=read,{second},1.0,{count},1,2,3,4,5,6,7,8,9,10,{most}\n"


@pytest.mark.parametrize("row", [
    SECOND.format(second="inf", count=5, most=11), SECOND.format(second=1, count=5, most="1e300"),
    SECOND.format(second=1, count=-3, most=11), SECOND.format(second=1, count=10**30, most=11),
    "Tag=" + "x" * 200_000 + "\n",
])  # fmt: skip
def test_a_bad_line_of_histostat_costs_itself(tmp_path, row):
    path = tmp_path / "histo.csv"
    good = "".join(SECOND.format(second=number, count=5, most=11) for number in range(200))
    path.write_text(HISTOSTAT + good + row)
    made = import_files([str(path)], tmp_path / "run", Options(format="histostat"))
    assert [it["refused"] for it in made.files] == [1]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("memtier", json.dumps({"configuration": {}, "ALL STATS": {"Runtime": [], "Gets": 7}})),
        ("molotov", json.dumps({"OK": {"x": []}, "FAILED": None})),
        ("k6-json", json.dumps({"type": "Point", "metric": "http_req_duration", "data": 7})),
        ("dstat", '"pcp-dstat","CSV"\n' + '"' + "x" * 200_000 + "\n"),
        ("sar", json.dumps({"sysstat": {"hosts": [{"statistics": [{"timestamp": {}}]}]}})),
        ("oha", json.dumps({"summary": [], "latencyPercentiles": {"p50": "x"}})),
        ("latte", json.dumps({"conf": {}, "result": {"cycle_latency": {"percentiles": "x"}}})),
    ],
)
def test_a_file_of_another_shape_is_a_refusal_and_no_crash(tmp_path, form, text):
    path = tmp_path / "result.txt"
    path.write_text(text)
    with pytest.raises(IngestError):
        import_files([str(path)], tmp_path / "run", Options(format=form))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told["DurationHistogram"].pop("Count"),
        lambda told: told["DurationHistogram"].update(Count=None),
        lambda told: told["DurationHistogram"].update(Min=[1]),
        lambda told: told["DurationHistogram"].update(Data=[7]),
        lambda told: told["DurationHistogram"].update(Data=[PART | {"Count": 10**400}]),
        lambda told: told.update(ActualDuration=10**30),
        lambda told: told["DurationHistogram"].update(Data=[PART | {"Start": -1}]),
        lambda told: told["DurationHistogram"].update(Data=[PART | {"End": float("inf")}]),
        lambda told: told["DurationHistogram"].update(Data=[PART | {"Count": float("nan")}]),
        lambda told: told.update(ErrorsDurationHistogram={"Count": "x"}),
    ],
)
def test_a_field_of_another_type_is_a_refusal_and_no_crash(tmp_path, change):
    told = fortio([PART])
    change(told)
    path = tmp_path / "fortio.json"
    path.write_text(json.dumps(told))
    with pytest.raises(IngestError, match=r"fortio\.json: "):
        import_files([str(path)], tmp_path / "run", Options(format="fortio"))
    assert not (tmp_path / "run").exists()


def test_a_field_of_another_type_recognises_nothing_and_is_no_crash(tmp_path):
    path = tmp_path / "what.json"
    path.write_text(json.dumps({"type": ["request"], "ts": 1}))
    with pytest.raises(IngestError, match="no format known here"):
        import_files([str(path)], tmp_path / "run", Options())


def test_a_figure_that_is_no_finite_number_is_left_out_and_said(tmp_path):
    told = fortio([PART])
    told["DurationHistogram"]["StdDev"] = float("inf")
    path = tmp_path / "fortio.json"
    path.write_text(json.dumps(told))
    made = import_files([str(path)], tmp_path / "run", Options(format="fortio"))
    assert any("sd_ns of request is no finite number" in it for it in made.missing)
