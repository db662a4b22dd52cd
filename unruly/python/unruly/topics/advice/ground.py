"""What all advice stands on: pings, whole requests, the timeouts to try, and groups in windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from unruly.quantity import duration
from unruly.stats import blind_spot
from unruly.stats.blocks import BLOCKS
from unruly.tables import advice as advice_tables
from unruly.tables import fetch, inline
from unruly.topics.advice.model import EVERY, Absent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import ibis
    from numpy.typing import NDArray

    from unruly.base.context import Context

Key = tuple[str, str]
"""(cell, op)."""

REPLIES_WANTED: Final = 4
"""Windows are as short as possible, but long enough for about this many replies of each pair."""
PAIRS_MAX: Final = 300_000
"""(window, pair) that come into Python; beyond, windows are longer."""
TIMEOUTS_MAX: Final = 24
SUBJECTS_MAX: Final = 64
LADDER_S: Final = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600,
    7200, 14400, 43200, 86400,
)  # fmt: skip
MANTISSAS: Final = ((1.0, 1.5, 2.0, 3.0, 5.0, 7.0), (1.0, 2.0, 5.0), (1.0, 3.0), (1.0,))
CRASHED: Final = 9e-4
BYZANTINE: Final = 1e-4
"""Three nines of correct and four of benign machines: the example of the paper on XFT."""
NOT_GROUPS: Final = "its requests go to no group of peers: clients and servers are different ones"


@dataclass(frozen=True)
class Wanted:
    """What a person may set; the defaults filled in."""

    faults: int
    confidence: float
    level: float
    timeouts_ns: tuple[float, ...]
    """Asked for; empty for those of the data."""
    window_ns: int | None
    crashed: float = CRASHED
    byzantine: float = BYZANTINE


@dataclass(frozen=True)
class Squares:
    """What members of groups saw of one another, window by window, of one (cell, op)."""

    seen_ns: NDArray[np.float64]
    """(groups, members, members): the slowest reply; NaN where there is no such pair."""
    windows: NDArray[np.int64]
    sizes: tuple[int, ...]
    left_out: int
    """Groups of a window in which some pair had no reply due."""


@dataclass(frozen=True)
class Ground:
    """One run while it is asked for advice."""

    context: Context
    wanted: Wanted
    resolution_ns: float
    timeouts_ns: tuple[float, ...]
    left_out: dict[str, str]
    pings: pd.DataFrame
    """cell, op, n, pairs, period_ns, failed, median, largest: the subjects."""
    late: pd.DataFrame
    requests: ibis.Table
    meshed: frozenset[Key]
    window_ns: int
    too_many: tuple[Absent, ...]

    @classmethod
    def of(cls, context: Context, wanted: Wanted) -> Ground:
        """Read the run once for pings, and once for whole requests."""
        context.progress("pings")
        engine, cells = context.run.engine, _meshed_cells(context)
        dead = killed(context)
        rows = context.rows if dead is None else advice_tables.without_killed(context.rows, dead)
        expression = advice_tables.pings(rows, places(context), sorted(cells), BLOCKS)
        pinged = engine.materialise("advice_pings", expression)
        extents = fetch(advice_tables.ping_extents(pinged))
        resolution_ns = _resolution_ns(context)
        timeouts, left_out = _timeouts(extents, resolution_ns, wanted.timeouts_ns)
        kept, too_many = _most(extents)
        late = fetch(advice_tables.late_pings(pinged, timeouts)) if timeouts else pd.DataFrame()
        context.progress("requests")
        requests = engine.materialise("advice_requests", advice_tables.asked(context.rows))
        sizes = fetch(advice_tables.group_sizes(requests))
        grouped = set(zip(sizes["cell"], sizes["op"], strict=True))
        meshed = frozenset(key for key in grouped if key[0] in cells)
        own = extents[[key in meshed for key in _keys(extents)]]
        window = wanted.window_ns or _window_ns(own)
        return cls(
            context, wanted, resolution_ns, timeouts, left_out, kept, late, requests, meshed,
            window, too_many,
        )  # fmt: skip

    @property
    def blind_spot(self) -> str:
        """A sentence about events so rare that the run may have missed them."""
        # what holds for every cell is what the shortest one saw
        shortest = float(self.context.lengths_ns.min())
        _, every_ns = blind_spot(shortest, self.wanted.confidence)
        return f"Nothing is known of what happens less often than every {duration(every_ns)}."

    @property
    def subjects(self) -> list[Key]:
        """The (cell, op) that are advised."""
        return _keys(self.pings)

    def squares(self) -> dict[Key, Squares]:
        """Groups in windows, of every subject that has groups."""
        wanted = [key for key in self.subjects if key in self.meshed]
        if not wanted:
            return {}
        self.context.progress("groups in windows")
        starts = self.context.extents.groupby(["cell", "repeat"], as_index=False)["first_ns"].min()
        origin = inline(starts.rename(columns={"first_ns": "origin_ns"}))
        chosen = self.requests.inner_join(
            inline([{"cell": cell, "op": op} for cell, op in wanted]), ["cell", "op"]
        )
        frame = fetch(
            advice_tables.seen_in_windows(chosen, origin, self.window_ns, killed(self.context))
        )
        return {
            (str(cell), str(op)): _squares(part)
            for (cell, op), part in frame.groupby(["cell", "op"])
        }


def places(context: Context, *, whole_cell: bool = False) -> ibis.Table:
    """Where each (cell, repeat, op) lies in its own measured time, or in its cell's."""
    frame = context.places(BLOCKS)
    keys, columns = ["cell", "repeat", "op"], ["first_ns", "before_ns", "block_ns"]
    if whole_cell:
        frame = frame[[*keys, *(f"cell_{name}" for name in columns)]]
        return inline(frame.rename(columns={f"cell_{name}": name for name in columns}))
    return inline(frame[[*keys, *columns]])


