"""When each workload had settled: inside its warm-up, or only after measurement had begun.

The levels (median and p99) of equal blocks, of warm-up and measured time together, show when. A
fault or a long pause is no warm-up. So blocks in which faults and pauses took more than a hundredth
of the requests' time are left out: that is enough to move a p99. The block after them is left out,
too, because requests that waited behind them are answered in it. If a fault came before the level
settled, there is no result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from unruly.base.quantiles import quantiles_of
from unruly.base.suspects import inside, merged
from unruly.quantity import count
from unruly.stats import settling
from unruly.tables import fetch, inline
from unruly.tables import warmup as warmup_tables

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from unruly.base.context import Context
    from unruly.contract import Absent, Count
    from unruly.stats import Interval

    Pauses = tuple[frozenset[tuple[str, int]] | None, NDArray[np.int64], NDArray[np.int64]]

PLACES_MOST: Final = 300
"""A run with more (cell, repeat, op) gets no warm-ups: nobody would read a row for each."""
BLOCKS_MOST: Final = 120
"""Finer than for changes: warm-ups are short."""
BLOCKS_LEAST: Final = 20
BLOCK_REQUESTS: Final = 200
"""On average; fewer, and the p99 of a block is its maximum."""
REQUESTS_LEAST: Final = 50
"""In a block: a slow store is asked less in a closed loop."""
DISTURBED_SHARE: Final = 0.01
DISTURBANCES_MOST: Final = 4_000
FLOOR: Final = 1.1
"""Early blocks that are slower by less than a tenth spoil nobody's numbers."""
Settled = Literal["median", "p99"]
LEVELS: Final[tuple[tuple[Settled, float], ...]] = (("median", 0.5), ("p99", 0.99))


@dataclass(frozen=True)
class WarmUp:
    """When one (cell, repeat, op) settled; None has its reason in ``absent``.

    ``began_ns`` is when load began, ``measured_ns`` when measurement did; ``settled_ns``, the
    beginning of a block of ``block_ns``, is ``began_ns`` where the level was there from the start.
    It is when both the median and the p99 had. ``level`` names the one that was clearly slower
    before (of both, or of neither, the one that settled last), ``slower`` is its measured blocks
    before it settled over the later ones.
    """

    cell: str
    repeat: int
    op: str
    began_ns: int
    measured_ns: int
    block_ns: float
    settled_ns: int | None = None
    level: Literal["", Settled] = ""
    slower: Interval | None = None
    left_out: Count = 0
    """Blocks that faults and pauses disturbed."""
    absent: Absent = field(default_factory=dict)

    @property
    def short(self) -> bool:
        """Whether measurement began before the level had settled, to its harm."""
        return _short(self.slower)


def warm_ups(context: Context) -> tuple[WarmUp, ...]:
    """Look at every (cell, repeat, op) whose source kept times."""
    places = _places(context)
    if places.empty or len(places) > PLACES_MOST:
        return ()
    blocks = warmup_tables.in_blocks(
        context.rows_of_both_phases,
        inline(places[["cell", "repeat", "op", "first_ns", "blocks", "block_ns"]]),
    )
    keys = [*warmup_tables.KEYS, "block"]
    shares = [share for _, share in LEVELS]
    levels = quantiles_of(blocks, keys, shares, int(places["n"].sum()), ["response"])
    levels = levels[levels["n"] >= REQUESTS_LEAST]
    by_key = dict(iter(levels.groupby(list(warmup_tables.KEYS), sort=False)))
    events = fetch(warmup_tables.disturbances(context.run.events, DISTURBANCES_MOST))
    pauses = _pauses(context, events)
    faults = events.loc[events["fault"], "started_ns"]
    pairs = dict(iter(context.pairs.groupby(list(warmup_tables.KEYS))))
    found = []
    for place in places.to_dict("records"):
        key = place["cell"], place["repeat"], place["op"]
        disturbed = _disturbed(pauses, pairs[key], place)
        found.append(_warm_up(place, by_key.get(key), disturbed, faults))
    return tuple(found)


