"""The knee: the highest load at which a tail has not broken, and how surely it is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from unruly.errors import ParameterError
from unruly.stats.comparison import interval_of_ratio
from unruly.stats.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

METHOD: Final = "ratio of p99s, variances recovered from the limits"
FACTOR: Final = 3.0
ACHIEVED_LEAST: Final = 0.95
State = Literal["holds", "breaks", "open"]


@dataclass(frozen=True)
class Step:
    """One load: the p99 over that at the lowest load, and the share of it that was achieved.

    ``state`` is ``"holds"`` or ``"breaks"`` beyond the uncertainty, else ``"open"``. A load that
    the load generator could not send is ``"open"``, too. ``likely`` says whether the load holds by
    its estimates alone. The ratio is infinite if the p99 falls among the failed requests.
    """

    offered: float
    ratio: Interval | None
    achieved: Interval
    state: State
    likely: bool


@dataclass(frozen=True)
class Knee:
    """Where the tail breaks: the estimate, and the two loads between which it lies for certain.

    ``holds`` is the highest below the first that breaks by its estimates; ``surely`` the highest up
    to which every load holds beyond its uncertainty, ``breaks`` the lowest that breaks so. None
    where there is none.
    """

    steps: tuple[Step, ...]
    holds: float | None
    surely: float | None
    breaks: float | None


def knee(
    loads: Sequence[float],
    p99s: Sequence[Interval],
    achieved: Sequence[Interval],
    *,
    own: Sequence[bool] | None = None,
    factor: float = FACTOR,
    achieved_least: float = ACHIEVED_LEAST,
) -> Knee:
    """Find the highest load at which the p99 has not broken.

    Parameters
    ----------
    loads : sequence of float
        The scheduled loads, ascending, each once.
    p99s : sequence of Interval
        The p99 at each load, above 0; infinite if it falls among the failed requests.
    achieved : sequence of Interval
        Good replies over scheduled requests, at each load.
    own : sequence of bool, optional
        Whether the load generator itself was late at each load. Such a load is always open.
    factor : float
        The p99 breaks when it exceeds this times that of the lowest load.
    achieved_least : float
        Less than this share of the load is a break, too.

    Returns
    -------
    Knee

    Raises
    ------
    ParameterError
        If there are not as many of each, loads do not ascend, or `factor` is not above 1.

    Notes
    -----
    The knee is below the first load that breaks, even if a higher load looks better: a full queue
    may shorten once the server refuses requests. If the lowest load fails there is no base to
    compare with. A load breaks if its p99 falls among the failed requests in each of several
    repeats. The achieved share of a single repeat has no bounds, so no load surely holds. Do not
    take the knee of one repeat for that of the store: other guests of the machine move it within a
    minute.

    References
    ----------
    .. [1] A. Donner and G. Y. Zou, 2012, as `interval_of_ratio`.

    Examples
    --------
    >>> def about(value):
    ...     return Interval(value, value * 0.9, value * 1.1, 0.95, 3, 3.0, "repeats")
    >>> found = knee([1e3, 2e3, 4e3], [about(1e6), about(1.2e6), about(14e6)], [about(1.0)] * 3)
    >>> found.holds, found.breaks, found.surely is None
    (2000.0, 4000.0, True)

    The p99 holds up to 2,000 a second and breaks at 4,000. That it holds is not certain, because
    the achieved share is known to a tenth only.
    """
    many = len(loads)
    late = [False] * many if own is None else own
    if not many == len(p99s) == len(achieved) == len(late) or any(np.diff(loads) <= 0):
        raise ParameterError(
            "loads", f"are {list(loads)}", "ascending, with a p99 and a share for each", "sort them"
        )
    if factor <= 1:
        raise ParameterError("factor", f"is {factor}", "above 1", "factor = 3.0")
    places = zip(loads, p99s, achieved, late, strict=True)
    steps = tuple(
        _step(load, _ratio(p99s[0], p99), share, factor, achieved_least, lowest=not place, own=its)
        for place, (load, p99, share, its) in enumerate(places)
    )
    return Knee(
        steps,
        _last([step.likely for step in steps], loads),
        _last([step.state == "holds" for step in steps], loads),
        next((step.offered for step in steps if step.state == "breaks"), None),
    )


def _last(holding: list[bool], loads: Sequence[float]) -> float | None:
    """Return the highest load up to which all loads hold."""
    first = holding.index(False) if False in holding else len(holding)
    return loads[first - 1] if first else None


def _ratio(base: Interval, p99: Interval) -> Interval | None:
    """Return a p99 over that of the lowest load; None if either is not known."""
    low, high = base.estimate, p99.estimate
    if high is not None and not np.isfinite(high):
        return replace(p99, method=METHOD)
    if low is None or high is None or not np.isfinite(low) or low <= 0:
        return None
    found = interval_of_ratio((low, base.low, base.high), (high, p99.low, p99.high))
    return Interval(*found, p99.level, p99.n, p99.n_effective, METHOD)


def _step(
    load: float,
    ratio: Interval | None,
    achieved: Interval,
    factor: float,
    least: float,
    *,
    lowest: bool,
    own: bool,
) -> Step:
    enough = (achieved.estimate or 0.0) >= least
    likely = enough and ratio is not None and (ratio.estimate or 0.0) <= factor
    surely = likely and (achieved.low or 0.0) >= least
    if not lowest:  # which is compared with itself
        high = None if ratio is None else ratio.high
        surely = surely and high is not None and high <= factor
    broken = achieved.high is not None and achieved.high < least
    broken = broken or (ratio is not None and (ratio.low or 0.0) > factor)
    state: State = "open" if own else "breaks" if broken else "holds" if surely else "open"
    return Step(load, ratio, achieved, state, likely)
