"""The unruly 1 % over a matrix: is the maximum unpredictable, is the p99, and what explains them.

All latencies are response times in ns. A cell with failed requests has no mean, and is left out
where a mean is needed; a note says how many are left out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np
import pandas as pd
import scipy

from unruly.base.quantiles import quantiles_of
from unruly.shown import Shown
from unruly.stats import (
    Effect,
    Interval,
    Line,
    analysis_of_variance,
    benjamini_hochberg,
    bucket_edges,
    dip_test,
    line_fit,
    outlier_limit,
    smallest_haircut,
    streak_length,
)
from unruly.stats.histogram import FAILED_BUCKET
from unruly.tables import fetch, inline
from unruly.topics.factors import tables as matrix_tables
from unruly.topics.factors.cells import MatrixCell
from unruly.topics.factors.systems import SystemRow, by_system

if TYPE_CHECKING:
    import ibis
    from numpy.typing import NDArray

    from unruly.base.analysis import Analysis
    from unruly.base.cells import Cells
    from unruly.base.context import Context
    from unruly.base.operation import CellSummary
    from unruly.base.part import Part
    from unruly.contract import OrNull

LATENCY: Final = "response"
SHARE: Final = 0.01
BOUND: Final = 25.0
"""What the study found p99 over mean to stay below, with 99 % confidence; never asserted."""
Measure = Literal["mean", "p99", "maximum", "outliers"]
MEASURES: Final[tuple[Measure, ...]] = get_args(Measure)
CURVE: Final = (*(round(0.01 * k, 2) for k in range(1, 100)), 0.995, 0.999)
THINNED: Final = 500
SYSTEM_FACTORS: Final = (
    "drive.system", "drive.store", "drive.url", "drive.address", "drive.transport",
    "mesh.transport", "stream.protocol", "service.application",
)  # fmt: skip
"""The keys of a plan whose value selects the server or the protocol that is measured.

`drive.system`, `drive.store`, `drive.url` and `drive.address` select the server that answers, and
`service.application` the application in it. The two transports and `stream.protocol` select the
software that carries a request or a message. Every other key sets something up within one system:
its clients, payload, platform, replication, consistency level, collector or quota.
`mesh.runtime` is left out, because one cell of `mixed` runs both implementations; the view of the
runtimes compares those.
"""
CELLS_MAX: Final = 5_000


@dataclass(frozen=True)
class Explained:
    """Which factors explain a measure (mean, p99, maximum, outliers) over cells and repeats."""

    measure: Measure
    effects: tuple[Effect, ...]
    observations: int
    reason: str = ""


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman over the cells, its p-value, and that adjusted over all that were tried."""

    of: str
    against: str
    rho: OrNull
    p_value: OrNull
    q_value: OrNull
    cells: int


@dataclass(frozen=True, repr=False)
class Magical(Shown):
    """The view of a matrix.

    ``lines`` are p99 on mean for each system, and for all of them under ``"*"``; ``curves`` maps a
    factor to its levels' quantiles (`CURVE`), in ns.
    """

    cells: tuple[MatrixCell, ...]
    systems: tuple[str, ...]
    by_system: tuple[SystemRow, ...]
    factors: dict[str, tuple[str, ...]]
    explained: tuple[Explained, ...]
    lines: dict[str, Line]
    count_against_size: RankCorrelation | None
    resources: tuple[RankCorrelation, ...]
    curves: dict[str, dict[str, list[float]]]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Measured:
    """The numbers that the view needs from the rows of some cells."""

    repeats: pd.DataFrame
    """cell, repeat, n, failed, mean, p99, largest."""
    streaks: dict[str, dict[int, Any]]
    """By cell and repeat."""
    cuts: dict[str, dict[str, Any]]
    """By cell: its numbers without the slowest 1 %."""
    histograms: dict[str, tuple[NDArray[Any], NDArray[Any]]]

    @classmethod
    def joined(cls, parts: list[Measured]) -> Measured:
        """All parts of a run, cells in their order."""
        repeats = pd.concat([part.repeats for part in parts if len(part.repeats)])
        return cls(
            repeats.sort_values(["cell", "repeat"], ignore_index=True),
            {cell: held for part in parts for cell, held in part.streaks.items()},
            {cell: held for part in parts for cell, held in part.cuts.items()},
            {cell: held for part in parts for cell, held in part.histograms.items()},
        )


def measure(part: Part, cells: Cells) -> Measured:
    """Look at the rows of some cells, whose summaries are known."""
    rows = _overall(cells.summaries)
    return Measured(_repeats(part, rows), _streaks(part, rows), _cuts(part, rows), cells.histograms)


def _overall(summaries: list[CellSummary]) -> dict[str, CellSummary]:
    return {
        row.cell: row for row in summaries if row.op == "*" and row.latency == LATENCY and row.n
    }