def _places(context: Context) -> pd.DataFrame:
    """Where each (cell, repeat, op) lies, its warm-up included, and how it is cut."""
    keys = list(warmup_tables.KEYS)
    # of a load that changes by plan nobody can say when it has settled
    staged = {name for name, cell in context.run.plan.cells.items() if cell.ramp}
    left_out = context.run.timeless | staged
    extents = context.extents[~context.extents["cell"].isin(left_out)]
    places = extents[[*keys, "n", "first_ns", "last_ns"]]
    places = places.rename(columns={"first_ns": "measured_ns"})
    cold = fetch(warmup_tables.begun(context.rows_of_both_phases))
    places = places.merge(cold, on=keys, how="left", suffixes=("", "_cold"))
    # a column with gaps would become doubles, which hold no wall clock in ns
    first = places.pop("first_ns").astype("Int64").fillna(places["measured_ns"]).astype("int64")
    places = places.assign(
        first_ns=first, n=places["n"] + places.pop("n_cold").fillna(0).astype("int64")
    )
    blocks = (places["n"] // BLOCK_REQUESTS).clip(lower=1, upper=BLOCKS_MOST)
    return places.assign(blocks=blocks, block_ns=(places["last_ns"] + 1 - first) / blocks)


def _warm_up(
    place: dict[str, Any],
    levels: pd.DataFrame | None,
    disturbed: NDArray[np.bool_],
    faults: pd.Series[int],
) -> WarmUp:
    blocks, first, length = int(place["blocks"]), int(place["first_ns"]), float(place["block_ns"])
    known: dict[str, Any] = {
        "cell": str(place["cell"]), "repeat": int(place["repeat"]), "op": str(place["op"]),
        "began_ns": first, "measured_ns": int(place["measured_ns"]), "block_ns": length,
    }  # fmt: skip
    if levels is None or blocks < BLOCKS_LEAST:
        needed = count(BLOCKS_LEAST * BLOCK_REQUESTS)
        reason = f"{count(place['n'])} requests; {needed} are needed"
        return WarmUp(**known, absent={"settled": reason})
    known["left_out"] = int(disturbed.sum())
    series = np.full((blocks, len(LEVELS)), np.nan)
    series[levels["block"].to_numpy()] = np.array(levels["response"].tolist(), dtype=float)
    series[disturbed] = np.nan
    usable = int((~np.isnan(series[:, 0])).sum())
    if usable < BLOCKS_LEAST:
        reason = "faults and pauses take up most of its blocks"
        if blocks - known["left_out"] >= BLOCKS_LEAST:
            reason = (
                f"{usable} of {blocks} blocks hold {REQUESTS_LEAST} requests or more; "
                f"{BLOCKS_LEAST} are needed"
            )
        return WarmUp(**known, absent={"settled": reason})
    # a block that is half of the warm-up is not measured
    counted_from = int(np.ceil((known["measured_ns"] - first) / length))
    found = {
        name: settling(series[:, number], counted_from=counted_from, floor=FLOOR)
        for number, (name, _) in enumerate(LEVELS)
    }
    absent = {
        "settled" if name == "median" else name: it.abstained
        for name, it in found.items()
        if it.abstained
    }
    if "settled" in absent:
        return WarmUp(**known, absent=absent)
    settled = first + int(max(it.block or 0 for it in found.values()) * length)
    level, last = max(found.items(), key=lambda it: (_short(it[1].ratio), it[1].block or 0))
    if faults.between(first, settled, inclusive="left").any():
        reason = "a fault came before its level settled: the warm-up cannot be separated from it"
        return WarmUp(**known, absent={"settled": reason})
    return WarmUp(**known, settled_ns=settled, level=level, slower=last.ratio, absent=absent)


def _short(slower: Interval | None) -> bool:
    return slower is not None and slower.low is not None and slower.low > FLOOR


def _pauses(context: Context, events: pd.DataFrame) -> list[Pauses]:
    """Whose requests waited (None for everybody's), and when: overlapping spans are one.

    A fault was planted, and may do more than stop the process that it is about.
    """
    spans: dict[frozenset[tuple[str, int]] | None, list[tuple[int, int]]] = {}
    columns = ("fault", "process", "started_ns", "ended_ns")
    for fault, process, start, end in zip(*(events[it] for it in columns), strict=True):
        whose = None if fault else context.touched(str(process))
        spans.setdefault(whose, []).append((int(start), int(end)))
    return [(whose, *merged(own)) for whose, own in spans.items()]


def _disturbed(
    pauses: list[Pauses], pairs: pd.DataFrame, place: dict[str, Any]
) -> NDArray[np.bool_]:
    """Blocks of whose requests' time faults and pauses took too much, and those after them."""
    blocks, first, length = int(place["blocks"]), int(place["first_ns"]), float(place["block_ns"])
    edges = np.arange(blocks + 1, dtype=np.float64) * length
    taken = np.zeros(blocks)
    for whose, starts, ends in pauses:
        hit = np.full(len(pairs), whose is None)
        for side, number in whose or ():
            hit |= pairs[side].to_numpy() == number
        share = float(pairs["n"][hit].sum() / pairs["n"].sum())
        # as differences: a wall clock in ns does not fit a double
        spans = (starts - first).astype(np.float64), (ends - first).astype(np.float64)
        taken += share * np.diff(inside(spans, edges))
    disturbed = taken > DISTURBED_SHARE * length
    disturbed[1:] |= disturbed[:-1].copy()
    return np.asarray(disturbed)
