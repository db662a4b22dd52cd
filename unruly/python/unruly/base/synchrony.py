"""Groups and nodes: the k-th of n, breakdowns by sender and receiver, slow nodes, agreement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from unruly.base.model import GroupSummary, NamedNode, SlowNodes
from unruly.base.quantiles import oversized, quantiles_of
from unruly.quantity import times
from unruly.stats import bucket_edges, slow_set, two_way
from unruly.stats.histogram import FAILED_BUCKET
from unruly.tables import fetch, inline
from unruly.tables import groups as group_tables
from unruly.tables import requests as request_tables
from unruly.tables.selection import exact_quantiles

if TYPE_CHECKING:
    from collections.abc import Callable

    import ibis
    from numpy.typing import NDArray

    from unruly.base.context import Context
    from unruly.base.model import GroupLevel, Options
    from unruly.base.operation import CellSummary

DAY_NS = 86_400_000_000_000
WINDOWS_MAX = 6
WINDOWS_MIN = 3
"""A node is named only when observed in this many windows (or in all, if there are fewer)."""
ROWS_WANTED = 30
"""Windows are as short as leaves a pair this many rows."""
ROWS_LEAST = 10
"""Below this a pair says nothing in a window."""
SENSITIVITY_FACTORS = (1.5, 2.0, 3.0, 5.0)
SENSITIVITY_PERCENTILES = (0.5, 0.9, 0.99)
GROUP_PROBABILITIES = (0.5, 0.9, 0.99, 0.999)
BREAKDOWN = (0.5, 0.9, 0.99)
SIZE_MAX = 64
"""Groups larger than this are not looked at for every k."""
PAIR_COLUMNS = [
    "cell", "repeat", "window", "op", "sender", "receiver", "n", "failed", "p50", "p90", "p99",
    "fastest", "ratio", "slow",
]  # fmt: skip


@dataclass(frozen=True)
class Groups:
    """The group requests of a run."""

    summaries: list[GroupSummary]
    distribution: pd.DataFrame
    sizes: pd.DataFrame
    """op, size of the ops that have a single size."""
    by_size: pd.DataFrame | None
    """None when all ops have a single size."""


def groups(context: Context, *, pictures: bool = True) -> Groups:
    """Summarise the k-th of n replies; nothing when every request has one copy."""
    empty = pd.DataFrame(columns=["cell", "op", "size", "k", "low_ns", "high_ns", "count"])
    extents = context.extents
    asked = sorted(set(extents.loc[extents["receivers"] > 1, "op"]))
    nothing_known = Groups([], empty, pd.DataFrame({"op": [], "size": []}), None)
    if not asked:  # one receiver: a request cannot have two copies
        return nothing_known
    context.progress("groups")
    retried = bool((extents["attempts"] > 0).any())
    build = group_tables.replies if retried else group_tables.replies_without_retries
    parts = [_group_part(part, build, asked, pictures=pictures) for part in context.parts()]
    frame = pd.concat([part.quantiles for part in parts])
    frame = frame.sort_values(["cell", "op", "size"], ignore_index=True)
    if frame.empty:
        return nothing_known
    largest = min(int(frame["size"].max()), SIZE_MAX)
    summaries = [
        _group(row, k)
        for row in frame.to_dict("records")
        for k in range(1, min(largest, int(row["size"])) + 1)
    ]
    summaries.sort(key=lambda g: (g.cell, g.op, g.size, g.k))
    known = frame[["op", "size"]].drop_duplicates().astype({"size": "int64"})
    if not pictures:
        return Groups(summaries, empty, known, None)
    histogram = pd.concat([part.histogram for part in parts], ignore_index=True)
    single = not known["op"].duplicated().any()
    by_size = None
    if not single:
        rows = context.rows.filter(context.rows["op"].isin(asked))
        whole = parts[0].replies if len(parts) == 1 else build(rows)
        by_size = _by_size(context, whole)
    return Groups(summaries, _distribution(histogram), known, by_size)


@dataclass(frozen=True)
class _GroupPart:
    """The group requests of some cells."""

    replies: ibis.Table
    quantiles: pd.DataFrame
    histogram: pd.DataFrame


def _group_part(
    part: Context, build: Callable[[ibis.Table], ibis.Table], asked: list[str], *, pictures: bool
) -> _GroupPart:
    rows = part.rows.filter(part.rows["op"].isin(asked))
    replies = part.run.engine.materialise("group_replies", build(rows))
    largest = fetch(replies.agg(size=replies["size"].max().fill_null(0)))
    size = min(int(largest["size"].iloc[0]), SIZE_MAX)
    frame = _kth(replies, size, part.size)
    histogram = fetch(group_tables.kth_histogram(replies)) if pictures else pd.DataFrame()
    return _GroupPart(replies, frame, histogram)


def _kth(replies: ibis.Table, largest: int, rows: int) -> pd.DataFrame:
    """Quantiles of every k-th reply, one row for each (cell, op, size)."""
    if not oversized(rows):
        return fetch(group_tables.kth_quantiles(replies, largest, GROUP_PROBABILITIES))
    frame = fetch(group_tables.kth_figures(replies, largest))
    keys = ["cell", "op", "size"]
    for k in range(1, largest + 1):
        kth = group_tables.kth(replies, k)
        found = exact_quantiles(kth, keys, "reply", GROUP_PROBABILITIES).drop(columns="n")
        frame = frame.merge(found.rename(columns={"quantiles": f"quantiles_{k}"}), "left", keys)
    return frame


def breakdowns(context: Context) -> dict[str, pd.DataFrame]:
    """Individual replies by sender, receiver and pair; `complete` adds the rest."""
    context.progress("senders and receivers")
    keys = {
        "by_sender": ["op", "client"],
        "by_receiver": ["op", "server"],
        "pairs": _PAIR,
    }
    if context.extents["cell"].nunique() > 1:
        keys["by_op"] = ["op"]
    found = {}
    for name, columns in keys.items():
        frame = quantiles_of(context.rows, columns, BREAKDOWN, context.size)
        found[name] = _named(context, _long(frame, columns))
    return found


def pairs_alone(context: Context) -> pd.DataFrame:
    """Return of the breakdowns the pairs, as far as `decomposition` looks at them.

    Where nobody has two peers nothing is split, and it is enough to know of which pairs there is a
    p90.
    """
    context.progress("senders and receivers")
    extents = context.extents
    if not ((extents["senders"] > 1) & (extents["receivers"] > 1)).any():
        frame = context.pairs.groupby(_PAIR, as_index=False)[["n", "failed", "flat"]].sum()
        if not frame["flat"].any() and not _crossed(frame):
            return _named(context, _counted_pairs(frame))
    frame = quantiles_of(context.rows, _PAIR, BREAKDOWN, context.size)
    return _named(context, _long(frame, _PAIR))


_PAIR = ["op", "client", "server"]


def _crossed(pairs: pd.DataFrame) -> bool:
    """Whether any op has two senders and two receivers, perhaps in different cells."""
    several = pairs.groupby("op").agg(clients=("client", "nunique"), servers=("server", "nunique"))
    return bool(((several["clients"] > 1) & (several["servers"] > 1)).any())


def _counted_pairs(frame: pd.DataFrame) -> pd.DataFrame:
    """Pairs with a p90 of 1 where there is one, and nothing else."""
    p = BREAKDOWN[1]
    above = np.ceil((frame["n"] - 1) * p) < frame["n"] - frame["failed"]
    known = above & (frame["n"] >= round(1 / (1 - p)))
    absent = dict.fromkeys(("p50", "p99", "max"), np.nan)
    return frame.assign(latency="service", p90=np.where(known, 1.0, np.nan), **absent)


def complete(
    by: dict[str, pd.DataFrame], groups: Groups, cells: list[CellSummary]
) -> dict[str, pd.DataFrame]:
    """Add what needs no other pass: by op in a single cell, by size if each op has one."""
    by_op = by["by_op"] if "by_op" in by else _of_cells(cells)
    by_size = groups.by_size
    if by_size is None:
        by_size = by_op.merge(groups.sizes, on="op")[_BY_SIZE]
    return {**by, "by_op": by_op, "by_size": by_size}


def windows_ns(context: Context, asked: int | None) -> dict[str, int]:
    """Return the length (ns) of the windows of each cell in which slow nodes are judged.

    It is `asked`, or the regroup period that the plan has for the cell, or as short as leaves each
    pair enough rows; the last two are one day at most.
    """
    cells = [str(cell) for cell in context.extents["cell"].unique()]
    if asked is not None:
        return dict.fromkeys(cells, asked)
    periods = {cell: context.run.plan.cell(cell).regroup_ns for cell in cells}
    otherwise = None if all(periods.values()) else _window_by_rows_ns(context)
    return {cell: min(DAY_NS, period or otherwise or DAY_NS) for cell, period in periods.items()}


def _window_by_rows_ns(context: Context) -> int:
    """Return the shortest window that leaves each pair enough rows, one day at most."""
    extents = context.extents
    pairs = (extents["senders"] * extents["receivers"]).clip(lower=1)
    length = int((extents["last_ns"] - extents["first_ns"]).max()) + 1
    possible = int((extents["n"] / pairs).median() // ROWS_WANTED)
    windows = int(np.clip(possible, WINDOWS_MIN, WINDOWS_MAX))
    return min(DAY_NS, max(1, -(-length // windows)))


def slow_nodes(context: Context, options: Options) -> SlowNodes:
    """Find slow nodes as each observer sees them, window by window and workload by workload."""
    context.progress("slow nodes")
    probabilities = sorted({0.5, 0.9, 0.99, options.percentile, *SENSITIVITY_PERCENTILES})
    extents = context.extents
    meshed = extents[(extents["senders"] > 1) & (extents["receivers"] > 1)]
    if meshed.empty:
        return nothing()
    starts = extents.groupby(["cell", "repeat"], as_index=False)["first_ns"].min()
    starts["window_ns"] = starts["cell"].map(options.windows_ns).astype("int64")
    table = inline(starts.rename(columns={"first_ns": "origin_ns"}))
    ops = sorted(set(meshed["op"]))
    parts = [
        _pair_windows(part, ops, request_tables.in_windows(table), probabilities)
        for part in context.parts()
    ]
    pairs = pd.concat(parts).sort_values(_PAIR_WINDOW, ignore_index=True)
    pairs = _with_percentiles(context, pairs, probabilities)
    enough = pairs["n"] >= ROWS_LEAST
    left_out, kept = int((~enough).sum()), pairs[enough].reset_index(drop=True)
    if kept.empty:
        return nothing(left_out)
    cube = _Cube.of(kept)
    judged = cube.judge(options.percentile, options.factor, options.floor_ns)
    kept["fastest"], kept["slow"] = cube.column(judged.fastest), cube.column(judged.slow)
    column = _column(options.percentile)
    kept["ratio"] = (kept[column] / kept["fastest"]).where(np.isfinite(kept["fastest"]))
    sets, agreement = _sets(kept), _agreement(cube, judged)
    named = _named_nodes(kept, cube.named(judged))
    sensitivity = [
        _sensitivity(cube, factor, percentile, options.floor_ns)
        for factor in SENSITIVITY_FACTORS
        for percentile in SENSITIVITY_PERCENTILES
    ]
    histogram = (
        sets.assign(slow_nodes=sets["slow"].map(len))
        .groupby(["op", "slow_nodes"], as_index=False)
        .size()
        .rename(columns={"size": "count"})
    )
    mean = float(agreement["jaccard"].mean()) if len(agreement) else None
    return SlowNodes(
        kept[PAIR_COLUMNS],
        sets,
        histogram,
        agreement,
        pd.DataFrame(sensitivity),
        named,
        int(kept["window"].nunique()),
        left_out,
        ROWS_LEAST,
        mean,
    )


_PAIR_WINDOW = ["cell", "repeat", "window", "op", "client", "server"]


def _pair_windows(
    part: Context,
    ops: list[str],
    windowed: Callable[[ibis.Table], ibis.Table],
    probabilities: list[float],
) -> pd.DataFrame:
    """Each pair in each window: n, failed, and quantiles of the response."""
    rows = windowed(part.rows.filter(part.rows["op"].isin(ops)))
    frame = quantiles_of(rows, _PAIR_WINDOW, probabilities, part.size, latencies=("response",))
    return frame.rename(columns={"response": "quantiles"}).drop(
        columns=["response_max", "response_mean"]
    )


def decomposition(pairs: pd.DataFrame) -> pd.DataFrame:
    """Split the variance of log p90 (service) into sender, receiver and pair, for each op."""
    rows = []
    service = pairs[pairs["latency"] == "service"]
    for op, part in service.groupby("op"):
        matrix = part.pivot_table(index="sender", columns="receiver", values="p90")
        found = two_way(matrix.to_numpy(dtype=float))
        rows.append(
            {
                "op": op,
                "sender_share": found.sender_share,
                "receiver_share": found.receiver_share,
                "pair_share": found.pair_share,
                "pairs": found.pairs,
            }
        )
    columns = ["op", "sender_share", "receiver_share", "pair_share", "pairs"]
    return pd.DataFrame(rows, columns=columns)


def _group(row: dict[str, Any], k: int) -> GroupSummary:
    size, n, failed = int(row["size"]), int(row["n"]), int(row[f"failed_{k}"])
    absent: dict[str, str] = {}
    shown: dict[str, float | None] = {}
    for name, p, value in zip(
        ("p50", "p90", "p99", "p99_9"), GROUP_PROBABILITIES, row[f"quantiles_{k}"], strict=True
    ):
        needed = round(1 / (1 - p))
        shown[name] = None
        if n < needed and name != "p50":
            absent[name] = f"{n} requests; {needed} are needed so that one lies beyond it"
        elif not np.isfinite(value):
            absent[name] = f"its rank falls among the {failed} of {n} requests without a k-th reply"
        else:
            shown[name] = float(value)
    largest = float(row[f"max_{k}"]) if failed == 0 else None
    if largest is None:
        absent["max"] = f"{failed} of {n} requests had no k-th reply"
    mean = None if failed == n else float(row[f"mean_{k}"])
    level: GroupLevel = (
        "first" if k == 1 else "all" if k == size else "majority" if k == size // 2 + 1 else ""
    )
    return GroupSummary(
        str(row["cell"]),
        str(row["op"]),
        size,
        k,
        level,
        n,
        failed,
        **shown,
        max=largest,
        mean_ok=mean,
        absent=absent,
    )


def _distribution(frame: pd.DataFrame) -> pd.DataFrame:
    failed = frame["bucket"] >= FAILED_BUCKET
    frame = frame.assign(bucket=np.where(failed, FAILED_BUCKET, frame["bucket"] // 4))
    keys = ["cell", "op", "size", "k", "bucket"]
    frame = frame.groupby(keys, as_index=False)["count"].sum()
    failed = (frame["bucket"] >= FAILED_BUCKET).to_numpy()
    number = frame["bucket"].to_numpy()
    frame["low_ns"] = bucket_edges(np.where(failed, FAILED_BUCKET, number * 4))[0]
    frame["high_ns"] = bucket_edges(np.where(failed, FAILED_BUCKET, (number + 1) * 4))[0]
    return frame[["cell", "op", "size", "k", "low_ns", "high_ns", "count"]]


def _by_size(context: Context, replies: ibis.Table) -> pd.DataFrame:
    """Individual replies by group size; service only where a (cell, op) has one size."""
    sizes = fetch(
        replies.group_by("cell", "op")
        .agg(least=replies["size"].min(), most=replies["size"].max())
        .order_by("cell", "op")
    )
    parts = []
    fixed = sizes[sizes["least"] == sizes["most"]]
    if len(fixed):
        known = fixed[["cell", "op"]].assign(size=fixed["most"].astype("int64"))
        joined = context.rows.join(inline(known), ["cell", "op"])
        frame = quantiles_of(joined, ["op", "size"], BREAKDOWN, context.size)
        parts.append(_long(frame, ["op", "size"]))
    mixed = sizes[sizes["least"] != sizes["most"]]
    if len(mixed):
        table = inline(mixed[["cell", "op"]])
        single = replies.join(table, ["cell", "op"]).select(
            "op", "size", response=lambda t: t.replies.unnest()
        )
        single = single.mutate(
            ok=single.response != request_tables.INFINITY, service=single.response
        )
        frame = quantiles_of(single, ["op", "size"], BREAKDOWN, context.size)
        part = _long(frame, ["op", "size"])
        parts.append(part[part["latency"] == "response"])
    return pd.concat(parts, ignore_index=True)[_BY_SIZE]


_BY_SIZE = ["op", "size", "latency", "n", "failed", "p50", "p90", "p99", "max"]


def _long(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """One row for each latency; NaN for a percentile with no row beyond it or among the failed."""
    parts = []
    for latency in request_tables.LATENCIES:
        part = frame[[*keys, "n", "failed"]].copy()
        part["latency"] = latency
        for place, (name, p) in enumerate(zip(("p50", "p90", "p99"), BREAKDOWN, strict=True)):
            values = frame[latency].map(lambda found, at=place: float(found[at]))
            enough = frame["n"] >= round(1 / (1 - p))
            part[name] = values.where(np.isfinite(values) & enough).astype(float)
        part["max"] = frame[f"{latency}_max"].astype(float)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _of_cells(cells: list[CellSummary]) -> pd.DataFrame:
    rows = [
        (c.latency, c.op, c.n, c.failed, c.p50, c.p90, c.p99, c.max_ok)
        for c in cells
        if c.op != "*"
    ]
    columns = ["latency", "op", "n", "failed", "p50", "p90", "p99", "max"]
    numbers = dict.fromkeys(columns[4:], float)
    return pd.DataFrame(rows, columns=columns).astype(numbers)


def _named(context: Context, frame: pd.DataFrame) -> pd.DataFrame:
    if "client" in frame:
        frame["sender"] = frame["client"].map(lambda number: context.name(number, sends=True))
    if "server" in frame:
        frame["receiver"] = frame["server"].map(lambda number: context.name(number, sends=False))
    front = [name for name in ("latency", "op", "sender", "receiver") if name in frame]
    return frame[[*front, "n", "failed", "p50", "p90", "p99", "max"]]


def nothing(left_out: int = 0) -> SlowNodes:
    """Return the slow nodes of a run without groups: none."""
    return SlowNodes(
        pd.DataFrame(columns=PAIR_COLUMNS),
        pd.DataFrame(columns=["cell", "repeat", "window", "op", "observer", "seen", "slow"]),
        pd.DataFrame(columns=["op", "slow_nodes", "count"]),
        pd.DataFrame(
            columns=["cell", "repeat", "window", "op", "observer_a", "observer_b", "jaccard"]
        ),
        pd.DataFrame(
            columns=["factor", "percentile", "slow_pairs", "named", "nodes", "jaccard_mean"]
        ),
        (),
        0,
        left_out,
        ROWS_LEAST,
        None,
    )


def _column(percentile: float) -> str:
    return {0.5: "p50", 0.9: "p90", 0.99: "p99"}.get(percentile, f"q{percentile}")


def _with_percentiles(
    context: Context, pairs: pd.DataFrame, probabilities: list[float]
) -> pd.DataFrame:
    """Columns for the percentiles (inf among the failed) and names for the nodes."""
    for place, p in enumerate(probabilities):
        values = pairs["quantiles"].map(lambda found, at=place: float(found[at]))
        pairs[_column(p)] = values.fillna(np.inf)
    names: dict[Any, str] = {}
    for number, sends, target in (("client", True, "sender"), ("server", False, "receiver")):
        keys = list(zip(pairs["cell"], pairs["repeat"], pairs[number], strict=True))
        for cell, repeat, node in dict.fromkeys(keys):
            names[cell, repeat, node, sends] = context.name(
                int(node), sends=sends, cell=cell, repeat=int(repeat)
            )
        pairs[target] = [names[cell, repeat, node, sends] for cell, repeat, node in keys]
    return pairs.drop(columns=["quantiles", "client", "server"])


@dataclass(frozen=True)
class _Judged:
    """Shapes (windows, senders, receivers), but ``fastest``: (windows, senders, 1)."""

    fastest: NDArray[np.float64]
    slow: NDArray[np.bool_]


@dataclass(frozen=True)
class _Cube:
    """All pairs as arrays (windows, senders, receivers): twelve definitions are tried on them."""

    windows: list[tuple[Any, ...]]
    senders: list[str]
    receivers: list[str]
    places: tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]
    percentiles: dict[str, NDArray[np.float64]]
    """NaN where a pair was not seen."""

    @classmethod
    def of(cls, pairs: pd.DataFrame) -> _Cube:
        window = pd.MultiIndex.from_frame(pairs[_WINDOW])
        codes, windows = pd.factorize(window)
        sender_codes, senders = pd.factorize(pairs["sender"])
        receiver_codes, receivers = pd.factorize(pairs["receiver"])
        shape = (len(windows), len(senders), len(receivers))
        places = (codes, sender_codes, receiver_codes)
        cubes = {}
        for name in pairs.columns:
            if name in ("p50", "p90", "p99") or name.startswith("q0"):
                cubes[name] = np.full(shape, np.nan)
                cubes[name][places] = pairs[name].to_numpy()
        return cls(list(windows), list(senders), list(receivers), places, cubes)

    def judge(self, percentile: float, factor: float, floor_ns: float) -> _Judged:
        values = self.percentiles[_column(percentile)]
        fastest = np.fmin.reduce(values, axis=2, keepdims=True)
        return _Judged(fastest, slow_set(values, factor, floor_ns))

    def column(self, values: NDArray[Any]) -> NDArray[Any]:
        """Back to one value for each pair."""
        return np.broadcast_to(values, next(iter(self.percentiles.values())).shape)[self.places]

    def overlaps(self, judged: _Judged) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Jaccard of every two senders in each window, NaN where both sets are empty.

        Of the receivers that both have asked: groups keep an observer from others.
        """
        sets = judged.slow.astype(float)
        asked = (~np.isnan(next(iter(self.percentiles.values())))).astype(float)
        shared = sets @ sets.transpose(0, 2, 1)
        # how many nodes one calls slow that the other has asked too
        sizes = sets @ asked.transpose(0, 2, 1)
        united = sizes + sizes.transpose(0, 2, 1) - shared
        seen = np.isfinite(judged.fastest[:, :, 0])
        upper = np.triu(np.ones(shared.shape[1:], dtype=bool), 1)
        wanted = upper & seen[:, :, None] & seen[:, None, :] & (united > 0)
        return np.where(wanted, shared / np.where(united > 0, united, 1), np.nan), wanted

    def named(self, judged: _Judged) -> pd.DataFrame:
        """(cell, op, receiver) that all others, at least two, call slow in half the windows."""
        # A slow node sees all its peers late, itself included: it is named by the others.
        others = np.asarray(self.senders)[:, None] != np.asarray(self.receivers)[None, :]
        seen = ~np.isnan(next(iter(self.percentiles.values()))) & others
        observers = seen.sum(axis=1)
        watched = observers > 1
        all_slow = watched & ((judged.slow & seen).sum(axis=1) == observers)
        cells = pd.DataFrame(self.windows, columns=_WINDOW)
        rows = []
        for (cell, op), part in cells.groupby(["cell", "op"]):
            places = part.index.to_numpy()
            least = min(WINDOWS_MIN, len(places))
            windows, slow = watched[places].sum(axis=0), all_slow[places].sum(axis=0)
            rows += [
                (
                    cell,
                    op,
                    self.receivers[place],
                    int(windows[place]),
                    int(slow[place]),
                    int(observers[places, place].max()),
                )
                for place in np.flatnonzero((windows >= least) & (2 * slow >= windows))
            ]
        return pd.DataFrame(
            rows, columns=["cell", "op", "receiver", "windows", "windows_slow", "observers"]
        )


