"""The numbers of histograms, imported or merged from rows: as precise as the bins, and no more.

Bins stay bins. A percentile is interpolated inside its bin, is shown with the two edges that
enclose it, and is absent if the bin is too coarse. The interval that survives stalls needs a source
that cut time into thirty pieces or more; it is widened to the source's own edges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from unruly.base.cells import (
    coarse_distribution,
    facts_of_p99,
    interval_of_p99,
    mean_by_blocks,
    ratio_interval,
    ratios_to_mean,
)
from unruly.base.ladder import PERCENTILES, ladder_blocks, no_blocks, promise_ladder, too_few_pieces
from unruly.base.operation import CellSummary
from unruly.stats import (
    BinQuantile,
    Interval,
    bin_count_above,
    bin_quantile,
    spread,
)
from unruly.stats.bins import FINE
from unruly.stats.blocks import BLOCKS
from unruly.tables import fetch, inline
from unruly.tables import histograms as histogram_tables
from unruly.tables import requests as request_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unruly.base.promise import PromiseLadder
    from unruly.run import Run

KEPT: Final = "histogram"
NO_VALUES = "the source kept no single values, only bins"


@dataclass(frozen=True)
class Histograms:
    """The summaries of histogram cells, and the data of their charts."""

    summaries: list[CellSummary]
    distribution: pd.DataFrame
    timeline: pd.DataFrame
    first_ns: int
    last_ns: int
    length_ns: float
    """From the first to the last interval of each cell, summed; 0 of a source without times."""


@dataclass(frozen=True)
class Kept:
    """The bins of one (cell, op) over the whole run, and in blocks of time where it has them."""

    cell: str
    op: str
    first_ns: int
    duration_ns: float
    intervals: int
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    count: NDArray[np.float64]
    block: NDArray[np.int64]

    @property
    def n(self) -> int:
        """Values, failures included."""
        return round(float(self.count.sum()))

    def blocks(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Logarithmic buckets, and counts by bucket and block."""
        parts = [
            spread(self.low[held], self.high[held], self.count[held])
            for held in (self.block == number for number in range(BLOCKS))
        ]
        names = np.unique(np.concatenate([buckets for buckets, _ in parts]))
        table = np.zeros((names.size, BLOCKS))
        for number, (buckets, counts) in enumerate(parts):
            table[np.searchsorted(names, buckets), number] = counts
        return names, table

    def widened(self, low: float | None, high: float | None) -> tuple[float | None, float | None]:
        """Return both bounds at the edges of the source's own bins: nothing is known inside one."""
        good = np.isfinite(self.high) & (self.count > 0)
        if low is not None:
            around = good & (self.low <= low) & (low <= self.high)
            low = float(min([low, *self.low[around]]))
        if high is not None:
            around = good & (self.low <= high) & (high <= self.high)
            high = float(max([high, *self.high[around]]))
        return low, high


