"""What runs the expressions: an interface, which implementation a name means, results as frames.

An expression is written once, in what all engines have. What they have no common form of stands
behind the interface: a view over Parquet files, rows that are kept, rows that are written.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import ibis

from unruly.errors import EngineError, TraceError
from unruly.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pandas as pd

NAMES: Final = frozenset({"cell", "op", "process", "host", "phase"})
"""Columns whose values are printed as they are."""
DUCKDB: Final = "duckdb"
_SPARK: Final = re.compile(r"spark://[^\s/:]+:\d+|local(\[(\d+|\*)\])?")
_MEMORY: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?B)", re.IGNORECASE)
_UNITS: Final = {letter: power for power, letter in enumerate("KMGT", start=1)}


class Engine(ABC):
    """Holds the tables of one run as views, and runs expressions over them."""

    @abstractmethod
    def fork(self) -> Engine:
        """Return an engine for another thread: the same views, kept tables of its own."""

    @abstractmethod
    def view(self, table: str, files: Mapping[Path, set[str]]) -> None:
        """Make the view ``table`` over its segments; each file comes with the columns it has.

        A column that a file lacks is null, a column that the schema lacks is ignored, and with
        no file at all the view has the schema's columns and no row.
        """

    @abstractmethod
    def table(self, name: str) -> ibis.Table:
        """Return the view or kept table ``name``, lazily."""

    @abstractmethod
    def materialise(self, name: str, expression: ibis.Table) -> ibis.Table:
        """Run ``expression`` once and keep its rows under ``name``; several passes share it."""

    @abstractmethod
    def forget(self, name: str) -> None:
        """Give back what the kept table ``name`` takes, if there is one."""

    @abstractmethod
    def write_csv(self, expression: ibis.Table, path: Path) -> None:
        """Run ``expression`` and write its rows to a CSV file with a header."""


def open_engine(name: str = DUCKDB, memory: str | None = None) -> Engine:
    """Return a new engine.

    Parameters
    ----------
    name : str
        ``"duckdb"``, ``"spark://host:port"``, ``"local"``, ``"local[2]"`` or ``"local[*]"``.
    memory : str, optional
        What the engine may hold before it spills to disk, like ``"3GB"``; its own default else.

    Raises
    ------
    EngineError
        For any other name or size, or when what the engine needs is not installed.
    """
    size = None if memory is None else parse_memory(memory)
    if name == DUCKDB:
        from unruly.tables.duckdb_engine import DuckDBEngine  # noqa: PLC0415 - load what is used

        return DuckDBEngine(size)
    if _SPARK.fullmatch(name):
        if find_spec("pyspark") is None:
            raise EngineError(
                name, "PySpark is not installed", "PySpark 4", "pip install 'unruly[spark]'"
            )
        from unruly.tables.spark_engine import SparkEngine  # noqa: PLC0415 - pyspark is optional

        return SparkEngine(name, size)
    raise EngineError(
        "--engine", f"is {name!r}", "duckdb, spark://HOST:PORT or local[N]", "--engine local[2]"
    )


def parse_memory(text: str) -> int:
    """Return the bytes of a size with its unit.

    Raises
    ------
    EngineError
        When it is none, or has no unit.

    Examples
    --------
    >>> parse_memory("3GB"), parse_memory("512 MiB")
    (3000000000, 536870912)
    """
    found = _MEMORY.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise EngineError("--memory", f"is {text!r}", "a size with its unit", "--memory 3GB")
    unit = found[2].upper()
    base = 1024 if "I" in unit else 1000
    return int(float(found[1]) * base ** _UNITS[unit[0]])


def fetch(expression: ibis.Table) -> pd.DataFrame:
    """Execute an aggregate and return its rows; the only way from an engine into Python.

    Raises
    ------
    TraceError
        When a name holds a control character: printed, it could hide or forge a line.
    """
    frame = expression.to_pandas()
    for column in NAMES.intersection(frame.columns):
        for name in frame[column].dropna().unique():
            if isinstance(name, str) and plain(name) != name:
                raise TraceError(
                    f"{column} {plain(name)[:60]!r}",
                    "holds a control character",
                    "names of printable characters",
                    "measure or import the run again",
                )
    return frame


def inline(frame: pd.DataFrame | list[dict[str, Any]]) -> ibis.Table:
    """Make a small frame a table that can be joined with."""
    return ibis.memtable(frame)
