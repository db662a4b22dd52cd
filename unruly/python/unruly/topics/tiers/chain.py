"""Which tier asks which, what of a tier's time is its own, and what its processes used of a CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from unruly.base.ladder import LEVEL
from unruly.stats import request_mean_interval
from unruly.stats.blocks import BLOCKS
from unruly.tables import fetch, inline
from unruly.tables import resources as resource_tables
from unruly.topics.tiers.model import Chain, Pool

if TYPE_CHECKING:
    import ibis
    from numpy.typing import NDArray

    from unruly.base.context import Context
    from unruly.stats import Interval

FULL: Final = 0.5
"""A pool is in use in a window if so much of its connections' time had a request in flight.

A connection is taken for longer than its requests are in flight: its user reads the replies.
"""
LOAD: Final = ""
"""The asker that stands for all load generators."""
NOBODY: Final = "?"
"""The asker that is unknown."""
UNKNOWN: Final = 0.05
"""If nobody knows who asked for more of a tier's requests, times cannot be divided among tiers."""
STRAY: Final = 0.02
"""An asker of a smaller share of a tier's requests is no part of the chain."""
SLOW_LEAST: Final = 5
"""Fewer windows with slow requests say nothing of them."""
_REPEAT: Final = ["cell", "repeat"]
_WINDOW: Final = ["cell", "repeat", "window_ns"]


@dataclass(frozen=True)
class Links:
    """The tiers of a run: which processes they are, who asks them, and over how many connections.

    ``edges`` has a row for each (cell, repeat, tier, asker): ``n`` requests and ``connections``;
    ``flights`` the requests in flight of each in windows. The asker is a tier, another program, or
    `LOAD` for the load generators.
    """

    processes: dict[tuple[str, str], tuple[str, ...]]
    """The names of the processes of each (cell, tier)."""
    edges: pd.DataFrame
    flights: pd.DataFrame
    unknown: frozenset[str]
    """Cells in which nobody knows who asked for a part of the requests, or how long they took."""
    load: bool
    """The run has load generators."""
    used: dict[str, dict[str, float]]
    """The cores that each process of each cell used."""
    names: pd.DataFrame
    """cell, tier, asked_by and the asker that it stands for."""
    slow: pd.DataFrame
    """The slow requests from outside in windows: cell, repeat, tier, window_ns, in_flight."""

    def behind(self, cell: str, tier: str) -> list[str]:
        """Return the tiers that a tier asks."""
        own = self.edges[(self.edges["cell"] == cell) & (self.edges["asker"] == tier)]
        return [it for it in dict.fromkeys(own["tier"]) if it != tier]

    def askers(self, cell: str, tier: str) -> list[str]:
        """Return the tiers that ask a tier."""
        own = self.edges[(self.edges["cell"] == cell) & (self.edges["tier"] == tier)]
        known = self._tiers(cell)
        return [it for it in dict.fromkeys(own["asker"]) if it in known and it != tier]

    def is_front(self, cell: str, tier: str) -> bool:
        """Return whether the load generator asks a tier; without one, somebody who is no tier."""
        own = self.edges[(self.edges["cell"] == cell) & (self.edges["tier"] == tier)]
        return bool(own["asker"].isin(self._outside(cell)).any())

    def asked_from_outside(self, cell: str) -> pd.DataFrame:
        """Return the requests in flight that no tier has asked for."""
        here = self.flights["cell"] == cell
        return self.flights[here & self.flights["asker"].isin(self._outside(cell))]

    def asked_by(self, cell: str, tier: str) -> pd.DataFrame:
        """Return the requests in flight that a tier has asked for, of itself too."""
        here = (self.flights["cell"] == cell) & (self.flights["asker"] == tier)
        return self.flights[here]

    def of_strangers(self, cell: str, tier: str) -> pd.DataFrame:
        """Return the requests in flight in a tier that belong to no request of the load."""
        own = self.flights[(self.flights["cell"] == cell) & (self.flights["tier"] == tier)]
        return own[~own["asker"].isin(self._outside(cell) | self._tiers(cell))]

    def slow_from_outside(self, cell: str) -> pd.DataFrame:
        """Return the slow requests in flight that no tier has asked for."""
        return self.slow[self.slow["cell"] == cell]

    def fronts(self) -> pd.DataFrame:
        """Return cell, tier and asked_by ("" if unknown) of the requests that no tier asked for."""
        outside = {cell: self._outside(cell) for cell in self.names["cell"].unique()}
        pairs = zip(self.names["cell"], self.names["asker"], strict=True)
        here = np.array([asker in outside[cell] for cell, asker in pairs], dtype=bool)
        front = self.names[here][["cell", "tier", "asked_by"]].fillna({"asked_by": ""})
        return front.drop_duplicates()

    def disturbed(self) -> frozenset[str]:
        """Return the cells in which strangers ask a tier much that asks other tiers."""
        found = set()
        for (cell, tier), own in self.edges.groupby(["cell", "tier"]):
            foreign = ~own["asker"].isin(self._outside(str(cell)) | self._tiers(str(cell)))
            much = own[foreign]["n"].sum() > UNKNOWN * own["n"].sum()
            if much and self.behind(str(cell), str(tier)):
                found.add(str(cell))
        return frozenset(found)

    def _outside(self, cell: str) -> set[str]:
        if self.load:
            return {LOAD}
        own = self.edges[self.edges["cell"] == cell]
        return set(own["asker"]) - self._tiers(cell)

    def _tiers(self, cell: str) -> set[str]:
        return set(self.edges[self.edges["cell"] == cell]["tier"])


