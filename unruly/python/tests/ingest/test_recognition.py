"""Which format a file is in: alone, beside other files, and when the user names one."""

from __future__ import annotations

import io
import zipfile

import pytest

from unruly import IngestError, ParameterError
from unruly.__main__ import main
from unruly.ingest.formats import FORMATS, listed

TABLE = "ts,took,latency_ms\n" + "".join(
    f"2026-11-29T04:10:{place:02}Z,{place},{place + 1}\n" for place in range(60)
)
GC = (
    "[2026-11-29T04:10:35.100+0000] GC(0) Pause Young (Normal) (G1 Evacuation Pause) "
    "24M->4M(256M) 5.120ms\n"
)
VEGETA = "1795925435000000000,200,1500000,0,0,,,a,1,GET,http://h/,\n" * 3


def formats(made):
    return {it["name"]: it["format"] for it in made.manifest["provenance"]}


def test_the_column_of_a_table_leaves_the_file_beside_it_alone(bring):
    made = bring(TABLE, GC, names=("table", "gc"), value="took", unit="us")
    assert formats(made) == {"table": "csv", "gc": "jvm-gc"}
    assert made.rows("max(received_ns - sent_ns)") == [(59_000,)]
    assert made.rows("count(*)", "events") == [(1,)]
    # a file of requests that has no such column is read as what it is
    made = bring(TABLE, VEGETA, names=("table", "other"), value="took", unit="us")
    assert formats(made) == {"table": "csv", "other": "vegeta-csv"}
    # alone, the flag decides
    with pytest.raises(IngestError, match="no column 'took' for --value"):
        bring(VEGETA, value="took", unit="us")


def test_the_name_of_a_format_leaves_a_log_of_events_beside_it_alone(bring):
    made = bring(TABLE, GC, names=("table", "gc"), format="csv", value="took", unit="us")
    assert formats(made) == {"table": "csv", "gc": "jvm-gc"}
    made = bring(VEGETA, GC, names=("a", "gc"), format="vegeta-csv")
    assert formats(made) == {"a": "vegeta-csv", "gc": "jvm-gc"}


def test_the_formats_are_listed_a_line_each(capsys):
    assert main(["import", "--formats"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(it.name for it in FORMATS)
    assert "jmeter-csv        JMeter results (JTL) as CSV" in lines
    assert max(map(len, listed().splitlines())) <= 100


def test_a_name_that_is_no_format_is_an_error_with_the_nearest(bring):
    with pytest.raises(ParameterError, match=r"--format jmeter-csv; unruly import --formats"):
        bring(TABLE, format="jmetr")


def test_an_import_without_a_file_is_an_error(capsys):
    assert main(["import", "-o", "run"]) == 2
    assert "names no file" in capsys.readouterr().err


def zipped(*names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in names:
            archive.writestr(name, text)
    return file.getvalue()


@pytest.mark.parametrize(
    ("parts", "hint"),
    [
        ([("[Content_Types].xml", "<x/>"), ("xl/workbook.xml", "<x/>")], "save the sheet as CSV"),
        ([("mimetype", "application/vnd.oasis.opendocument.spreadsheet")], "save the sheet as CSV"),
        ([("log.csv", TABLE)], "unzip it first"),
    ],
    ids=["xlsx", "ods", "zip"],
)
def test_an_archive_is_refused_with_the_next_step(bring, parts, hint):
    with pytest.raises(IngestError) as raised:
        bring(zipped(*parts))
    assert hint in raised.value.hint
