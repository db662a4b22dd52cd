"""Whether slow requests fall into the episodes of a cause more than chance would have it.

Both come in bursts: a stall delays many requests together, and pauses have lengths of their own.
Counting requests as if each were a witness would find a cause in any two bursts that happen to
meet. So the requests stay where they are, the episodes are moved to random times, each whole, and
what counts is how much of the slow time they then cover.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unruly.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

FIRST = 400
FIRST_LIMIT = 0.05
"""What is no rarer than this after the first draws is not looked at any longer."""
MOST = 20_000
ENTRIES_MOST = 2_000_000
"""Episodes times draws that are held at once."""


@dataclass(frozen=True)
class Coincidence:
    """How much of the slow time the episodes cover, and how rarely chance covers as much."""

    covered: float
    """Summed over the requests: of each the share of its time, times its weight."""
    expected: float
    """The mean of the same over the draws."""
    p_value: float
    draws: int


def coincidence(
    requests: tuple[ArrayLike, ArrayLike],
    episodes: tuple[ArrayLike, ArrayLike],
    length: float,
    *,
    weights: ArrayLike | None = None,
    apart: float = 0.0,
    seed: int = 0,
) -> Coincidence:
    """Test whether episodes cover more of the requests' time than at random times.

    Parameters
    ----------
    requests : pair of array_like, shape (n,), float64
        Beginnings and ends of the slow requests, ns since the beginning of the run. No NaN.
    episodes : pair of array_like, shape (m,), float64
        The same of the cause's episodes; they do not overlap and are in order.
    length : float
        Of the run, ns.
    weights : array_like, shape (n,), float64, optional
        How much each request counts, 0 or more; 1 by default.
    apart : float
        Episodes with less than this between them are moved together.
    seed : int
        Of the draws: the same input gives the same p value.

    Returns
    -------
    Coincidence
        ``p_value`` is (1 + draws that cover as much) / (1 + draws), so it is never 0.

    Raises
    ------
    ParameterError
        Without a request, without an episode, or with a run that has no length.

    Notes
    -----
    Assumes that where one group of episodes lies says nothing of where the next one does, and that
    slow requests would be as likely at one time of the run as at another. Do not use it where both
    only come at the beginning: what they have in common then is the beginning.

    References
    ----------
    .. [1] J. Besag and P. Clifford, "Sequential Monte Carlo p-values", 1991.

    Examples
    --------
    >>> slow = np.array([10.0, 40.0, 70.0])
    >>> pauses, others = np.array([10.0, 40.0, 70.0]), np.array([20.0, 55.0, 90.0])
    >>> met = coincidence((slow, slow + 2), (pauses, pauses + 2), 100.0)
    >>> missed = coincidence((slow, slow + 2), (others, others + 2), 100.0)
    >>> met.p_value < 0.001, missed.p_value
    (True, 1.0)

    Three pauses at the very times of three slow requests are no chance.
    """
    begins, ends = (np.asarray(it, dtype=np.float64) for it in requests)
    starts, stops = (np.asarray(it, dtype=np.float64) for it in episodes)
    if not begins.size or not starts.size or length <= 0:
        raise ParameterError(
            "requests, episodes",
            f"are {begins.size} and {starts.size} in {length:g} ns",
            "some of each in a run with a length",
            "leave it out",
        )
    counts = np.ones(begins.size) if weights is None else np.asarray(weights, dtype=np.float64)
    times, mass = _mass(begins, ends, counts)

    def covered(at: NDArray[np.float64], until: NDArray[np.float64]) -> NDArray[np.float64]:
        found = np.interp(until, times, mass) - np.interp(at, times, mass)
        return np.asarray(found.sum(axis=-1))

    observed = float(covered(starts, stops))
    group = np.concatenate([[0], np.cumsum(starts[1:] - stops[:-1] > apart)])
    heads = np.flatnonzero(np.diff(group, prepend=-1))
    tails = np.append(heads[1:] - 1, starts.size - 1)
    room = np.maximum(length - (stops[tails] - starts[heads]), 0.0)
    rng = np.random.default_rng(seed)
    draws = least = 0
    total = 0.0
    while draws < MOST:
        size = FIRST if not draws else max(1, min(MOST - draws, ENTRIES_MOST // starts.size))
        moved = rng.uniform(size=(size, heads.size)) * room - starts[heads]
        scores = covered(starts + moved[:, group], stops + moved[:, group])
        # sums in another order differ in their last digits
        least += int((scores >= observed * (1 - 1e-9)).sum())
        total += float(scores.sum())
        draws += size
        if (1 + least) / (1 + draws) > FIRST_LIMIT:
            break
    return Coincidence(observed, total / draws, (1 + least) / (1 + draws), draws)


def _mass(
    begins: NDArray[np.float64], ends: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How much of the requests lies before each instant at which one begins or ends."""
    rate = weights / np.maximum(ends - begins, 1.0)
    times = np.concatenate([begins, np.maximum(ends, begins + 1.0)])
    order = np.argsort(times, kind="stable")
    slopes = np.cumsum(np.concatenate([rate, -rate])[order])
    times = times[order]
    mass = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(times))])
    return times, mass