def links(
    context: Context,
    measured: ibis.Table,
    flights: pd.DataFrame,
    crossed: frozenset[str],
) -> Links:
    """Read who asks whom from the names of the processes that have the clients' ends.

    Parameters
    ----------
    measured : Table
        The turnarounds that began while requests were measured.
    flights : DataFrame
        cell, repeat, tier, asked_by, window_ns, in_flight.
    crossed : frozenset of str
        Cells in which a part of a tier's requests cannot be measured.
    """
    processes: dict[tuple[str, str], tuple[str, ...]] = {}
    name_of: dict[tuple[str, str], str] = {}
    for it in context.processes:
        cell, name = str(it.get("cell")), str(it.get("name"))
        if it.get("kind") == "drive":
            name_of[cell, name] = LOAD
        if it.get("kind") == "service":
            tier = str(it.get("tier") or name)
            name_of[cell, name] = tier
            known = processes.get((cell, tier), ())
            processes[cell, tier] = known if name in known else (*known, name)
    counted = fetch(
        measured.group_by("cell", "repeat", "tier", "asked_by").agg(
            n=measured.count(), connections=measured.connection.nunique()
        )
    )
    counted, flights = _named(counted, name_of), _named(flights, name_of)
    only = _only_askers(counted)
    counted, flights = _filled(counted, only), _filled(flights, only)
    edges = counted[counted["asker"] != NOBODY]
    keys = [*_REPEAT, "tier", "asker"]
    edges = edges.groupby(keys, as_index=False)[["n", "connections"]].sum()
    whole = edges.groupby([*_REPEAT, "tier"])["n"].transform("sum")
    edges = edges[edges["n"] >= STRAY * whole]
    by_tier = counted.groupby(["cell", "tier"])["n"].sum()
    nameless = counted[counted["asker"] == NOBODY].groupby(["cell", "tier"])["n"].sum()
    doubtful = nameless[nameless > UNKNOWN * by_tier.reindex(nameless.index)]
    named = flights[flights["asker"] != NOBODY]
    found = Links(
        processes,
        edges,
        named.groupby([*keys, "window_ns"], as_index=False)[["in_flight"]].sum(),
        crossed | {str(cell) for cell, _ in doubtful.index},
        LOAD in name_of.values(),
        used_cores(context),
        counted[["cell", "tier", "asked_by", "asker"]].drop_duplicates(),
        pd.DataFrame(columns=[*_WINDOW, "tier", "in_flight"]),
    )
    return replace(found, unknown=found.unknown | found.disturbed())


def _named(frame: pd.DataFrame, name_of: dict[tuple[str, str], str]) -> pd.DataFrame:
    """Add the asker: the tier of a process, or else its own name; `NOBODY` if it is unknown."""
    known = frame["asked_by"].notna()
    pairs = zip(frame["cell"].astype(str), frame["asked_by"].astype(str), strict=True)
    names = pd.Series([name_of.get(it, it[1]) for it in pairs], index=frame.index, dtype=object)
    return frame.assign(asker=names.where(known, NOBODY))


def _only_askers(counted: pd.DataFrame) -> dict[tuple[str, str], str]:
    """The asker of each (cell, tier) all of whose known askers are one, if most are known."""
    found = {}
    for (cell, tier), own in counted.groupby(["cell", "tier"]):
        known = own[own["asker"] != NOBODY]
        if known["asker"].nunique() == 1 and known["n"].sum() > own["n"].sum() / 2:
            found[str(cell), str(tier)] = str(known["asker"].iloc[0])
    return found


def _filled(frame: pd.DataFrame, only: dict[tuple[str, str], str]) -> pd.DataFrame:
    places = zip(frame["cell"].astype(str), frame["tier"].astype(str), frame["asker"], strict=True)
    askers = [
        only.get((cell, tier), NOBODY) if asker == NOBODY else asker for cell, tier, asker in places
    ]
    return frame.assign(asker=askers)


