"""First, quorum and all on the same operations, from the arrival log of a replicated store."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from unruly.base.cells import bucket_matrix, coarse_distribution, mean_by_blocks, percentiles_said
from unruly.base.ladder import LEVEL, PERCENTILES
from unruly.base.quantiles import quantiles_of
from unruly.quantity import count
from unruly.stats import block_interval, share_interval
from unruly.stats.blocks import BLOCKS
from unruly.stats.histogram import FAILED_BUCKET
from unruly.tables import fetch, inline
from unruly.tables import requests as request_tables
from unruly.topics.arrival_log import tables as log_tables
from unruly.topics.arrival_log.model import (
    ArrivalLog,
    Hop,
    Operations,
    Outliers,
    ReplicaCopies,
    SlowOperation,
    Wait,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import ibis
    from numpy.typing import NDArray

    from unruly.base.context import Context
    from unruly.topics.arrival_log.model import HopName, Measure

KEYS_MOST: Final = 100
"""A run with more (cell, op) has no section: nobody would read a row for each of them."""
OUTLIER_FACTOR: Final = 10
"""An outlier takes longer than this many times the mean, as everywhere in unruly."""
HOP_LIMIT_NS: Final = 100_000_000
"""Hops beyond 100 ms are counted, as in the study of arrivals."""
SLOWEST_MOST: Final = 10
SAID: Final = ("p50", "p99", "p99_9")
HOP_PROBABILITIES: Final = (0.0, 0.5, 0.99)
DISTRIBUTION: Final = ["cell", "op", "measure", "low_ns", "high_ns", "count"]


def arrival_log(
    context: Context, *, pictures: bool = True, hop_limit_ns: float = HOP_LIMIT_NS
) -> ArrivalLog | None:
    """Return the results of every (cell, op) of an arrival log.

    Parameters
    ----------
    context : Context
        The run.
    pictures : bool
        Without them the distribution stays empty.
    hop_limit_ns : float
        Longer hops are counted.

    Returns
    -------
    ArrivalLog or None
        None when the run is no arrival log: no operation asked two replicas, or the level is always
        ``all`` and no copy has a status that only a replicated store knows.
    """
    if context.empty or not (context.extents["receivers"] > 1).any():
        return None
    if not bool(fetch(log_tables.is_arrival_log(context.rows))["told"].fillna(False).iloc[0]):
        return None
    context.progress("arrivals")
    subjects = len(context.extents[["cell", "op"]].drop_duplicates())
    nothing = pd.DataFrame(columns=DISTRIBUTION)
    if subjects > KEYS_MOST:
        return ArrivalLog(
            (), nothing,
            f"{count(subjects)} cells and operations, where at most {KEYS_MOST} are compared: "
            "measure those of interest alone",
        )  # fmt: skip
    rows: list[Operations] = []
    drawn = [nothing]
    for part in context.parts():
        with _measured(part) as measured:
            if measured is None:
                continue
            look = _Look.of(measured, hop_limit_ns)
            rows += [look.told(number) for number in measured.numbers]
            drawn += look.distributions() if pictures else []
    if not rows:
        return None
    rows.sort(key=lambda row: (row.cell, row.op))
    full = [frame for frame in drawn if len(frame)]
    return ArrivalLog(tuple(rows), pd.concat(full, ignore_index=True) if full else nothing)


@dataclass(frozen=True)
class _Measured:
    """The operations of some cells, kept by the engine until the part is done."""

    context: Context
    times: ibis.Table
    long: ibis.Table
    places: pd.DataFrame
    """Each (cell, repeat, op) with its number and its replicas."""
    sizes: pd.DataFrame

    @property
    def numbers(self) -> dict[int, tuple[str, str]]:
        """The (cell, op) of each number."""
        named = self.places[["number", "cell", "op"]].drop_duplicates("number")
        return {int(r["number"]): (r["cell"], r["op"]) for r in named.to_dict("records")}


@contextmanager
def _measured(part: Context) -> Iterator[_Measured | None]:
    """Gather the operations of some cells; None when none of them asked two replicas."""
    engine = part.run.engine
    kept = ("arrival_operations", "arrival_times", "arrival_measures")
    try:
        whole = engine.materialise(kept[0], log_tables.operations(part.rows))
        sizes = fetch(log_tables.sizes(whole))
        replicas = _replicas(sizes)
        places = part.places(BLOCKS)
        places["replicas"] = places["cell"].map(replicas).fillna(0).astype("int32")
        asked = set(zip(sizes["cell"], sizes["op"], strict=True))
        known = np.array([key in asked for key in zip(places["cell"], places["op"], strict=True)])
        places = places[(places["replicas"] > 1) & known]
        if places.empty:
            yield None
            return
        places = places.assign(majority=places["replicas"] // 2 + 1)
        columns = [
            "cell", "repeat", "op", "number", "replicas", "majority", "first_ns", "before_ns",
            "block_ns",
        ]  # fmt: skip
        times = log_tables.waited(whole, inline(places[columns]), BLOCKS)
        times = engine.materialise(kept[1], times)
        long = engine.materialise(kept[2], log_tables.measures(times))
        yield _Measured(part, times, long, places, sizes)
    finally:
        for name in kept:
            engine.forget(name)


def _replicas(sizes: pd.DataFrame) -> dict[str, int]:
    """The number of replicas that most operations of each cell asked; the larger of equals."""
    summed = sizes.groupby(["cell", "size"], as_index=False)["n"].sum()
    ordered = summed.sort_values(["cell", "n", "size"])
    return {str(r["cell"]): int(r["size"]) for r in ordered.to_dict("records")}


@dataclass(frozen=True)
class _Look:
    """What the engine said of some cells, by the number of each (cell, op)."""

    measured: _Measured
    figures: dict[int, dict[str, Any]]
    """By the number of the measure."""
    histograms: dict[int, tuple[NDArray[Any], NDArray[Any]]]
    outliers: dict[int, Outliers]
    unanswered: dict[int, int]
    without_level: dict[Any, int]
    slowest: dict[Any, list[SlowOperation]]
    hops: dict[Any, tuple[Hop, ...]]
    copies: dict[Any, tuple[ReplicaCopies, ...]]

    @classmethod
    def of(cls, measured: _Measured, hop_limit_ns: float) -> _Look:
        """Ask the engine, once for all of them."""
        context, times = measured.context, measured.times
        frame = quantiles_of(
            measured.long, ["number"], list(PERCENTILES.values()), context.size, ["response"]
        )
        figures = {int(row["number"]): row for row in frame.to_dict("records")}
        histograms = _histograms(measured)
        alone = fetch(log_tables.without_level(context.rows)).to_dict("records")
        copies = _copies(context)
        return cls(
            measured,
            figures,
            histograms,
            _outliers(measured, figures, histograms),
            {
                int(r["number"]): int(r["n"])
                for r in fetch(log_tables.unanswered(times)).to_dict("records")
            },
            {(row["cell"], row["op"]): int(row["n"]) for row in alone},
            _slowest(times),
            _hops(context, copies, hop_limit_ns),
            copies,
        )

    def told(self, number: int) -> Operations:
        """Return the results of one (cell, op)."""
        cell, op = key = self.measured.numbers[number]
        places, sizes = self.measured.places, self.measured.sizes
        replicas = int(places.loc[places["number"] == number, "replicas"].iloc[0])
        own = sizes[(sizes["cell"] == cell) & (sizes["op"] == op)]
        k = {"first": 1, "quorum": replicas // 2 + 1, "all": replicas, "second": 2,
             "every": replicas}  # fmt: skip
        exposures = log_tables.EXPOSURES if op == log_tables.WRITE else ()
        return Operations(
            cell,
            op,
            replicas,
            int(own.loc[own["size"] == replicas, "n"].sum()),
            int(own.loc[own["size"] != replicas, "n"].sum()),
            self.without_level.get(key, 0),
            self.unanswered.get(number, 0),
            tuple(self._wait(number, name, k[name]) for name in log_tables.WAITS),
            self.outliers.get(number, Outliers(None, 0, 0, None, {"share": NONE})),
            tuple(self._wait(number, name, k[name]) for name in exposures),
            self.hops.get(key, ()),
            self.copies.get(key, ()),
            tuple(self.slowest.get(key, ())),
        )

    def _wait(self, number: int, measure: Measure, k: int) -> Wait:
        place = _place(number, measure)
        if place not in self.figures:
            why = NONE if measure in log_tables.WAITS else "no write was answered"
            names = ("mean", "max", *SAID, "p99_interval", "beyond_max", "mean_ok", "max_ok")
            return Wait(measure, k, 0, 0, **dict.fromkeys(names), absent=dict.fromkeys(names, why))
        return _wait(measure, k, self.figures[place], *self.histograms[place])

    def distributions(self) -> list[pd.DataFrame]:
        """The distribution of first, quorum and all of each (cell, op)."""
        return [
            coarse_distribution(key, name, buckets, counts.sum(axis=1)).rename(
                columns={"latency": "measure"}
            )
            for number, key in self.measured.numbers.items()
            for name in log_tables.WAITS
            if _place(number, name) in self.histograms
            for buckets, counts in [self.histograms[_place(number, name)]]
        ]


NONE: Final = "no operation asked that number of replicas"


def _place(number: int, measure: str) -> int:
    return number * len(log_tables.MEASURES) + log_tables.MEASURES.index(measure)


def _histograms(measured: _Measured) -> dict[int, tuple[NDArray[Any], NDArray[Any]]]:
    """The buckets and the (bucket, block) counts of each measure."""
    frame = fetch(request_tables.block_histogram(measured.long, "response", "block"))
    found = {}
    for number, own in frame.groupby("number"):
        columns = {name: own[name].to_numpy() for name in own.columns}
        found[int(number)] = bucket_matrix(columns, slice(None), "block")
    return found


def _wait(
    measure: Measure, k: int, row: dict[str, Any], buckets: NDArray[Any], counts: NDArray[Any]
) -> Wait:
    n, censored = int(row["n"]), int(row["failed"])
    absent: dict[str, str] = {}
    found = {name: float(v) for name, v in zip(PERCENTILES, row["response"], strict=True)}
    said = percentiles_said(
        {name: found[name] for name in SAID}, n, censored, absent,
        "operations", f"operations without {_copies_wanted(k)}",
    )  # fmt: skip
    short = f"{censored} of {n} operations never had {_copies_wanted(k)}"
    mean = largest = None
    if censored < n:
        mean = mean_by_blocks(buckets, counts, float(row["response_mean"]))
        # a waiting time is never below 0
        mean = replace(mean, low=None if mean.low is None else max(0.0, mean.low))
        largest = float(row["response_max"])
    if mean is not None and mean.low is None:
        absent["mean_ok.low"] = "too few blocks of time hold any: there is no interval"
    absent |= dict.fromkeys(("mean", "max"), short) if censored else {}
    absent |= dict.fromkeys(("mean_ok", "max_ok", "beyond_max"), short) if mean is None else {}
    interval = None
    if said["p99"] is None:
        absent["p99_interval"] = absent["p99"]
    else:
        block = block_interval(buckets, counts, 0.99, estimate=said["p99"], level=LEVEL)
        interval = block.interval
        if interval is None:
            absent["p99_interval"] = block.reason or "no blocks of time"
    lost = np.where(buckets == FAILED_BUCKET, 1, 0) @ counts
    return Wait(
        measure, k, n, censored,
        mean=None if censored else mean,
        max=None if censored else largest,
        **said,
        p99_interval=interval,
        beyond_max=None if mean is None else share_interval(lost, counts.sum(axis=0), LEVEL),
        mean_ok=mean,
        max_ok=largest,
        absent=absent,
    )  # fmt: skip


def _copies_wanted(k: int) -> str:
    return "a correct copy" if k == 1 else f"{k} correct copies"


def _outliers(
    measured: _Measured,
    figures: dict[int, dict[str, Any]],
    histograms: dict[int, tuple[NDArray[Any], NDArray[Any]]],
) -> dict[int, Outliers]:
    """Of each (cell, op), the outliers of the quorum that the first copy would have spared."""
    limits = {}
    for number in measured.numbers:
        row = figures.get(_place(number, "quorum"))
        if row is not None and int(row["failed"]) < int(row["n"]):
            limits[number] = OUTLIER_FACTOR * float(row["response_mean"])
    if not limits:
        return {}
    table = pd.DataFrame({"number": list(limits), "limit_ns": list(limits.values())})
    table["number"] = table["number"].astype("int32")
    frame = fetch(log_tables.outliers(measured.times, inline(table)))
    found = {}
    for number, own in frame.groupby("number"):
        counts = histograms[_place(int(number), "quorum")][1]
        beyond, vanished = np.zeros(counts.shape[1]), np.zeros(counts.shape[1])
        blocks = own["block"].to_numpy()
        beyond[blocks], vanished[blocks] = own["beyond"].to_numpy(), own["vanished"].to_numpy()
        n = int(beyond.sum())
        share = share_interval(vanished, beyond, LEVEL) if n else None
        absent = {} if n else {"share": f"no quorum took more than {OUTLIER_FACTOR} x the mean"}
        limit = limits[int(number)]
        found[int(number)] = Outliers(limit, n, int(vanished.sum()), share, absent)
    return found


def _slowest(times: ibis.Table) -> dict[Any, list[SlowOperation]]:
    found: dict[Any, list[SlowOperation]] = {}
    for row in fetch(log_tables.slowest(times, SLOWEST_MOST)).to_dict("records"):
        found.setdefault((row["cell"], row["op"]), []).append(
            SlowOperation(
                int(row["repeat"]), int(row["client"]), int(row["request"]),
                int(row["intended_ns"]), _known(row["of_first"]), float(row["of_quorum"]),
                _known(row["of_all"]),
            )
        )  # fmt: skip
    return found


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _copies(context: Context) -> dict[Any, tuple[ReplicaCopies, ...]]:
    frame = fetch(log_tables.copies(context.rows))
    found: dict[Any, tuple[ReplicaCopies, ...]] = {}
    for (cell, op, server), own in frame.groupby(["cell", "op", "server"], sort=True):
        by_status = dict(zip(own["status"], map(int, own["n"]), strict=True))
        name = context.name(int(server), sends=False, cell=str(cell))
        row = ReplicaCopies(
            int(server), name, int(own["n"].sum()), int(own["repeated"].sum()), by_status
        )
        found[cell, op] = (*found.get((cell, op), ()), row)
    return found


def _hops(
    context: Context, copies: dict[Any, tuple[ReplicaCopies, ...]], limit_ns: float
) -> dict[Any, tuple[Hop, ...]]:
    """Both hops of each (cell, op); without stamps they are absent, with the reason."""
    stamped, keys = log_tables.hops(context.rows), ["cell", "op", "hop"]
    frame = quantiles_of(stamped, keys, HOP_PROBABILITIES, 2 * context.size, ["response"])
    rows = {(r["cell"], r["op"], r["hop"]): r for r in frame.to_dict("records")}
    over = {
        (r["cell"], r["op"], r["hop"]): int(r["n"])
        for r in fetch(log_tables.hops_over(stamped, limit_ns)).to_dict("records")
    }
    found = {}
    for key, servers in copies.items():
        whole = sum(server.n for server in servers)
        found[key] = tuple(
            _hop(name, rows.get((*key, name)), over.get((*key, name)), whole, limit_ns)
            for name in log_tables.HOPS
        )
    return found


def _hop(
    name: HopName, row: dict[str, Any] | None, over: int | None, copies: int, limit_ns: float
) -> Hop:
    if row is None:
        names = ("over", "min", "p50", "p99", "max")
        why = "no copy has both stamps of this hop"
        return Hop(
            name, 0, copies, limit_ns, **dict.fromkeys(names), absent=dict.fromkeys(names, why)
        )
    absent: dict[str, str] = {}
    n = int(row["n"])
    least, *rest = (float(value) for value in row["response"])
    named = dict(zip(("p50", "p99"), rest, strict=True))
    said = percentiles_said(named, n, 0, absent, "copies")
    largest = float(row["response_max"])
    return Hop(name, n, copies, limit_ns, over, least, **said, max=largest, absent=absent)
