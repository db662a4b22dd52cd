"""The trace as lazy Ibis expressions: tables in, tables out; nothing here executes by itself.

``columns`` knows what a trace table holds, ``engine`` owns the DuckDB connection, and each other
module is a family of expressions.
"""

from unruly.tables.columns import SCHEMA_VERSION, TABLES, required_columns
from unruly.tables.engine import Engine, fetch, inline

__all__ = ["SCHEMA_VERSION", "TABLES", "Engine", "fetch", "inline", "required_columns"]
