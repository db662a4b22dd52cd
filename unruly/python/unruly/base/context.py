"""What every part of an analysis shares: measured rows, their extents, and the names of nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from unruly.tables import fetch, inline
from unruly.tables import requests as request_tables
from unruly.tables import resources as resource_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import ibis

    from unruly.run import Run

PART_ROWS = 8_000_000
"""Queries that keep memory for each row (quantiles, the order of a cell) get this many at once."""
THROTTLED_SHARE_MAX = 0.5
"""A CPU limit on more of the processes is that of their container, not of an agent."""
_REPEAT = ["cell", "repeat"]
MEASURED, LAST_TRIES = "measured_rows", "last_tries_rows"
"""Views of the measured rows: of all tries, and of the last try of each request."""
SENDERS = ("mesh", "drive", "writer")
RECEIVERS = ("mesh", "echo", "service", "foreign", "reader")
ENDS = {
    "mesh": ("client", "server"), "drive": ("client",), "echo": ("server",),
    "writer": ("client",), "reader": ("server",),
}  # fmt: skip
"""On which side of a request a process of each kind stands, where it stands on its own."""
BYSTANDERS = ("probe", "stress", "runner", "spans", "tap")
NUMBER = re.compile(r"-\d+$")


@dataclass(frozen=True)
class _Within:
    """Some cells, and the time in which they ran."""

    cells: tuple[str, ...]
    first_ns: int
    last_ns: int

    def of(self, rows: ibis.Table) -> ibis.Table:
        # by their times whole row groups are left out before a name is compared
        inside = rows.intended_ns.between(self.first_ns, self.last_ns)
        return rows.filter(inside & rows.cell.isin(self.cells))


@dataclass(frozen=True)
class Context:
    """One run while it is being analysed."""

    run: Run
    rows: ibis.Table
    """Measured rows, lazily."""
    pairs: pd.DataFrame
    """Counts, times and extremes of each (cell, repeat, op, client, server)."""
    extents: pd.DataFrame
    """The same of each (cell, repeat, op), with ``senders`` and ``receivers``."""
    progress: Callable[[str], None]
    within: _Within | None = None
    """The cells that a part is about; None for all."""
    retried: bool = False
    """Some requests were tried again."""

    @classmethod
    def of(cls, run: Run, progress: Callable[[str], None]) -> Context:
        """Look at the run once: which cells, repeats and ops there are, and when."""
        rows = run.engine.define(MEASURED, request_tables.measured(run.requests))
        pairs = fetch(request_tables.pairs(rows))
        retried = bool((pairs["attempts"] > 0).any())
        if retried:
            last = request_tables.measured(request_tables.last_tries(run.requests))
            rows = run.engine.define(LAST_TRIES, last)
            pairs = fetch(request_tables.pairs(rows))
        extents = pairs.groupby(["cell", "repeat", "op"], as_index=False, sort=True).agg(
            n=("n", "sum"),
            first_ns=("first_ns", "min"),
            last_ns=("last_ns", "max"),
            end_ns=("end_ns", "max"),
            senders=("client", "nunique"),
            receivers=("server", "nunique"),
            attempts=("attempts", "max"),
        )
        return cls(run, rows, pairs, extents, progress, retried=retried)

    def fork(self) -> Context:
        """Return the same with a connection of its own, for another thread."""
        run = replace(self.run, engine=self.run.engine.fork())
        rows = run.engine.table(LAST_TRIES if self.retried else MEASURED)
        return replace(self, run=run, rows=self.within.of(rows) if self.within else rows)

    def parts(self) -> Iterator[Context]:
        """Yield parts of about `PART_ROWS` rows: whole cells, in the order in which they ran.

        A larger cell is a part of its own.
        """
        cells = self.extents.groupby("cell").agg(
            n=("n", "sum"), first_ns=("first_ns", "min"), last_ns=("last_ns", "max")
        )
        cells = cells.sort_values(["first_ns", "n"], kind="stable")
        upto = cells["n"].cumsum() - cells["n"]
        for _, part in cells.groupby(upto // PART_ROWS, sort=True):
            yield self if len(part) == len(cells) else self._part(part)

    def _part(self, cells: pd.DataFrame) -> Context:
        names = tuple(str(name) for name in cells.index)
        within = _Within(names, int(cells["first_ns"].min()), int(cells["last_ns"].max()))
        extents = self.extents[self.extents["cell"].isin(names)]
        return replace(self, rows=within.of(self.rows), extents=extents, within=within)

    @property
    def rows_of_both_phases(self) -> ibis.Table:
        """Measured rows and those of the warm-up before them."""
        requests = self.run.requests
        requests = requests.filter(requests.phase.notin(request_tables.ASIDE))
        return request_tables.timed(
            request_tables.last_tries(requests) if self.retried else requests
        )

    @cached_property
    def measured_clients(self) -> pd.DataFrame:
        """Agents whose send delay is a result of the run: cell, repeat, client.

        Agents on Java, and those that a CPU limit of their own held back. Their delay says nothing
        of the load generator.
        """
        throttled = self._throttled_alone()
        found = [
            (str(it["cell"]), int(it["repeat"]), int(it["id"]))
            for it in self.processes
            if it.get("kind") == "mesh"
            and it.get("id") is not None
            and (
                it.get("runtime") == "jvm"
                or (str(it["cell"]), int(it["repeat"]), it.get("name")) in throttled
            )
        ]
        columns = ["cell", "repeat", "client"]
        return pd.DataFrame(sorted(set(found)), columns=columns)

    def _throttled_alone(self) -> set[tuple[str, int, str]]:
        """Watched processes held back by a limit that most others of their cell do not have."""
        frame = fetch(resource_tables.throttled(self.run.resources))
        held_back = frame["throttled_ns"] > 0
        share = held_back.groupby([frame["cell"], frame["repeat"]]).transform("mean")
        alone = frame[held_back & (share < THROTTLED_SHARE_MAX)]
        return {
            (str(it.cell), int(it.repeat), str(it.process)) for it in alone.itertuples(index=False)
        }

    @property
    def empty(self) -> bool:
        """Nothing was measured."""
        return bool(self.extents.empty)

    @property
    def size(self) -> int:
        """Measured rows."""
        return 0 if self.empty else int(self.extents["n"].sum())

    @property
    def measured_time(self) -> pd.DataFrame:
        """The time in which requests were measured: cell, repeat, ``from_ns``, ``until_ns``.

        It goes from the first request due after the warm-up to the last one due.
        """
        grouped = self.extents.groupby(_REPEAT, as_index=False)
        return grouped.agg(from_ns=("first_ns", "min"), until_ns=("last_ns", "max"))

    @property
    def lengths_ns(self) -> pd.Series[float]:
        """Measured time of each cell: from the first request due to the last, over its repeats."""
        spans = self.extents.groupby(["cell", "repeat"]).agg({"first_ns": "min", "last_ns": "max"})
        lengths: pd.Series[float] = (spans["last_ns"] - spans["first_ns"]).groupby("cell").sum()
        return lengths.astype(float)

    def name(
        self, number: int, *, sends: bool, cell: str | None = None, repeat: int | None = None
    ) -> str:
        """Name a node; of all cells together when none is given (names that differ are joined).

        The generator of a store does not know which process answered: its server is the store.
        """
        kinds = SENDERS if sends else RECEIVERS
        found = dict.fromkeys(
            str(process["name"])
            for process in self._by_number.get((number, cell), ())
            if process.get("kind") in kinds and repeat in (None, process.get("repeat"))
        )
        if not found and not sends:
            found = dict.fromkeys(self._stores(cell, repeat))
        return "|".join(found) or f"{'client' if sends else 'server'}-{number}"

    def _stores(self, cell: str | None, repeat: int | None) -> list[str]:
        """Return the process of a store, or what the names of several have in common."""
        names: dict[str, set[str]] = {}
        for it in self.processes:
            place = cell in (None, it.get("cell")) and repeat in (None, it.get("repeat"))
            if place and it.get("kind") == "service":
                name = str(it["name"])
                names.setdefault(NUMBER.sub("", name), set()).add(name)
        return [own.pop() if len(own) == 1 else common for common, own in names.items()]

    def node(self, process: str, cell: str, repeat: int) -> tuple[str, int] | None:
        """Return as what rows know a process, ("server", its number) or ("client", ...)."""
        for it in self.processes:
            known = (it.get("name"), it.get("cell"), it.get("repeat")) == (process, cell, repeat)
            if known and it.get("id") is not None:
                return "server" if it.get("kind") in RECEIVERS else "client", int(it["id"])
        return None

    def touched(self, process: str) -> frozenset[tuple[str, int]] | None:
        """Whose requests a process can delay, as ("client" or "server", number); None for all.

        Parts of a store ask one another, and one that is unknown may be anything: they can delay
        every request. Who only watches or is a neighbour is nobody's (an empty set).
        """
        kinds = {
            (str(it.get("kind")), it.get("id"))
            for it in self.processes
            if it.get("name") == process
        }
        if kinds and all(kind in BYSTANDERS for kind, _ in kinds):
            return frozenset()
        if not kinds or any(kind not in ENDS or number is None for kind, number in kinds):
            return None
        numbers = [(kind, int(number)) for kind, number in kinds if number is not None]
        return frozenset((side, number) for kind, number in numbers for side in ENDS[kind])

    def touched_on(self, host: str) -> frozenset[tuple[str, int]] | None:
        """The same of a host: whose requests go through what runs on it.

        None, and so everybody's, also where only bystanders are known on it: who is watched there
        may be none of ours. Not so beside agents on other hosts, which are all there is.
        """
        names = {str(it.get("name")) for it in self.processes if it.get("host") == host}
        found: frozenset[tuple[str, int]] = frozenset()
        for own in map(self.touched, names):
            if own is None:
                return None
            found |= own
        hosts = self.run.manifest.get("hosts") or []
        elsewhere = any(isinstance(it, dict) and it.get("clock") for it in hosts)
        meshed = any(it.get("kind") == "mesh" for it in self.processes)
        return found if found or (elsewhere and meshed) else None

    def receivers(self) -> ibis.Table | None:
        """Table of cell, repeat, server, process, host: the receivers that the manifest knows."""
        known = [
            {
                "cell": p["cell"],
                "repeat": int(p["repeat"]),
                "server": int(p["id"]),
                "process": str(p["name"]),
                "host": str(p["host"]),
            }
            for p in self.processes
            if p.get("id") is not None and p.get("kind") in RECEIVERS
        ]
        return inline(known) if known else None

    def places(self, blocks: int) -> pd.DataFrame:
        """Where each (cell, repeat, op) lies in its own measured time, and in its cell's.

        Also ``number``, that of the (cell, op), ``whole``, of the cell, ``place``, of the (cell,
        repeat): numbers are sorted and joined in half the time that names are.
        """
        frame = self.extents[["cell", "repeat", "op", "first_ns", "last_ns"]].copy()
        for name, keys in (("number", ["cell", "op"]), ("whole", ["cell"]), ("place", _REPEAT)):
            frame[name] = frame.groupby(keys, sort=True).ngroup().astype("int32")
        frame = lay_out(frame, ["cell", "op"], "first_ns", "last_ns", "", blocks)
        by_repeat = frame.groupby(["cell", "repeat"])
        frame["cell_first_ns"] = by_repeat["first_ns"].transform("min")
        frame["cell_last_ns"] = by_repeat["last_ns"].transform("max")
        whole = frame[["cell", "repeat", "cell_first_ns", "cell_last_ns"]].drop_duplicates()
        whole = lay_out(whole, ["cell"], "cell_first_ns", "cell_last_ns", "cell_", blocks)
        return frame.merge(
            whole[["cell", "repeat", "cell_before_ns", "cell_total_ns", "cell_block_ns"]],
            on=["cell", "repeat"],
        )

    @cached_property
    def _by_number(self) -> dict[tuple[int, str | None], list[dict[str, Any]]]:
        """Processes by their number, in each cell and (None) in all: there may be thousands."""
        found: dict[tuple[int, str | None], list[dict[str, Any]]] = {}
        for process in self.processes:
            if process.get("id") is not None:
                for cell in dict.fromkeys((process.get("cell"), None)):
                    found.setdefault((int(process["id"]), cell), []).append(process)
        return found

    @property
    def factors(self) -> dict[str, dict[str, str]]:
        """The factors of each cell, in the plan's order."""
        return self.run.factors

    @property
    def processes(self) -> list[dict[str, Any]]:
        """What the manifest says of each process."""
        return [p for p in self.run.manifest.get("processes") or [] if isinstance(p, dict)]


def lay_out(
    frame: pd.DataFrame, keys: list[str], first: str, last: str, prefix: str, blocks: int
) -> pd.DataFrame:
    """Lay repeats end to end: measured time before each, in all, and the length of a block."""
    frame = frame.sort_values([*keys, "repeat"]).reset_index(drop=True)
    length = frame[last] - frame[first] + 1
    grouped = length.groupby([frame[key] for key in keys])
    frame[f"{prefix}before_ns"] = grouped.cumsum() - length
    frame[f"{prefix}total_ns"] = grouped.transform("sum")
    frame[f"{prefix}block_ns"] = frame[f"{prefix}total_ns"] / blocks
    return frame
