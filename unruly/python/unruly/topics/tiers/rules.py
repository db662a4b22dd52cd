"""The rules of tiers: what a tap could not measure, and jams that a mean hides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.quantity import count, duration, percent, significant
from unruly.topics.tiers.model import tiers_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis
    from unruly.topics.tiers.model import Jam, Tier

UNMEASURED_LEAST: Final = 0.01
UNMEASURED_MUCH: Final = 0.5
SLOW_LEAST: Final = 0.5
LIFT_LEAST: Final = 2.0
CUT_LEAST: Final = 0.01


def unmeasured(analysis: Analysis) -> Iterator[Finding]:
    """The tap could not measure some of the requests.

    Example: web: 38 % of the requests cannot be measured, because several were open at once on
    their connections

    Raised: {UNMEASURED_LEAST:percent} or more of the requests that the tap saw of a service cannot
    be measured. It warns above {UNMEASURED_MUCH:percent}. Requests that were open when the tap
    began or ended do not count.

    Means: A tap reads headers only, and believes that a connection carries one request after the
    other. With HTTP/2, gRPC or pipelines several are open at once, and which reply belongs to which
    request is in the content alone. Such connections are left out as a whole. If the tap missed
    packets, those requests are left out. All other numbers are of the requests that remain, which
    may differ from those left out.

    Next: Watch behind the proxy that speaks HTTP/2, where one connection carries one request.
    Where packets were missed, give the tap a core of its own.

    Numbers: `tiers.rows[]` in `summary.json`.
    """
    found = tiers_of(analysis)
    for it in found.rows if found else ():
        lost = it.unmeasured - it.ends
        everything = it.n + lost
        share = lost / everything if everything else 0.0
        if share < UNMEASURED_LEAST:
            continue
        missed = it.gap > lost - it.gap
        why = (
            "the tap missed packets" if missed else "several were open at once on their connections"
        )
        yield Finding(
            "tap-unmeasured",
            "trust",
            "warns" if share >= UNMEASURED_MUCH else "informs",
            40,
            f"{it.tier}: {percent(share)} of the requests cannot be measured, because {why}",
            f"{count(lost)} of {count(everything)} requests on {count(it.connections)} "
            "connections. They are left out of all other numbers.",
            {
                "cell": it.cell,
                "tier": it.tier,
                "unmeasured": lost,
                "overlapped": it.overlapped,
                "gap": it.gap,
                "n": it.n,
                "share": share,
            },
            "Give the tap a core of its own."
            if missed
            else "Watch where a connection carries one request after the other, behind the proxy.",
        )


def jams(analysis: Analysis) -> Iterator[Finding]:
    """Slow requests came together in short jams that a mean hides.

    Example: db: 71 % [62 %, 79 %] of the slowest requests began in 14 jams of 100 ms, in 0.8 % of
    the time

    Raised: At least half of the slowest 1 % of a service's requests began in windows of 100 ms in
    which far more requests were in flight than usual (5 times the median window and 4 requests at
    least), or just before one. Such windows are at most a tenth of the time. The lower end of the
    interval is {LIFT_LEAST:number} times the share of all requests that began in them.

    Means: Something stopped or slowed the service, or a burst arrived, for a tenth of a second or a
    little longer: a garbage collection, a flush, a lock, a CPU limit. Means over seconds look fine.

    Next: Look at the figure of requests in flight. If the tier behind it jams at the same time, the
    cause is there. Read the log of the service and of its host at these
    times.

    Numbers: `tiers.rows[].jam` in `summary.json`.
    """
    found = tiers_of(analysis)
    for it in found.rows if found else ():
        jam = it.jam
        if jam is None or not _explains(jam):
            continue
        share = jam.slow_share
        yield Finding(
            "transient-bottleneck",
            "why",
            "informs",
            60,
            f"{it.tier}: {_share(jam)} of the slowest requests began in {count(jam.windows)} "
            f"windows of 100 ms that were jammed, in {percent(jam.time_share)} of the time",
            f"Up to {significant(it.in_flight_most)} requests were in flight at once, and "
            f"{_usual(it)} on average. {percent(jam.request_share)} of all requests began in these "
            "windows.",
            {
                "cell": it.cell,
                "tier": it.tier,
                "windows": jam.windows,
                "time_share": jam.time_share,
                "request_share": jam.request_share,
                "slow_share": share.estimate,
                "low": share.low,
                "high": share.high,
                "in_flight_most": it.in_flight_most,
            },
            "Look at what happened at these times: garbage collections, flushes, bursts of "
            "requests, CPU limits.",
        )


def _explains(jam: Jam) -> bool:
    share = jam.slow_share
    return (
        (share.estimate or 0.0) >= SLOW_LEAST
        and share.low is not None
        and share.low >= LIFT_LEAST * jam.request_share
    )


def _share(jam: Jam) -> str:
    share = jam.slow_share
    return (
        f"{percent(share.estimate or 0.0)} [{percent(share.low or 0.0)}, "
        f"{percent(share.high or 1.0)}]"
    )


def _usual(it: Tier) -> str:
    flight = it.in_flight.estimate if it.in_flight else None
    return significant(flight) if flight is not None else "few"


def cuts(analysis: Analysis) -> Iterator[Finding]:
    """Requests had no reply when their connection ended.

    Example: web: 3 % of the requests had no reply when their connection ended

    Raised: {CUT_LEAST:percent} or more of a service's requests were cut off.

    Means: The service or the client closed the connection, or broke it off, before a reply came.
    Timeouts of clients look like this, and so do crashes. Messages that have no reply, as in some
    protocols, look like this too.

    Next: Read the log of the service and of its clients at these times.

    Numbers: `tiers.rows[].cut` in `summary.json`.
    """
    found = tiers_of(analysis)
    for it in found.rows if found else ():
        share = it.cut / it.n if it.n else 0.0
        if share < CUT_LEAST:
            continue
        mean = it.response_ns.estimate if it.response_ns else None
        usual = f" Replies took {duration(mean)} on average." if mean is not None else ""
        yield Finding(
            "tier-cuts",
            "where",
            "informs",
            45,
            f"{it.tier}: {percent(share)} of the requests had no reply when their connection ended",
            f"{count(it.cut)} of {count(it.n)} requests.{usual}",
            {"cell": it.cell, "tier": it.tier, "cut": it.cut, "n": it.n, "share": share},
            "Read the logs of the service and of its clients.",
        )


RULES: Final = (
    Rule("tap-unmeasured", "trust", ("warns", "informs"), unmeasured),
    Rule("transient-bottleneck", "why", ("informs",), jams),
    Rule("tier-cuts", "where", ("informs",), cuts),
)
