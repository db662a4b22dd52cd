"""Runs of the real program on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

REPOSITORY = Path(__file__).parents[2]
# `make smoke` names the programs that the other tests were built with.
PROGRAMS = Path(os.environ.get("UNRULY_PROGRAMS", REPOSITORY / "target" / "release"))
UNRULY = PROGRAMS / "unruly"
FLURRY = PROGRAMS / "flurry"
EXAMPLES = REPOSITORY / "target" / "checked" / "examples"


TABLES = sorted(path.stem for path in (REPOSITORY / "unruly" / "schema" / "trace").glob("*.schema"))


def need_root(what: str) -> None:
    """A test that needs root fails where nothing may be skipped, and says why elsewhere."""
    if os.geteuid() == 0:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} needs root, and under CI nothing may be skipped")
    pytest.skip(f"{what} needs root")


def call(*words: str | Path, timeout: float = 120, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    return subprocess.run(
        [UNRULY, *words], capture_output=True, text=True, timeout=timeout, check=False, **more
    )


@contextmanager
def started(words: list[str | Path], ready: str, log: Path) -> Iterator[list[str]]:
    """A process that says when it is ready, ended in the end; yields what it said before."""
    with log.open("wb") as errors:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)
        with process:
            try:
                assert process.stdout is not None
                said = []
                for line in process.stdout:
                    if line.startswith(ready):
                        break
                    said.append(line.strip())
                assert process.poll() is None, (said, log.read_text())
                yield said
            finally:
                process.kill()


@dataclass(frozen=True)
class Measured:
    """A finished run."""

    path: Path

    @property
    def manifest(self) -> dict[str, Any]:
        return json.loads((self.path / "manifest.json").read_text())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Query the trace; its tables are called as they are."""
        with duckdb.connect() as connection:
            for table in TABLES:
                files = self.path / table / "*.parquet"
                if list((self.path / table).glob("*.parquet")):
                    connection.sql(f"create view {table} as from read_parquet('{files}')")
            return connection.sql(query).fetchall()

    def verdict(self) -> dict[str, Any]:
        said = call("verdict", self.path, "--json")
        assert said.returncode == 0, said.stderr
        return json.loads(said.stdout)


PLAN = """
name = "e2e"
seed = {seed}
tag = "test"
[run]
duration = "{duration}"
warmup = "{warmup}"
{run}
[mesh]
agents = {agents}
groups = {groups}
period = "{period}"
regroup = "1d"
timeout = "{timeout}"
workloads = {workloads}
{mesh}
[probe]
period = "{probe}"
{more}
"""


def write_plan(folder: Path, **changes: Any) -> Path:
    values = {
        "seed": 1,
        "duration": "2s",
        "warmup": "0s",
        "run": "",
        "agents": 3,
        "groups": [3],
        "period": "20ms",
        "timeout": "1s",
        "workloads": '["null"]',
        "mesh": "",
        "probe": "200ms",
        "more": "",
    }
    values.update(changes)
    path = folder / "plan.toml"
    path.write_text(PLAN.format(**values))
    return path


@contextmanager
def running(plan: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that goes on while the block does; ended by its pid. Quiet, it ends with 0."""
    process = subprocess.Popen(
        [UNRULY, "run", plan, "-q", "-o", folder], stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(
    condition: Callable[[], object], what: str | Callable[[], str], limit_s: float = 60
) -> None:
    until = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(
                f"{what if isinstance(what, str) else what()} did not happen within {limit_s} s"
            )
        time.sleep(0.02)


def spooled(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("requests/*.spool"))


def pids_of(folder: Path) -> list[int]:
    """Processes whose command line names the run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"agent\0--job" in command and str(folder).encode() in command:
                found.append(int(entry.name))
    return found
