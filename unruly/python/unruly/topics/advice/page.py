"""What advice adds to the section "What would help?"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unruly.drawing import format
from unruly.drawing.document import Table, table, text
from unruly.drawing.pieces import Piece, TopicPage
from unruly.topics.advice.asked import advice_of
from unruly.topics.advice.figures_detection import advice_detection
from unruly.topics.advice.figures_hedge import advice_hedge
from unruly.topics.advice.figures_profit import advice_profit
from unruly.topics.advice.figures_replicas import advice_replicas
from unruly.topics.advice.figures_xft import advice_xft
from unruly.topics.advice.words import by_reason

if TYPE_CHECKING:
    from unruly.drawing.view import View
    from unruly.topics.advice.model import Part


def absent_advice(view: View) -> Table | None:
    """Return what could not be advised, and why."""
    said = advice_of(view)
    if said is None:
        return None
    rows = [
        [text(part.title or part.name), text(format.listing(who)), text(reason)]
        for part in (said.detection, said.replicas, said.xft, said.profit, said.hedge)
        for reason, who in by_reason(part.absent).items()
    ]
    rows += [
        [text("Timeouts"), text(f"T = {asked}"), text(why)] for asked, why in said.left_out.items()
    ]
    return table(("question", "of", "why there is no answer"), rows, "What cannot be advised")


def _lead(view: View) -> tuple[str, ...]:
    """Return one sentence of each part, of what needs the longest time: the op that decides."""
    said = advice_of(view)
    if said is None:
        return ()
    parts: tuple[Part[Any], ...] = (said.detection, said.replicas, said.xft, said.hedge)
    found = (max(it.rows, key=lambda row: row.chosen_ns or 0.0) for it in parts if it.rows)
    # they begin with the name of an op, which keeps its spelling
    return tuple(f"{it.sentence}." for it in found)


PAGE: Final = TopicPage(
    (
        Piece("help", "lead", 100, _lead),
        Piece("help", "figures", 100, advice_detection),
        Piece("help", "figures", 110, advice_replicas),
        Piece("help", "figures", 120, advice_xft),
        Piece("help", "figures", 130, advice_profit),
        Piece("help", "figures", 140, advice_hedge),
        Piece("help", "tables", 100, absent_advice),
    )
)
