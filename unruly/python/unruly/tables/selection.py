"""Exact quantiles of any number of rows in bounded memory.

An engine's own quantile holds every value of a group. Here one pass counts rows in logarithmic bins
0.1 % wide (the geometric middle of a bin is within 0.05 % of all its values; two histograms merge
by adding). The counts show in which bins the wanted ranks lie. A second pass counts the distinct
values of those bins alone. Bins with too many rows are first cut into equal parts, as often as
needed: memory grows with the number of bins, never with the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import ibis
import numpy as np
import pandas as pd

from unruly.tables.engine import fetch, inline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibis.expr.types import FloatingValue, IntegerValue, Table
    from numpy.typing import NDArray

INFINITY: Final = float("inf")
WIDTH: Final = 0.001
INFINITE_BIN: Final = 1_000_000
"""Beyond the bin of the largest double."""
PARTS: Final = 1024
ROWS_MOST: Final = 400_000
"""So many rows, in all wanted bins together, are counted value by value."""


def fine_bin(value: FloatingValue) -> IntegerValue:
    """Logarithmic bin 0.1 % wide: it never falls as the value grows; 0 is (-1, 1)."""
    size = value.abs()
    plain = (size >= 1) & (size != INFINITY)
    log = ibis.ifelse(plain, size, 1.0).ln() / ibis.literal(1 + WIDTH).ln()
    index = ibis.ifelse(plain, log.floor().cast("int32") + 1, 0)
    index = ibis.ifelse(size == INFINITY, INFINITE_BIN, index)
    return ibis.ifelse(value < 0, -index, index).cast("int32")


def exact_quantiles(
    rows: Table,
    keys: Sequence[str],
    column: str,
    probabilities: Sequence[float],
    *,
    rows_most: int = ROWS_MOST,
) -> pd.DataFrame:
    """Return the type 7 quantiles of a column for each key: the keys, ``n``, ``quantiles``.

    Parameters
    ----------
    rows : Table
        Nulls of the column are left out; it may hold +inf, and no NaN.
    keys : sequence of str
        Columns to group by; none for one group.
    probabilities : sequence of float
        In [0, 1].
    rows_most : int
        How many rows may be counted value by value.

    Returns
    -------
    DataFrame
        Ordered by the keys. A quantile of which a neighbour is infinite is infinite.
    """
    by = list(keys)
    held = rows.select(*by, value=rows[column].cast("float64"))
    held = held.filter(held["value"].notnull())
    held = held.mutate(fine_bin=fine_bin(held["value"]))
    bins = _counted(held, [*by, "fine_bin"])
    names, code = _groups(bins, by)
    n = np.bincount(code, weights=bins["count"], minlength=len(names)).astype(np.int64)
    if not len(bins):
        return names.assign(n=n, quantiles=[[float("nan")] * len(probabilities)] * len(names))
    ranks = _Ranks.wanted(n, np.asarray(probabilities, dtype=np.float64))
    chosen = ranks.descend(code, bins)
    held = _kept(held if by else _between(held, chosen), [*by, "fine_bin"], chosen, 0)
    level = 0
    while int(chosen["count"].sum()) > rows_most:
        held, chosen = _cut(held, ranks, level)
        level += 1
    if len(chosen):
        key = f"bin_{level}"
        counted = held.group_by(key, "value").agg(count=held.count()).order_by(key, "value")
        found = fetch(counted)
        ranks.descend(found[key].to_numpy(), found.assign(low=found["value"], high=found["value"]))
    return names.assign(n=n, quantiles=ranks.quantiles())


def _counted(rows: Table, keys: list[str]) -> pd.DataFrame:
    """Rows, least and largest value of each bin, bins in the order of their values."""
    counted = rows.group_by(*keys).agg(
        count=rows.count(), low=rows["value"].min(), high=rows["value"].max()
    )
    return fetch(counted.order_by(*keys))


def _groups(bins: pd.DataFrame, keys: list[str]) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """The groups, and the number of its group for each bin."""
    if not keys:
        return pd.DataFrame(index=range(1)), np.zeros(len(bins), dtype=np.int64)
    # bins come ordered by the keys as the engine orders, which pandas may not
    first = ~bins.duplicated(keys)
    return bins.loc[first, keys].reset_index(drop=True), np.cumsum(first.to_numpy()) - 1


def _kept(held: Table, keys: list[str], chosen: pd.DataFrame, level: int) -> Table:
    """The rows of the chosen bins, with the bin's number and bounds."""
    table = pd.DataFrame(
        {
            **{key: chosen[key] for key in keys},
            f"bin_{level}": np.arange(len(chosen), dtype=np.int64),
            f"low_{level}": chosen["low"],
            f"span_{level}": chosen["high"] - chosen["low"],
        }
    )
    names = [f"bin_{level}", f"low_{level}", f"span_{level}"]
    return held.join(inline(table), keys).select("value", *names)


