"""Collector logs and host samples: beside latencies, beside a run, and alone."""

# ruff: noqa: E501 - lines of logs are as long as they are
from __future__ import annotations

import fcntl
import json

import pytest

import unruly
from synthetic import NS, STARTED_NS, write_run
from unruly.errors import IngestError
from unruly.ingest import Options, import_files, join, join_files

UNIFIED = """[2024-01-02T03:04:05.100+0000][0.021s][info][gc] Using G1
[2024-01-02T03:04:06.500+0000][1.421s][info][gc] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 24M->11M(256M) 7.965ms
[2024-01-02T03:04:08.000+0000][2.921s][info][gc] GC(1) Concurrent Mark Cycle 100.000ms
[2024-01-02T03:04:08.500+0000][3.421s][info][gc] GC(2) Pause Remark 20M->20M(256M) 2.500ms
[2024-01-02T03:04:08.600+0000][3.521s][info][safepoint] Safepoint "G1CollectForAllocation", Time since last: 100 ns, Reaching safepoint: 5000 ns, At safepoint: 1000000 ns, Total: 1005000 ns
"""
OLD = """Java HotSpot(TM) 64-Bit Server VM (25.60-b23) for linux-amd64 JRE (1.8.0_60-b27)
2015-05-26T14:45:37.987-0200: 151.126: [GC (Allocation Failure) 151.126: [DefNew: 629119K->69888K(629120K), 0.0584157 secs] 1619346K->1273247K(2027264K), 0.0585007 secs] [Times: user=0.06 sys=0.00, real=0.06 secs]
2015-05-26T14:45:59.690-0200: 172.829: [Full GC (Ergonomics) [PSYoungGen: 10K->0K(100K)] [ParOldGen: 10K->9K(100K)] 20K->9K(200K), [Metaspace: 2K->2K(10K)], 0.1500000 secs] [Times: user=0.10 sys=0.00, real=0.15 secs]
2015-05-26T14:46:10.000-0200: 183.139: [GC pause (G1 Evacuation Pause) (young), 0.0250000 secs]
   [Parallel Time: 20.0 ms, GC Workers: 2]
2015-05-26T14:46:20.500-0200: 193.639: Total time for which application threads were stopped: 0.5000000 seconds, Stopping threads took: 0.0001000 seconds
"""
SADF = """# hostname;interval;timestamp;CPU;%user;%nice;%system;%iowait;%steal;%idle
box;2;2024-01-02 03:04:06 UTC;-1;10.00;2.00;5.00;1.00;0.50;81.50
box;2;2024-01-02 03:04:08 UTC;-1;50.00;0.00;5.00;1.00;0.50;43.50
# hostname;interval;timestamp;CPU;%user;%nice;%system;%iowait;%steal;%idle
box;2;2024-01-02 03:04:06 UTC;0;10;0;0;0;0;90
box;2;2024-01-02 03:04:06 UTC;1;30;0;0;0;0;70
# hostname;interval;timestamp;IFACE;rxpck/s;txpck/s;rxkB/s;txkB/s
box;2;2024-01-02 03:04:06 UTC;lo;100;100;100;100
box;2;2024-01-02 03:04:06 UTC;eth0;5;3;2;1
box;2;2024-01-02 03:04:06 UTC;eth1;5;3;2;1
box;-1;2024-01-02 03:04:07 UTC;LINUX-RESTART	(2 CPU)
"""
DSTAT = """"Dstat 0.7.2 CSV output"
"Author:","Dag Wieers",,,,"URL:","http://dag.wieers.com/home-made/dstat/"
"Host:","box",,,,"User:","me"
"Cmdline:","dstat -Tcn",,,,"Date:","02 Jan 2024 03:04:05 UTC"

"epoch","total cpu usage",,,,,,"net/total",
"epoch","usr","sys","idl","wai","hiq","siq","recv","send"
1704164646.0,10.0,5.0,84.0,1.0,0.0,0.0,1000.0,500.0
1704164648.0,20.0,5.0,74.0,1.0,0.0,0.0,2000.0,500.0
"""


def brought(folder, files, **options):
    paths = []
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
        paths.append(str(folder / name))
    return unruly.open_run(import_files(paths, folder / "run", Options(**options)).directory)


def latencies(*, start="2024-01-02T03:04:05", count=200):
    rows = [
        f"{start[:17]}{int(start[17:19]) + i // 50:02}.{i % 50:02}Z,{1 + i % 7}"
        for i in range(count)
    ]
    return "time,latency\n" + "\n".join(rows) + "\n"


def rows_of(table):
    return table.order_by("started_ns").to_pyarrow().to_pylist()