def killed(context: Context) -> ibis.Table | None:
    """Whom an injected fault killed, and when; None when it killed nobody."""
    events = context.run.events
    deaths = fetch(
        events.filter(events.kind == "fault kill")
        .group_by("cell", "repeat", "process")
        .agg(from_ns=lambda t: t.started_ns.min())
        .order_by("cell", "repeat", "process")
    )
    rows = [
        {"cell": row["cell"], "repeat": row["repeat"], "node": node[1], "from_ns": row["from_ns"]}
        for row in deaths.to_dict("records")
        if (node := context.node(str(row["process"]), str(row["cell"]), int(row["repeat"])))
    ]
    return inline(rows) if rows else None


def timeout_grid(low_ns: float, high_ns: float) -> tuple[float, ...]:
    """Round values on a log scale, from below `low_ns` to above `high_ns`, at most 24.

    Examples
    --------
    >>> [t / 1e6 for t in timeout_grid(0.9e6, 11e6)]
    [0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0]
    """
    first = int(np.floor(np.log10(low_ns))) - 1
    last = int(np.ceil(np.log10(high_ns))) + 1
    grid: list[float] = []
    for mantissas in MANTISSAS:
        grid = [
            float(f"{step * 10.0**power:.6g}")
            for power in range(first, last + 1)
            for step in mantissas
        ]
        below = max((t for t in grid if t <= low_ns), default=grid[0])
        above = min((t for t in grid if t >= high_ns), default=grid[-1])
        grid = [t for t in grid if below <= t <= above]
        if len(grid) <= TIMEOUTS_MAX:
            return tuple(grid)
    return tuple(grid[-TIMEOUTS_MAX:])


