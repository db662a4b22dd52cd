"""Every column of every table has a value in some run, or a reason why it cannot have one yet."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from house import REPOSITORY, Measured

NOT_YET = {
    "requests": {"key": "a group RPC has no key", "code": "only HTTP has status codes"},
    "resources": {
        "cpu_frequency_hz": "many virtual machines do not show it",
        "gc_count": "no process with a collector is measured",
        "gc_ns": "no process with a collector is measured",
        "psi_cpu_full_ns": "older kernels do not count it for a host",
    },
    "events": {},
}
"""Columns that a run may leave empty, each with the reason."""

KERNELS = {
    "psi_": ("a kernel without pressure stalls", lambda: not Path("/proc/pressure/cpu").exists()),
    "cgroup_": ("a control group whose files cannot be read", lambda: not has_cgroup()),
}
"""Beginnings of columns of `resources` that some hosts lack, why, and whether this one does."""

SCHEMA = REPOSITORY / "schema" / "trace"


def columns_of(table: str) -> list[str]:
    text = (SCHEMA / f"{table}.schema").read_text()
    return re.findall(r"(?:REQUIRED|OPTIONAL) \w+ (\w+)", text)


def empty_columns(run: Measured, table: str) -> set[str]:
    columns = columns_of(table)
    counts = run.rows(f"select {', '.join(f'count({name})' for name in columns)} from {table}")[0]
    return {name for name, count in zip(columns, counts, strict=True) if count == 0}


def test_every_column_has_a_value_in_some_run(measure: Callable[..., Measured]) -> None:
    run = measure(
        workloads='["null", "crypto", "disk", "network", "mixed"]',
        more='[[fault]]\nkind = "kill"\nprocess = "agent-1"\nat = "1500ms"\n'
        '[[fault]]\nkind = "busy"\nprocess = "agent-0"\nat = "500ms"\nduration = "300ms"\ncpu = 0',
    )
    for table, reasons in NOT_YET.items():
        assert set(reasons) <= set(columns_of(table)), "a reason for a column that is not there"
        empty = empty_columns(run, table)
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