def chain(context: Context, found: Links, windows: pd.DataFrame, cell: str, tier: str) -> Chain:
    """Return the place of a tier in the chain, and what its time was spent on."""
    here = windows[windows["cell"] == cell]
    index = pd.MultiIndex.from_frame(here[_WINDOW].drop_duplicates().sort_values(_WINDOW))
    within = _flight(here[here["tier"] == tier], index)
    if not found.behind(cell, tier):
        # nobody knows which requests behind a tier a stranger has caused
        within = within - _flight(found.of_strangers(cell, tier), index)
    within = np.maximum(within - _flight(found.asked_by(cell, tier), index), 0.0)
    whole = _flight(found.asked_from_outside(cell), index)
    known = cell not in found.unknown
    cores, used = _cpu(context, found, cell, tier)
    return Chain(
        asked_by=tuple(found.askers(cell, tier)),
        front=found.is_front(cell, tier),
        own_in_flight=_share(within, np.ones_like(within)) if known else None,
        own_share=_share(np.minimum(within, whole), whole) if known else None,
        cpu_cores=used,
        cpu_share=used / cores if used is not None and cores else None,
        pool=_pool(found, here, index, cell, tier) if known else None,
        slow_share=_while_slow(found, index, cell, within, whole) if known else None,
    )


def _while_slow(
    found: Links,
    index: pd.MultiIndex,
    cell: str,
    within: NDArray[np.float64],
    whole: NDArray[np.float64],
) -> Interval | None:
    """The least share of the time of slow requests that was spent in the tier.

    In each window, slow requests that are not in the tier are no more than all requests that are
    not. None where there are too few windows with slow requests.
    """
    slow = _flight(found.slow_from_outside(cell), index)
    if (slow > 0.0).sum() < SLOW_LEAST:
        return None
    elsewhere = np.maximum(whole - within, 0.0)
    return _share(np.maximum(slow - elsewhere, 0.0), slow)


def _flight(frame: pd.DataFrame, index: pd.MultiIndex) -> NDArray[np.float64]:
    """Requests in flight together, window by window of the cell."""
    own = frame.groupby(_WINDOW)["in_flight"].sum()
    flight: NDArray[np.float64] = own.reindex(index).fillna(0.0).to_numpy(dtype=np.float64)
    return flight


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> Interval | None:
    """The sum of one over the sum of the other, from blocks of time."""
    if len(part) < BLOCKS or not whole.sum():
        return None
    blocks = np.arange(len(part), dtype=np.int64) * BLOCKS // len(part)
    sums = np.bincount(blocks, part, minlength=BLOCKS)
    return request_mean_interval(sums, np.bincount(blocks, whole, minlength=BLOCKS), LEVEL)


def _cpu(context: Context, found: Links, cell: str, tier: str) -> tuple[float, float | None]:
    """The cores that others leave to a tier's processes, and those that it used; None if unknown.

    It may use those that it is kept on, less what other watched processes of these cores use, and
    no more than its quota.
    """
    names = found.processes.get((cell, tier), ())
    used = found.used.get(cell, {})
    own = [used[name] for name in names if name in used]
    if not own:
        return 0.0, None
    plan = context.run.plan.cell(cell)
    hosts = context.run.manifest.get("hosts") or [{}]
    everywhere = frozenset(range(int(hosts[0].get("cores") or 0)))
    services = {name for (place, _), it in found.processes.items() if place == cell for name in it}

    def cores_of(name: str) -> frozenset[int]:
        return plan.pinned(name, of_service=name in services) or everywhere

    cores = frozenset().union(*(cores_of(name) for name in names))
    if not cores:
        return 0.0, sum(own)
    others = sum(
        share * len(cores_of(name) & cores) / max(len(cores_of(name)), 1)
        for name, share in used.items()
        if name not in names
    )
    quota = sum(plan.quota(name) for name in names)
    # a quota is kept to on average only
    return max(min(len(cores) - others, quota), sum(own)), sum(own)


def used_cores(context: Context) -> dict[str, dict[str, float]]:
    """Return the cores that each watched process of each cell used while it was measured."""
    if context.extents.empty:
        return {}
    frame = fetch(resource_tables.used(context.run.resources, inline(context.measured_time)))
    found: dict[str, dict[str, float]] = {}
    for cell, own in frame.groupby("cell"):
        cores = zip(own["process"].astype(str), own["cores"].astype(float), strict=True)
        found[str(cell)] = dict(cores)
    return found


def _pool(
    found: Links, here: pd.DataFrame, index: pd.MultiIndex, cell: str, tier: str
) -> Pool | None:
    """The connections over which a tier asks the one behind it, if it asks only one."""
    behind = found.behind(cell, tier)
    if len(behind) != 1:
        return None
    edges = found.edges
    edges = edges[(edges["cell"] == cell) & (edges["asker"] == tier)]
    size = float(edges.groupby("repeat")["connections"].sum().median())
    asked = _flight(found.asked_by(cell, tier), index)
    whole = _flight(here[here["tier"] == tier], index)
    own = np.maximum(whole - asked, 0.0)
    full = (asked >= FULL * size) & (whole > size)
    if not size or len(own) < BLOCKS:
        return None
    inside = float(own[full].mean()) if full.any() else 0.0
    outside = float(own[~full].mean()) if not full.all() else 0.0
    return Pool(
        to=behind[0],
        connections=int(size),
        full_share=float(full.mean()),
        waited=_share(own * full, own),
        own_when_full=inside,
        own_otherwise=outside,
    )
