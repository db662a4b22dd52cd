"""Groups: the k-th of n replies, and who is slow in whose eyes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unruly.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from numpy.typing import ArrayLike, NDArray


def kth_of_n(replies_ns: ArrayLike, k: int) -> NDArray[np.float64]:
    """Return the time of the k-th reply of each group request.

    Parameters
    ----------
    replies_ns : array_like, shape (requests, n), float64
        Time of each copy's reply since the request's intended time; ``inf`` where none came. No
        NaN.
    k : int
        1 is the first, n is all.

    Returns
    -------
    ndarray, shape (requests,), float64
        ``inf`` where fewer than `k` replies came: the request counts, and ranks last.

    Raises
    ------
    ParameterError
        If `k` is not between 1 and n.

    Examples
    --------
    >>> kth_of_n([[3.0, 1.0, 2.0], [5.0, float("inf"), 4.0]], 2).tolist()
    [2.0, 5.0]

    The majority of the three had answered after 2 ns and after 5 ns, though one reply never came.
    """
    replies = np.asarray(replies_ns, dtype=np.float64)
    if replies.ndim != 2 or not 1 <= k <= replies.shape[1]:
        raise ParameterError("k", f"is {k}", f"1 to n, of shape {replies.shape}", "1 is the first")
    kth: NDArray[np.float64] = np.partition(replies, k - 1, axis=1)[:, k - 1]
    return kth


def slow_set(
    percentiles_ns: ArrayLike, factor: float = 2.0, floor_ns: float = 0.0
) -> NDArray[np.bool_]:
    """Say which nodes one observer sees as slow.

    Parameters
    ----------
    percentiles_ns : array_like, shape (..., nodes), float64
        One observer's (or, along leading axes, each observer's) percentile (p90 by default of the
        tool) to each node, itself included; ``inf`` when it falls among the failed; NaN for a node
        with too few rows, which is never slow.
    factor : float
        At least this many times the fastest, and
    floor_ns : float
        beyond the fastest by more than this: loopback alone is 5.5 us on one core and 25 us across.

    Returns
    -------
    ndarray of bool, shape (..., nodes)

    Notes
    -----
    Do not compare nodes of different workloads, nor percentiles of few rows (10 at least).

    Examples
    --------
    >>> slow_set([1e5, 1.2e5, 9e5], floor_ns=5e4).tolist()
    [False, False, True]
    """
    seen = np.asarray(percentiles_ns, dtype=np.float64)
    fastest = np.fmin.reduce(seen, axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.asarray((seen >= factor * fastest) & (seen - fastest > floor_ns))


def slow_columns(
    matrix: ArrayLike, factor: float = 2.0, percentile: float = 0.9
) -> NDArray[np.bool_]:
    """Name slow nodes of a bare matrix: the third rule, for when there are no groups.

    Parameters
    ----------
    matrix : array_like, shape (nodes, nodes), float64
        Row i, column j: i -> j. The diagonal is left out. NaN entries are left out.
    factor, percentile : float
        A node is slow when its column's percentile is at least `factor` times the smallest
        column's.

    Returns
    -------
    ndarray of bool, shape (nodes,)

    Examples
    --------
    >>> slow_columns([[0, 1, 5], [1, 0, 6], [1, 1, 0]]).tolist()
    [False, False, True]
    """
    table = np.array(matrix, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ParameterError("matrix", f"has shape {table.shape}", "a square", "row = from")
    np.fill_diagonal(table, np.nan)
    return slow_levels(np.nanquantile(table, percentile, axis=0), factor)


def slow_levels(levels: ArrayLike, factor: float = 2.0) -> NDArray[np.bool_]:
    """Return which levels are at least `factor` times the smallest: the rule of `slow_columns`.

    Parameters
    ----------
    levels : array_like, shape (nodes,), float64
        A percentile of each node's column; NaN is never slow, +inf always.
    factor : float

    Returns
    -------
    ndarray of bool, shape (nodes,)

    Examples
    --------
    >>> slow_levels([1.0, 2.0, 1.5]).tolist()
    [False, True, False]
    """
    values = np.asarray(levels, dtype=np.float64)
    return np.asarray(values >= factor * np.nanmin(values))


def jaccard(one: AbstractSet[str], other: AbstractSet[str]) -> float | None:
    """Return the overlap of two slow sets, shared over united; None when both are empty.

    Examples
    --------
    >>> jaccard({"a", "b"}, {"b"})
    0.5

    The observers agree on one of the two nodes that either sees as slow.
    """
    united = one | other
    return len(one & other) / len(united) if united else None
