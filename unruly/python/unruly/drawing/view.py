"""One analysis as the page sees it: its label, the palette's order, and how much may be drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from unruly.drawing.chart import MOST_COLOURS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.base.analysis import Analysis
    from unruly.base.operation import CellSummary

ALL = "*"
LATENCIES = ("response", "service")
PAPER_ORDER = ("null", "crypto", "disk", "network", "mixed")
POINTS = 1_500
"""Points that a scatter may hold on a page of one run; several runs share them."""


@dataclass(frozen=True)
class View:
    """An analysis to be drawn.

    ``ops`` are the workloads that are drawn, in palette order, the same for every view of a page;
    ``place`` numbers the view; ``points`` bounds what one figure may carry. ``advice`` is drawn
    under "What would help?" where somebody asked for it.
    """

    analysis: Analysis
    label: str
    ops: tuple[str, ...]
    place: int
    points: int
    advice: object | None = None

    def key(self, name: str) -> str:
        """Return the id of a figure, unique on the page."""
        return f"{name}-{self.place}"

    @property
    def drawn_ops(self) -> list[str]:
        """The workloads of the palette that this run has."""
        have = {cell.op for cell in self.analysis.cells}
        return [op for op in self.ops if op in have]

    @property
    def cells(self) -> list[str]:
        """The cells of the plan's matrix, in order."""
        return list(dict.fromkeys(cell.cell for cell in self.analysis.cells))

    @property
    def rows(self) -> int:
        """How many measured rows there are."""
        return sum(c.n for c in self.overall("response"))

    @property
    def failed(self) -> int:
        """How many of them did not end well."""
        return sum(c.failed for c in self.overall("response"))

    def overall(self, latency: str) -> list[CellSummary]:
        """Return a summary of each cell over all its workloads."""
        rows = [c for c in self.analysis.cells if c.latency == latency]
        alls = [c for c in rows if c.op == ALL]
        have = {c.cell for c in alls}
        return alls + [c for c in rows if c.cell not in have]

    def first_of_all(self, latency: str) -> CellSummary | None:
        """Return the summary of the first cell over all its workloads.

        Several histograms are not added up: a cell that has them has no such summary.
        """
        rows = self.overall(latency)
        several = len(rows) > 1 and rows[0].op != ALL and rows[1].cell == rows[0].cell
        return None if several or not rows else rows[0]

    @property
    def summaries(self) -> list[CellSummary]:
        """The summaries to show: of a cell with one workload, not the sum that says the same."""
        cells = self.analysis.cells
        ops = {name: {c.op for c in cells if c.cell == name} - {ALL} for name in self.cells}
        return [c for c in cells if c.op != ALL or len(ops[c.cell]) != 1]

    def by_op(self, latency: str, cell: str | None = None) -> list[CellSummary]:
        """Return a summary of each workload, in palette order, without the sum over them."""
        cell = cell if cell is not None else (self.cells or [""])[0]
        rows = [c for c in self.analysis.cells if c.latency == latency and c.cell == cell]
        named = [c for c in rows if c.op != ALL] or rows
        order = {op: index for index, op in enumerate(self.ops)}
        return sorted(named, key=lambda c: (order.get(c.op, len(order)), c.op))

    @property
    def observers(self) -> int:
        """How many processes sent requests: with one there is nobody to agree with."""
        return len(self._ends("sender"))

    @property
    def receivers(self) -> int:
        """How many processes answered requests."""
        return len(self._ends("receiver"))

    def _ends(self, side: str) -> set[str]:
        pairs = self.analysis.by.get("pairs")
        return set() if pairs is None or pairs.empty else {str(it) for it in pairs[side]}

    def node_names(self) -> list[str]:
        """Return the names of all senders and receivers, numbers in numeric order."""
        return sorted(self._ends("sender") | self._ends("receiver"), key=natural)


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key by which ``n10`` follows ``n9``."""
    parts: list[tuple[int, int, str]] = []
    word = ""
    for character in name + "\0":
        kind = character.isascii() and character.isdigit()
        if word and (word[-1].isdigit() and word[-1].isascii()) != kind:
            parts.append(
                (0, int(word), "") if word[0].isdigit() and word.isascii() else (1, 0, word)
            )
            word = ""
        word += character
    return tuple(parts)


def views_of(
    analyses: Sequence[Analysis],
    advice: Sequence[object | None] | None = None,
    names: Sequence[str] = (),
) -> list[View]:
    """Return the analyses with unique labels and one palette order over all of them."""
    advised = list(advice) if advice is not None else [None] * len(analyses)
    weights: dict[str, int] = {}
    for analysis in analyses:
        for cell in analysis.cells:
            if cell.op != ALL and cell.latency == "response":
                weights[cell.op] = weights.get(cell.op, 0) + cell.n
    kept = sorted(weights, key=lambda op: -weights[op])[:MOST_COLOURS]
    order = {op: index for index, op in enumerate(PAPER_ORDER)}
    ops = tuple(sorted(kept, key=lambda op: (order.get(op, len(order)), natural(op))))
    labels = unique_labels(
        names or [a.run.tag or a.run.name for a in analyses], [a.run.id for a in analyses]
    )
    points = max(200, POINTS // max(1, len(analyses)))
    return [
        View(_told_once(a), label, ops, i, points, said)
        for i, (a, label, said) in enumerate(zip(analyses, labels, advised, strict=True))
    ]


def unique_labels(names: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the names, each with its other name where two are alike.

    Examples
    --------
    >>> unique_labels(["old", "new"], ["run-1", "run-2"])
    ['old', 'new']
    >>> unique_labels(["old", "old"], ["run-1", "run-2"])
    ['old (run-1)', 'old (run-2)']
    """
    labels: list[str] = []
    for name, other in zip(names, others, strict=True):
        # JSON may hold half of a surrogate pair, which no frame and no file can.
        label = name.encode("utf-8", "replace").decode("utf-8")
        label = f"{label} ({other})" if list(names).count(name) > 1 else label
        while label in labels:
            label += "*"
        labels.append(label)
    return labels


def _told_once(analysis: Analysis) -> Analysis:
    """Without a schedule response and service time are the same: only one of them is shown."""
    if analysis.scheduled:
        return analysis
    frame = analysis.distribution
    return replace(
        analysis,
        cells=[cell for cell in analysis.cells if cell.latency == "response"],
        distribution=frame[frame["latency"] == "response"],
    )
