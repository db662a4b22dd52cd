"""Short windows of a run: how long requests took, how many came back, how many were in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unruly.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

WINDOW_NS = 100_000_000


@dataclass(frozen=True)
class ShortWindows:
    """What each short window (100 ms) saw; arrays of shape (windows,).

    ``response_ns`` is the mean over the requests *due* in the window: ``inf`` when one of them
    failed, NaN when none was due; ``response_ok_ns`` leaves the failed out, ``failed`` counts them.
    ``completed_hz`` counts those that ended well in the window. ``in_flight`` is the mean over time
    of the requests that were due and not yet answered; a failed one stays until `until_ns`.
    """

    started_ns: NDArray[np.int64]
    due: NDArray[np.int64]
    failed: NDArray[np.int64]
    response_ns: NDArray[np.float64]
    response_ok_ns: NDArray[np.float64]
    completed_hz: NDArray[np.float64]
    in_flight: NDArray[np.float64]


def short_windows(
    intended_ns: ArrayLike,
    received_ns: ArrayLike,
    *,
    start_ns: int,
    end_ns: int,
    width_ns: int = WINDOW_NS,
) -> ShortWindows:
    """Cut a run into short windows: mean response, throughput, requests in flight.

    Parameters
    ----------
    intended_ns : array_like, shape (n,), int64
        When each request was due.
    received_ns : array_like, shape (n,), float64
        When it was answered, *as a difference to `start_ns`*: a wall clock does not fit a float;
        ``inf`` where it failed or was open at the end.
    start_ns, end_ns : int
        Of the run; a last window that is not whole is left out.
    width_ns : int

    Returns
    -------
    ShortWindows

    Raises
    ------
    ParameterError
        If the run is shorter than a window, or shapes differ.

    Notes
    -----
    By Little's law the mean in flight is the throughput times the mean response over a time in
    which as many enter as leave; in one window it need not be. Requests that end before they were
    due do not exist.

    References
    ----------
    .. [1] J. D. C. Little, "A proof for the queuing formula L = lambda W", 1961.

    Examples
    --------
    >>> windows = short_windows([0, 50, 120], [30.0, 170.0, float("inf")], start_ns=0, end_ns=300,
    ...                         width_ns=100)
    >>> windows.in_flight.round(2).tolist()
    [0.8, 1.5, 1.0]
    >>> windows.response_ns.tolist(), windows.failed.tolist()
    ([75.0, inf, nan], [0, 1, 0])

    In the second 100 ns one request was being answered for 70 and another hung for 80: 1.5 in
    flight. That one never came back, so that the window's mean response is without bound.
    """
    due = np.asarray(intended_ns, dtype=np.int64) - start_ns
    left = np.asarray(received_ns, dtype=np.float64)
    count = int((end_ns - start_ns) // width_ns) if width_ns > 0 else 0
    if count < 1 or due.shape != left.shape or due.ndim != 1:
        raise ParameterError(
            "width_ns", f"is {width_ns} for a run of {end_ns - start_ns} ns",
            "one window at least, and an end for each request", "use a shorter window",
        )  # fmt: skip
    inside = (due >= 0) & (due < count * width_ns)
    place = due[inside] // width_ns
    took, ok = left[inside] - due[inside], np.isfinite(left[inside])
    ended = left[np.isfinite(left) & (left >= 0) & (left < count * width_ns)]
    place_of_end = (ended // width_ns).astype(np.int64)
    before = int((due < 0).sum()) - int((left < 0).sum())
    return windows_of_sums(
        start_ns=start_ns,
        width_ns=width_ns,
        due=np.bincount(place, minlength=count),
        failed=np.bincount(place[~ok], minlength=count),
        took_ns=np.bincount(place[ok], took[ok], minlength=count),
        due_offset_ns=np.bincount(place, due[inside] % width_ns, minlength=count),
        completed=np.bincount(place_of_end, minlength=count),
        left=np.bincount(place_of_end, minlength=count),
        left_offset_ns=np.bincount(place_of_end, ended % width_ns, minlength=count),
        open_before=before,
    )


def windows_of_sums(
    *,
    start_ns: int,
    width_ns: int,
    due: ArrayLike,
    failed: ArrayLike,
    took_ns: ArrayLike,
    due_offset_ns: ArrayLike,
    completed: ArrayLike,
    left: ArrayLike,
    left_offset_ns: ArrayLike,
    open_before: int = 0,
) -> ShortWindows:
    """Return what `short_windows` does, from sums over each window that an engine has taken.

    Parameters
    ----------
    start_ns, width_ns : int
        Of the first window, and of each.
    due, failed : array_like, shape (windows,), int
        Requests due in each window, and those of them that never came back.
    took_ns : array_like, shape (windows,), float64
        Sum of the responses of those that did.
    due_offset_ns : array_like, shape (windows,), float64
        Sum of the times from the window's start to when each was due.
    completed : array_like, shape (windows,), int
        Requests that ended well in each window, whenever they were due.
    left, left_offset_ns : array_like, shape (windows,)
        Requests that were in flight no longer from some instant of the window on, and the sum of
        the times from its start.
    open_before : int
        Requests in flight when the first window begins.

    Returns
    -------
    ShortWindows

    Examples
    --------
    >>> found = windows_of_sums(start_ns=0, width_ns=100, due=[2, 0], failed=[0, 0],
    ...     took_ns=[150.0, 0.0], due_offset_ns=[50.0, 0.0], completed=[1, 1], left=[1, 1],
    ...     left_offset_ns=[30.0, 70.0])
    >>> found.in_flight.tolist()
    [0.8, 0.7]

    One was due at 0 and took 30 ns, one at 50 and took 120: together 80 ns of the first window's
    100 and 70 of the second's.
    """
    number, lost = np.asarray(due, dtype=np.int64), np.asarray(failed, dtype=np.int64)
    gone = np.asarray(left, dtype=np.int64)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_ok = np.asarray(took_ns, dtype=np.float64) / (number - lost)
    entered = number * width_ns - np.asarray(due_offset_ns, dtype=np.float64)
    spared = gone * width_ns - np.asarray(left_offset_ns, dtype=np.float64)
    carried = open_before + np.concatenate([[0], np.cumsum(number - gone)[:-1]])
    return ShortWindows(
        start_ns + np.arange(number.size) * width_ns,
        number,
        lost,
        np.where(lost > 0, np.inf, mean_ok),
        mean_ok,
        np.asarray(completed) / (width_ns / 1e9),
        carried + (entered - spared) / width_ns,
    )
