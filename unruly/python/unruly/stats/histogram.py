"""Logarithmic buckets: mergeable, and finer than any interval that is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

WIDTH = 0.005
"""Relative width of a bucket of the block method (at most 0.5 %: interval-method.md)."""
FAILED_BUCKET = 1_000_000
"""The bucket of requests that failed: beyond every other, its edges are infinite."""


def bucket_index(values_ns: ArrayLike, width: float = WIDTH) -> NDArray[np.int64]:
    """Return the bucket of each latency: floor(ln(max(x, 1)) / ln(1 + width)).

    Parameters
    ----------
    values_ns : array_like, shape (n,)
        Latencies; ``inf`` is a failed request. No NaN. Below 1 ns counts as 1 ns.
    width : float
        Relative width.

    Examples
    --------
    >>> bucket_index([1.0, 1.004, 1.006, float("inf")]).tolist()
    [0, 0, 1, 1000000]
    """
    values = np.maximum(np.asarray(values_ns, dtype=np.float64), 1.0)
    finite = np.isfinite(values)
    logs = np.floor(np.log(np.where(finite, values, 1.0)) / np.log1p(width))
    return np.where(finite, logs, FAILED_BUCKET).astype(np.int64)


def bucket_edges(index: ArrayLike, width: float = WIDTH) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the lower and upper edge (ns) of each bucket; both are inf for the failed one.

    Examples
    --------
    >>> low, high = bucket_edges([0, 1])
    >>> high.round(6).tolist()
    [1.005, 1.010025]
    """
    number = np.asarray(index, dtype=np.float64)
    failed = number >= FAILED_BUCKET
    safe = np.where(failed, 0, number)
    low = np.where(failed, np.inf, np.exp(safe * np.log1p(width)))
    high = np.where(failed, np.inf, np.exp((safe + 1) * np.log1p(width)))
    return low, high
