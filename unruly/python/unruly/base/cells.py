"""The numbers of each (cell, op): exact quantiles, counts beyond limits, intervals, promises."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from unruly.base.ladder import LEVEL, PERCENTILES, ladder_blocks, promise_ladder
from unruly.base.model import BlindSpot
from unruly.base.operation import CellSummary
from unruly.base.part import Part
from unruly.base.quantiles import oversized, quantiles_of
from unruly.base.tails import Far, levels_of, over_limits
from unruly.quantity import duration
from unruly.stats import (
    BlockInterval,
    Interval,
    blind_spot,
    bucket_edges,
    interval_of_ratio,
    quantile_ranks_iid,
    request_mean_interval,
)
from unruly.stats.blocks import BLOCKS
from unruly.stats.histogram import FAILED_BUCKET
from unruly.tables import fetch, inline
from unruly.tables import requests as request_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unruly.base.context import Context
    from unruly.base.promise import PromiseLadder
    from unruly.base.target import Target
    from unruly.contract import Latency

COUNTS_MOST = 150
"""Different numbers of rows in one query: each has its own ranks for the i.i.d. interval."""
COARSE = 4
"""Four 0.5 % buckets make one of 2 % in the distribution."""


@dataclass(frozen=True)
class Cells:
    """The summaries of all cells, and the numbers from the same pass over the rows."""

    summaries: list[CellSummary]
    distributions: dict[Any, pd.DataFrame]
    """By (latency, cell, whether it is over all ops, op)."""
    tail_rows: int
    tail_explained: int
    log_means: pd.DataFrame
    """cell, op, log_mean of the service latency."""
    histograms: dict[str, tuple[NDArray[Any], NDArray[Any]]]
    """Of each cell, over its ops: 0.5 % buckets of the response latency, and their counts."""
    far: dict[tuple[str, str], Far]
    """The far tail of each (cell, op), where it is held to a target."""

    @classmethod
    def joined(cls, parts: list[Cells]) -> Cells:
        """All parts of a run, cells in their order."""
        summaries = [row for part in parts for row in part.summaries]
        return cls(
            sorted(summaries, key=_order),
            {key: frame for part in parts for key, frame in part.distributions.items()},
            sum(part.tail_rows for part in parts),
            sum(part.tail_explained for part in parts),
            pd.concat([part.log_means for part in parts]).sort_values(["cell", "op"]),
            {cell: held for part in parts for cell, held in part.histograms.items()},
            {key: held for part in parts for key, held in part.far.items()},
        )

    @property
    def tail_explained_share(self) -> float | None:
        """Of the rows beyond the p99, the share that the send lag explains."""
        return self.tail_explained / self.tail_rows if self.tail_rows else None

    @property
    def distribution(self) -> pd.DataFrame:
        """The distribution in 2 % buckets."""
        if not self.distributions:
            return no_distribution()
        ordered = [self.distributions[key] for key in sorted(self.distributions)]
        return pd.concat(ordered, ignore_index=True)


@dataclass(frozen=True)
class _Blocks:
    """What the block histograms gave, by (cell, op, latency) and by (cell, op)."""

    intervals: dict[Any, tuple[dict[float, BlockInterval], Interval]]
    histograms: dict[Any, tuple[NDArray[Any], NDArray[Any]]]
    distribution: dict[Any, pd.DataFrame]
    far: dict[Any, dict[str, BlockInterval]]
    """Of each (cell, op), where it is wanted."""


def no_distribution() -> pd.DataFrame:
    """Return the distribution of nothing."""
    return pd.DataFrame(columns=["cell", "op", "latency", "low_ns", "high_ns", "count"])


def summarise(part: Part, *, pictures: bool = True, target: Target | None = None) -> Cells:
    """Summarise every (cell, op) and every cell over all its ops, in both latencies.

    Without `pictures` the distribution is left empty; without a `target` the far tail is.
    """
    figures = _figures(part)
    found = _quantiles(part, figures)
    tails = _tails(part, figures, found)
    blocks = _blocks(part, found, pictures=pictures, far=target is not None)
    over = over_limits(part, target) if target else {}
    durations = _durations(part)
    rows = {(row["cell"], row["op"]): row for row in figures.to_dict("records")}
    summaries = [
        _summary(
            key,
            latency,
            row,
            found[key][latency],
            tails[key],
            blocks.intervals[(*key, latency)],
            durations[key],
            timeless=key[0] in part.context.run.timeless,
        )
        for key, row in rows.items()
        for latency in request_tables.LATENCIES
    ]
    plain = [counts for (_, op), counts in tails.items() if op != "*"]
    means = figures[figures["op"] != "*"]
    return Cells(
        _with_single_ops(summaries, part.several),
        blocks.distribution,
        sum(int(counts["tail"]) for counts in plain),
        sum(int(counts["tail_explained"]) for counts in plain),
        means[["cell", "op"]].assign(log_mean=means["log_mean"].fillna(0.0)),
        {
            cell: held
            for (cell, op), held in blocks.histograms.items()
            if op == "*" or cell not in part.several
        },
        {
            key: Far(blocks.far[key], blocks.intervals[(*key, "response")][1], counts)
            for key, counts in over.items()
        },
    )


def blind_spots(summaries: list[CellSummary], timeless: frozenset[str]) -> list[BlindSpot]:
    """Say for each (cell, op) what its run was too short to see; nothing where time is made up."""
    spots = []
    for row in summaries:
        if row.latency != "response" or row.op == "*" or row.cell in timeless:
            continue
        # a source without times
        if row.duration_ns <= 1:
            continue
        stall, every = blind_spot(row.duration_ns, 0.99)
        sentence = (
            f"nothing is known of what happens less often than every {duration(every)}; stalls "
            f"over {duration(stall)} may exist, unseen, and change the p99"
        )
        spots.append(BlindSpot(row.cell, row.op, 0.99, stall, every, sentence))
    return spots


def _figures(part: Part) -> pd.DataFrame:
    """Moments by (cell, op), and pooled over all ops of a cell where there are several."""
    frame = part.names.merge(fetch(request_tables.moments(part.rows, "number")), on="number")
    pooled = [_pooled(frame[frame["cell"] == cell]) for cell in part.several]
    return pd.concat([frame, pd.DataFrame(pooled)], ignore_index=True) if pooled else frame


def _pooled(parts: pd.DataFrame) -> dict[str, Any]:
    """Moments of the union from the moments of its parts (Chan, Golub and LeVeque 1979)."""
    found: dict[str, Any] = {
        "number": -1,
        "whole": int(parts["whole"].iloc[0]),
        "cell": parts["cell"].iloc[0],
        "op": "*",
        "n": int(parts["n"].sum()),
        "failed": int(parts["failed"].sum()),
    }
    for latency in request_tables.LATENCIES:
        known = parts[parts[f"{latency}_known"] > 0]
        n = known[f"{latency}_known"].to_numpy(dtype=float)
        means = known[f"{latency}_mean"].to_numpy(dtype=float)
        variances = known[f"{latency}_sd"].fillna(0.0).to_numpy(dtype=float) ** 2
        total = n.sum()
        mean = float((n * means).sum() / total) if total else np.nan
        squares = float(((n - 1) * variances + n * (means - mean) ** 2).sum())
        found |= {
            f"{latency}_known": int(total),
            f"{latency}_mean": mean,
            f"{latency}_sd": np.sqrt(squares / (total - 1)) if total > 1 else np.nan,
            f"{latency}_min": known[f"{latency}_min"].min(),
            f"{latency}_max": known[f"{latency}_max"].max(),
        }
    return found


def _quantiles(part: Part, figures: pd.DataFrame) -> dict[Any, Any]:
    """Exact quantiles and the order statistics of the i.i.d. interval, for each key and latency."""
    found: dict[Any, Any] = {}
    whole = figures["op"] == "*"
    for keys, number in ((figures[~whole], "number"), (figures[whole], "whole")):
        for batch in _batches(keys):
            found |= _batch_quantiles(part, batch, number, everything=len(batch) == len(part.names))
    return found


def _batches(figures: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Keys whose numbers of rows are few different ones; an oversized key by itself."""
    large = figures["n"].map(oversized).astype(bool)
    for place in np.flatnonzero(large):
        yield figures.iloc[[place]]
    rest = figures[~large]
    number = rest["n"].rank(method="dense") - 1
    for _, batch in rest.groupby(number // COUNTS_MOST):
        yield batch


def _batch_quantiles(
    part: Part, batch: pd.DataFrame, number: str, *, everything: bool
) -> dict[Any, Any]:
    """Return the same for some keys; the column `number` of the rows identifies each key."""
    sizes = {int(n): quantile_ranks_iid(int(n), 0.99, LEVEL) for n in batch["n"].unique()}
    wanted, place = list(PERCENTILES.values()), {}
    for n, (low, high) in sizes.items():
        place[n] = len(wanted)
        wanted += [_fraction(n, low), _fraction(n, high)]
    keys = {int(row[number]): (row["cell"], row["op"]) for row in batch.to_dict("records")}
    rows = part.rows
    if not everything:
        rows = rows.filter(rows[number].isin(sorted(keys)))
    frame = quantiles_of(rows, [number], wanted, int(batch["n"].sum()))
    found: dict[Any, Any] = {}
    for row in frame.to_dict("records"):
        key, n = keys[int(row[number])], int(row["n"])
        low, high = sizes[n]
        found[key] = {}
        for latency in request_tables.LATENCIES:
            values = row[latency]
            found[key][latency] = {
                **{name: float(values[at]) for at, name in enumerate(PERCENTILES)},
                "low_rank": low,
                "high_rank": high,
                # an order statistic is a whole number of ns; interpolation left a trace of rounding
                "low": _whole(float(values[place[n]])) if low else None,
                "high": _whole(float(values[place[n] + 1])) if high else None,
            }
    return found


def _fraction(n: int, rank: int | None) -> float:
    return 0.0 if rank is None or n < 2 else min(1.0, (rank - 1) / (n - 1))


def _whole(value: float) -> float | None:
    return float(round(value)) if np.isfinite(value) else None


def _tails(part: Part, figures: pd.DataFrame, found: dict[Any, Any]) -> dict[Any, Any]:
    """Counts beyond limits: each row against those of its op, and of its cell over all ops."""
    limits = figures[["cell", "op", "number", "whole"]].copy()
    for latency in request_tables.LATENCIES:
        mean, sd = figures[f"{latency}_mean"], figures[f"{latency}_sd"]
        limits[f"{latency}_ten"] = (10 * mean).fillna(np.inf)
        limits[f"{latency}_three"] = (mean + 3 * sd).fillna(np.inf)
    p99 = [found[key]["response"]["p99"] for key in zip(limits["cell"], limits["op"], strict=True)]
    limits["response_p99"] = np.where(np.isfinite(p99), p99, np.inf)
    starred = limits["op"] == "*"
    joined = limits[~starred].drop(columns=["cell", "op"])
    if starred.any():
        whole = limits[starred].drop(columns=["cell", "op", "number", "response_p99"])
        names = {name: f"whole_{name}" for name in whole.columns if name != "whole"}
        joined = joined.merge(whole.rename(columns=names), on="whole", how="left").fillna(np.inf)
    table = inline(joined.drop(columns="whole"))
    frame = part.names.merge(fetch(request_tables.tail_counts(part.rows, table)), on="number")
    tails: dict[Any, Any] = {(row["cell"], row["op"]): row for row in frame.to_dict("records")}
    for cell in limits.loc[starred, "cell"]:
        own = frame[frame["cell"] == cell]
        tails[cell, "*"] = {
            name.removeprefix("whole_"): int(own[name].sum())
            for name in own.columns
            if name.startswith("whole_")
        }
    return tails


def _blocks(part: Part, found: dict[Any, Any], *, pictures: bool, far: bool) -> _Blocks:
    """Percentiles and the mean by blocks, for each key and latency; the distribution in 2 %."""
    blocks = _Blocks({}, {}, {}, {})
    for latency in request_tables.LATENCIES:
        for key, buckets, counts in _histograms(part, latency):
            steps = ladder_blocks(buckets, counts, found[key][latency])
            blocks.intervals[(*key, latency)] = steps, mean_by_blocks(buckets, counts, None)
            whole = counts.sum(axis=1)
            if latency == "response":
                blocks.histograms[key] = buckets, whole
                if far and key[1] != "*":
                    blocks.far[key] = levels_of(buckets, counts, found[key][latency])
            if pictures:
                frame = coarse_distribution(key, latency, buckets, whole)
                blocks.distribution[latency, key[0], key[1] == "*", key[1]] = frame
    return blocks


def mean_by_blocks(buckets: NDArray[Any], counts: NDArray[Any], mean: float | None) -> Interval:
    """The mean of answered requests with its interval, from the middles of buckets.

    A bucket's middle is not its mean: sums are scaled to the run's exact mean where it is known.
    """
    good = buckets < FAILED_BUCKET
    low, high = bucket_edges(buckets[good])
    sums = ((low + high) / 2) @ counts[good]
    if mean is not None and sums.sum() > 0:
        sums = sums * (mean * counts[good].sum() / sums.sum())
    return request_mean_interval(sums, counts[good].sum(axis=0), LEVEL)


def histograms_of(
    context: Context, latency: str
) -> Iterator[tuple[Any, NDArray[Any], NDArray[Any]]]:
    """Each (cell, op), its 0.5 % buckets and its (bucket, block) counts of one latency.

    A cell of several ops also comes as ``(cell, "*")``, in blocks of the cell's own time.
    """
    for part in context.parts():
        yield from _histograms(Part.of(part), latency)


def _histograms(part: Part, latency: str) -> Iterator[tuple[Any, NDArray[Any], NDArray[Any]]]:
    """Each key's buckets and its (bucket, block) counts; cells of several ops also as ``"*"``."""
    blocks = ("block", "cell_block") if part.several else ("block",)
    frame = fetch(request_tables.block_histogram(part.rows, latency, *blocks))
    frame = frame.iloc[np.argsort(frame["number"].to_numpy(), kind="stable")]
    columns = {name: frame[name].to_numpy() for name in frame.columns}
    edges = np.searchsorted(columns["number"], np.arange(len(part.names) + 1))
    for cell, ops in part.names.groupby("cell", sort=False):
        for op, number in zip(ops["op"], ops["number"], strict=True):
            yield (
                (cell, op),
                *bucket_matrix(columns, slice(edges[number], edges[number + 1]), "block"),
            )
        if len(ops) > 1:  # those of one cell lie together
            whole = slice(edges[ops["number"].min()], edges[ops["number"].max() + 1])
            yield (cell, "*"), *bucket_matrix(columns, whole, "cell_block")


def bucket_matrix(
    columns: dict[str, NDArray[Any]], held: slice, block: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Buckets that hold anything, and their counts by block."""
    bucket, place = columns["bucket"][held].astype(np.int64), columns[block][held]
    count = columns["count"][held]
    failed = bucket == FAILED_BUCKET
    good = bucket[~failed]
    least = int(good.min()) if good.size else 0
    size = int(good.max()) - least + 1 if good.size else 0
    row = np.where(failed, size, bucket - least)  # the failed stand behind all others
    flat = np.bincount(row * BLOCKS + place, weights=count, minlength=(size + 1) * BLOCKS)
    counts = flat.reshape(size + 1, BLOCKS)
    rows = np.flatnonzero(counts.any(axis=1))
    return np.where(rows == size, FAILED_BUCKET, rows + least), counts[rows]


def ratios_to_mean(
    p99: float | None, largest: float | None, mean: float | None, absent: dict[str, str]
) -> dict[str, float | None]:
    """``p99_over_mean`` and ``max_over_mean``; why one is missing goes to `absent`."""
    ratios: dict[str, float | None] = {}
    for name, top in (("p99_over_mean", p99), ("max_over_mean", largest)):
        ratios[name] = top / mean if top is not None and mean else None
        if ratios[name] is None:
            part = name.removesuffix("_over_mean")
            absent[name] = absent.get(part) or absent.get("mean") or "the mean is 0"
    return ratios


def coarse_distribution(
    key: tuple[str, str], latency: str, buckets: NDArray[Any], counts: NDArray[Any]
) -> pd.DataFrame:
    """Join 0.5 % buckets into 2 % ones: cell, op, latency, low_ns, high_ns, count.

    Counts are whole numbers. Parts of a count that a coarse bin of a source spreads over many
    buckets are carried on to the next one, so that none is lost.
    """
    failed = buckets >= FAILED_BUCKET
    coarse = np.where(failed, FAILED_BUCKET, buckets // COARSE)
    names, place = np.unique(coarse, return_inverse=True)
    low, _ = bucket_edges(np.where(names == FAILED_BUCKET, FAILED_BUCKET, names * COARSE))
    high, _ = bucket_edges(np.where(names == FAILED_BUCKET, FAILED_BUCKET, (names + 1) * COARSE))
    return pd.DataFrame(
        {
            "cell": key[0],
            "op": key[1],
            "latency": latency,
            "low_ns": low,
            "high_ns": high,
            "count": np.diff(
                np.rint(np.cumsum(np.bincount(place, weights=counts))), prepend=0
            ).astype(np.int64),
        }
    )


def _durations(part: Part) -> dict[Any, float]:
    found: dict[Any, float] = {}
    for row in part.places.to_dict("records"):
        found[(row["cell"], row["op"])] = float(row["total_ns"])
        found[(row["cell"], "*")] = float(row["cell_total_ns"])
    return found


def _summary(
    key: tuple[str, str],
    latency: Latency,
    row: dict[str, Any],
    found: dict[str, Any],
    tail: dict[str, Any],
    blocks: tuple[dict[float, BlockInterval], Interval],
    duration_ns: float,
    *,
    timeless: bool,
) -> CellSummary:
    n, known = int(row["n"]), int(row[f"{latency}_known"])
    failed = n - known
    absent: dict[str, str] = {}
    lost = f"{failed} of {n} requests failed: their latency is only known to be larger"
    figures = _moments(row, latency, n, failed, lost, absent)
    percentiles = percentiles_said(found, n, failed, absent)
    counts = _counts(tail, latency, figures["mean"], figures["sd"], absent)
    p99, mean, largest = percentiles["p99"], figures["mean"], figures["max"]
    ratios = ratios_to_mean(p99, largest, mean, absent)
    ladder = promise_ladder(
        blocks[0],
        percentiles,
        absent,
        n=n,
        failed=failed,
        duration_ns=duration_ns,
        timeless=timeless,
    )
    intervals = {
        "p99_interval_iid": _interval_iid(found, p99, n, absent),
        "p99_interval": interval_of_p99(ladder, absent),
    }
    intervals["p99_over_mean_interval"] = ratio_interval(
        intervals["p99_interval"], blocks[1], mean, absent
    )
    numbers: dict[str, Any] = {**figures, **percentiles, **counts, **ratios, **intervals}
    return CellSummary(
        cell=key[0],
        op=key[1],
        latency=latency,
        unit="ns",
        n=n,
        failed=failed,
        duration_ns=duration_ns,
        **numbers,
        **facts_of_p99(ladder),
        absent=absent,
    )


def facts_of_p99(ladder: PromiseLadder) -> dict[str, Any]:
    """The fields of a summary that the ladder's p99 gives."""
    step = ladder.step("p99")
    assert step is not None
    return {
        "ladder": ladder,
        "p99_lower_bound": step.lower_bound,
        "needed_ns": step.needed_ns,
        "abstained": step.abstained,
    }


def _moments(
    row: dict[str, Any], latency: str, n: int, failed: int, lost: str, absent: dict[str, str]
) -> dict[str, float | None]:
    mean, sd = _number(row[f"{latency}_mean"]), _number(row[f"{latency}_sd"])
    least, most = _number(row[f"{latency}_min"]), _number(row[f"{latency}_max"])
    figures = {
        "mean": mean,
        "sd": sd,
        "min": least,
        "max": most,
        "mean_ok": mean,
        "sd_ok": sd,
        "max_ok": most,
    }
    if failed:
        for name in ("mean", "sd", "max"):
            figures[name] = None
            absent[name] = lost
    if n == failed:
        for name in ("min", "mean_ok", "sd_ok", "max_ok"):
            absent[name] = "no request was answered"
    elif sd is None:
        absent["sd_ok"] = "one row has no standard deviation"
        absent.setdefault("sd", absent["sd_ok"])
    return figures


def percentiles_said(
    found: dict[str, Any],
    n: int,
    failed: int,
    absent: dict[str, str],
    rows: str = "rows",
    lost: str = "requests that failed",
) -> dict[str, float | None]:
    """Return the percentiles that have at least one row expected beyond them: n (1 - p) >= 1.

    The others are None, with the reason in `absent`. A percentile that is not in `found` is left
    out. `rows` and `lost` are the words for all rows, and for those without a latency.
    """
    shown: dict[str, float | None] = {}
    for name, p in PERCENTILES.items():
        if name not in found:
            continue
        value = found[name]
        needed = round(1 / (1 - p))
        shown[name] = None
        if n < needed and name != "p50":
            absent[name] = f"{n} {rows}; {needed} are needed so that one lies beyond it"
        elif not np.isfinite(value):
            absent[name] = f"its rank falls among the {failed} of {n} {lost}"
        else:
            shown[name] = float(value)
    return shown


def _counts(
    tail: dict[str, Any],
    latency: str,
    mean: float | None,
    sd: float | None,
    absent: dict[str, str],
) -> dict[str, int | None]:
    counts: dict[str, int | None] = {
        "over_10x_mean": int(tail[f"{latency}_over_ten"]),
        "over_3_sigma": int(tail[f"{latency}_over_three"]),
    }
    if mean is None:
        counts["over_10x_mean"] = None
        absent["over_10x_mean"] = absent["mean"]
    if mean is None or sd is None:
        counts["over_3_sigma"] = None
        absent["over_3_sigma"] = absent.get("sd", absent.get("mean", ""))
    return counts


def _interval_iid(
    found: dict[str, Any], p99: float | None, n: int, absent: dict[str, str]
) -> Interval | None:
    name = "p99_interval_iid"
    if p99 is None:
        absent[name] = absent["p99"]
        return None
    if found["high"] is None:
        absent[f"{name}.high"] = (
            "368 independent rows are needed for an upper bound"
            if found["high_rank"] is None
            else "its rank falls among the failed"
        )
    return Interval(
        p99,
        found["low"],
        found["high"],
        LEVEL,
        n,
        n * 0.01,
        "order statistics, independent values",
        found["low_rank"],
        found["high_rank"],
    )


def interval_of_p99(ladder: PromiseLadder, absent: dict[str, str]) -> Interval | None:
    """The interval that survives stalls; why it or its upper bound is missing goes to `absent`."""
    step, name = ladder.step("p99"), "p99_interval"
    assert step is not None
    if step.interval is None:
        absent[name] = absent.get("p99") or step.reason or "no blocks of time"
    elif step.interval.high is None:
        absent[f"{name}.high"] = "it falls among the failed requests"
    return step.interval


def ratio_interval(
    p99: Interval | None, of_mean: Interval | None, mean: float | None, absent: dict[str, str]
) -> Interval | None:
    """p99 over mean, as if both were independent: wider than they are.

    The reason for None is put into `absent`.
    """
    name = "p99_over_mean_interval"
    if p99 is None or p99.estimate is None:
        absent[name] = absent["p99_interval"]
        return None
    if not mean or of_mean is None or not of_mean.estimate:
        absent[name] = absent.get("mean", "the mean is 0")
        return None
    scale = mean / of_mean.estimate
    limits = [None if b is None or b <= 0 else b * scale for b in (of_mean.low, of_mean.high)]
    low_p99 = None if p99.low is None or p99.low <= 0 else p99.low
    ratio, low, high = interval_of_ratio(
        (mean, limits[0], limits[1]), (p99.estimate, low_p99, p99.high)
    )
    method = "p99 and mean by blocks, variances recovered from the limits"
    return Interval(ratio, low, high, p99.level, p99.n, p99.n_effective, method)


def _number(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else float(value)


def _with_single_ops(summaries: list[CellSummary], several: list[str]) -> list[CellSummary]:
    """A cell of one op has the same numbers over all ops."""
    copies = [replace(row, op="*") for row in summaries if row.cell not in several]
    return sorted(summaries + copies, key=_order)


def _order(row: CellSummary) -> tuple[str, bool, str, str]:
    return row.cell, row.op == "*", row.op, row.latency
