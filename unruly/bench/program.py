"""Runs of the real program, and what their traces say."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
UNRULY = ROOT / "target" / "release" / "unruly"
UNANALYSED = {"UNRULY_PYTHON": "/bin/true"}
"""The environment in which a run is not analysed at its end."""

DRIVE = """
name = "bench"
seed = {seed}
tag = "bench"
[run]
duration = "{duration}"
warmup = "{warmup}"
[drive]
transport = "{transport}"
clients = {clients}
payload = "{payload}"
in_flight = 100000
timeout = "5s"
{arrivals}
[probe]
{probe}
[pin]
"drive-0" = [{client_core}]
"echo-0" = [{server_core}]
{more}
"""


@dataclass(frozen=True)
class Trace:
    """The directory of a finished run."""

    path: Path

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Query the trace; its tables are called as they are."""
        with duckdb.connect() as connection:
            for table in ("requests", "resources", "events", "intervals"):
                if list((self.path / table).glob("*.parquet")):
                    files = self.path / table / "*.parquet"
                    connection.sql(f"create view {table} as from read_parquet('{files}')")
            return connection.sql(query).fetchall()

    def verdict(self) -> dict[str, Any]:
        """What ``verdict --json`` says of the run."""
        said = call("verdict", self.path, "--json")
        found: dict[str, Any] = json.loads(said)
        return found

    @property
    def manifest(self) -> dict[str, Any]:
        """The run's manifest."""
        found: dict[str, Any] = json.loads((self.path / "manifest.json").read_text())
        return found


def call(
    *words: str | Path, seconds: float = 300, fine: tuple[int, ...] = (0,), analysed: bool = True
) -> str:
    """Run the program; return its standard output.

    With ``analysed=False`` a measured run is not analysed at its end.

    Raises
    ------
    RuntimeError
        When it fails, with what it said.
    """
    env = os.environ if analysed else os.environ | UNANALYSED
    done = subprocess.run(
        [UNRULY, *words], capture_output=True, text=True, timeout=seconds, check=False, env=env
    )
    if done.returncode not in fine:
        raise RuntimeError(f"unruly {words[0]}: exit {done.returncode}; {done.stderr.strip()}")
    return done.stdout


@contextmanager
def measured(plan: str) -> Iterator[Trace]:
    """Measure a plan; the trace is gone after the block.

    The run is not analysed at its end: a benchmark reads its trace itself.
    """
    with tempfile.TemporaryDirectory(prefix="unruly-bench-") as folder:
        file = Path(folder, "plan.toml")
        file.write_text(plan)
        out = Path(folder, "run")
        words: list[str | Path] = [UNRULY, "run", file, "-q", "-o", out]
        quiet = os.environ | UNANALYSED
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=600, check=False, env=quiet
        )
        if done.returncode != 0:
            raise RuntimeError(f"unruly run: exit {done.returncode}; {done.stderr.strip()}")
        yield Trace(out)


def drive(**changes: object) -> str:
    """The text of a drive plan; keywords change it."""
    values: dict[str, object] = {
        "seed": 1,
        "duration": "3s",
        "warmup": "500ms",
        "transport": "tcp",
        "clients": 1,
        "payload": "36B",
        "arrivals": 'arrivals = "closed"',
        "probe": "enabled = false",
        "client_core": 0,
        "server_core": 1,
        "more": "",
    }
    return DRIVE.format(**(values | changes))