def magical(
    context: Context,
    summaries: list[CellSummary],
    measured: Measured,
    *,
    pictures: bool = True,
    interactions: bool = False,
) -> Magical | None:
    """Compute the view; None for a run of one cell. The curves are left out without `pictures`.

    With `interactions` the analyses of variance have those of every two factors as well.
    """
    rows = _overall(summaries)
    known = context.factors
    measured_names = [name for name in known if name in rows]
    names = measured_names[:CELLS_MAX]
    if len(names) < 2 or context.empty:
        return None
    context.progress("matrix")
    factors = _levels({name: known[name] for name in names})
    shapes, streaks = _shapes(measured.histograms), measured.streaks
    cells = [_cell(rows[name], known[name], shapes.get(name), streaks.get(name)) for name in names]
    cells = _adjusted(_with_haircuts(cells, measured.cuts))
    notes = [
        f"{sum(cell.mean is None for cell in cells)} cells have failed requests, and no mean",
        f"{len(measured_names) - len(names)} cells beyond the first {CELLS_MAX:,} are left out",
    ]
    sizes = _sizes(streaks, rows)
    cells = [
        replace(cell, outlier_share=sizes[cell.cell][0], outlier_size=sizes[cell.cell][1])
        if cell.cell in sizes
        else cell
        for cell in cells
    ]
    repeats, lines = measured.repeats, _lines(cells)
    return Magical(
        tuple(cells),
        tuple(dict.fromkeys(cell.system for cell in cells)),
        by_system(cells, lines),
        factors,
        tuple(
            _explained(it, repeats, streaks, known, factors, interactions=interactions)
            for it in MEASURES
        ),
        lines,
        _count_against_size(cells, sizes),
        _resources(context, cells, sizes),
        _curves(context, {name: known[name] for name in names}, factors) if pictures else {},
        tuple(note for note in notes if not note.startswith("0 ")),
    )


def _levels(cells: dict[str, dict[str, str]]) -> dict[str, tuple[str, ...]]:
    """Every factor with its levels, in the plan's order."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for factors in cells.values():
        for name, level in factors.items():
            found[name][level] = None
    return {name: tuple(levels) for name, levels in found.items()}


@dataclass(frozen=True)
class _Shape:
    """What a cell's histogram says: the smallest haircut, and its order statistics, thinned."""

    haircut: float | None
    thinned: np.ndarray


def _shapes(histograms: dict[str, tuple[NDArray[Any], NDArray[Any]]]) -> dict[str, _Shape]:
    found = {}
    for cell, (buckets, whole) in histograms.items():
        good = buckets < FAILED_BUCKET
        low, high = bucket_edges(buckets[good])
        held = whole[good]
        share = smallest_haircut(high, held) if good.all() and held.sum() else None
        # inside a bucket values are spread evenly, so that the buckets are no modes of their own
        places = (np.arange(THINNED) + 0.5) / THINNED * held.sum()
        upto = np.cumsum(held)
        edges = np.concatenate([low[:1], high])
        thinned = np.interp(places, np.concatenate([[0.0], upto]), edges) if held.sum() else high
        found[str(cell)] = _Shape(share, np.log(thinned) if thinned.size else thinned)
    return found


def _repeats(part: Part, rows: dict[str, CellSummary]) -> pd.DataFrame:
    """Count, mean, p99 and maximum of each (cell, repeat); a cell that ran once is its summary."""
    places = part.places.drop_duplicates("place").sort_values("place")
    times = places.groupby("cell")["repeat"].nunique()
    once = {str(it) for it in times[times == 1].index if it in rows and rows[it].p99 is not None}
    first = dict(zip(places["cell"], places["repeat"], strict=True))
    found = [
        (cell, int(first[cell]), row.n, row.failed, row.mean_ok, row.p99, row.max_ok)
        for cell in sorted(once)
        for row in (rows[cell],)
    ]
    rest = places[~places["cell"].isin(once)].set_index("place")
    if len(rest):
        held = part.rows
        if once:
            held = held.filter(held.place.isin(rest.index.tolist()))
        size = part.context.size
        frame = quantiles_of(held, ["place"], [0.99], size, latencies=(LATENCY,))
        frame = frame.join(rest[["cell", "repeat"]], on="place")
        found += [
            (
                row["cell"], int(row["repeat"]), row["n"], row["failed"], row[f"{LATENCY}_mean"],
                float(row[LATENCY][0]), row[f"{LATENCY}_max"],
            )
            for row in frame.to_dict("records")
        ]  # fmt: skip
    columns = ["cell", "repeat", "n", "failed", "mean", "p99", "largest"]
    return pd.DataFrame(found, columns=columns)


