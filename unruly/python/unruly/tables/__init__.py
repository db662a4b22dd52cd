"""The trace as lazy Ibis expressions: tables in, tables out; nothing here executes by itself.

``columns`` knows what a trace table holds, ``engine`` runs expressions, ``opening`` chooses DuckDB
or Spark, ``selection`` finds exact quantiles in bounded memory, and each other module is a family
of expressions.
"""

from unruly.tables.columns import SCHEMA_VERSION, TABLES, required_columns
from unruly.tables.engine import Engine, fetch, inline
from unruly.tables.opening import open_engine

__all__ = [
    "SCHEMA_VERSION",
    "TABLES",
    "Engine",
    "fetch",
    "inline",
    "open_engine",
    "required_columns",
]
