"""What followed injected faults: recoveries, their parts, and what outliers cost beside them.

First the events of clients that fail over inside a call split a recovery. Second, for a fault
without such events, the failed and the good requests split it. Third the time that the recoveries
cost is compared with the time that fault-free outliers cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from unruly.quantity import duration
from unruly.stats import Recoveries, Recovery, recoveries_of
from unruly.tables import fetch, inline
from unruly.tables import steadiness as steadiness_tables
from unruly.topics.over_time.break_even import break_even
from unruly.topics.over_time.fail_overs import Served, served_after

if TYPE_CHECKING:
    from collections.abc import Sequence

    import ibis
    import pandas as pd

    from unruly.base.context import Context
    from unruly.contract import Absent
    from unruly.stats import BreakEven, Interval

FAULTS_MOST: Final = 64
"""Of one process, or of one trial for all clients: each is a condition on every row."""
EVER_NS: Final = 2**62
SplitFrom = Literal["fail-over events", "requests", "both"]


@dataclass(frozen=True)
class FaultRecovery:
    """What followed the faults of one process, to those that it served (or that it asked).

    ``all_clients`` is true if no request names the process: then all requests of its cell and
    repeat count. ``split_from`` says what split the recoveries into detection, fail-over and
    request; None where nothing did.
    """

    cell: str
    repeat: int
    process: str
    fault_ns: tuple[int, ...]
    all_clients: bool
    split_from: SplitFrom | None
    recoveries: Recoveries | None
    break_even: BreakEven | None
    """The rate of faults at which recoveries cost a client as much time as outliers do."""
    absent: Absent


@dataclass(frozen=True)
class _Requests:
    """The requests that some faults can touch, and the faults."""

    rows: ibis.Table
    stamps: tuple[int, ...]
    untils: tuple[int, ...]
    """When the next fault comes."""
    first_ns: int
    last_ns: int
    end_ns: int
    """The last stamp of all."""
    failed: int
    patience_ns: float
    """The longest good response: how long a failed request was waited for."""
    clients: int
    size: int


@dataclass(frozen=True)
class _Found:
    """What followed all faults of some requests."""

    recoveries: tuple[Recovery, ...]
    spans: tuple[tuple[int, int], ...]
    from_events: tuple[bool, ...]


def period(rate_hz: Interval) -> str:
    """Return the time between faults at a rate, with its interval: "3.2 min [2.1 min, 5 min]"."""
    if rate_hz.estimate is None:
        return "?"
    low, high = (duration(1e9 / end) if end else "?" for end in (rate_hz.high, rate_hz.low))
    return f"{duration(1e9 / rate_hz.estimate)} [{low}, {high}]"


def fault_recoveries(context: Context) -> tuple[FaultRecovery, ...]:
    """Return what followed the faults of each process, by cell and repeat."""
    frame = fetch(steadiness_tables.faults(context.run.events))
    if frame.empty:
        return ()
    fail_overs = fetch(steadiness_tables.fail_overs(context.run.events))
    found = []
    for (cell, repeat), part in frame.groupby(["cell", "repeat"], sort=True):
        own = fail_overs[(fail_overs["cell"] == cell) & (fail_overs["repeat"] == repeat)]
        found += _of_trial(context, str(cell), int(repeat), part, own)
    return tuple(found)


def _of_trial(
    context: Context, cell: str, repeat: int, faults: pd.DataFrame, fail_overs: pd.DataFrame
) -> list[FaultRecovery]:
    every = tuple(int(stamp) for stamp in faults["started_ns"])
    served = served_after(every, fail_overs)
    shared: tuple[_Requests, _Found] | None = None
    found = []
    for process, part in faults.groupby("process", sort=True):
        stamps = tuple(int(stamp) for stamp in part["started_ns"])
        node = _node(context, str(process), cell, repeat)
        reason = _reason(context, str(process), cell, repeat, stamps if node else every)
        if reason:
            absent = {"recoveries": reason, "break_even": reason}
            it = FaultRecovery(
                cell, repeat, str(process), stamps, node is None, None, None, None, absent
            )
            found.append(it)
            continue
        if node is None and shared is None:
            requests = _requests(context, cell, repeat, None, every)
            shared = requests, _recovered(requests, served)
        if node is None and shared is not None:
            requests, after = shared
            places = [place for place, stamp in enumerate(every) if stamp in stamps]
        else:
            requests = _requests(context, cell, repeat, node, stamps)
            after = _recovered(requests, served)
            places = list(range(len(stamps)))
        named = cell, repeat, str(process), stamps, node is None
        found.append(_fault_recovery(context, named, requests, after, places))
    return found


def _fault_recovery(
    context: Context,
    named: tuple[str, int, str, tuple[int, ...], bool],
    requests: _Requests,
    after: _Found,
    places: list[int],
) -> FaultRecovery:
    absent: dict[str, str] = {}
    free = steadiness_tables.untouched(requests.rows, after.spans, requests.patience_ns)
    whole = dict(fetch(steadiness_tables.fault_free(free, 0.0)).to_dict("records")[0])
    recoveries = recoveries_of(
        [after.recoveries[place] for place in places],
        fault_free=int(whole["n"]),
        fault_free_failed=int(whole["failed"]),
        fault_free_max_ns=float(whole["largest"]) if whole["n"] and not whole["failed"] else None,
        longer_than=lambda limit: int(
            fetch(steadiness_tables.fault_free(free, limit))["longer"].iloc[0]
        ),
    )
    even = break_even(
        free, whole, recoveries, after.spans, (requests.first_ns, requests.last_ns),
        requests.clients, context.size, absent,
    )  # fmt: skip
    return FaultRecovery(*named, _split_from(after, places), recoveries, even, absent)


def _split_from(after: _Found, places: list[int]) -> SplitFrom | None:
    split = {
        after.from_events[place]
        for place in places
        if after.recoveries[place].detection_ns is not None
    }
    if len(split) > 1:
        return "both"
    return None if not split else "fail-over events" if split.pop() else "requests"


def _node(context: Context, process: str, cell: str, repeat: int) -> tuple[str, int] | None:
    """Return as what requests name a process; None where no request does."""
    node = context.node(process, cell, repeat)
    return node if node is not None and _own(context, cell, repeat, node).any() else None


def _own(context: Context, cell: str, repeat: int, node: tuple[str, int] | None) -> pd.Series[bool]:
    pairs = context.pairs
    own = (pairs["cell"] == cell) & (pairs["repeat"] == repeat)
    return own if node is None else own & (pairs[node[0]] == node[1])


def _reason(
    context: Context, process: str, cell: str, repeat: int, stamps: tuple[int, ...]
) -> str | None:
    """Return why nothing can be said of a process; None where something can."""
    if context.touched(process) == frozenset():
        return "it has no part in any request"
    if not _own(context, cell, repeat, None).any():
        return "no request was measured"
    if len(stamps) > FAULTS_MOST:
        return f"{len(stamps)} faults that meet the same requests; {FAULTS_MOST} at most"
    return None


def _requests(
    context: Context,
    cell: str,
    repeat: int,
    node: tuple[str, int] | None,
    stamps: tuple[int, ...],
) -> _Requests:
    pairs = context.pairs[_own(context, cell, repeat, node)]
    longest = pairs["longest_ns"].max()
    return _Requests(
        steadiness_tables.of_place(context.rows, cell, repeat, node),
        stamps,
        (*stamps[1:], EVER_NS),
        int(pairs["first_ns"].min()),
        int(pairs["last_ns"].max()),
        int(pairs["end_ns"].max()),
        int(pairs["failed"].sum()),
        0.0 if np.isnan(longest) else float(longest),
        context.run.plan.cell(cell).clients or int(pairs["client"].nunique()),
        int(pairs["n"].sum()),
    )


def _recovered(requests: _Requests, served: dict[int, Served]) -> _Found:
    """Return what `unruly.stats.recovery` says of these requests, without loading the rows."""
    stamps, untils = requests.stamps, requests.untils
    found = [served.get(stamp) for stamp in stamps]
    parts = _split(requests)
    parts = [
        own if events is None else events.parts for own, events in zip(parts, found, strict=True)
    ]
    lasts = [
        until if part[3] is None else stamp + int(np.ceil(part[3]))
        for stamp, until, part in zip(stamps, untils, parts, strict=True)
    ]
    windows = inline(_windows(stamps, lasts, requests.last_ns))
    lost = fetch(steadiness_tables.failed_within(requests.rows, windows))
    failed = dict(zip(lost["fault"], lost["failed"], strict=True))
    return _Found(
        tuple(Recovery(*part, int(failed.get(place, 0))) for place, part in enumerate(parts)),
        tuple(zip(stamps, lasts, strict=True)),
        tuple(events is not None for events in found),
    )


Parts = tuple[float | None, float | None, float | None, float | None]
"""Detection, fail-over, request and total."""


def _split(requests: _Requests) -> list[Parts]:
    """Return the parts of each recovery as the requests show them."""
    stamps, untils = requests.stamps, requests.untils
    parts: list[Parts] = [(None, None, total, total) for total, _ in _first_good(requests, stamps)]
    if not requests.failed:
        return parts
    ends = [
        until if part[3] is None else stamp + int(np.ceil(part[3]))
        for stamp, until, part in zip(stamps, untils, parts, strict=True)
    ]
    known = fetch(
        steadiness_tables.first_failed(
            requests.rows, inline(_windows(stamps, ends, requests.end_ns))
        )
    )
    noticed = {int(it.fault): int(it.failed_ns) for it in known.itertuples(index=False)}
    if not noticed:
        return parts
    after = _first_good(requests, [noticed.get(place, EVER_NS) for place in range(len(stamps))])
    for place, at_ns in noticed.items():
        (waited, sent_ns), stamp = after[place], stamps[place]
        detection = float(at_ns - stamp)
        if waited is None or sent_ns is None:
            parts[place] = detection, None, None, None
        else:
            failover = float(sent_ns - at_ns)
            parts[place] = detection, failover, waited - failover, detection + waited
    return parts


def _first_good(requests: _Requests, since: Sequence[int]) -> list[tuple[float | None, int | None]]:
    """Return the wait for the first good reply to a request due from then on, and its sending.

    A reply that comes after the next fault counts for nothing.
    """
    windows = _windows(since, requests.untils, requests.last_ns)
    frame = fetch(steadiness_tables.first_good_sent(requests.rows, inline(windows)))
    first = {int(it.fault): it for it in frame.itertuples(index=False)}
    return [
        (float(first[place].total), int(first[place].sent_ns))
        if place in first and first[place].total <= until - begin
        else (None, None)
        for place, (begin, until) in enumerate(zip(since, requests.untils, strict=True))
    ]


def _windows(stamps: Sequence[int], untils: Sequence[int], last_ns: int) -> list[dict[str, Any]]:
    """From each fault until then, or until the last request is due."""
    return [
        {"fault": place, "from_ns": first, "to_ns": min(last, last_ns + 1)}
        for place, (first, last) in enumerate(zip(stamps, untils, strict=True))
    ]
