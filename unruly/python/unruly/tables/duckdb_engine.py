"""The engine by default: DuckDB inside the process, with bounded memory.

Ibis writes the SQL. Two things go around it: a view over Parquet files (Ibis has no portable form
of it) and a kept table (``create_table`` of Ibis 12 fails on DuckDB 2.0).
"""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ibis

from unruly.errors import EngineError
from unruly.tables.columns import TABLES
from unruly.tables.engine import Engine

_GLOB: Final = re.compile(r"([*?\[])")

if TYPE_CHECKING:
    from collections.abc import Mapping

THREADS_ENVIRONMENT: Final = "UNRULY_THREADS"
MEMORY_MOST: Final = 2_500_000_000
"""Of a larger machine no more is taken, so that with Python's own a verdict stays below 4 GB."""
MEMORY_LEAST: Final = 100_000_000
THREADS_MOST: Final = 1_024
MEMORY_SHARE: Final = 0.6
_CONTROL_GROUP: Final = Path("/sys/fs/cgroup/memory.max")


class DuckDBEngine(Engine):
    """A DuckDB connection in memory, with a view for each trace table."""

    def __init__(self, memory: int | None = None) -> None:
        threads = os.environ.get(THREADS_ENVIRONMENT)
        if threads and not (threads.isdecimal() and 0 < int(threads) <= THREADS_MOST):
            wanted = f"a number from 1 to {THREADS_MOST}"
            raise EngineError(THREADS_ENVIRONMENT, f"is {threads!r}", wanted, "leave it out")
        if memory is not None and memory < MEMORY_LEAST:
            raise EngineError("--memory", "is too little", "100MB at least", "--memory 1GB")
        settings: dict[str, Any] = {"threads": int(threads)} if threads else {}
        settings["memory_limit"] = f"{memory or default_memory()}B"
        # its default is the working directory, which may be one that is measured
        settings["temp_directory"] = str(Path(tempfile.gettempdir(), f"unruly-{os.getpid()}"))
        settings["preserve_insertion_order"] = False
        self._tables: dict[str, ibis.Table] = {}
        self.connection = ibis.duckdb.connect(**settings)
        self.connection.raw_sql("SET enable_progress_bar = false")

    def fork(self) -> DuckDBEngine:
        """Return a second connection: the same views, temporary tables of its own."""
        other = object.__new__(DuckDBEngine)
        other._tables = {}
        other.connection = ibis.duckdb.from_connection(self.connection.con.cursor())
        return other

    def view(self, table: str, files: Mapping[Path, set[str]]) -> None:
        """Make the view ``table`` over its segments, as the interface says."""
        columns = TABLES[table]
        if not files:
            empty = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind, _ in columns)
            self.connection.raw_sql(f"CREATE VIEW {table} AS SELECT {empty} WHERE FALSE")
            return
        present = set().union(*files.values())
        chosen = ", ".join(
            f"CAST({name if name in present else 'NULL'} AS {kind}) AS {name}"
            for name, kind, _ in columns
        )
        # a name with * or [ is a pattern to it, which other runs may match
        names = [_GLOB.sub(r"[\1]", str(path)).replace("'", "''") for path in sorted(files)]
        paths = ", ".join(f"'{name}'" for name in names)
        self.connection.raw_sql(
            f"CREATE VIEW {table} AS SELECT {chosen} "
            f"FROM read_parquet([{paths}], union_by_name = true)"
        )

    def table(self, name: str) -> ibis.Table:
        """Return the view or temporary table ``name``, lazily."""
        if name not in self._tables:
            self._tables[name] = self.connection.table(name)
        return self._tables[name]

    def define(self, name: str, expression: ibis.Table) -> ibis.Table:
        """Make a view of ``expression``."""
        sql = self.connection.compile(expression)
        self.connection.raw_sql(f"CREATE OR REPLACE VIEW {name} AS {sql}")
        self._tables.pop(name, None)
        return self.table(name)

    def materialise(self, name: str, expression: ibis.Table) -> ibis.Table:
        """Keep the rows of ``expression`` in a temporary table."""
        # what execute() does for frames that are inlined
        self.connection._run_pre_execute_hooks(expression)
        sql = self.connection.compile(expression)
        self.connection.raw_sql(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")
        self._tables.pop(name, None)
        return self.table(name)

    def forget(self, name: str) -> None:
        """Drop the temporary table."""
        self._tables.pop(name, None)
        self.connection.raw_sql(f"DROP TABLE IF EXISTS {name}")

    def write_csv(self, expression: ibis.Table, path: Path) -> None:
        """Write the rows of ``expression`` to a CSV file; none pass Python."""
        sql = self.connection.compile(expression)
        place = str(path).replace("'", "''")
        self.connection.raw_sql(f"COPY ({sql}) TO '{place}' (FORMAT csv, HEADER)")


def default_memory() -> int:
    """Three fifths of what the machine or its control group has, and 2.5 GB at most."""
    least = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # no control group of version 2, or it says "max"
    with suppress(OSError, ValueError):
        least = min(least, int(_CONTROL_GROUP.read_text(encoding="ascii")))
    return min(MEMORY_MOST, int(MEMORY_SHARE * least))
