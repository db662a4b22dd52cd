"""The time that each span of a request took itself, without the spans below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOBODY: Final = -1


def with_parents(spans: pd.DataFrame) -> pd.DataFrame:
    """Return spans once each, with the place of the span above.

    Parameters
    ----------
    spans : DataFrame
        number (of the request), span_id, parent_id (0 where it has none), started_ns, ended_ns,
        service.

    Returns
    -------
    DataFrame
        The same with ``above``, a place in it; -1 for a span whose parent is not there. An
        exporter that sends a batch again sends its spans twice: the first one counts.
    """
    once = spans.drop_duplicates(["number", "span_id"]).reset_index(drop=True)
    known = once[["number", "span_id"]].assign(above=np.arange(len(once)))
    wanted = once[["number", "parent_id"]].rename(columns={"parent_id": "span_id"})
    found = wanted.merge(known, on=["number", "span_id"], how="left")["above"]
    above = found.fillna(NOBODY).to_numpy(dtype=np.int64)
    # a span that names itself as its parent has none
    return once.assign(above=np.where(above == np.arange(len(once)), NOBODY, above))


def self_times(spans: pd.DataFrame) -> NDArray[np.float64]:
    """Return the time (ns) that each span took itself, as `with_parents` gives them."""
    began = spans["started_ns"].to_numpy(dtype=np.int64)
    ended = spans["ended_ns"].to_numpy(dtype=np.int64)
    above = spans["above"].to_numpy(dtype=np.int64)
    below = np.flatnonzero(above != NOBODY)
    service = pd.factorize(spans["service"])[0]
    parent = above[below]
    taken = covered(
        parent,
        (began[below], ended[below]),
        (began[parent], ended[parent]),
        service[below] != service[parent],
        len(spans),
    )
    return np.asarray(np.maximum((ended - began) - taken, 0), dtype=np.float64)


def covered(
    parent: NDArray[np.int64],
    own: tuple[NDArray[np.int64], NDArray[np.int64]],
    whole: tuple[NDArray[np.int64], NDArray[np.int64]],
    elsewhere: NDArray[np.bool_],
    n: int,
) -> NDArray[np.int64]:
    """Return how much of each of `n` parents' times the spans below cover.

    Parameters
    ----------
    parent : array, shape (spans,)
        Whose span it is, in 0 .. n - 1.
    own, whole : pairs of arrays
        Begin and end of each span, and those of its parent.
    elsewhere : array of bool
        Whether the span has another clock than its parent. One that does not lie within its parent
        but would fit is moved there: clocks of hosts differ, and lengths of time do not.

    Returns
    -------
    array, shape (n,)
        Overlaps count once. What a span does after its parent's end does not count.
    """
    (began, ended), (first, last) = own, whole
    lasted = ended - began
    strays = elsewhere & ((began < first) | (ended > last)) & (lasted <= last - first)
    began = np.where(strays, first + (last - first - lasted) // 2, began)
    ended = np.where(strays, began + lasted, ended)
    began, ended = np.clip(began, first, last), np.clip(ended, first, last)
    order = np.lexsort((began, parent))
    parent, began, ended = parent[order], began[order], ended[order]
    latest = pd.Series(ended).groupby(parent).cummax().to_numpy()
    before = np.empty_like(latest)
    before[1:] = latest[:-1]
    fresh = np.ones(len(parent), bool)
    fresh[1:] = parent[1:] != parent[:-1]
    from_ns = np.where(fresh, began, np.maximum(began, before)) if len(parent) else began
    share = np.maximum(ended - from_ns, 0)
    return np.bincount(parent, share, minlength=n).astype(np.int64)


def depths(spans: pd.DataFrame) -> NDArray[np.int64]:
    """Return how many spans stand above each; a circle of parents ends after as many as there are.

    Parameters
    ----------
    spans : DataFrame
        Of one request, as `with_parents` gives them.
    """
    above = spans["above"].to_numpy(dtype=np.int64)
    depth, at = np.zeros(len(above), np.int64), above.copy()
    for _ in range(len(above)):
        going = at != NOBODY
        if not going.any():
            break
        depth[going] += 1
        at[going] = above[at[going]]
    return depth
