"""A bare matrix, one value for each pair, without groups or times: nodes slow to every sender."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from unruly.base.quantiles import quantiles_of
from unruly.stats import slow_levels

if TYPE_CHECKING:
    import pandas as pd

    from unruly.base.context import Context
    from unruly.base.model import Options

NODES_LEAST: Final = 4
VALUES_MOST: Final = 1
"""Values of a pair. Pairs with more values have percentiles and windows of their own."""


@dataclass(frozen=True)
class BareMatrix:
    """The nodes of one (cell, op) that are slow to every sender, slowest first."""

    cell: str
    op: str
    nodes: int
    slow: tuple[str, ...]
    levels_ns: tuple[float, ...]
    """The percentile of each slow node's column, +inf if it falls among the failed requests."""
    smallest_ns: float
    factor: float
    percentile: float


def bare_matrices(context: Context, options: Options) -> tuple[BareMatrix, ...]:
    """Judge every (cell, op) whose pairs of distinct nodes have one value each."""
    pairs = context.pairs
    apart = pairs[pairs["client"] != pairs["server"]]
    squares = [
        key
        for key, part in apart.groupby(["cell", "op"], sort=True)
        if part["n"].max() <= VALUES_MOST
        and set(part["client"]) == set(part["server"])
        and part["server"].nunique() >= NODES_LEAST
    ]
    if not squares:
        return ()
    context.progress("columns of the matrix")
    rows = context.rows.filter(context.rows.client != context.rows.server)
    keys = ["cell", "op", "server"]
    columns = quantiles_of(rows, keys, [options.percentile], context.size, ["response"])
    by_square = dict(list(columns.groupby(["cell", "op"])))
    found = (_judged(context, options, by_square[key]) for key in squares)
    return tuple(it for it in found if it is not None)


def _judged(context: Context, options: Options, columns: pd.DataFrame) -> BareMatrix | None:
    levels = np.array([float(held[0]) for held in columns["response"]])
    # between a finite value and a failed one there is no number
    levels = np.where(np.isfinite(levels), levels, np.inf)
    if not np.isfinite(levels).any():
        return None
    slow = slow_levels(levels, options.factor)
    order = np.argsort(-levels, kind="stable")[: int(slow.sum())]
    cell = str(columns["cell"].iloc[0])
    servers = columns["server"].to_numpy()
    return BareMatrix(
        cell,
        str(columns["op"].iloc[0]),
        len(levels),
        tuple(context.name(int(servers[at]), sends=False, cell=cell) for at in order),
        tuple(float(levels[at]) for at in order),
        float(levels.min()),
        options.factor,
        options.percentile,
    )
