"""What is counted while rows pass: how requests ended, figures by op, times, ticks of a clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

STATUSES: Final = (
    "ok", "timeout", "refused", "shed", "error", "unfinished", "wrong", "behind", "stale", "lost",
)  # fmt: skip
TICK_LEAST_NS: Final = 1_000
TICK_ROWS: Final = 100
OPS_MAX: Final = 1_000


@dataclass
class Figure:
    """What is known of one op of a cell."""

    n: int = 0
    failed: int = 0
    least: int | None = None
    most: int | None = None
    total: int = 0
    """Of the durations of those that were answered; an integer of any size."""

    def add(self, n: int, least: int | None, most: int | None, total: int, answered: int) -> None:
        """Add rows."""
        self.n += n
        self.failed += n - answered
        self.total += total
        if least is not None and most is not None:
            self.least = least if self.least is None else min(self.least, least)
            self.most = most if self.most is None else max(self.most, most)

    def values(self) -> dict[str, Any]:
        """As they stand in the manifest."""
        answered = self.n - self.failed
        return {
            "n": self.n,
            "failed": self.failed,
            "min_ns": self.least,
            "max_ns": self.most,
            "mean_ns": self.total / answered if answered else None,
        }


@dataclass
class Tick:
    """The largest step of which all durations are multiples."""

    step: int = 0
    n: int = 0
    least: int | None = None
    most: int = 0

    def add(self, durations: NDArray[np.int64]) -> None:
        """Look at some durations."""
        if not durations.size:
            return
        self.n += durations.size
        self.most = max(self.most, int(durations.max()))
        low = int(durations.min())
        self.least = low if self.least is None else min(self.least, low)
        if self.step != 1:
            self.step = int(np.gcd(self.step, int(np.gcd.reduce(durations))))

    @property
    def coarse_ns(self) -> int | None:
        """The step, when durations are many, differ, and all stand on it; else None."""
        if self.n < TICK_ROWS or self.step < TICK_LEAST_NS or self.least is None:
            return None
        return self.step if self.most - self.least >= 2 * self.step else None


@dataclass
class Tally:
    """The counts and figures that the manifest records about the rows."""

    by_status: dict[str, int] = field(default_factory=dict)
    figures: dict[tuple[str, str], Figure] = field(default_factory=dict)
    told: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """Figures that the source itself reports."""
    extents: dict[str, tuple[int, int]] = field(default_factory=dict)
    """First and last instant of each cell."""
    nodes: dict[tuple[str, str, int], None] = field(default_factory=dict)
    """(cell, ``drive`` or ``service``, number) that occur."""
    rows: dict[str, int] = field(default_factory=dict)

    def add_requests(self, columns: dict[str, Any]) -> None:
        """Count finished columns of ``requests``: arrays of one length."""
        cells, ops = columns["cell"], columns["op"]
        answered = pa.compute.equal(columns["status"], "ok")
        duration = pa.compute.subtract(columns["received_ns"], columns["intended_ns"])
        table = pa.table(
            {
                "cell": cells,
                "op": ops,
                "ok": answered.cast(pa.int64()),
                "taken": pa.compute.if_else(answered, duration, None),
                # halves, so that no sum of a batch overflows
                "high": pa.compute.if_else(answered, pa.compute.shift_right(duration, 31), 0),
                "low": pa.compute.if_else(
                    answered, pa.compute.bit_wise_and(duration, 2**31 - 1), 0
                ),
            }
        )
        grouped = table.group_by(["cell", "op"]).aggregate(
            [
                ([], "count_all"),
                ("ok", "sum"),
                ("taken", "min"),
                ("taken", "max"),
                ("high", "sum"),
                ("low", "sum"),
            ]
        )
        for row in grouped.to_pylist():
            total = (row["high_sum"] << 31) + row["low_sum"]
            self.figures.setdefault((row["cell"], row["op"]), Figure()).add(
                row["count_all"], row["taken_min"], row["taken_max"], total, row["ok_sum"]
            )
        for item in pa.compute.value_counts(columns["status"]).to_pylist():
            self.by_status[item["values"]] = self.by_status.get(item["values"], 0) + item["counts"]
        self._nodes(cells, columns["client"], "drive")
        self._nodes(cells, columns["server"], "service")
        ends = pa.compute.max_element_wise(columns["intended_ns"], columns["received_ns"])
        self.add_times(cells, columns["intended_ns"], ends)

    def _nodes(self, cells: Any, numbers: Any, kind: str) -> None:
        pairs = pa.table({"cell": cells, "number": numbers}).group_by(["cell", "number"])
        for row in pairs.aggregate([]).to_pylist():
            self.nodes[row["cell"], kind, row["number"]] = None

    def add_times(self, cells: Any, starts: Any, ends: Any) -> None:
        """Widen the extent of cells."""
        spans = pa.table({"cell": cells, "start": starts, "end": ends}).group_by("cell")
        for row in spans.aggregate([("start", "min"), ("end", "max")]).to_pylist():
            first, last = row["start_min"], row["end_max"]
            if first is None or last is None:
                continue
            known = self.extents.get(row["cell"], (first, last))
            self.extents[row["cell"]] = (min(known[0], first), max(known[1], last))

    def counts(self) -> dict[str, dict[str, int]]:
        """The counts of conservation, over requests and over copies."""
        copies = dict.fromkeys(STATUSES, 0)
        for status, number in self.by_status.items():
            copies[status.split(":", 1)[0]] += number
        rows = sum(self.by_status.values())
        copies |= {"scheduled": rows, "recorded": rows, "dropped": 0}
        answered = copies["ok"]
        requests = {"scheduled": rows, "answered": answered, "unanswered": rows - answered}
        return {"copies": copies, "requests": requests}

    def known(self) -> list[dict[str, Any]]:
        """Return the figures of each (cell, op); reported figures replace counted ones."""
        keys = sorted({*self.figures, *self.told})
        return [
            {
                "cell": cell,
                "op": op,
                **(self.figures[cell, op].values() if (cell, op) in self.figures else {}),
                **self.told.get((cell, op), {}),
            }
            for cell, op in keys
        ]
