"""How much of a matrix of latencies is the sender's, the receiver's, and the pair's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class TwoWay:
    """Shares of the variance of log latency; None when nothing varies or there is too little."""

    sender_share: float | None
    receiver_share: float | None
    pair_share: float | None
    pairs: int


def two_way(matrix_ns: ArrayLike) -> TwoWay:
    """Decompose the log of a (sender, receiver) matrix into sender, receiver and pair.

    Parameters
    ----------
    matrix_ns : array_like, shape (senders, receivers), float64
        A percentile of each pair; NaN or infinite entries are left out.

    Returns
    -------
    TwoWay
        The shares sum to 1. With entries left out the effects overlap, and each one's share is
        what it explains beyond the other, scaled to sum to 1.

    Notes
    -----
    An additive model of the logarithm: a slow node multiplies. The pair's share comes from the
    link or from noise: with one value for each pair the two cannot be separated. The model needs
    two senders, two receivers and more pairs than effects.

    References
    ----------
    .. [1] G. E. P. Box, W. G. Hunter, J. S. Hunter, "Statistics for Experimenters", chapter 6.

    Examples
    --------
    >>> found = two_way([[1e5, 1e5, 8e5], [1e5, 1e5, 8e5], [1e5, 1e5, 8e5]])
    >>> round(found.receiver_share, 3)
    1.0

    All of the variance follows the receiver: a slow node, not a slow link.
    """
    table = np.asarray(matrix_ns, dtype=np.float64)
    usable = np.isfinite(table) & (table > 0)
    rows, columns = np.nonzero(usable)
    values = np.log(table[usable])
    pairs = int(values.size)
    senders, receivers = len(set(rows)), len(set(columns))
    if senders < 2 or receivers < 2 or pairs <= senders + receivers - 1:
        return TwoWay(None, None, None, pairs)
    both = _residual(values, rows, columns)
    sender = max(0.0, _residual(values, columns) - both)
    receiver = max(0.0, _residual(values, rows) - both)
    whole = sender + receiver + both
    if whole <= 1e-12 * pairs:
        return TwoWay(None, None, None, pairs)
    return TwoWay(sender / whole, receiver / whole, both / whole, pairs)


def _residual(values: NDArray[np.float64], *factors: NDArray[np.intp]) -> float:
    """Sum of squares left by the additive model of these factors."""
    parts = [np.ones((values.size, 1))]
    parts += [(factor[:, None] == np.unique(factor)[None, :]).astype(float) for factor in factors]
    design = np.hstack(parts)
    fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return float(((values - fitted) ** 2).sum())