def test_a_pause_ends_where_a_unified_line_is_stamped_and_begins_its_length_before(tmp_path):
    run = brought(tmp_path, {"gc.log": UNIFIED})
    found = rows_of(run.events)
    assert [(it["kind"], it["detail"]) for it in found] == [
        ("gc", "Pause Young (Normal) (G1 Evacuation Pause)"),
        ("gc-concurrent", "Concurrent Mark Cycle"),
        ("gc", "Pause Remark"),
        ("safepoint", "G1CollectForAllocation"),
    ]
    assert found[0]["ended_ns"] == 1_704_164_646_500_000_000
    assert found[0]["ended_ns"] - found[0]["started_ns"] == 7_965_000
    assert found[3]["ended_ns"] - found[3]["started_ns"] == 1_005_000


def test_digits_of_another_script_are_no_numbers_of_a_collector_log(tmp_path):
    line = "[{}s][info][gc] GC({}) Pause Remark 1.500ms\n"
    log = (
        line.format("1.250", "1")
        + line.format("\u0662.\u0665", "2")
        + line.format("3.250", "\u0663")
    )
    (event,) = rows_of(brought(tmp_path, {"gc.log": log}).events)
    assert event["ended_ns"] - event["started_ns"] == 1_500_000


def test_a_collector_log_alone_is_measured_by_its_pauses(tmp_path):
    run = brought(tmp_path, {"gc.log": UNIFIED})
    analysis = unruly.analyse(run)
    assert {row.op for row in analysis.cells} - {"*"} == {
        "Pause Young (Normal) (G1 Evacuation Pause)",
        "Pause Remark",
        "G1CollectForAllocation",
    }
    assert analysis.cell("Pause Remark").max == 2.5e6
    assert any("pauses themselves" in sentence for sentence in run.missing)


def test_the_sample_of_a_collector_log_imports_and_is_judged(shared_data, tmp_path):
    path = shared_data / "gc" / "unified_g1gc_minimal.log"
    run = unruly.open_run(import_files([str(path)], tmp_path / "run", Options()).directory)
    found = unruly.analyse(run).cell("Pause Young (G1 Evacuation Pause)")
    assert found.n > 3000
    assert found.max == pytest.approx(12.9e6, rel=0.01)
    assert run.manifest["provenance"][0]["refused"] == 0


def test_a_jdk_8_line_is_stamped_where_its_pause_begins(tmp_path):
    found = rows_of(brought(tmp_path, {"gc.log": OLD}).events)
    lengths = [(it["ended_ns"] - it["started_ns"]) / 1e6 for it in found]
    assert lengths == pytest.approx([58.5007, 150.0, 25.0, 500.0])
    assert found[0]["started_ns"] == 1_432_658_737_987_000_000
    assert found[3]["ended_ns"] == 1_432_658_780_500_000_000
    assert found[1]["detail"].startswith("Full GC (Ergonomics)")


def test_a_phase_of_jdk_8_beside_the_program_ends_at_its_line_and_is_no_pause(tmp_path):
    log = (
        "2015-05-26T14:46:10.000-0200: 183.139: [GC pause (G1 Evacuation Pause) (young), 0.0250000 "
        "secs]\n"
        "2015-05-26T14:46:10.100-0200: 183.239: [GC concurrent-mark-start]\n"
        "2015-05-26T14:46:10.600-0200: 183.739: [GC concurrent-mark-end, 0.5000000 secs]\n"
        "2015-05-26T14:46:10.700-0200: 183.839: [GC remark, 0.0020000 secs]\n"
    )
    found = rows_of(brought(tmp_path, {"gc.log": log}).events)
    assert [it["kind"] for it in found].count("gc") == 2
    (mark,) = [it for it in found if it["kind"] == "gc-concurrent"]
    end = 1_432_658_770_600_000_000
    assert (mark["detail"], mark["started_ns"], mark["ended_ns"]) == (
        "concurrent-mark", end - 500_000_000, end,
    )  # fmt: skip


def test_collections_join_latencies_by_time_and_become_a_metric(tmp_path):
    run = brought(tmp_path, {"lat.csv": latencies(), "gc.log": UNIFIED}, unit="ms")
    assert {row["cell"] for row in rows_of(run.events)} == {"all"}
    samples = rows_of(run.resources)
    assert sum(it["gc_count"] for it in samples) == 2
    assert sum(it["gc_ns"] for it in samples) == 7_965_000 + 2_500_000
    assert unruly.analyse(run).correlations.paired_share > 0.5


