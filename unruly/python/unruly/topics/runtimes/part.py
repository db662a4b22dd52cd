"""What the passes by runtime share: some cells of a run, and their copies kept by the engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ibis
    import pandas as pd

    from unruly.base.context import Context


@dataclass(frozen=True)
class RuntimePart:
    """Some cells of a run, their copies kept by the engine."""

    context: Context
    rows: ibis.Table
    """As `unruly.topics.runtimes.tables.placed` gives them."""
    places: pd.DataFrame
    """Each (cell, repeat, op) with its numbers."""
    agents: pd.DataFrame
    """cell, repeat, node, process, jvm, place."""

    @cached_property
    def cells(self) -> dict[int, str]:
        """The cell of each ``whole``."""
        named = self.places.drop_duplicates("whole")
        return {int(it["whole"]): str(it["cell"]) for it in named.to_dict("records")}
