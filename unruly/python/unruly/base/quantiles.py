"""Exact quantiles of both latencies: the engine's own where they fit, else found bin by bin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.tables import fetch
from unruly.tables import requests as request_tables
from unruly.tables.selection import exact_quantiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    import ibis
    import pandas as pd

ROWS_MOST: Final = 20_000_000
"""An engine's own quantiles take 16 bytes a row and latency."""


def oversized(rows: int) -> bool:
    """Return whether `rows` are too many for the engine's own quantiles."""
    return rows > ROWS_MOST


def quantiles_of(
    rows: ibis.Table,
    keys: Sequence[str],
    probabilities: Sequence[float],
    size: int,
    latencies: Sequence[str] = request_tables.LATENCIES,
) -> pd.DataFrame:
    """Return the keys, ``n``, ``failed``, and of each latency quantiles (a list), mean and max.

    Parameters
    ----------
    size : int
        An upper bound of the number of rows. It only selects the algorithm.
    """
    if not oversized(size):
        return fetch(request_tables.quantiles(rows, keys, probabilities, latencies))
    frame = fetch(request_tables.extremes(rows, keys, latencies))
    for latency in latencies:
        found = exact_quantiles(rows, keys, latency, probabilities)
        found = found.rename(columns={"quantiles": latency}).drop(columns="n")
        frame = frame.merge(found, on=list(keys))
    return frame