def _streaks(part: Part, rows: dict[str, CellSummary]) -> dict[str, dict[int, Any]]:
    limits = [
        {"whole": number, "limit": outlier_limit(row.mean, row.sd)}
        for number, cell in part.cells.items()
        for row in (rows.get(cell),)
        if row is not None and row.mean is not None and row.sd is not None
    ]
    found: dict[str, dict[int, Any]] = {}
    if limits:
        table = matrix_tables.outliers_of_repeats(part.rows, _numbers(limits), LATENCY)
        names = part.places.drop_duplicates("place").set_index("place")[["cell", "repeat"]]
        for row in fetch(table).join(names, on="place").to_dict("records"):
            found.setdefault(str(row["cell"]), {})[int(row["repeat"])] = row
    return found


def _cuts(part: Part, rows: dict[str, CellSummary]) -> dict[str, dict[str, Any]]:
    """What is left of mean, p99 and maximum when the slowest 1 % are taken away."""
    limits = [
        {"whole": number, "limit": row.p99}
        for number, cell in part.cells.items()
        for row in (rows.get(cell),)
        if row is not None and row.p99 is not None and row.failed == 0
    ]
    if not limits:
        return {}
    kept = matrix_tables.cut(part.rows, _numbers(limits), LATENCY)
    frame = quantiles_of(kept, ["whole"], [0.99], part.context.size, latencies=(LATENCY,))
    return {part.cells[int(row["whole"])]: row for row in frame.to_dict("records")}


def _numbers(limits: list[dict[str, Any]]) -> ibis.Table:
    return inline(pd.DataFrame(limits).astype({"whole": "int32"}))


def _cell(
    row: CellSummary,
    factors: dict[str, str],
    shape: _Shape | None,
    streaks: dict[int, Any] | None,
) -> MatrixCell:
    absent = dict(row.absent)
    streak = dip = p_value = None
    if streaks:
        counted = [sum(int(it[name]) for it in streaks.values()) for name in
                   ("outliers", "streaks", "n")]  # fmt: skip
        streak = streak_length(*counted)
        if streak.estimate is None:
            streak = None
            absent["streak"] = "no request is beyond mean + 3 sd"
    if shape is not None and shape.thinned.size:
        found = dip_test(shape.thinned)
        dip, p_value = found.dip, found.p_value
        if found.reason:
            absent["dip"] = found.reason
    return MatrixCell(
        cell=row.cell,
        factors=factors,
        system=system_of(factors),
        n=row.n,
        failed=row.failed,
        mean=row.mean,
        median=row.p50,
        p99=row.p99,
        largest=row.max,
        over_10x_mean=row.over_10x_mean,
        over_3_sigma=row.over_3_sigma,
        p99_over_mean=row.p99_over_mean_interval
        or (
            Interval(row.p99_over_mean, None, None, 0.95, row.n, None, "no interval")
            if row.p99_over_mean is not None
            else None
        ),
        smallest_haircut=shape.haircut if shape else None,
        streak=streak,
        dip=dip,
        dip_p=p_value,
        absent=absent,
    )


def system_of(factors: dict[str, str]) -> str:
    """Return the name of a cell's system: the levels of `SYSTEM_FACTORS`, ``"all"`` without one.

    A matrix over two of them, such as an address and a transport, has a system for each pair.
    """
    return " ".join(factors[name] for name in SYSTEM_FACTORS if name in factors) or "all"


def _with_haircuts(cells: list[MatrixCell], cuts: dict[str, dict[str, Any]]) -> list[MatrixCell]:
    return [
        replace(
            cell,
            mean_after=float(cuts[cell.cell][f"{LATENCY}_mean"]),
            p99_after=float(cuts[cell.cell][LATENCY][0]),
            largest_after=float(cuts[cell.cell][f"{LATENCY}_max"]),
        )
        if cell.cell in cuts
        else cell
        for cell in cells
    ]


def _adjusted(cells: list[MatrixCell]) -> list[MatrixCell]:
    """The dips' p-values adjusted over all cells."""
    tested = [cell.dip_p for cell in cells if cell.dip_p is not None]
    q_values = iter(benjamini_hochberg(tested).tolist() if tested else [])
    return [
        replace(cell, dip_q=float(next(q_values))) if cell.dip_p is not None else cell
        for cell in cells
    ]


def _explained(
    measure: Measure,
    repeats: pd.DataFrame,
    streaks: dict[str, dict[int, Any]],
    known: dict[str, dict[str, str]],
    factors: dict[str, tuple[str, ...]],
    *,
    interactions: bool,
) -> Explained:
    """Analysis of variance of one measure over cells and repeats."""
    values, levels = [], []
    for row in repeats.to_dict("records"):
        name, number = str(row["cell"]), int(row["repeat"])
        value = _measure(measure, row, streaks.get(name, {}).get(number))
        if name in known and value is not None and np.isfinite(value):
            values.append(value)
            levels.append(known[name])
    used = {name: [held.get(name, "") for held in levels] for name in factors}
    if len(values) < 2 or not used:
        return Explained(measure, (), len(values), "fewer than two observations, or no factor")
    effects = analysis_of_variance(values, used, interactions=interactions)
    return Explained(measure, effects, len(values))


