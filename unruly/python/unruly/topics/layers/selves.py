"""The time that each span of a request took itself, without the spans below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOBODY: Final = -1
DEEPEST: Final = 200
"""Spans that stand deeper have no time of their own: it stays with the ones above."""


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


def depths(spans: pd.DataFrame) -> NDArray[np.int64]:
    """Return how many spans stand above each, as `with_parents` gives them.

    A span in a circle of parents, or below one, or deeper than `DEEPEST`, has -1.
    """
    above = spans["above"].to_numpy(dtype=np.int64)
    found = np.where(above == NOBODY, 0, NOBODY)
    for depth in range(1, DEEPEST + 1):
        # of a root the place above is the last one, and it has its depth
        new = (found == NOBODY) & (found[above] == depth - 1) if len(above) else found < 0
        if not new.any():
            break
        found[new] = depth
    return found


def laid(spans: pd.DataFrame, whole: pd.DataFrame) -> pd.DataFrame:
    """Return when each span was open within the span above it, and within its request.

    Parameters
    ----------
    spans : DataFrame
        As `with_parents` gives them.
    whole : DataFrame
        number, intended_ns, response (ns): the requests.

    Returns
    -------
    DataFrame
        The spans with ``began`` and ``ended`` (ns since the scheduled time), ``depth`` and
        ``self_ns``. A span that goes on after the one above it has ended counts only until then.
        The clocks of services differ, and lengths of time do not: spans of another service than
        the one above them, which do not lie within it but would fit, are moved there together,
        and those below with them.
    """
    requests = whole.set_index("number").loc[spans["number"]]
    since = requests["intended_ns"].to_numpy(dtype=np.int64)
    last = requests["response"].to_numpy(dtype=np.float64).astype(np.int64)
    raw = np.column_stack(
        [
            spans["started_ns"].to_numpy(np.int64) - since,
            spans["ended_ns"].to_numpy(np.int64) - since,
        ]
    )
    above = spans["above"].to_numpy(dtype=np.int64)
    service = pd.factorize(spans["service"])[0]
    number = pd.factorize(spans["number"])[0]
    depth = depths(spans)
    shift = np.zeros(len(spans), np.int64)
    placed = np.zeros((len(spans), 2), np.int64)
    for level in range(int(depth.max(initial=NOBODY)) + 1):
        at = np.flatnonzero(depth == level)
        over = above[at]
        if level:
            frame, moved = placed[over], shift[over]
            elsewhere, group = service[at] != service[over], over
        else:
            frame = np.column_stack([np.zeros(len(at), np.int64), last[at]])
            moved, elsewhere, group = (
                np.zeros(len(at), np.int64),
                np.ones(len(at), bool),
                number[at],
            )
        spread = raw[at] + moved[:, None]
        shift[at] = moved + np.where(elsewhere, _moves(spread, frame, group, service[at]), 0)
        placed[at] = np.clip(raw[at] + shift[at][:, None], frame[:, :1], frame[:, 1:])
    taken = np.zeros(len(spans), np.int64)
    below = np.flatnonzero(depth > 0)
    if len(below):
        taken = union(above[below], placed[below], len(spans))
    own = np.where(depth == NOBODY, 0, placed[:, 1] - placed[:, 0] - taken)
    return spans.assign(
        began=placed[:, 0], ended=placed[:, 1], depth=depth,
        self_ns=np.maximum(own, 0).astype(np.float64),
    )  # fmt: skip


def _moves(
    spans: NDArray[np.int64],
    frame: NDArray[np.int64],
    group: NDArray[np.int64],
    service: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return by how much to move each span, so that all of one service lie within their frame."""
    table = pd.DataFrame(
        {"group": group, "service": service, "low": spans[:, 0], "high": spans[:, 1]}
    )
    hulls = table.groupby(["group", "service"])
    low = hulls["low"].transform("min").to_numpy(dtype=np.int64)
    high = hulls["high"].transform("max").to_numpy(dtype=np.int64)
    first, last = frame[:, 0], frame[:, 1]
    strays = ((low < first) | (high > last)) & (high - low <= last - first)
    return np.where(strays, first + (last - first - (high - low)) // 2 - low, 0)


def union(parent: NDArray[np.int64], spans: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return for each of `n` parents how long one of its spans at least was open.

    Parameters
    ----------
    parent : array, shape (spans,)
        Whose span it is, in 0 .. n - 1.
    spans : array, shape (spans, 2)
        Begin and end of each. Overlaps count once.
    """
    order = np.lexsort((spans[:, 0], parent))
    parent, began, ended = parent[order], spans[order, 0], spans[order, 1]
    latest = pd.Series(ended).groupby(parent).cummax().to_numpy(dtype=np.int64)
    from_ns = began.copy()
    same = parent[1:] == parent[:-1]
    from_ns[1:] = np.where(same, np.maximum(began[1:], latest[:-1]), began[1:])
    return np.bincount(parent, np.maximum(ended - from_ns, 0), minlength=n).astype(np.int64)
