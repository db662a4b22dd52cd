"""Plain tables: which column, which unit, which time; and what people do to CSV files."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unruly import IngestError
from unruly.ingest import Options, import_files
from unruly.ingest.sniff import sniff
from unruly.ingest.source import Sample

MS = 1_000_000
DURATIONS = "(received_ns - sent_ns)"


def durations(made):
    return [row[0] for row in made.rows(f"{DURATIONS} d")]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a,latency\n1,1.5\n2,2.5\n", {"unit": "ms"}),
        ("latency_ms\n1.5\n2.5\n", {}),
        ("latency [us]\n1500\n2500\n", {}),
        ("1.5\n2.5\n", {"unit": "ms"}),
        ("1.5\n2.5", {"unit": "ms"}),
        ("\ufeffa;v\r\n1;1,5\r\n2;2,5\r\n", {"value": "v", "unit": "ms"}),
        ("a\tv\t\n1\t1.5\t\n2\t2.5\t\n", {"value": "v", "unit": "ms"}),
        ("a,v\n1,1.5,\n2,2.5,\n", {"value": "v", "unit": "ms"}),
        ("# made by a tool\n# on Monday\n\na,v\n1,1.5\n2,2.5\n", {"value": "v", "unit": "ms"}),
        ("# a,v\n1,1.5\n2,2.5\n", {"value": "v", "unit": "ms"}),
        ("Results of the run\na,v\ntext,ms\n1,1.5\n2,2.5\n", {"value": "v", "unit": "ms"}),
        ('a,v\n"1, ""one""\nline",1.5\n2,"2.5"\n', {"value": "v", "unit": "ms"}),
        ("a,v\n1, 1.5 \n2,+2.5e0\n\n", {"value": "v", "unit": "ms"}),
        ("x|v\n1|1.5\n2|2.5\n", {"value": "v", "unit": "ms"}),
        ("7,1.5\n8,2.5\n", {"value": "2", "unit": "ms"}),
        ("v,v\n0,1.5\n0,2.5\n", {"value": "v.2", "unit": "ms"}),
        ("a,v\r1,1.5\r2,2.5\r", {"value": "v", "unit": "ms"}),
        ("a;v\n0,1;0.0015\n0,2;0.0025\n", {"value": "v", "unit": "s"}),
    ],
    ids=[
        "named", "unit-in-name", "unit-in-brackets", "bare-numbers", "no-final-newline",
        "semicolon-comma-bom-windows", "trailing-tab", "trailing-in-rows-only", "comments",
        "header-in-comment", "title-and-unit-rows", "quotes-with-newline", "blanks-and-signs",
        "bars", "no-header", "twice-the-name", "old-mac", "comma-elsewhere",
    ],
)  # fmt: skip
def test_a_table_is_read_however_it_is_laid_out(bring, text, options):
    made = bring(text, **options)
    assert durations(made) == [1_500_000, 2_500_000]
    assert made.file["lines"] == 2
    assert made.file["refused"] == 0
    assert made.file["format"] == "csv"


def test_utf_16_is_read_with_and_without_its_mark(bring):
    text = "zeit;wert\n2024-01-01 00:00:00;1,5\n2024-01-01 00:00:01;2,5\n"
    for data in (text.encode("utf-16"), text.encode("utf-16-le"), text.encode("utf-16-be")):
        made = bring(data, value="wert", time="zeit", unit="ms")
        assert durations(made) == [1_500_000, 2_500_000]


def test_a_unit_is_never_guessed(bring):
    with pytest.raises(IngestError, match=r"column 'v' does not say its unit; --unit ns, us, ms"):
        bring("a,v\n1,2\n", value="v")


def test_a_unit_that_the_name_contradicts_is_taken_and_said(bring):
    made = bring("latency_ms\n1\n2\n", unit="us")
    assert durations(made) == [1_000, 2_000]
    assert "column latency_ms is named as ms and was read as us, as asked" in made.missing


def test_a_column_that_is_not_there_is_an_error_with_the_nearest(bring):
    with pytest.raises(IngestError, match=r"no column 'latancy' for --value; one of t, latency"):
        bring("t,latency\n1,2\n", value="latancy", unit="ms")


def test_a_file_of_arrivals_has_no_latency_and_says_what_is_missing(shared_data, tmp_path):
    path = shared_data / "arrivals" / "AzureLLMInferenceTrace_conv.csv"
    with pytest.raises(IngestError) as error:
        import_files([str(path)], tmp_path / "run", Options(unit="ms"))
    assert "does not say which column holds latencies" in str(error.value)
    assert "--value with one of TIMESTAMP, ContextTokens, GeneratedTokens" in str(error.value)
    assert not (tmp_path / "run").exists()


def test_times_are_the_start_and_a_zone_is_kept(bring):
    made = bring("ts,latency_ms\n2024-01-01T02:00:00+02:00,5\n2024-01-01T00:00:01Z,6\n")
    midnight = 1_704_067_200_000_000_000
    assert made.rows("intended_ns, sent_ns, received_ns") == [
        (midnight, midnight, midnight + 5 * MS),
        (midnight + 10**9, midnight + 10**9, midnight + 10**9 + 6 * MS),
    ]
    assert not any("time zone" in sentence for sentence in made.missing)
    assert made.manifest["timeless"] == []


def test_a_time_without_a_zone_is_utc_and_said(bring):
    made = bring("date,latency_ms\n2023/11/16 18:15:46.6805901,5\n2023-11-16 18:15:47,5\n")
    assert made.rows("sent_ns")[0] == (1_700_158_546_680_590_100,)
    assert "its times name no time zone and were taken as UTC" in made.missing


def test_numeric_times_need_their_unit(bring):
    text = "time,latency_ms\n1700000000.123456789,5\n1700000001,5\n"
    with pytest.raises(
        IngestError, match=r"'time' holds numbers .* hint: --time-unit s, or --time"
    ):
        bring(text)
    made = bring(text, time_unit="s")
    assert made.rows("sent_ns") == [(1_700_000_000_123_456_789,), (1_700_000_001_000_000_000,)]
    assert bring(text, time="none").manifest["timeless"] == ["all"]


def test_two_columns_that_could_be_the_time_are_asked_for(bring):
    with pytest.raises(IngestError, match="several columns could be the time: start, time"):
        bring("start,time,latency_ms\n1,2,3\n")


def test_rows_without_a_time_are_laid_end_to_end_and_said(bring):
    made = bring("latency_ms\n3\n0\n5\n")
    assert made.rows("intended_ns, sent_ns, received_ns") == [
        (0, 0, 3 * MS),
        (3 * MS, 3 * MS, 3 * MS),
        (3 * MS, 3 * MS, 8 * MS),
    ]
    assert any("laid end to end" in sentence for sentence in made.missing)
    assert made.manifest["timeless"] == ["all"]


def test_what_is_no_number_is_counted_with_its_line(bring):
    good = "".join(f"{number},{number}.5\n" for number in range(996))
    text = "a,latency_ms\n1,NaN\n" + good + "2,\n3,-4\n4,inf\n5,12:30\n6\n"
    made = bring(text)
    assert len(durations(made)) == 996
    assert made.file["lines"] == 1_002
    assert made.file["refused"] == 6
    lines = {item["line"]: item["reason"] for item in made.file["first_refused"]}
    assert lines[2] == "latency_ms is 'NaN': no number"
    assert lines[1_003] == "1 fields where 2 are wanted"
    assert set(lines) <= {2, 999, 1_000, 1_001, 1_002, 1_003}
    assert "file-0: 6 lines could not be read" in made.missing
    assert made.manifest["counts"]["copies"]["recorded"] == 996


def test_a_negative_duration_is_a_complaint_with_its_line(bring):
    text = "latency_ms\n" + "1\n" * 150 + "-4\n" + "1\n" * 49
    made = bring(text)
    assert made.file["first_refused"] == [
        {"line": 152, "reason": "a negative duration (-4000000 ns)"}
    ]
    assert len(durations(made)) == 199


def test_over_one_percent_of_lines_that_cannot_be_read_is_an_error_that_shows_them(bring):
    with pytest.raises(IngestError) as error:
        bring("latency_ms\n" + "1\n" * 97 + "x\ny\nz\n")
    assert "3 of 100 data lines cannot be read" in str(error.value)
    assert "line 99: latency_ms is 'x': no number" in str(error.value)


def test_a_comma_that_could_group_thousands_is_not_a_decimal_sign(bring):
    with pytest.raises(IngestError, match="has '1,234', whose comma can be a decimal sign or"):
        bring('a,latency_ms\n1,"1,234"\n2,5\n')
    made = bring("a;latency_ms\n" + "1;1,234\n" * 200 + "2;1.234,5\n")
    assert set(durations(made)) == {1_234_000}
    assert made.file["refused"] == 1
    assert "commas in numbers were read as decimal signs" in made.missing


def test_a_quoted_number_may_have_a_decimal_comma(bring):
    made = bring('a,latency_ms\n1,"12,5"\n2,"0,125"\n3,7\n4,"1,234"\n')
    assert durations(made) == [12_500_000, 125_000, 7 * MS, 1_234_000]
    assert "commas in numbers were read as decimal signs" in made.missing
    # with a point or a second comma it groups thousands, and that is no number here
    for other in ('"1,234.5"', '"1,234,567"'):
        with pytest.raises(IngestError, match=r"latency_ms is '1,234.*: no number"):
            bring(f'a,latency_ms\n1,"12,5"\n2,{other}\n', value="latency_ms")
    made = bring('t_ms,latency_ms\n"0,5","12,5"\n"10,5","12,5"\n', time="t_ms")
    assert made.rows("sent_ns") == [(500_000,), (10_500_000,)]


@pytest.mark.parametrize(
    "text",
    [
        "op latency_ms\na 1.5\nb 2.5\n",
        "op   latency_ms\na       1.5\nb       2.5\n",
        "  op latency_ms  \n  a \t 1.5\n  b \t 2.5  \n",
        "# op latency_ms\na 1.5\nb 2.5\n",
        'op latency_ms\n"a  x" 1.5\n"b y" 2.5\n',
        "op latency_ms\r\na 1.5\r\n\r\nb 2.5\r\n",
    ],
    ids=["one", "many", "around", "comment", "quotes", "windows"],
)
def test_blanks_may_separate_columns(bring, text):
    made = bring(text)
    assert durations(made) == [1_500_000, 2_500_000]
    assert [row[0][0] for row in bring(text, op="op").rows("op")] == ["a", "b"]


def test_blanks_without_a_header_need_the_number_of_a_column(bring):
    with pytest.raises(IngestError, match="--value with one of 1, 2, 3"):
        bring("1700000000 12.5 200\n1700000001 13.5 200\n")
    made = bring(
        "1700000000 12.5 200\n" * 150 + "1700000001 1\n", value="2", unit="ms", time="1",
        time_unit="s",
    )  # fmt: skip
    assert durations(made) == [12_500_000] * 150
    assert made.file["first_refused"] == [{"line": 151, "reason": "2 fields where 3 are wanted"}]


@pytest.mark.parametrize("text", ["latency_ms\n", "a,latency_ms", "a,latency_ms\n\n\n"])
def test_a_header_alone_has_no_rows(bring, text):
    with pytest.raises(IngestError, match="no rows: recognised as csv"):
        bring(text, value="latency_ms")


def test_one_row_zeros_and_a_constant_are_fine(bring):
    assert durations(bring("latency_ms\n7\n")) == [7 * MS]
    assert durations(bring("latency_ms\n" + "0\n" * 120)) == [0] * 120
    made = bring("latency_ms\n" + "5\n" * 120)
    assert not any("ticks" in sentence for sentence in made.missing)


def test_a_clock_that_ticks_coarsely_is_said(bring):
    values = "".join(f"{4 * (number % 9)}\n" for number in range(200))
    made = bring("latency_ms\n" + values)
    assert "the clock ticks in steps of 4 ms" in made.missing
    fine = bring("latency_ms\n" + "".join(f"{number}.000001\n" for number in range(200)))
    assert not any("ticks" in sentence for sentence in fine.missing)


def test_large_numbers_keep_every_nanosecond(bring):
    made = bring("t_ns,latency_ns\n1700000000000000001,10000000000001\n1700000000000000003,2\n",
                 time="t_ns")  # fmt: skip
    assert made.rows(f"sent_ns, {DURATIONS}") == [
        (1_700_000_000_000_000_001, 10_000_000_000_001),
        (1_700_000_000_000_000_003, 2),
    ]


def test_durations_that_cannot_be_latencies_are_not_laid_out(bring):
    with pytest.raises(IngestError, match="add up to more than 146 years"):
        bring("latency\n" + "4000000000\n" * 2, unit="s")


def test_a_duration_beyond_what_ns_can_hold_is_a_complaint(bring):
    with pytest.raises(IngestError, match="no number"):
        bring("latency\n1e300\n", unit="s")


def test_factors_make_cells_and_an_op_column_names_operations(bring):
    text = "latency_ms,kind,size,zone\n1,read,1,eu\n2,write,8,eu\n3,read,8,us\n"
    made = bring(text, op="kind", factors=("size", "zone"))
    assert sorted(made.rows(f"cell, op, {DURATIONS} // 1000000")) == [
        ("size=1 zone=eu", "read", 1),
        ("size=8 zone=eu", "write", 2),
        ("size=8 zone=us", "read", 3),
    ]
    cells = {cell["name"]: cell["factors"] for cell in made.manifest["cells"]}
    assert cells["size=8 zone=us"] == {"size": "8", "zone": "us"}
    assert made.manifest["imported"][0] == {
        "cell": "size=1 zone=eu", "op": "read", "n": 1, "failed": 0, "min_ns": MS, "max_ns": MS,
        "mean_ns": MS,
    }  # fmt: skip


def test_a_factor_of_too_many_values_is_an_error(bring):
    text = "latency_ms,id\n" + "".join(f"1,{number}\n" for number in range(1_500))
    with pytest.raises(IngestError, match="the factors id make more than 1,000 cells"):
        bring(text, factors=("id",))
    with pytest.raises(IngestError, match="more than 1,000 operations"):
        bring(text, op="id")


def test_a_quote_that_never_closes_costs_its_line(bring):
    text = 'a,latency_ms\n1,2\n2,"3\n' + "3,4\n" * 1_500_000
    (source,) = bring(text, value="latency_ms").manifest["provenance"]
    assert (source["lines"], source["refused"]) == (1_500_002, 1)


NAMES = st.text("abcdefghijk_ ,;\"'\t", min_size=1, max_size=8).map(lambda text: f"x{text}x")


@settings(max_examples=60)
@given(
    values=st.lists(st.integers(0, 10**13), min_size=1, max_size=30),
    others=st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6),
                    min_size=30, max_size=30),
    name=NAMES,
    delimiter=st.sampled_from(",;\t|"),
    end=st.sampled_from(["\n", "\r\n"]),
    final=st.booleans(),
)  # fmt: skip
def test_what_python_writes_comes_back(tmp_path_factory, values, others, name, delimiter, end,
                                       final):  # fmt: skip
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_MINIMAL)
    writer.writerow([name, "latency_ns"])
    writer.writerows([f"w{other}", value] for other, value in zip(others, values, strict=False))
    written = text.getvalue() if final else text.getvalue().removesuffix(end)
    place = tmp_path_factory.mktemp("csv")
    (place / "t").write_bytes(written.encode())
    done = import_files([str(place / "t")], place / "run", Options(value="latency_ns"))
    import duckdb

    query = f"select received_ns - sent_ns from '{place}/run/requests/*.parquet'"
    assert [row[0] for row in duckdb.connect().execute(query).fetchall()] == values
    assert done.files[0]["refused"] == 0


def test_prose_is_no_table():
    text = b"Dear all,\n\nthe run of today went well. It took long.\nYours\n"
    found = sniff(Sample(text, True))
    assert found is None or len(found.layout.names) == 1


def test_two_columns_of_one_name_are_told_apart_and_none_is_taken_unseen(bring):
    text = "latency_ms,latency_ms\n1,10\n2,20\n"
    with pytest.raises(IngestError, match=r"latency_ms\.1, latency_ms\.2"):
        bring(text)
    with pytest.raises(IngestError, match=r"has no column 'latency_ms'"):
        bring(text, value="latency_ms", unit="ms")
    made = bring(text, value="latency_ms.2", unit="ms")
    assert made.rows("received_ns - sent_ns") == [(10_000_000,), (20_000_000,)]


def test_seconds_may_stand_in_the_name_of_a_latency(bring):
    assert bring("latency_s,requests_s\n0.5,10\n").rows("received_ns - sent_ns") == [(500_000_000,)]
    with pytest.raises(IngestError, match="does not say its unit"):
        bring("latency_s,requests_s\n0.5,10\n", value="requests_s")
