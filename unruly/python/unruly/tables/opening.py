"""Which engine a name means, and how much memory it may take."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from unruly.errors import EngineError

if TYPE_CHECKING:
    from unruly.tables.engine import Engine

DUCKDB: Final = "duckdb"
_SPARK: Final = re.compile(r"spark://[^\s/:]+:\d+|local(\[(\d+|\*)\])?")
_MEMORY: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?B)", re.IGNORECASE)
_UNITS: Final = {letter: power for power, letter in enumerate("KMGT", start=1)}


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
        For any other name or size, or if a package that the engine needs is not installed.
    """
    size = None if memory is None else parse_memory(memory)
    if name == DUCKDB:
        from unruly.tables.duckdb_engine import DuckDBEngine  # noqa: PLC0415 - load one engine

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
