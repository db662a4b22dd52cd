"""What runs the expressions: an interface, and results as frames.

An expression is written once, in what all engines have. What they have no common form of stands
behind the interface: a view over Parquet files, rows that are kept, rows that are written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

import ibis

from unruly.errors import TraceError
from unruly.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pandas as pd

NAMES: Final = frozenset({"cell", "op", "process", "host", "phase", "layer", "service"})
"""Columns whose values are printed as they are."""


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
    def define(self, name: str, expression: ibis.Table) -> ibis.Table:
        """Make a view ``name`` of ``expression``, which forks have too, and return it.

        Translating an expression takes longer than running it over a short run. What is built on
        the view is translated without its definition.
        """

    @abstractmethod
    def materialise(self, name: str, expression: ibis.Table) -> ibis.Table:
        """Run ``expression`` once and keep its rows under ``name``; several passes share it."""

    @abstractmethod
    def forget(self, name: str) -> None:
        """Give back what the kept table ``name`` takes, if there is one."""

    @abstractmethod
    def write_csv(self, expression: ibis.Table, path: Path) -> None:
        """Run ``expression`` and write its rows to a CSV file with a header."""


def fetch(expression: ibis.Table) -> pd.DataFrame:
    """Execute an aggregate and return its rows; the only way from an engine into Python.

    Raises
    ------
    TraceError
        When a name holds a control character: printed, it could hide or forge a line.
    """
    frame = expression.to_pandas()
    for column in NAMES.intersection(frame.columns):
        values = frame[column].dropna()
        # some expressions gather names in lists
        single = len(values) and isinstance(values.iloc[0], str)
        for name in values.unique() if single else ():
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
