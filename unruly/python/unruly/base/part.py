"""A part of a run: whole cells whose rows are read once and kept, with numbers in place of names.

A row is looked at some ten times (moments, quantiles, limits, blocks, streaks). Kept rows are a
tenth of the work each time: no file is read, and no name is hashed.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from unruly.stats.blocks import BLOCKS
from unruly.tables import inline
from unruly.tables import requests as request_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    import ibis
    import pandas as pd

    from unruly.base.context import Context

KEPT = "part_rows"
PLACE = ["cell", "repeat", "op", "number", "first_ns", "before_ns", "block_ns"]
SEVERAL = ["whole", "place", "cell_first_ns", "cell_before_ns", "cell_block_ns"]
"""The same for cells of several ops or repeats."""


@dataclass(frozen=True)
class Part:
    """Some cells of a run.

    ``rows`` have the columns to analyse and the numbers of their groups. ``number`` identifies the
    (cell, op), ``whole`` the cell, and ``place`` the (cell, repeat). ``block`` is the block of time
    among the rows of the op, and ``cell_block`` that among all rows of the cell.
    """

    context: Context
    rows: ibis.Table
    places: pd.DataFrame
    """Each (cell, repeat, op) with its numbers."""

    @classmethod
    def of(cls, context: Context) -> Part:
        """Number the rows."""
        places = context.places(BLOCKS)
        plain = places["cell"].is_unique
        table = inline(places[PLACE if plain else PLACE + SEVERAL])
        rows = request_tables.numbered(context.rows, table, BLOCKS)
        return cls(context, rows, places)

    @classmethod
    @contextmanager
    def kept(cls, context: Context) -> Iterator[Part]:
        """The same, with the rows kept until the end of the block."""
        part, engine = cls.of(context), context.run.engine
        try:
            rows = engine.materialise(KEPT, part.rows)
            yield replace(part, rows=request_tables.with_all_numbers(rows))
        finally:
            engine.forget(KEPT)

    @cached_property
    def names(self) -> pd.DataFrame:
        """``cell`` and ``op`` of each ``number``, and ``whole``."""
        named = self.places[["number", "whole", "cell", "op"]].drop_duplicates("number")
        return named.sort_values("number", ignore_index=True)

    @cached_property
    def cells(self) -> dict[int, str]:
        """The cell of each ``whole``."""
        return dict(zip(self.names["whole"], self.names["cell"], strict=True))

    @cached_property
    def several(self) -> list[str]:
        """Cells of several ops."""
        ops = self.names["cell"].value_counts(sort=False)
        return [str(cell) for cell in ops[ops > 1].index]
