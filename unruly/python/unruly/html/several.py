"""Several runs on one page: what differs, one table of the answers, the curves in one picture."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from unruly.drawing import format
from unruly.drawing.document import Datum, Part, Section, Statement, Table, number, table, text
from unruly.drawing.measured import Measured
from unruly.html.figures import environments
from unruly.html.figures.shift import comparison_sections
from unruly.html.verdict import spread, statements

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from unruly.base.comparison import Compared, Comparison
    from unruly.base.operation import CellSummary
    from unruly.drawing.view import View

ANSWERS = ("did it work", "can I trust it", "what can I promise", "why were some slow")


def compared(views: Sequence[View], comparison: Comparison | None) -> list[Section]:
    """Return the sections above the single runs."""
    figures = (
        environments.overlaid(views),
        environments.by_workload(views),
        environments.slow_everywhere(views),
        environments.correlated_everywhere(views),
    )
    side = Part(
        tables=(side_by_side(views),),
        figures=tuple(figure for figure in figures if figure is not None),
    )
    shifts = comparison_sections(comparison) if comparison else []
    return [Section("environments", "How do they compare?", (side,)), *shifts]


def headlines(comparison: Comparison | None) -> tuple[Statement, ...]:
    """Return one large answer for each run that was held against the first."""
    if comparison is None:
        return ()
    pairs: dict[tuple[str, str], list[Compared]] = {}
    for result in comparison.results:
        pairs.setdefault((result.a, result.b), []).append(result)
    return tuple(_headline(a, b, found) for (a, b), found in pairs.items())


def _headline(a: str, b: str, found: Sequence[Compared]) -> Statement:
    differs = [it for it in found if it.outcome == "different"]
    question = f"Does {b} differ from {a}?"
    if differs:
        moved = {word for it in differs for q in it.moved for word in [q.outcome]}
        ways = [way for way in ("slower", "faster") if way in moved]
        answer = format.capital(" and ".join(ways)) or "Yes"
        told = "; ".join(f"{it.op}: {it.sentence}" for it in differs)
        return Statement(question, answer, _end(told), "bad" if ways == ["slower"] else "plain")
    undecided = [it for it in found if it.outcome == "undecided"]
    if undecided:
        reasons = dict.fromkeys(it.sentence for it in undecided)
        return Statement(question, "Undecided", _end("; ".join(reasons)))
    reasons = dict.fromkeys(it.sentence for it in found)
    return Statement(question, "Not shown", _end("; ".join(reasons)))


def _end(words: str) -> str:
    return f"{format.capital(words)}."


def side_by_side(views: Sequence[View]) -> Table:
    """Return the runs as columns, the answers as rows."""
    rows = list(_answers(views))
    rows += _numbers(views)
    note = "" if all(len(v.cells) < 2 for v in views) else "Of the first configuration of each run."
    return table(["", *(view.label for view in views)], rows, "The runs side by side", note)


def _answers(views: Sequence[View]) -> Iterator[list[Datum]]:
    """The large answers of each run; one without rows has one of them, or two if data flowed."""
    measured = [Measured.of(view.analysis.run) for view in views]
    yield [text("measured"), *(_words(it.name) for it in measured)]
    if any(a.sentence != b.sentence for a, b in pairwise(measured)):
        yield [text("load"), *(_words(it.sentence or format.DASH) for it in measured)]
    answers = [statements(view) for view in views]
    for place, name in enumerate(ANSWERS):
        yield [
            text(name),
            *(
                Datum(own[place].answer, number=False, strong=True)
                if len(own) > 1 and place < len(own)
                else _words(own[0].answer if len(own) == 1 else format.DASH)
                for own in answers
            ),
        ]
    yield [text("started"), *(_words(it.started or format.DASH) for it in measured)]


def _words(shown: str) -> Datum:
    return Datum(shown, number=False)


def _numbers(views: Sequence[View]) -> Iterator[list[Datum]]:
    firsts = [view.first_of_all("response") for view in views]
    services = [view.first_of_all("service") for view in views]
    measured = any(view.rows for view in views)
    none = "several histograms are not added up" if measured else "nothing measured"

    def row(name: str, shown: Sequence[str], reasons: Sequence[str]) -> list[Datum]:
        fields = [number(it, why) for it, why in zip(shown, reasons, strict=True)]
        return [text(name), *(_left(it) for it in fields)]

    nones = [none] * len(views)
    yield row("measured for", [format.span(v.analysis.measured_ns or None) for v in views], nones)
    yield row("replies", [format.count(v.rows) for v in views], nones)
    failed = [format.share(v.failed / v.rows) if v.rows else format.DASH for v in views]
    yield row("failed", failed, nones)
    for field, name in (("p50", "p50"), ("p99", "p99"), ("p99_9", "p99.9")):
        for latency, found in (("response", firsts), ("service", services)):
            shown = [format.duration(getattr(c, field)) if c else format.DASH for c in found]
            yield row(f"{name}, {latency} time", shown, [_absent(c, field) for c in found])
    times = [format.times(spread(c)) if c else format.DASH for c in firsts]
    yield row("p99 over the median", times, [_absent(c, "p99") for c in firsts])
    if any(view.observers > 1 for view in views):
        named = [format.listing([n.node for n in v.analysis.slow_nodes.named]) for v in views]
        yield row("slow for all", [it or "nobody" for it in named], nones)


def _absent(c: CellSummary | None, field: str) -> str:
    return c.absent.get(field, "not given") if c else "nothing measured"


def _left(field: Datum) -> Datum:
    """Numbers of one column have different units: nothing would line up on the right."""
    return Datum(field.text, field.reason, number=False)