def summarise(run: Run, timeline_bins: int) -> Histograms | None:
    """Summarise every (cell, op) of the run's histograms; None when it has none."""
    extents = fetch(histogram_tables.extents(run.histograms))
    if extents.empty:
        return None
    summaries, parts = [], []
    known = _known(run)
    for kept in kept_bins(run, extents):
        buckets, counts = kept.blocks()
        row = _summary(kept, known.get((kept.cell, kept.op), {}), (buckets, counts))
        for latency in request_tables.LATENCIES:
            summaries.append(replace(row, latency=latency))
            parts.append(
                coarse_distribution((kept.cell, kept.op), latency, buckets, counts.sum(axis=1))
            )
    if not summaries:
        return None
    first, last = int(extents["first_ns"].min()), int(extents["last_ns"].max())
    drawn = _timeline(run, first, max(1, -(-(last - first) // timeline_bins)))
    cells = extents.groupby("cell").agg(first=("first_ns", "min"), last=("last_ns", "max"))
    lengths = cells["last"] - cells["first"]
    length = float(lengths[lengths > 1].sum())
    return Histograms(_with_single_ops(summaries), pd.concat(parts), drawn, first, last, length)


def kept_bins(run: Run, extents: pd.DataFrame | None = None) -> Iterator[Kept]:
    """Each (cell, op) that was kept in bins."""
    if extents is None:
        extents = fetch(histogram_tables.extents(run.histograms))
    if extents.empty:
        return
    places = extents.assign(
        block_ns=(extents["last_ns"] - extents["first_ns"]).clip(lower=1) / BLOCKS
    )
    table = inline(places[["cell", "op", "first_ns", "block_ns"]])
    frame = fetch(histogram_tables.by_block(run.histograms, table, BLOCKS))
    facts = {(row["cell"], row["op"]): row for row in extents.to_dict("records")}
    for (cell, op), part in frame.groupby(["cell", "op"]):
        row = facts[cell, op]
        low, high, count = _columns(part)
        # a series that did not grow
        if not count.sum():
            continue
        yield Kept(
            cell=str(cell),
            op=str(op),
            first_ns=int(row["first_ns"]),
            duration_ns=float(row["last_ns"] - row["first_ns"]),
            intervals=int(row["intervals"]),
            low=low,
            high=high,
            count=count,
            block=part["block"].to_numpy(dtype=np.int64),
        )


def _columns(
    frame: pd.DataFrame,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    low, high, count = (
        frame[name].to_numpy(dtype=np.float64) for name in ("low_ns", "high_ns", "count")
    )
    return low, high, count


def _known(run: Run) -> dict[tuple[str, str], dict[str, float]]:
    """What the source or the rows said of each (cell, op): n, mean_ns, min_ns, max_ns."""
    found = {}
    rows = run.merged.get("figures") if run.merged else run.manifest.get("imported")
    for row in rows or []:
        if isinstance(row, dict):
            key = (str(row.get("cell")), str(row.get("op")))
            found[key] = {
                name: float(value)
                for name, value in row.items()
                if isinstance(value, int | float) and not isinstance(value, bool)
            }
    return found


def _summary(
    kept: Kept, known: dict[str, float], blocks: tuple[NDArray[Any], NDArray[Any]]
) -> CellSummary:
    n, failed = kept.n, round(float(kept.count[np.isinf(kept.high)].sum()))
    absent: dict[str, str] = {}
    found = {name: bin_quantile(kept.low, kept.high, kept.count, p) for name, p in _asked(n)}
    figures = {name: _value(name, found.get(name), n, absent) for name in PERCENTILES}
    moments = _moments(kept, known, failed, absent)
    mean, largest, p99 = moments["mean"], moments["max"], figures["p99"]
    ratios = ratios_to_mean(p99, largest, mean, absent)
    ladder = _ladder(kept, figures, absent, blocks, failed)
    absent["p99_interval_iid"] = NO_VALUES
    whole = mean_by_blocks(*blocks, mean) if kept.intervals >= BLOCKS else None
    by_blocks = interval_of_p99(ladder, absent)
    ratios_interval = ratio_interval(by_blocks, whole, mean, absent)
    numbers: dict[str, Any] = {**figures, **moments, **_counts(kept, moments, absent), **ratios}
    return CellSummary(
        cell=kept.cell,
        op=kept.op,
        latency="response",
        unit="ns",
        n=n,
        failed=failed,
        duration_ns=kept.duration_ns,
        **numbers,
        p99_interval_iid=None,
        p99_over_mean_interval=ratios_interval,
        p99_interval=by_blocks,
        **facts_of_p99(ladder),
        absent=absent,
        kept=KEPT,
        edges={
            name: (quantile.low, quantile.high)
            for name, quantile in found.items()
            if quantile.low is not None and quantile.high is not None
        },
    )


def _asked(n: int) -> list[tuple[str, float]]:
    """Return the percentiles that have at least one value expected beyond them, and the median."""
    return [(name, p) for name, p in PERCENTILES.items() if name == "p50" or n >= 1 / (1 - p)]


def _value(name: str, found: BinQuantile | None, n: int, absent: dict[str, str]) -> float | None:
    if found is None:
        needed = round(1 / (1 - PERCENTILES[name]))
        absent[name] = f"{n} values; {needed} are needed so that one lies beyond it"
        return None
    if found.reason:
        absent[name] = found.reason
    return found.value


def _moments(
    kept: Kept, known: dict[str, float], failed: int, absent: dict[str, str]
) -> dict[str, float | None]:
    """The source's own figures where it gave them, else from the bins where they are fine."""
    good = np.isfinite(kept.high) & (kept.count > 0)
    low, high, count = kept.low[good], kept.high[good], kept.count[good]
    middle = (low + high) / 2
    total = count.sum()
    found: dict[str, float | None] = dict.fromkeys(("mean", "sd", "min", "max"))
    if total == 0:
        reason = "no request was answered"
    else:
        reason = "the bins are too coarse to say it, and the source does not"
        below, above = float(low @ count / total), float(high @ count / total)
        if above <= below * (1 + FINE):
            mean = float(middle @ count / total)
            found["mean"] = mean
            spread_of = float(((middle - mean) ** 2) @ count)
            found["sd"] = float(np.sqrt(spread_of / (total - 1))) if total > 1 else None
        first, last = int(np.argmin(low)), int(np.argmax(high))
        for name, place in (("min", first), ("max", last)):
            if high[place] <= low[place] * (1 + FINE):
                found[name] = float(low[place] if name == "min" else high[place])
    for name in found:
        if f"{name}_ns" in known:
            found[name] = known[f"{name}_ns"]
    for name in ("mean", "sd", "max"):
        found[f"{name}_ok"] = found[name]
        if failed:
            found[name] = None
            absent[name] = f"{failed} of {kept.n} requests failed"
    for name, value in found.items():
        if value is None:
            absent.setdefault(name, reason)
    return found


def _counts(
    kept: Kept, moments: dict[str, float | None], absent: dict[str, str]
) -> dict[str, int | None]:
    mean, sd = moments["mean"], moments["sd"]
    limits = {
        "over_10x_mean": 10 * mean if mean is not None else None,
        "over_3_sigma": mean + 3 * sd if mean is not None and sd is not None else None,
    }
    counts: dict[str, int | None] = {}
    for name, limit in limits.items():
        counts[name] = None
        if limit is None:
            absent[name] = absent.get("mean") or absent.get("sd") or NO_VALUES
            continue
        least, most = bin_count_above(kept.low, kept.high, kept.count, limit)
        astride = (kept.low <= limit) & (limit < kept.high) & np.isfinite(kept.high)
        if (astride & (kept.high > kept.low * (1 + FINE))).any():
            absent[name] = f"between {least:.0f} and {most:.0f}: the limit falls into a coarse bin"
        else:
            counts[name] = round((least + most) / 2)
    return counts


def _ladder(
    kept: Kept,
    figures: dict[str, float | None],
    absent: dict[str, str],
    blocks: tuple[NDArray[Any], NDArray[Any]],
    failed: int,
) -> PromiseLadder:
    """The promise ladder, its bounds widened to the edges of the source's own bins."""
    reason = too_few_pieces(kept.intervals)
    if reason is not None:
        return no_blocks(figures, reason)
    found = {
        p: replace(
            it,
            interval=_widened(it.interval, kept) if it.interval else None,
            promise=_widened(it.promise, kept) if it.promise else None,
        )
        for p, it in ladder_blocks(*blocks, figures).items()
    }
    return promise_ladder(
        found, figures, absent, n=kept.n, failed=failed, duration_ns=kept.duration_ns
    )


def _widened(interval: Interval, kept: Kept) -> Interval:
    low, high = kept.widened(interval.low, interval.high)
    return replace(interval, low=low, high=high, method=interval.method + ", in bins of the source")


def _timeline(run: Run, first_ns: int, bin_ns: int) -> pd.DataFrame:
    frame = fetch(histogram_tables.by_bin(run.histograms, first_ns, bin_ns))
    rows = []
    for (op, place), part in frame.groupby(["op", "bin"]):
        low, high, held = _columns(part)
        good = np.isfinite(high) & (held > 0)
        if not held.sum():
            continue
        rows.append(
            {
                "op": op,
                "bin": int(place),
                "started_ns": first_ns + int(place) * bin_ns,
                "ended_ns": first_ns + (int(place) + 1) * bin_ns,
                "n": round(float(held.sum())),
                "failed": round(float(held[np.isinf(high)].sum())),
                "p50": bin_quantile(low, high, held, 0.5).value,
                "p99": bin_quantile(low, high, held, 0.99).value,
                "max": float(high[good].max()) if good.any() else None,
            }
        )
    columns = ["op", "bin", "started_ns", "ended_ns", "n", "failed", "p50", "p99", "max"]
    found = pd.DataFrame(rows, columns=columns)
    return found.astype({"p50": float, "p99": float, "max": float})


def _with_single_ops(summaries: list[CellSummary]) -> list[CellSummary]:
    """A cell of one op has the same numbers over all ops; several histograms are not added up."""
    ops: dict[str, set[str]] = {}
    for row in summaries:
        ops.setdefault(row.cell, set()).add(row.op)
    copies = [replace(row, op="*") for row in summaries if len(ops[row.cell]) == 1]
    return sorted(
        summaries + copies, key=lambda row: (row.cell, row.op == "*", row.op, row.latency)
    )