def test_sar_rates_become_counts_and_interfaces_add_up(tmp_path):
    run = brought(tmp_path, {"lat.csv": latencies(), "sar.txt": SADF}, unit="ms")
    first, second = rows_of(run.resources)
    assert first["cpu_user_share"] == pytest.approx(0.12)
    assert first["cpu_busiest_share"] == pytest.approx(0.30)
    assert first["network_received_packets"] == 20
    assert first["network_received_bytes"] == 2 * 2 * 2 * 1024
    assert first["ended_ns"] - first["started_ns"] == 2 * NS
    assert second["cpu_user_share"] == pytest.approx(0.5)
    assert second["network_received_bytes"] is None


def test_dstat_groups_are_told_apart_and_its_rates_become_counts(tmp_path):
    run = brought(tmp_path, {"lat.csv": latencies(), "d.csv": DSTAT}, unit="ms")
    first, second = rows_of(run.resources)
    assert first["ended_ns"] == 1_704_164_646 * NS
    assert first["cpu_user_share"] == pytest.approx(0.1)
    assert second["network_received_bytes"] == 4000


def test_dstat_without_times_counts_from_its_start_and_says_so(tmp_path):
    text = "\n".join(
        line.split(",", 1)[1] if i >= 5 else line
        for i, line in enumerate(DSTAT.split("\n"))
        if line
    )
    run = brought(tmp_path, {"lat.csv": latencies(), "d.csv": text}, unit="ms")
    assert rows_of(run.resources)[0]["ended_ns"] == 1_704_164_646 * NS
    assert any("no times" in sentence for sentence in run.missing)


def test_samples_of_a_host_alone_are_no_run(tmp_path):
    with pytest.raises(IngestError, match="no latencies"):
        brought(tmp_path, {"sar.txt": SADF})
    assert not (tmp_path / "run").exists()


def unified_at(start_ns):
    from datetime import UTC, datetime

    lines = []
    for second in range(1, 50):
        stamp = datetime.fromtimestamp(start_ns / NS + second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        lines.append(
            f"[{stamp}.000+0000][gc] GC({second}) Pause Young (Normal) 9M->1M(20M) 5.000ms"
        )
    return "\n".join(lines)


@pytest.mark.slow
def test_a_log_is_laid_beside_a_measured_run_on_its_host(tmp_path):
    root = write_run(tmp_path / "run", duration_s=50.0)
    log = tmp_path / "gc.log"
    log.write_text(unified_at(STARTED_NS), encoding="utf-8")
    before = unruly.analyse(unruly.open_run(root)).cell("null")
    done = join_files([str(log)], root, Options())
    assert done.rows["events"] == 49
    run = unruly.open_run(root)
    assert run.events.filter(run.events.kind == "gc").count().to_pandas() == 49
    assert {it["host"] for it in rows_of(run.resources)} == {"host-0"}
    assert run.manifest["provenance"][0]["format"] == "jvm-gc"
    after = unruly.analyse(run)
    assert after.cell("null") == before
    assert not list(root.glob(".joining-*"))


def test_a_log_that_cannot_be_joined_whole_leaves_the_run_as_it_was(tmp_path, monkeypatch):
    root = write_run(tmp_path / "run", duration_s=50.0)
    log = tmp_path / "gc.log"
    log.write_text(unified_at(STARTED_NS), encoding="utf-8")

    def files() -> list[str]:
        return sorted(str(it) for it in root.rglob("*.parquet"))

    before = files()
    with monkeypatch.context() as broken:
        broken.setattr(join.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("no")))
        with pytest.raises(IngestError):
            join_files([str(log)], root, Options())
    assert files() == before
    with (root / ".lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(IngestError, match="used by another program"):
            join_files([str(log)], root, Options())
    assert files() == before
    assert join_files([str(log)], root, Options()).rows["events"] == 49


def test_a_log_of_another_day_is_not_laid_beside_a_run(tmp_path):
    root = write_run(tmp_path / "run", duration_s=5.0)
    (tmp_path / "gc.log").write_text(UNIFIED, encoding="utf-8")
    before = sorted(str(path) for path in root.rglob("*"))
    with pytest.raises(IngestError, match="overlap none"):
        join_files([str(tmp_path / "gc.log")], root, Options())
    assert sorted(str(path) for path in root.rglob("*")) == before


def test_latencies_are_never_mixed_into_a_run(tmp_path):
    root = write_run(tmp_path / "run", duration_s=5.0)
    (tmp_path / "lat.csv").write_text(latencies(), encoding="utf-8")
    with pytest.raises(IngestError, match="holds latencies"):
        join_files([str(tmp_path / "lat.csv")], root, Options(unit="ms"))
    with pytest.raises(IngestError, match="is no run"):
        join_files([str(tmp_path / "lat.csv")], tmp_path, Options())
    (root / "manifest.json").write_text(json.dumps({"status": "running"}), encoding="utf-8")
    with pytest.raises(IngestError, match="running"):
        join_files([str(tmp_path / "lat.csv")], root, Options())
