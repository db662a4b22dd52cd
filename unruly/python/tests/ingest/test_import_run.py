"""The run that an import makes: whole or nothing, counted, with where it came from."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unruly
from unruly import IngestError, ParameterError, checksum
from unruly.__main__ import main
from unruly.ingest import Options, import_files
from unruly.ingest import writer as writing
from unruly.ingest.columns import ARROW
from unruly.ingest.formats import FORMATS
from unruly.ingest.model import Events, Figures, Format, Histograms, Requests, Resources, Spans
from unruly.tables.columns import TABLES

ROWS = "latency_ms\n" + "".join(f"{1 + number % 7}\n" for number in range(200))
MS = 1_000_000


def test_the_run_opens_and_its_verdict_says_what_it_is(bring):
    made = bring(ROWS, tag="laptop")
    run = unruly.open_run(made.path)
    assert (run.status, run.tag, run.name) == ("imported", "laptop", "file-0")
    analysis = unruly.analyse(run)
    assert analysis.conservation.checked
    assert analysis.trustworthy
    text = unruly.verdict(analysis)
    assert "file-0 [laptop], imported, " in text
    assert "! missing: the source has no times" in text
    assert "service" not in text.split("p99/mean")[1].split("\n\n")[0], "both latencies are one"
    codes = [finding.code for finding in analysis.findings]
    assert "times-made-up" in codes
    assert "kernel-stamps-missing" not in codes
    assert analysis.blind_spot == []
    assert analysis.self_distrust.send_lag_ns == {}, "no schedule: no lag, and not a lag of 0"


def test_a_promise_on_made_up_times_says_what_it_rests_on(bring):
    """What would be said of stalls and of time in a run is not said here."""
    text = "latency_ms\n" + "".join(f"{1 + number * 37 % 101}\n" for number in range(20_000))
    analysis = unruly.analyse(unruly.open_run(bring(text).path))
    assert analysis.cell("latency_ms").promise_p99 is not None
    words = " ".join(unruly.verdict(analysis).split())
    assert "if the order of the rows is that of time" in words
    assert "nothing is known of what happens less often" not in words


def test_a_sorted_file_without_times_has_no_drift(bring):
    text = "latency_ms\n" + "".join(f"{1 + number / 100}\n" for number in range(20_000))
    analysis = unruly.analyse(unruly.open_run(bring(text).path))
    codes = [finding.code for finding in analysis.findings]
    assert "times-made-up" in codes
    assert "drift" not in codes
    step = analysis.cell("latency_ms").ladder.step("p50")
    assert (step.abstained, step.needed_ns) == ("short", None)
    assert "as in a sorted file" in " ".join(unruly.verdict(analysis).split())


def test_a_run_with_times_is_as_blind_as_any(bring):
    rows = "".join(f"{1_700_000_000 + n},{1 + n * 37 % 101}\n" for n in range(20_000))
    made = bring("time,latency_ms\n" + rows, time_unit="s")
    analysis = unruly.analyse(unruly.open_run(made.path))
    assert len(analysis.blind_spot) == 1
    assert "times-made-up" not in [finding.code for finding in analysis.findings]


def test_the_manifest_says_where_the_rows_came_from(bring):
    made = bring(ROWS, names=["a b.csv"])
    data = ROWS.encode()
    assert made.manifest["provenance"] == [
        {
            "name": "a b.csv",
            "cell": "all",
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "format": "csv",
            "unit": "ms",
            "lines": 200,
            "refused": 0,
            "first_refused": [],
        }
    ]
    assert made.manifest["status"] == "imported"
    assert made.manifest["hosts"] == []
    assert str(made.path.parent) not in json.dumps(made.manifest)


def test_counts_hold_and_a_lost_row_is_noticed(bring):
    made = bring(ROWS)
    counts = made.manifest["counts"]
    assert counts["copies"]["scheduled"] == counts["copies"]["recorded"] == 200
    assert counts["requests"] == {"scheduled": 200, "answered": 200, "unanswered": 0}
    segment = next((made.path / "requests").glob("*.parquet"))
    footer = pq.read_metadata(segment).metadata
    table = pq.read_table(segment).replace_schema_metadata(footer)
    pq.write_table(table.slice(1), segment)
    checksum.seal(segment)
    with pytest.raises(unruly.TraceError, match="copies recorded are 200 but the rows in"):
        unruly.analyse(unruly.open_run(made.path))


def test_segments_are_of_the_schema_and_hold_at_most_a_million_rows(bring, monkeypatch):
    monkeypatch.setattr(writing, "SEGMENT_ROWS", 250)
    monkeypatch.setattr(writing, "GROUP_ROWS", 60)
    made = bring("latency_ms\n" + "".join(f"{n}\n" for n in range(1_000)))
    files = sorted((made.path / "requests").glob("*.parquet"))
    assert [pq.read_metadata(file).num_rows for file in files] == [250, 250, 250, 250]
    for file in files:
        schema = pq.read_schema(file)
        assert schema.names == [name for name, _, _ in TABLES["requests"]]
        assert [field.nullable for field in schema] == [not it for _, _, it in TABLES["requests"]]
        assert [field.type for field in schema] == [ARROW[it] for _, it, _ in TABLES["requests"]]
        metadata = pq.read_metadata(file).metadata
        footer = {k.decode(): v.decode() for k, v in metadata.items() if b"unruly" in k}
        assert footer["unruly.rows"] == "250"
        assert footer["unruly.run"] == made.manifest["run"]
        assert footer["unruly.table"] == "requests"
    assert [row[0] for row in made.rows("(received_ns - sent_ns) // 1000000")] == list(range(1_000))
    assert [row[0] for row in made.rows("request")] == list(range(1_000))


def test_a_tag_is_refused_beside_a_run_that_has_one(tmp_path):
    with pytest.raises(ParameterError, match="tag: is of a new run"):
        unruly.import_file(tmp_path / "gc.log", tmp_path / "run", into=True, tag="night")


def test_a_failed_import_leaves_nothing_behind(tmp_path):
    (tmp_path / "x").write_text(ROWS + "bad\n" * 100)
    with pytest.raises(IngestError, match="cannot be read"):
        import_files([str(tmp_path / "x")], tmp_path / "run", Options())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x"]


def test_an_interrupted_import_leaves_nothing_behind(tmp_path, monkeypatch):
    (tmp_path / "x").write_text(ROWS)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(writing.RunWriter, "finish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        import_files([str(tmp_path / "x")], tmp_path / "run", Options())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x"]


def test_a_run_is_not_written_over(bring, tmp_path):
    made = bring(ROWS)
    (tmp_path / "x").write_text(ROWS)
    before = (made.path / "manifest.json").read_bytes()
    with pytest.raises(IngestError, match="holds a run already; a new directory"):
        import_files([str(tmp_path / "x")], made.path, Options())
    assert (made.path / "manifest.json").read_bytes() == before
    with pytest.raises(IngestError, match="is there already and is not empty"):
        import_files([str(tmp_path / "x")], tmp_path, Options())
    (tmp_path / "empty").mkdir()
    import_files([str(tmp_path / "x")], tmp_path / "empty", Options())
    assert unruly.open_run(tmp_path / "empty").status == "imported"


def test_several_files_are_cells_and_are_not_mixed(bring):
    jtl = "timeStamp,elapsed,label\n1532376558110,5,home\n"
    made = bring(ROWS, jtl, names=["a.csv", "b.jtl"])
    assert made.rows("cell, process, count(*)", where="true group by all order by cell") == [
        ("file=a.csv", "a.csv", 200),
        ("file=b.jtl", "b.jtl", 1),
    ]
    assert [cell["factors"] for cell in made.manifest["cells"]] == [
        {"file": "a.csv"},
        {"file": "b.jtl"},
    ]
    assert made.manifest["timeless"] == ["file=a.csv"]
    assert any(sentence.startswith("a.csv: the source has no times") for sentence in made.missing)
    assert [it["format"] for it in made.manifest["provenance"]] == ["csv", "jmeter-csv"]


def test_two_files_of_one_name_stay_two(tmp_path):
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "x.csv").write_text(ROWS)
    paths = [str(tmp_path / place / "x.csv") for place in ("a", "b")]
    import_files(paths, tmp_path / "run", Options())
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert [cell["name"] for cell in manifest["cells"]] == ["file=x.csv", "file=x.csv#2"]
    with pytest.raises(IngestError, match="is named twice"):
        import_files([paths[0], paths[0]], tmp_path / "other", Options())


@pytest.mark.parametrize("kind", ["gz", "zst", "bz2", "xz"])
def test_a_compressed_file_is_known_by_its_content(bring, kind):
    import bz2
    import lzma

    data = {
        "gz": gzip.compress,
        "zst": lambda text: pa.compress(text, "zstd", asbytes=True),
        "bz2": bz2.compress,
        "xz": lzma.compress,
    }[kind](ROWS.encode())
    made = bring(data, names=["plain.txt"])
    assert made.file["lines"] == 200
    assert made.file["bytes"] == len(data)
    assert made.file["sha256"] == hashlib.sha256(data).hexdigest()


def test_a_compressed_file_that_is_cut_off_is_an_error(bring):
    numbers = np.random.default_rng(1).integers(0, 10**9, 50_000)
    data = gzip.compress("\n".join(["latency_ns", *map(str, numbers)]).encode())
    with pytest.raises(IngestError, match=r"cannot be read: .*; a whole file"):
        bring(data[: len(data) // 2])


def test_a_zip_archive_is_said_to_be_one(bring):
    with pytest.raises(IngestError, match="is a zip archive"):
        bring(b"PK\x03\x04" + bytes(100))


def test_a_directory_a_missing_file_and_an_empty_one_are_said(tmp_path, bring):
    with pytest.raises(IngestError, match="is a directory; files"):
        import_files([str(tmp_path)], tmp_path / "run", Options())
    with pytest.raises(IngestError, match="no such file"):
        import_files([str(tmp_path / "none")], tmp_path / "run", Options())
    for nothing in ("", "\n\n  \n", "\ufeff"):
        with pytest.raises(IngestError, match="is empty"):
            bring(nothing)


def test_a_pipe_is_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    thread = threading.Thread(target=pipe.write_text, args=(ROWS,))
    thread.start()
    done = import_files([str(pipe)], tmp_path / "run", Options())
    thread.join()
    assert done.rows == {"requests": 200}


def test_standard_input_is_read(tmp_path):
    words = [sys.executable, "-m", "unruly", "import", "-", "-o", str(tmp_path / "run")]
    done = subprocess.run(
        words,
        input=ROWS.encode(),
        capture_output=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(unruly.__file__).parents[1])},
    )
    said = done.stdout.decode()
    assert said.startswith("stdin: csv in ms, 200 read, 0 refused\n")
    assert said.endswith(
        f"imported csv: 200 requests, 0 lines refused; next: unruly report {tmp_path / 'run'}\n"
    )
    assert done.stderr == b""


def test_the_verb_ends_with_2_and_one_line_after_an_error(tmp_path, capsys):
    assert main(["import", str(tmp_path / "none"), "-o", str(tmp_path / "run")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("unruly: ")
    assert said.err.count("\n") == 1


def test_zero_bytes_and_endless_lines_are_counted_and_keep_the_numbers_right(bring):
    lines = [f"{number}" for number in range(1_000)]
    lines[10] = "5\0\0\0"
    lines[500] = "9" * 1_500_000
    lines[600] = "x"
    made = bring("latency_ms\n" + "\n".join(lines) + "\n")
    assert made.file["lines"] == 1_000
    assert {(it["line"], it["reason"].split(":")[0]) for it in made.file["first_refused"]} == {
        (12, "holds zero bytes"),
        (502, "longer than 1,048,576 bytes"),
        (602, "latency_ms is 'x'"),
    }
    assert made.rows("count(*)") == [(997,)]


def test_bytes_that_are_no_utf_8_are_replaced_and_said(bring):
    made = bring(b"latency_ms,op\n1,caf\xe9\n2,tea\n", op="op")
    assert made.rows("op") == [("caf\ufffd",), ("tea",)]
    assert "some bytes of the file are no UTF-8 and were replaced" in made.missing


def _gives(monkeypatch, batches, gives="latencies", mark=b"made up"):
    """A format of its own that yields these batches."""
    made = Format(
        f"test-{gives}", "", gives, ("x",), lambda sample: sample.head.startswith(mark),
        lambda *_: iter(batches),
    )  # fmt: skip
    known = (*FORMATS[:-1], made, FORMATS[-1])
    monkeypatch.setattr("unruly.ingest.formats.FORMATS", known)
    monkeypatch.setattr("unruly.ingest.formats.recognise.__defaults__", (known,))


def test_histograms_figures_and_spans_are_written_as_given(bring, monkeypatch):
    batches = [
        Histograms("read", 0, 10**9, [1e6, 2e6, float("inf")], [1e6, 3e6, float("inf")],
                   [5, 2.5, 1]),
        Figures("read", {"n": 9, "max_ns": 3_000_001}),
        Requests(duration_ns=[5 * MS, None], started_ns=[10, 20], status=["ok", "timeout"],
                 intended_ns=[3, 4], request=[7, 8]),
        Spans(request=[7], layer="handler", started_ns=[12], ended_ns=[13]),
    ]  # fmt: skip
    _gives(monkeypatch, batches)
    made = bring("made up\n")
    assert made.rows("op, started_ns, ended_ns, low_ns, high_ns, count", "histograms") == [
        ("read", 0, 10**9, 1e6, 1e6, 5.0),
        ("read", 0, 10**9, 2e6, 3e6, 2.5),
        ("read", 0, 10**9, float("inf"), float("inf"), 1.0),
    ]
    assert made.rows("request, layer", "spans") == [(7, "handler")]
    assert made.rows("request, intended_ns, sent_ns, received_ns, answered") == [
        (7, 3, 10, 10 + 5 * MS, True),
        (8, 4, 20, None, False),
    ]
    figures = {it["op"]: it for it in made.manifest["imported"]}
    assert figures["read"] == {"cell": "all", "op": "read", "n": 9, "max_ns": 3_000_001}
    assert figures["request"]["failed"] == 1
    assert made.missing == []
    assert unruly.open_run(made.path).segments["histograms"] == 1


def test_events_and_resources_lie_beside_the_cells_of_their_time(bring, monkeypatch):
    batches = [
        Events("gc", [5 * 10**9, 205 * 10**9], [6 * 10**9, None], ["young", None]),
        Resources([5 * 10**9], [6 * 10**9], {"cpu_user_share": [0.5]}),
    ]
    _gives(monkeypatch, batches, "context")
    early = "time [s],latency_ms\n" + "".join(f"{n},1\n" for n in range(10))
    late = "time [s],latency_ms\n" + "".join(f"{n},1\n" for n in range(200, 210))
    alone = bring("made up\n", early, names=["gc", "x"])
    assert alone.rows("cell, kind, detail, started_ns", "events") == [
        ("all", "gc", "young", 5 * 10**9),
        ("all", "gc", None, 205 * 10**9),
    ]
    both = bring("made up\n", early, late, names=["gc", "x", "y"])
    assert set(both.rows("cell, started_ns", "events")) == {
        (cell, at) for cell in ("file=x", "file=y") for at in (5 * 10**9, 205 * 10**9)
    }
    assert both.rows("cell, cpu_user_share, cpu_steal_share", "resources") == [
        ("file=x", 0.5, None)
    ]


def test_events_beside_no_latency_are_kept_and_said(bring, monkeypatch):
    _gives(monkeypatch, [Events("gc", [900 * 10**9])], "context")
    made = bring("made up\n", "time [s],latency_ms\n1,1\n2,1\n", names=["gc", "x"])
    assert made.rows("cell, kind", "events") == [("all", "gc")]
    assert "gc: part of its times overlap none of the latencies" in made.missing


def test_progress_is_said_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr("unruly.ingest.importer.TELL_SECONDS", -1.0)
    (tmp_path / "x").write_text(ROWS)
    told = []
    import_files([str(tmp_path / "x")], tmp_path / "run", Options(), told.append)
    assert told[0].startswith("x: 200 rows")


def test_the_output_of_the_verb_goes_where_it_is_told(tmp_path, capsys):
    (tmp_path / "x").write_text("latency_ms\n" + "1\n" * 200 + "y\n")
    assert main(["import", str(tmp_path / "x"), "-o", str(tmp_path / "a" / "run")]) == 0
    said = io.StringIO(capsys.readouterr().out).readlines()
    assert said[0] == "x: csv in ms, 201 read, 1 refused\n"
    assert said[1] == "  line 202: latency_ms is 'y': no number\n"
    assert (tmp_path / "a" / "run" / "manifest.json").is_file()
