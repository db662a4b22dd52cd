"""What the report shows of a run that drives a store."""

from __future__ import annotations

from typing import Final

from unruly.drawing.pieces import Piece, TopicPage
from unruly.topics.stores import section
from unruly.topics.stores.figures_faults import faults
from unruly.topics.stores.figures_flow import flow
from unruly.topics.stores.figures_loads import ramps, scalings
from unruly.topics.stores.figures_tails import tails

PAGE: Final = TopicPage(
    (
        Piece("promise", "figures", 200, ramps),
        Piece("promise", "tables", 100, section.targets),
        Piece("promise", "closed_tables", 200, section.loads),
        Piece("unruly", "figures", 120, tails),
        Piece("unruly", "figures", 300, scalings),
        Piece("unruly", "tables", 100, section.tails),
        Piece("where", "figures", 100, flow),
        Piece("where", "figures", 110, faults),
        Piece("where", "tables", 100, section.faults),
    )
)