_OBSERVER = ["cell", "repeat", "window", "op", "sender"]
_WINDOW = ["cell", "repeat", "window", "op"]


def _sets(pairs: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for key, part in pairs.groupby(_OBSERVER):
        slow = tuple(sorted(part.loc[part["slow"], "receiver"]))
        rows.append((*key, len(part), slow))
    return pd.DataFrame(
        rows, columns=["cell", "repeat", "window", "op", "observer", "seen", "slow"]
    )


def _agreement(cube: _Cube, judged: _Judged) -> pd.DataFrame:
    overlaps, wanted = cube.overlaps(judged)
    rows = [
        (
            *cube.windows[window],
            cube.senders[one],
            cube.senders[other],
            float(overlaps[window, one, other]),
        )
        for window, one, other in zip(*np.nonzero(wanted), strict=True)
    ]
    return pd.DataFrame(rows, columns=[*_WINDOW, "observer_a", "observer_b", "jaccard"])


def _named_nodes(pairs: pd.DataFrame, found: pd.DataFrame) -> tuple[NamedNode, ...]:
    cells = pairs["cell"].nunique()
    named = []
    for node, part in found.groupby("receiver"):
        rows = part.to_dict("records")
        labels = tuple(
            f"{row['op']} ({row['cell']})" if cells > 1 else str(row["op"]) for row in rows
        )
        its = pairs[pairs["receiver"] == node].merge(part[["cell", "op"]], on=["cell", "op"])
        ratios = its["ratio"][np.isfinite(its["ratio"])]
        ratio = float(ratios.median()) if len(ratios) else None
        observers = int(part["observers"].max())
        windows, slow = int(part["windows"].sum()), int(part["windows_slow"].sum())
        slower = f"{times(ratio)} the fastest" if ratio is not None else "most requests failed"
        words = (
            f"{node} is slow for {', '.join(labels)} ({slower}): all {observers} other nodes "
            f"observed it in {slow} of {windows} windows"
        )
        named.append(NamedNode(str(node), labels, observers, windows, slow, ratio, words))
    return tuple(sorted(named, key=lambda node: (-(node.ratio or np.inf), node.node)))


def _sensitivity(cube: _Cube, factor: float, percentile: float, floor_ns: float) -> dict[str, Any]:
    judged = cube.judge(percentile, factor, floor_ns)
    nodes = sorted(set(cube.named(judged)["receiver"]))
    overlaps, wanted = cube.overlaps(judged)
    return {
        "factor": factor,
        "percentile": percentile,
        "slow_pairs": int(judged.slow.sum()),
        "named": len(nodes),
        "nodes": ", ".join(nodes),
        "jaccard_mean": float(overlaps[wanted].mean()) if wanted.any() else None,
    }