def _measure(measure: str, row: dict[str, Any], streak: Any) -> float | None:
    if measure == "outliers":
        return float(streak["outliers"]) / float(streak["n"]) if streak else None
    if int(row["failed"]):
        return None
    if measure == "p99":
        return float(row["p99"])
    return float(row["mean" if measure == "mean" else "largest"])


def _lines(cells: list[MatrixCell]) -> dict[str, Line]:
    """p99 on mean, for each system and over all."""
    found = {}
    systems = list(dict.fromkeys(cell.system for cell in cells))
    for system in [*(systems if len(systems) > 1 else []), "*"]:
        held = [
            (cell.mean, cell.p99)
            for cell in cells
            if system in ("*", cell.system) and cell.mean is not None and cell.p99 is not None
        ]
        found[system] = line_fit([mean for mean, _ in held], [p99 for _, p99 in held])
    return found


def _sizes(
    streaks: dict[str, dict[int, Any]], rows: dict[str, CellSummary]
) -> dict[str, tuple[float, float]]:
    """Share of outliers of each cell, and how many times its mean they take on average."""
    found = {}
    for name, repeats in streaks.items():
        outliers = sum(int(it["outliers"]) for it in repeats.values())
        mean = rows[name].mean
        if not outliers or not mean:
            continue
        total = sum(
            float(it["size"]) * int(it["outliers"]) for it in repeats.values() if it["outliers"]
        )
        found[name] = (
            outliers / sum(int(it["n"]) for it in repeats.values()),
            total / outliers / mean,
        )
    return found


def _count_against_size(
    cells: list[MatrixCell], sizes: dict[str, tuple[float, float]]
) -> RankCorrelation | None:
    held = [sizes[cell.cell] for cell in cells if cell.cell in sizes]
    found = _spearman([count for count, _ in held], [size for _, size in held])
    if found is None:
        return None
    rho, p_value = found
    return RankCorrelation("number of outliers", "their size", rho, p_value, p_value, len(held))


def _resources(
    context: Context, cells: list[MatrixCell], sizes: dict[str, tuple[float, float]]
) -> tuple[RankCorrelation, ...]:
    """What client and server used a second, against the number and the size of outliers."""
    frame = fetch(matrix_tables.used(context.run.resources))
    names = [cell.cell for cell in cells if cell.cell in sizes]
    found: list[tuple[str, str, float, float, int]] = []
    for watched, part in frame.groupby("watched"):
        if str(watched).startswith("probe"):
            continue
        by_cell = part.set_index("cell")
        present = [name for name in names if name in by_cell.index]
        for metric in matrix_tables.USED:
            values = by_cell.loc[present, metric].to_numpy(dtype=float)
            for place, what in enumerate(("number of outliers", "size of outliers")):
                against = [sizes[name][place] for name in present]
                pair = _spearman(values.tolist(), against)
                if pair is not None:
                    found.append((f"{watched}: {metric}", what, *pair, len(present)))
    if not found:
        return ()
    q_values = benjamini_hochberg([row[3] for row in found])
    rows = [
        RankCorrelation(of, against, rho, p_value, float(q), n)
        for (of, against, rho, p_value, n), q in zip(found, q_values, strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: (row.q_value, -abs(row.rho))))


def _spearman(x: list[float], y: list[float]) -> tuple[float, float] | None:
    first, second = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    good = np.isfinite(first) & np.isfinite(second)
    first, second = first[good], second[good]
    if first.size < 4 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    found = scipy.stats.spearmanr(first, second)
    return float(found.statistic), float(found.pvalue)


def _curves(
    context: Context, known: dict[str, dict[str, str]], factors: dict[str, tuple[str, ...]]
) -> dict[str, dict[str, list[float]]]:
    """Quantiles of all rows of each level of each factor."""
    found: dict[str, dict[str, list[float]]] = {}
    for factor, levels in factors.items():
        if len(levels) < 2:
            continue
        cells = [
            {"cell": name, "of_level": held[factor]}
            for name, held in known.items()
            if factor in held
        ]
        rows = context.rows.join(inline(cells), "cell")
        keys = ["of_level"]
        frame = quantiles_of(rows, keys, CURVE, context.size, latencies=(LATENCY,))
        by_level = {str(row["of_level"]): row[LATENCY] for row in frame.to_dict("records")}
        found[factor] = {
            level: [float(value) for value in by_level[level]]
            for level in levels
            if level in by_level
        }
    return found


def factors_of(analysis: Analysis) -> Magical | None:
    """Return what this topic says of a run; None where it does not apply."""
    return analysis.topic("magical", Magical)
