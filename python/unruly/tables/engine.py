"""The one DuckDB connection of a run: views over segments, and results as frames.

Ibis writes the SQL and DuckDB runs it. Two things go around Ibis: a view over Parquet files (Ibis
has no portable form of it) and a materialised table (``create_table`` of Ibis 12 fails on
DuckDB 2.0).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import ibis

from unruly.tables.columns import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pandas as pd

THREADS_ENVIRONMENT = "UNRULY_THREADS"


class Engine:
    """A DuckDB connection in memory, with a view for each trace table."""

    def __init__(self) -> None:
        threads = os.environ.get(THREADS_ENVIRONMENT)
        settings: dict[str, Any] = {"threads": int(threads)} if threads else {}
        self.connection = ibis.duckdb.connect(**settings)
        self.connection.raw_sql("SET preserve_insertion_order = false")
        self.connection.raw_sql("SET enable_progress_bar = false")

    def fork(self) -> Engine:
        """Return a second connection: the same views, temporary tables of its own."""
        other = object.__new__(Engine)
        other.connection = ibis.duckdb.from_connection(self.connection.con.cursor())
        return other

    def view(self, table: str, files: Mapping[Path, set[str]]) -> None:
        """Make the view ``table`` over its segments; each file comes with the columns it has.

        A column that a file lacks is null, a column that the schema lacks is ignored, and with
        no file at all the view has the schema's columns and no row.
        """
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
        paths = ", ".join("'" + str(path).replace("'", "''") + "'" for path in sorted(files))
        self.connection.raw_sql(
            f"CREATE VIEW {table} AS SELECT {chosen} "
            f"FROM read_parquet([{paths}], union_by_name = true)"
        )

    def table(self, name: str) -> ibis.Table:
        """Return the view or materialised table ``name``, lazily."""
        return self.connection.table(name)

    def write_csv(self, expression: ibis.Table, path: Path) -> None:
        """Run ``expression`` and write its rows to a CSV file with a header; none pass Python."""
        sql = self.connection.compile(expression)
        place = str(path).replace("'", "''")
        self.connection.raw_sql(f"COPY ({sql}) TO '{place}' (FORMAT csv, HEADER)")

    def materialise(self, name: str, expression: ibis.Table) -> ibis.Table:
        """Run ``expression`` once and keep its rows under ``name``; several passes share it."""
        # what execute() does for frames that are inlined
        self.connection._run_pre_execute_hooks(expression)
        sql = self.connection.compile(expression)
        self.connection.raw_sql(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")
        return self.table(name)


def fetch(expression: ibis.Table) -> pd.DataFrame:
    """Execute an aggregate and return its rows; the only way from DuckDB into Python."""
    return expression.to_pandas()


def inline(frame: pd.DataFrame | list[dict[str, Any]]) -> ibis.Table:
    """Make a small frame a table that can be joined with."""
    return ibis.memtable(frame)
