"""Every column of every table has a value in some run, or a reason why it cannot have one yet."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from house import REPOSITORY, Measured, call
from http_house import python_server
from redis_house import redis_server
from streams_house import measured
from test_https import drive
from watch_house import watched, watching

MAY_BE_EMPTY = {
    "resources": {
        "cpu_frequency_hz": "many virtual machines do not show it",
        "psi_cpu_full_ns": "older kernels do not count it for a host",
    },
}
"""Columns that every run may leave empty, each with the reason."""

KERNELS = {
    "psi_": ("a kernel without pressure stalls", lambda: not Path("/proc/pressure/cpu").exists()),
    "cgroup_": ("a control group whose files cannot be read", lambda: not has_cgroup()),
}
"""Beginnings of columns of `resources` that some hosts lack, why, and whether this one does."""

ZIPKIN = json.dumps(
    [
        {
            "traceId": "1", "id": "b", "kind": "CLIENT", "name": "query", "timestamp": 1_000_100,
            "duration": 500, "localEndpoint": {"serviceName": "front"},
            "remoteEndpoint": {"serviceName": "store"},
        },
        {
            "traceId": "1", "id": "b", "kind": "SERVER", "name": "query", "timestamp": 1_000_200,
            "duration": 300, "shared": True, "localEndpoint": {"serviceName": "store"},
        },
        {
            "traceId": "1", "id": "c", "parentId": "b", "name": "parse", "timestamp": 1_000_210,
            "duration": 10, "localEndpoint": {"serviceName": "store"},
        },
    ]
)  # fmt: skip
"""A call of one service to another, which does something of its own for it."""

HGRM = """\
       Value     Percentile TotalCount 1/(1-Percentile)

       1.000 0.000000000000          1           1.00
       2.000 0.500000000000         50           2.00
       9.000 1.000000000000        100
#[Mean    =        2.000, StdDeviation   =        1.000]
#[Max     =        9.000, Total count    =          100]
#[Buckets =           27, SubBuckets     =         2048]
"""
"""A percentile distribution as HdrHistogram prints it."""

SCHEMA = REPOSITORY / "unruly" / "schema" / "trace"


def columns_of(table: str) -> list[str]:
    text = (SCHEMA / f"{table}.schema").read_text()
    return re.findall(r"(?:REQUIRED|OPTIONAL) \w+ (\w+)", text)


def filled_columns(run: Measured, table: str) -> set[str]:
    """Columns with a value in a row of the run."""
    if not list((run.path / table).glob("*.parquet")):
        return set()
    columns = columns_of(table)
    counts = run.rows(f"select {', '.join(f'count({name})' for name in columns)} from {table}")[0]
    return {name for name, count in zip(columns, counts, strict=True) if count}


def imported(folder: Path, name: str, text: str, *flags: str) -> Measured:
    """Import a result of another tool."""
    source = folder / name
    source.write_text(text, encoding="utf-8")
    out = folder / f"{name}.run"
    said = call("import", source, "-o", out, *flags)
    assert said.returncode == 0, said.stderr
    return Measured(out)


def faulty_mesh(measure: Callable[..., Measured]) -> Measured:
    """Every workload, and an agent that dies: replies that fail have other columns."""
    return measure(
        workloads='["null", "crypto", "disk", "network", "mixed"]',
        more='[[fault]]\nkind = "kill"\nprocess = "agent-1"\nat = "1500ms"\n'
        '[[fault]]\nkind = "busy"\nprocess = "agent-0"\nat = "500ms"\nduration = "300ms"\ncpu = 0',
    )


def collecting_stream(folder: Path) -> Measured:
    """A stream whose reader's JVM collects garbage."""
    folder.mkdir()
    more = '[compete]\nkind = "gc"\noccupancy = 0.3\nlive = "64MiB"\n[jvm]\nheap = "128MiB"\n'
    more += 'collector = "serial"\n[pin]\nwriter-0 = [0]\nreader-0 = [0]\n'
    return measured(folder, 'protocol = "jvm-tcp"', "", more, duration="2s")


def with_keys_and_codes(folder: Path) -> Measured:
    """Requests for keys from an HTTP server, which has none of them."""
    folder.mkdir()
    with python_server(folder) as url:
        words = ["-d", "60s", "-n", "60", "-w", "0s", "--keys", "6", "-q", "-o", folder / "out"]
        said = call("drive", f"{url}/{{key}}", "--operations", "read", *words)
    # All of them fail, which is a finding and no error.
    assert said.returncode in (0, 1), said.stderr
    return Measured(folder / "out")


def seen_from_outside(folder: Path) -> Measured:
    """A service that a tap watches while somebody asks it."""
    folder.mkdir()
    with (
        redis_server(folder, "127.0.0.1") as (host, port),
        watching(folder, f"cache=tcp://{host}:{port}"),
    ):
        drive(folder, f"redis://{host}:{port}", "-n", "200")
    return watched(folder)


def test_every_column_of_every_table_has_a_value_in_some_run(
    measure: Callable[..., Measured], tmp_path: Path
) -> None:
    runs = [
        faulty_mesh(measure),
        collecting_stream(tmp_path / "stream"),
        with_keys_and_codes(tmp_path / "http"),
        imported(tmp_path, "spans.json", ZIPKIN),
        imported(tmp_path, "latency.hgrm", HGRM, "--unit", "ms"),
        seen_from_outside(tmp_path / "tap"),
    ]
    tables = sorted(path.stem for path in SCHEMA.glob("*.schema"))
    assert tables == [
        "events", "histograms", "intervals", "requests", "resources", "spans", "turnarounds",
    ]  # fmt: skip
    for table in tables:
        reasons = MAY_BE_EMPTY.get(table, {})
        assert set(reasons) <= set(columns_of(table)), "a reason for a column that is not there"
        filled = set().union(*(filled_columns(run, table) for run in runs))
        empty = set(columns_of(table)) - filled
        for beginning, (_, is_lacking) in KERNELS.items():
            if table == "resources" and is_lacking():
                empty = {name for name in empty if not name.startswith(beginning)}
        assert empty <= set(reasons), f"{table}: {sorted(empty - set(reasons))} are empty"


def test_every_beginning_of_a_column_is_that_of_some_column() -> None:
    for beginning, (reason, _) in KERNELS.items():
        assert reason
        assert any(name.startswith(beginning) for name in columns_of("resources"))


def has_cgroup() -> bool:
    """Whether this process is in a control group whose files can be read here."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    paths = [line.split(":", 2) for line in lines]
    unified = [path for number, names, path in paths if number == "0" and not names]
    return any(Path(f"/sys/fs/cgroup{path}/cpu.stat").is_file() for path in unified) or any(
        Path(f"/sys/fs/cgroup/cpu{path}/cpu.stat").is_file()
        for _, names, path in paths
        if "cpu" in names.split(",")
    )