def _between(held: Table, chosen: pd.DataFrame) -> Table:
    """The rows of a few bins, told by their bounds: no logarithm is taken again."""
    bounds = zip(chosen["low"], chosen["high"], strict=True)
    inside = [held["value"].between(float(low), float(high)) for low, high in bounds]
    return held.filter(ibis.or_(*inside)) if inside else held


def _cut(held: Table, ranks: _Ranks, level: int) -> tuple[Table, pd.DataFrame]:
    """Cut every bin into equal parts, and choose those where ranks lie."""
    low, span = held[f"low_{level}"], held[f"span_{level}"]
    part = ((held["value"] - low) / span * PARTS).floor().clip(upper=PARTS - 1)
    cut = held.mutate(part=part.cast("int32"))
    keys = [f"bin_{level}", "part"]
    bins = _counted(cut, keys)
    chosen = ranks.descend(bins[keys[0]].to_numpy(), bins)
    return _kept(cut, keys, chosen, level + 1), chosen


@dataclass
class _Ranks:
    """The wanted ranks, both neighbours of each quantile, and their values as they are found."""

    shares: NDArray[np.float64]
    """How far each quantile is from its lower neighbour: (groups, probabilities)."""
    values: NDArray[np.float64]
    """(groups, probabilities, 2), flat."""
    waiting: NDArray[np.int64]
    """Places in ``values`` that are not known yet."""
    code: NDArray[np.int64]
    """The group, later the bin, in which each of them is."""
    inside: NDArray[np.int64]
    """How many rows of it are smaller."""

    @classmethod
    def wanted(cls, n: NDArray[np.int64], probabilities: NDArray[np.float64]) -> _Ranks:
        place = probabilities[None, :] * (n[:, None] - 1)
        below = np.floor(place)
        ranks = np.stack([below, np.ceil(place)], axis=2).astype(np.int64)
        groups = np.broadcast_to(np.arange(n.size)[:, None, None], ranks.shape)
        return cls(
            place - below,
            np.full(ranks.size, np.nan),
            np.arange(ranks.size),
            groups.ravel().copy(),
            ranks.ravel(),
        )

    def descend(self, code: NDArray[Any], bins: pd.DataFrame) -> pd.DataFrame:
        """Find the bin of each waiting rank; return the bins of more than one value.

        ``bins`` (low, high, count) come in order, those of one code together; ``code`` says whose
        they are. Where a bin holds a single value, that is the value of its ranks.
        """
        count = bins["count"].to_numpy(dtype=np.int64)
        low = bins["low"].to_numpy(dtype=np.float64)
        high = bins["high"].to_numpy(dtype=np.float64)
        upto = np.cumsum(count)
        start = np.searchsorted(code, self.code)
        rank = self.inside + (upto - count)[start]
        at = np.searchsorted(upto, rank, side="right")
        single = low[at] == high[at]
        self.values[self.waiting[single]] = low[at[single]]
        at, rank = at[~single], rank[~single]
        chosen, self.code = np.unique(at, return_inverse=True)
        self.inside = rank - (upto - count)[at]
        self.waiting = self.waiting[~single]
        return bins.iloc[chosen]

    def quantiles(self) -> list[list[float]]:
        low, high = np.moveaxis(self.values.reshape(*self.shares.shape, 2), 2, 0)
        with np.errstate(invalid="ignore"):  # inf - inf
            between = low + (high - low) * self.shares
        exact = (low == high) | (self.shares == 0)
        found: list[list[float]] = np.where(exact, low, between).tolist()
        return found
