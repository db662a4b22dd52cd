"""A topic: one subject of an analysis, from its measurement to its section of the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from unruly.base.cells import Cells
    from unruly.base.context import Context
    from unruly.base.model import Options
    from unruly.base.operation import CellSummary
    from unruly.base.part import Part
    from unruly.base.rule import Rule
    from unruly.base.tails import Far
    from unruly.base.target import Target
    from unruly.base.worked import Worked
    from unruly.drawing.pieces import TopicPage


@dataclass(frozen=True)
class Asked:
    """What somebody asked of an analysis, as `unruly.analyse` takes it; defaults filled in.

    ``several`` is True for a run of several cells. ``target`` is None where no target is judged.
    """

    options: Options
    pictures: bool
    interactions: bool
    causes: bool
    slow_beyond_ns: int | None
    target: Target | None
    several: bool


@dataclass(frozen=True)
class Look:
    """What a topic is judged by, once the cells are known.

    Attributes
    ----------
    context : Context
        The run.
    asked : Asked
        What was asked.
    rows : list of CellSummary
        Each (cell, op, latency) of the requests in the trace.
    summaries : list of CellSummary
        The same, and those of imported histograms.
    far : mapping
        The far tail of each (cell, op), where the run is held to a target.
    whole : object
        What the topic's `measure` returned; None where it has none.
    parts : list
        What the topic's `measure_part` returned for each part of the run.
    """

    context: Context
    asked: Asked
    rows: list[CellSummary]
    summaries: list[CellSummary]
    far: Mapping[tuple[str, str], Far]
    whole: Any
    parts: list[Any]


def _never_silent(_: Any) -> frozenset[str]:
    return frozenset()


@dataclass(frozen=True)
class Topic:
    """One subject: what it measures, judges, finds and shows.

    Attributes
    ----------
    name : str
        The key of ``analysis.topics`` and of ``summary.json``.
    applies : callable
        True if this run is about the topic. Else it is neither measured nor judged.
    measure : callable, optional
        Reads the whole run, in parallel with the passes over the cells.
    measure_part : callable, optional
        Reads some whole cells, whose rows the engine keeps meanwhile.
    judge : callable
        Returns the topic's model of the data that was read; None if there is nothing to report.
    rules : tuple of Rule
        Raise the topic's findings.
    summary : callable
        Returns what the topic says in ``summary.json``: a dataclass, which its annotation names.
        The schema of the summary is written from that class.
    page : callable, optional
        Returns what the report shows. It imports the figures when it is called, because importing
        Altair takes a second.
    measures_nothing : bool
        True if the topic is judged even if no row was measured.
    worked : callable, optional
        Returns how long it measured, in ns, and whether it worked: of a run without a row of
        ``requests``, which the topic answers for.
    silences : callable
        Returns codes of shared rules that do not apply to a run with this model.
    """

    name: str
    applies: Callable[[Context, Asked], bool]
    judge: Callable[[Look], object | None]
    summary: Callable[[Any], object]
    rules: tuple[Rule, ...] = ()
    page: Callable[[], TopicPage] | None = None
    measure: Callable[[Context, Asked], object | None] | None = None
    measure_part: Callable[[Part, Cells], object | None] | None = None
    measures_nothing: bool = False
    worked: Callable[[Any], tuple[float, Worked]] | None = None
    silences: Callable[[Any], frozenset[str]] = _never_silent
