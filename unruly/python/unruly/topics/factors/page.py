"""What the report shows of a matrix of cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.drawing import tables
from unruly.drawing.pieces import Piece, TopicPage
from unruly.topics.factors import figures
from unruly.topics.factors.figures_cells import cells
from unruly.topics.factors.figures_systems import systems
from unruly.topics.factors.statistics import factors_of

if TYPE_CHECKING:
    from unruly.drawing.document import Figure, Table
    from unruly.drawing.view import View


def _cells(view: View) -> Figure | None:
    return figures.haircut(view) or cells(view)


def _unruliness(view: View) -> Table | None:
    return None if factors_of(view.analysis) else tables.unruliness(view)


def _unruliness_of_many(view: View) -> Table | None:
    """Return a row for each cell, which is a page of rows: beside a matrix it is closed."""
    return tables.unruliness(view) if factors_of(view.analysis) else None


PAGE: Final = TopicPage(
    (
        Piece("unruly", "figures", 130, _cells),
        Piece("unruly", "figures", 140, figures.ratios),
        Piece("unruly", "figures", 150, figures.p99_on_mean),
        Piece("unruly", "figures", 160, figures.outliers),
        Piece("unruly", "figures", 170, figures.by_level),
        Piece("unruly", "tables", 190, systems),
        Piece("unruly", "tables", 200, _unruliness),
        Piece("unruly", "closed_tables", 100, figures.matrix_table),
        Piece("unruly", "closed_tables", 200, _unruliness_of_many),
        Piece("slow", "figures", 200, figures.explained),
        Piece("slow", "closed_tables", 400, figures.resource_table),
    )
)