def _timeouts(
    extents: pd.DataFrame, resolution_ns: float, asked: Sequence[float]
) -> tuple[tuple[float, ...], dict[str, str]]:
    medians = extents["median"][np.isfinite(extents["median"])]
    known = extents["largest"].dropna()
    grid: tuple[float, ...] = ()
    if len(medians) and len(known):
        low = max(float(medians.min()), resolution_ns, 1.0)
        grid = timeout_grid(low, max(float(known.max()), low))
    finest = duration(resolution_ns)
    left_out = {
        duration(t): f"it is below the resolution of this run's clocks, {finest}"
        for t in asked
        if t < resolution_ns
    }
    kept = {t for t in (*grid, *asked) if t >= resolution_ns}
    return tuple(sorted(kept)), left_out


def _resolution_ns(context: Context) -> float:
    """Return the unit of which every stamp is a multiple, often 1 ms in an imported run."""
    found = fetch(advice_tables.resolution(context.rows)).to_dict("records")[0]
    units = [unit for unit in advice_tables.RESOLUTIONS_NS if bool(found[f"of_{unit}"])]
    return float(max(units, default=1))


def _keys(frame: pd.DataFrame) -> list[Key]:
    return [(str(c), str(o)) for c, o in zip(frame["cell"], frame["op"], strict=True)]


def _most(extents: pd.DataFrame) -> tuple[pd.DataFrame, tuple[Absent, ...]]:
    if len(extents) <= SUBJECTS_MAX:
        return extents, ()
    kept = extents.nlargest(SUBJECTS_MAX, "n").sort_values(["cell", "op"])
    reason = f"{len(extents)} cells and ops: the {SUBJECTS_MAX} with most rows are looked at"
    return kept.reset_index(drop=True), (Absent(EVERY, EVERY, reason),)


def _meshed_cells(context: Context) -> set[str]:
    return {
        str(p.get("cell"))
        for p in context.run.manifest.get("processes") or []
        if isinstance(p, dict) and p.get("kind") == "mesh"
    }


def _window_ns(pings: pd.DataFrame) -> int:
    """Return the shortest window with enough replies of each pair, and not too many windows."""
    known = pings[np.isfinite(pings["period_ns"].astype(float))]
    if known.empty:
        return int(LADDER_S[6] * 1e9)
    # a jittered period is measured a little long
    shortest = 0.95 * REPLIES_WANTED * float(known["period_ns"].max())
    bounded = float((known["n"] * known["period_ns"]).sum()) / PAIRS_MAX
    enough = [s for s in LADDER_S if s * 1e9 >= max(shortest, bounded)]
    return int((enough[0] if enough else LADDER_S[-1]) * 1e9)


def _squares(frame: pd.DataFrame) -> Squares:
    """Return the pairs of one (cell, op) as a square matrix for each group and window."""
    labels = {label: _numbers(label) for label in frame["label"].unique()}
    member = pd.DataFrame(
        [(label, node, place) for label, nodes in labels.items() for place, node in
         enumerate(nodes)],
        columns=["label", "node", "place"],
    )  # fmt: skip
    for end in ("client", "server"):
        renamed = member.rename(columns={"node": end, "place": f"{end}_place"})
        frame = frame.merge(renamed, on=["label", end], how="inner")
    frame = frame.sort_values(["repeat", "window", "label"], kind="stable")
    item, items = pd.factorize(pd.MultiIndex.from_frame(frame[["repeat", "window", "label"]]))
    most = max((len(nodes) for nodes in labels.values()), default=2)
    table = np.full((len(items), most, most), np.nan)
    table[item, frame["client_place"], frame["server_place"]] = frame["worst"].to_numpy()
    # a member in no pair was killed: the others form a group without it
    seen = ~np.isnan(table)
    size = (seen.any(axis=1) | seen.any(axis=2)).sum(axis=1)
    whole = seen.sum(axis=(1, 2)) == size * (size - 1)
    window, _ = pd.factorize(pd.MultiIndex.from_tuples([(r, w) for r, w, _ in items]))
    return Squares(
        table[whole],
        window[whole].astype(np.int64),
        tuple(sorted({int(s) for s in size[whole]})),
        int((~whole).sum()),
    )


def _numbers(label: Any) -> list[int]:
    return [int(number) for number in str(label).split(",")]
