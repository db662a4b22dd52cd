"""How steady a flow is: throughput each second, and recovery after a fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from unruly.errors import ParameterError
from unruly.stats.interval import Interval, quantile_interval_iid
from unruly.stats.means import mean_interval, standard_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

BLOCKS_MAX = 30
BLOCKS_MIN = 6
VARYING_LEAST = 2.0
"""Blocks that share the variation, as an effective number: below it there is no interval."""
QUANTILES = (0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


@dataclass(frozen=True)
class Throughput:
    """How steady the throughput of a run is.

    ``mean`` and ``variation`` (standard deviation over mean, of single seconds) have intervals;
    ``quantiles`` maps p to the empirical quantile over seconds; ``stalled_share`` is the share of
    seconds in which nothing came; ``of_baseline`` the ratio of the means, None without a baseline.
    """

    seconds: int
    mean: Interval
    variation: Interval
    quantiles: dict[float, float]
    stalled_share: float
    of_baseline: Interval | None


def stability(
    per_second: ArrayLike, baseline: ArrayLike | None = None, *, level: float = 0.95
) -> Throughput:
    """Say how steady a throughput is, and what part of a baseline's it reaches.

    Parameters
    ----------
    per_second : array_like, shape (seconds,), float64
        What came in each second, in order of time: bytes, messages, good replies. A second in which
        nothing came is 0, not left out. Finite, 0 or more.
    baseline : array_like, shape (seconds,), float64, optional
        The same of the cell that it is held against (the unloaded one).
    level : float

    Returns
    -------
    Throughput

    Raises
    ------
    ParameterError
        With fewer than 6 seconds, a negative value, or nothing at all in the baseline.

    Notes
    -----
    Seconds resemble their neighbours. The mean is that of up to 30 blocks of seconds
    (`mean_interval`); the variation's interval is a jackknife that leaves out one block at a time,
    on the logarithm, and unknown if nearly all the variation is in one block; the ratio's is by the
    delta method on the logarithm, with the degrees of freedom of Welch and Satterthwaite. Assumes a
    level that does not drift: see `change_points`.

    References
    ----------
    .. [1] B. Efron, R. J. Tibshirani, "An Introduction to the Bootstrap", chapter 11 (jackknife).

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> unloaded, loaded = rng.normal(1000, 50, 330), rng.normal(60, 30, 330).clip(0)
    >>> found = stability(loaded, unloaded)
    >>> [round(x, 3) for x in (found.of_baseline.low, found.of_baseline.high)]
    [0.058, 0.065]
    >>> round(found.variation.estimate, 1)
    0.5

    Beside the load 6 % of the throughput are left, and a second is as good as another within half.
    """
    values = _checked(per_second, "per_second")
    blocks = _blocks(values)
    of_baseline = None
    if baseline is not None:
        held = _checked(baseline, "baseline")
        if held.sum() == 0:
            raise ParameterError(
                "baseline", "has nothing in it", "a cell with throughput", "choose another"
            )
        of_baseline = _ratio(values, held, level)
    found = mean_interval(blocks, level)
    return Throughput(
        int(values.size),
        Interval(
            float(values.mean()), _floor(found.low), found.high, level, int(values.size),
            found.n_effective, found.method,
        ),
        _variation(values, level),
        {p: float(np.quantile(values, p)) for p in QUANTILES},
        float((values == 0).mean()),
        of_baseline,
    )  # fmt: skip


def _checked(values: ArrayLike, name: str) -> NDArray[np.float64]:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or found.size < BLOCKS_MIN or not np.all(np.isfinite(found) & (found >= 0)):
        raise ParameterError(
            name, f"has shape {found.shape} or a value that is none",
            f"{BLOCKS_MIN} seconds or more, each finite and 0 or more", "0 where nothing came",
        )  # fmt: skip
    return found


def _floor(bound: float | None) -> float | None:
    return None if bound is None else max(0.0, bound)


def _places(size: int) -> NDArray[np.int64]:
    return np.arange(size) * min(BLOCKS_MAX, size) // size


def _blocks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    place = _places(values.size)
    means: NDArray[np.float64] = np.bincount(place, values) / np.bincount(place)
    return means


def _variation(values: NDArray[np.float64], level: float) -> Interval:
    method = "jackknife over blocks of seconds, on the logarithm"
    size = int(values.size)
    mean = float(values.mean())
    if mean == 0:
        return Interval(None, None, None, level, size, None, method)
    estimate = float(values.std(ddof=1)) / mean
    if estimate == 0:
        return Interval(0.0, 0.0, 0.0, level, size, float(size), method)
    place = _places(size)
    left = np.bincount(place)
    kept = size - left
    sums = values.sum() - np.bincount(place, values)
    spread = np.bincount(place, (values - mean) ** 2)
    # nearly all the variation is in one block: nobody knows how often such a block comes
    if spread.sum() ** 2 < VARYING_LEAST * (spread**2).sum():
        return Interval(estimate, None, None, level, size, 1.0, method)
    squares = spread.sum() - spread
    means = sums / kept
    # about the mean of the kept values, not that of all
    variance = (squares - kept * (means - mean) ** 2) / (kept - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.sqrt(np.maximum(variance, 0)) / means)
    count = logs.size
    if not np.all(np.isfinite(logs)):  # all the flow is in one block
        return Interval(estimate, None, None, level, size, 1.0, method)
    error = float(np.sqrt((count - 1) / count * ((logs - logs.mean()) ** 2).sum()))
    reach = float(special.stdtrit(count - 1, (1 + level) / 2)) * error
    return Interval(
        estimate, estimate * float(np.exp(-reach)), estimate * float(np.exp(reach)), level, size,
        float(count), method,
    )  # fmt: skip


def _ratio(one: NDArray[np.float64], other: NDArray[np.float64], level: float) -> Interval:
    method = "ratio of means over blocks of seconds, on the logarithm"
    means = float(one.mean()), float(other.mean())
    size = int(one.size + other.size)
    if means[0] == 0:
        return Interval(0.0, 0.0, None, level, size, None, method)
    parts, freedoms = [], []
    for values, mean in zip((one, other), means, strict=True):
        error, free = standard_error(_blocks(values))
        parts.append((error / mean) ** 2)
        freedoms.append(free)
    whole = sum(parts)
    ratio = means[0] / means[1]
    if whole == 0:
        return Interval(ratio, ratio, ratio, level, size, float(size), method)
    freedom = whole**2 / sum(part**2 / free for part, free in zip(parts, freedoms, strict=True))
    reach = float(special.stdtrit(freedom, (1 + level) / 2) * np.sqrt(whole))
    return Interval(
        ratio, ratio * float(np.exp(-reach)), ratio * float(np.exp(reach)), level, size,
        freedom + 1, method,
    )  # fmt: skip


@dataclass(frozen=True)
class Recovery:
    """What followed one fault, in ns after it; None where it never came or was not recorded.

    ``total_ns`` is the time to the first good reply to a request that was due once the fail-over
    was done (or, without its stamp, the detection; without both, the fault): ``detection_ns`` +
    ``failover_ns`` + ``request_ns``.
    """

    detection_ns: float | None
    failover_ns: float | None
    request_ns: float | None
    total_ns: float | None
    failed: int
    """Requests due between the fault and the recovery that failed."""


@dataclass(frozen=True)
class Recoveries:
    """All faults of a run against its fault-free time.

    ``median_ns`` is over faults that were recovered from (order statistics). ``fault_free_max_ns``
    is absent when a fault-free request failed (``fault_free_failed``); ``longer_share`` is the
    share of fault-free requests that took longer than the median recovery, failed ones included,
    and ``longer`` their number. ``detection_ns``, ``failover_ns`` and ``request_ns`` are medians
    over the faults whose recovery has all three parts; None where no recovery has them.
    """

    faults: tuple[Recovery, ...]
    median_ns: Interval
    never: int
    fault_free: int
    fault_free_failed: int
    fault_free_max_ns: float | None
    longer: int | None
    longer_share: float | None
    detection_ns: Interval | None = None
    failover_ns: Interval | None = None
    request_ns: Interval | None = None


def recovery(
    intended_ns: ArrayLike,
    latencies_ns: ArrayLike,
    fault_ns: ArrayLike,
    *,
    detected_ns: ArrayLike | None = None,
    failed_over_ns: ArrayLike | None = None,
    sent_ns: ArrayLike | None = None,
    failed_at_ns: ArrayLike | None = None,
    patience_ns: float | None = None,
    level: float = 0.95,
) -> Recoveries:
    """Measure how long each fault kept the service from answering.

    Parameters
    ----------
    intended_ns : array_like, shape (n,), int64
        The scheduled time of each request.
    latencies_ns : array_like, shape (n,), float64
        Response time; ``inf`` where it failed or was open at the end. No NaN.
    fault_ns : array_like, shape (m,), int64
        When each fault came; ascending.
    detected_ns, failed_over_ns : array_like, shape (m,), int64, optional
        When the fault was noticed, and when the replacement had taken over; below 0 if not known.
    sent_ns, failed_at_ns : array_like, shape (n,), int64, optional
        When each request was sent, and when the client knew that it had failed; below 0 if it did
        not fail or the time is not known. The two come together. They split the recovery from a
        fault that has no stamp.
    patience_ns : float, optional
        The timeout of a failed request: one scheduled up to this long before a fault may have
        failed because of the fault. By default the longest latency of a successful request.
    level : float

    Returns
    -------
    Recoveries

    Raises
    ------
    ParameterError
        If faults do not ascend, or shapes differ.

    Notes
    -----
    The requests split a recovery as follows. The detection ends with the first failure that the
    client knew of after the fault, and before the first good reply to a request scheduled after the
    fault. The fail-over ends when the client sent the request that had the first good reply of all
    requests scheduled after the detection. If no request failed in that time, only the total
    stands. A request belongs to a fault if it was scheduled or under way between the fault and the
    recovery; all others are fault-free. If the next fault comes before a good reply, the service
    never recovered from the first one. If a service has several servers, its first good reply need
    not end the outage for the clients of the failed server.

    References
    ----------
    .. [1] The study of the unruly 1 %: its maximum fault-free latencies exceed its recoveries.

    Examples
    --------
    >>> due = np.arange(0, 1000, 10)
    >>> took = np.where((due >= 300) & (due < 350), np.inf, 4.0)
    >>> took[80] = 70.0
    >>> found = recovery(due, took, [295], detected_ns=[310], failed_over_ns=[340])
    >>> one = found.faults[0]
    >>> one.detection_ns, one.failover_ns, one.request_ns, one.total_ns
    (15.0, 30.0, 14.0, 59.0)
    >>> found.fault_free_max_ns, found.longer
    (70.0, 1)

    The outage lasted 59 ns; yet one request in fault-free time took longer than that.
    """
    due, took = np.asarray(intended_ns, dtype=np.int64), np.asarray(latencies_ns, dtype=np.float64)
    faults = np.asarray(fault_ns, dtype=np.int64)
    if due.shape != took.shape or faults.ndim != 1 or np.any(np.diff(faults) < 0):
        raise ParameterError(
            "fault_ns", f"is {faults.tolist()}", "ascending, and a latency for each request",
            "sort the faults",
        )  # fmt: skip
    noticed, taken = _stamps(detected_ns, faults), _stamps(failed_over_ns, faults)
    sent, gone = _of_requests(sent_ns, failed_at_ns, due)
    order = np.argsort(due, kind="stable")
    due, took, sent, gone = due[order], took[order], sent[order], gone[order]
    finite = took[np.isfinite(took)]
    longest = float(finite.max()) if finite.size else 0.0
    waited = np.where(np.isinf(took), longest if patience_ns is None else patience_ns, took)
    touched = np.zeros(due.size, dtype=bool)
    found = []
    for place, fault in enumerate(faults):
        until = int(faults[place + 1]) if place + 1 < faults.size else None
        one, end = _recover(due, took, int(fault), until, noticed[place], taken[place])
        if noticed[place] is None and taken[place] is None:
            one, end = _split(due, took, sent, gone, int(fault), (one, end, until))
        found.append(one)
        last = end if end is not None else until
        begun = due < last if last is not None else np.ones(due.size, dtype=bool)
        # compared as differences: a wall clock in ns does not fit a double
        touched |= begun & (waited > fault - due)
    free = took[~touched]
    failed = int(np.isinf(free).sum())
    return recoveries_of(
        found,
        fault_free=int(free.size),
        fault_free_failed=failed,
        fault_free_max_ns=float(free.max()) if free.size and failed == 0 else None,
        longer_than=lambda limit: int((free > limit).sum()),
        level=level,
    )


def recoveries_of(
    faults: Sequence[Recovery],
    *,
    fault_free: int,
    fault_free_failed: int,
    fault_free_max_ns: float | None,
    longer_than: Callable[[float], int],
    level: float = 0.95,
) -> Recoveries:
    """Return what `recovery` does, from an engine's results about faults and fault-free requests.

    Parameters
    ----------
    faults : sequence of Recovery
        In the order in which they came.
    fault_free, fault_free_failed, fault_free_max_ns
        The number of fault-free requests, how many of them failed, and the longest of their
        latencies (None if one failed).
    longer_than : callable
        Returns how many fault-free requests took longer than a limit in ns, failed ones included.
    level : float

    Returns
    -------
    Recoveries

    Examples
    --------
    >>> one = Recovery(None, None, 59.0, 59.0, 5)
    >>> found = recoveries_of([one], fault_free=90, fault_free_failed=0, fault_free_max_ns=70.0,
    ...                       longer_than=lambda limit: int(70.0 > limit))
    >>> found.median_ns.estimate, found.longer, found.never
    (59.0, 1, 0)

    The outage lasted 59 ns, and one request without a fault took longer than that.
    """
    totals = [it.total_ns for it in faults if it.total_ns is not None]
    median = quantile_interval_iid(totals, 0.5, level)
    longer = longer_than(median.estimate) if median.estimate is not None else None
    parts = [
        (it.detection_ns, it.failover_ns, it.request_ns)
        for it in faults
        if None not in (it.detection_ns, it.failover_ns, it.request_ns)
    ]
    medians = [quantile_interval_iid(own, 0.5, level) for own in zip(*parts, strict=True)]
    return Recoveries(
        tuple(faults),
        median,
        len(faults) - len(totals),
        fault_free,
        fault_free_failed,
        fault_free_max_ns,
        longer,
        longer / fault_free if longer is not None and fault_free else None,
        *medians,
    )


def _of_requests(
    sent_ns: ArrayLike | None, failed_at_ns: ArrayLike | None, due: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """When each request was sent, and when it failed; -1 for all where that is not given."""
    if sent_ns is None and failed_at_ns is None:
        return due, np.full(due.shape, -1, dtype=np.int64)
    found = [np.asarray(it, dtype=np.int64) for it in (sent_ns, failed_at_ns) if it is not None]
    if [it.shape for it in found] != [due.shape] * 2:
        raise ParameterError(
            "sent_ns, failed_at_ns", f"have shapes {[it.shape for it in found]}",
            f"both {due.shape}", "-1 where it is not known",
        )  # fmt: skip
    return found[0], found[1]


def _split(
    due: NDArray[np.int64],
    took: NDArray[np.float64],
    sent: NDArray[np.int64],
    gone: NDArray[np.int64],
    fault: int,
    whole: tuple[Recovery, int | None, int | None],
) -> tuple[Recovery, int | None]:
    """Split a recovery by its requests; ``whole`` is without a split, its end, the next fault."""
    one, end, until = whole
    last = end if end is not None else until
    known = gone[(gone >= fault) & (gone < last if last is not None else True)]
    if not known.size:
        return one, end
    noticed = int(known.min())
    one, end = _recover(due, took, fault, until, noticed, None)
    if one.total_ns is None:
        return one, end
    first = (due >= noticed) & ((due - fault) + took == one.total_ns)
    resent = float(np.maximum(sent, due)[first].min() - fault)
    detection = float(noticed - fault)
    parts = detection, resent - detection, one.total_ns - resent
    return Recovery(*parts, one.total_ns, one.failed), end


def _stamps(values: ArrayLike | None, faults: NDArray[np.int64]) -> list[int | None]:
    if values is None:
        return [None] * faults.size
    stamps = np.asarray(values, dtype=np.int64)
    if stamps.shape != faults.shape:
        raise ParameterError(
            "detected_ns, failed_over_ns", f"have shape {stamps.shape}", f"{faults.shape}",
            "-1 where it is not known",
        )  # fmt: skip
    return [int(stamp) if stamp >= 0 else None for stamp in stamps]


def _recover(
    due: NDArray[np.int64],
    took: NDArray[np.float64],
    fault: int,
    until: int | None,
    noticed: int | None,
    taken: int | None,
) -> tuple[Recovery, int | None]:
    """One fault, and when it was over."""
    ready = next(stamp for stamp in (taken, noticed, fault) if stamp is not None)
    begin = int(np.searchsorted(due, ready))
    stop = due.size if until is None else int(np.searchsorted(due, until))
    waits = (due[begin:stop] - fault) + took[begin:stop]
    total = float(waits.min()) if waits.size and np.isfinite(waits.min()) else None
    if total is not None and until is not None and total > until - fault:
        total = None
    detection = None if noticed is None else float(noticed - fault)
    failover = None if taken is None else float(taken - (noticed if noticed is not None else fault))
    request = None if total is None else total - float(ready - fault)
    end = None if total is None else fault + int(np.ceil(total))
    last = end if end is not None else until
    inside = (due >= fault) & (due < last if last is not None else True)
    failed = int(np.isinf(took[inside]).sum())
    return Recovery(detection, failover, request, total, failed), end
