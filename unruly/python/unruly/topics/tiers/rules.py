"""The rules of tiers: what a tap could not measure, and jams that a mean hides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.quantity import count, duration, percent, significant
from unruly.topics.tiers.model import NO_TIERS, tiers_of
from unruly.topics.tiers.rules_slow import RULE as SLOW
from unruly.topics.tiers.words import cell_of, place_of, share_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis
    from unruly.stats import Interval
    from unruly.topics.tiers.model import Jam, Pool, Tier

UNMEASURED_LEAST: Final = 0.01
UNMEASURED_MUCH: Final = 0.5
SLOW_LEAST: Final = 0.5
LIFT_LEAST: Final = 2.0
CUT_LEAST: Final = 0.01
HALF: Final = 0.5
BUSY: Final = 0.7
QUEUE_LEAST: Final = 1.0
POOL_LIFT: Final = 2.0
POOL_LEAST: Final = 1.0
NEARLY_ALWAYS: Final = 0.9


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
    packets, those requests are left out. So are those after whose reply a server left with a few
    bytes more, which may be its farewell or the end of the reply. All other numbers are of the
    requests that remain, which may differ from those left out.

    Next: Watch behind the proxy that speaks HTTP/2, where one connection carries one request.
    Where packets were missed, give the tap a core of its own.

    Numbers: `tiers.rows[]` in `summary.json`.
    """
    found = tiers_of(analysis) or NO_TIERS
    for it in found.rows:
        lost = it.unmeasured - it.ends
        everything = it.n + lost
        share = lost / everything if everything else 0.0
        if share < UNMEASURED_LEAST:
            continue
        missed = it.gap > lost - it.gap
        why = (
            "the tap missed packets, or could not distinguish a reply from a farewell"
            if missed
            else "several were open at once on their connections"
        )
        where = place_of(found, it)
        yield Finding(
            "tap-unmeasured",
            "trust",
            "warns" if share >= UNMEASURED_MUCH else "informs",
            40,
            f"{where}: {percent(share)} of the requests cannot be measured, because {why}",
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
            "Give the tap a core of its own, if it has missed packets (event `tap gap`)."
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
    found = tiers_of(analysis) or NO_TIERS
    for it in found.rows:
        jam = it.jam
        if jam is None or not _explains(jam):
            continue
        share = jam.slow_share
        where = place_of(found, it)
        yield Finding(
            "transient-bottleneck",
            "why",
            "informs",
            60,
            f"{where}: {_share(jam)} of the slowest requests began in {count(jam.windows)} "
            f"windows of 100 ms that were jammed, in {percent(jam.time_share)} of the time",
            f"In the fullest 100 ms {significant(it.in_flight_most)} requests were in flight, and "
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
    found = tiers_of(analysis) or NO_TIERS
    for it in found.rows:
        share = it.cut / it.n if it.n else 0.0
        if share < CUT_LEAST:
            continue
        mean = it.response_ns.estimate if it.response_ns else None
        usual = f" Replies took {duration(mean)} on average." if mean is not None else ""
        where = place_of(found, it)
        yield Finding(
            "tier-cuts",
            "where",
            "informs",
            45,
            f"{where}: {percent(share)} of the requests had no reply when their connection ended",
            f"{count(it.cut)} of {count(it.n)} requests.{usual}",
            {"cell": it.cell, "tier": it.tier, "cut": it.cut, "n": it.n, "share": share},
            "Read the logs of the service and of its clients.",
        )


def bottleneck(analysis: Analysis) -> Iterator[Finding]:
    """Requests spend most of their time in one tier.

    Example: app: requests spent 78 % [74 %, 82 %] of their time in it, and it used 93 % of its CPU

    Raised: More than half of the time of all requests was spent in one of several tiers and in none
    behind it, by the lower end of the interval.

    Means: This tier limits the response time. If it used {BUSY:percent} or more of the CPU that it
    may use, it needs more CPU, or less work for each request. If it used less, requests wait there
    for something else: a thread, a lock, a connection, a disk.

    Next: Look into this tier first: profile it, or give it more CPU. Making another tier faster
    changes little.

    Numbers: `tiers.rows[].chain` in `summary.json`.
    """
    found = tiers_of(analysis) or NO_TIERS
    for it in found.rows:
        chain = it.chain
        share = chain.own_share if chain else None
        others = [row for row in found.rows if row.cell == it.cell]
        if chain is None or share is None or len(others) < 2 or (share.low or 0.0) <= HALF:
            continue
        busy = chain.cpu_share
        cpu = "" if busy is None else f", and it used {percent(busy)} of the CPU that it may use"
        wait = busy is not None and busy < BUSY
        where = place_of(found, it)
        yield Finding(
            "tier-bottleneck",
            "where",
            "informs",
            70,
            f"{where}: requests spent {share_of(share)} of their time in it{cpu}",
            f"{significant(_number(chain.own_in_flight))} requests were in it, and in no tier "
            "behind it, on average.",
            {
                "cell": it.cell,
                "tier": it.tier,
                "own_share": share.estimate,
                "low": share.low,
                "high": share.high,
                "cpu_share": busy,
            },
            "Find out what requests wait for there: threads, locks, connections, disks."
            if wait
            else "Look into this tier first.",
        )


def queues(analysis: Analysis) -> Iterator[Finding]:
    """Requests wait for the CPU of a tier.

    Example: app: 7.2 or more of its 8.1 requests waited, and it used 96 % of the CPU that it may
    use

    Raised: A tier used {BUSY:percent} or more of the CPU that it may use, at least
    {QUEUE_LEAST:number} requests surely waited in it on average, and these are more than half of
    the requests that were in it and in no tier behind it. A request that waits is one beyond the
    cores that the tier used.

    Means: Response times grow with the load from here on, and fast: a little more load, or a burst,
    makes the queue much longer.

    Next: Give the tier more CPU, take work from it, or send less.

    Numbers: `tiers.rows[].chain` in `summary.json`.
    """
    found = tiers_of(analysis) or NO_TIERS
    for it in found.rows:
        chain = it.chain
        if chain is None or chain.cpu_share is None or chain.cpu_cores is None:
            continue
        # as many as there surely were; the CPU works for other programs too
        asks = any(row.chain and it.tier in row.chain.asked_by for row in found.rows)
        whole = chain.own_in_flight if asks else it.in_flight
        own = whole.low or 0.0 if whole else 0.0
        waiting = own - chain.cpu_cores
        if chain.cpu_share < BUSY or waiting < max(QUEUE_LEAST, HALF * own):
            continue
        where = place_of(found, it)
        yield Finding(
            "tier-queue",
            "where",
            "informs",
            65,
            f"{where}: {significant(waiting)} or more of its {significant(own)} requests waited, "
            f"and it used {percent(chain.cpu_share)} of the CPU that it may use",
            f"It used {significant(chain.cpu_cores)} cores. In its fullest 100 ms "
            f"{significant(it.in_flight_most)} requests were in it or behind it.",
            {
                "cell": it.cell,
                "tier": it.tier,
                "waiting": waiting,
                "own_in_flight": own,
                "cpu_cores": chain.cpu_cores,
                "cpu_share": chain.cpu_share,
            },
            "Give the tier more CPU, or less work.",
        )


def pools(analysis: Analysis) -> Iterator[Finding]:
    """Requests wait for a connection to the tier behind.

    Example: app: requests waited for one of its 2 connections to db, or for a thread: 84 %
    [77 %, 90 %] of its own time was spent while more requests were in it

    Raised: More than half of the time that requests spent in a tier, and in none behind it, was
    spent in windows of 100 ms in which more requests were in the tier than it has connections to
    the tier behind it, and these connections were in use for half of the time or more. In such
    windows twice as many requests were in the tier as in others, or {NEARLY_ALWAYS:percent} of all
    windows or more are such. The tier used less than {BUSY:percent} of the CPU that it may use.

    Means: The pool of connections is smaller than what the requests need at these times, or the
    tier behind it is slow. Threads with a connection each look the same. More of them help only if
    the tier behind it has CPU to spare. If nothing watched the CPU of the tier, it may be the
    limit.

    Next: Try a larger pool, and look whether the tier behind it becomes slower.

    Numbers: `tiers.rows[].chain.pool` in `summary.json`.
    """
    found = tiers_of(analysis) or NO_TIERS
    for it in found.rows:
        pool = it.chain.pool if it.chain else None
        if pool is None or pool.waited is None or (pool.waited.low or 0.0) <= HALF:
            continue
        if it.chain is None or (it.chain.cpu_share or 0.0) >= BUSY:
            continue
        otherwise = pool.own_otherwise if pool.full_share < NEARLY_ALWAYS else 0.0
        if pool.own_when_full < max(POOL_LIFT * otherwise, POOL_LEAST):
            continue
        where = place_of(found, it)
        yield Finding(
            "pool-waits",
            "where",
            "informs",
            68,
            f"{where}: requests waited for one of its {count(pool.connections)} connections to "
            f"{pool.to}, or for a thread: {share_of(pool.waited)} of its own time was spent while "
            "more requests were in it",
            f"That was so in {percent(pool.full_share)} of the time. Then "
            f"{significant(pool.own_when_full)} requests waited or worked in {it.tier}"
            f"{_otherwise(pool)}.",
            {
                "cell": it.cell,
                "tier": it.tier,
                "to": pool.to,
                "connections": pool.connections,
                "full_share": pool.full_share,
                "waited": pool.waited.estimate,
                "low": pool.waited.low,
                "high": pool.waited.high,
            },
            f"Try more connections to {pool.to}.",
        )


def _otherwise(pool: Pool) -> str:
    return "" if pool.full_share == 1.0 else f", otherwise {significant(pool.own_otherwise)}"


def inconsistent(analysis: Analysis) -> Iterator[Finding]:
    """The tap did not see what the load generator sent.

    Example: the tap counted 812 requests, and the load generator sent 6,500

    Raised: The number of requests that the tap saw at the services that the load generator asks is
    not that of the load generator, to one in a hundred or to 10 requests. If some connections
    carried several requests at once, nobody can count them, and the finding [tap-unmeasured] has
    their share.

    Means: The tap watches another port or interface than the requests take, or another client asks
    too. The numbers of the tiers are not those of the measured requests.

    Next: Check the addresses of the tap, and that a connection carries one request after the other.

    Numbers: `tiers.checks[]` in `summary.json`.
    """
    found = tiers_of(analysis) or NO_TIERS
    for it in found.checks:
        if it.agrees:
            continue
        yield Finding(
            "tap-inconsistent",
            "trust",
            "warns",
            60,
            f"the tap counted {count(it.seen)} requests, and the load generator sent "
            f"{count(it.sent)}{cell_of(found, it.cell)}",
            f"{count(it.answered)} of them were answered. The numbers of the tiers are not those "
            "of the measured requests.",
            {"cell": it.cell, "seen": it.seen, "answered": it.answered, "sent": it.sent},
            "Check the addresses of the tap, and send one request at a time on a connection.",
        )


def _number(value: Interval | None) -> float:
    return 0.0 if value is None or value.estimate is None else value.estimate


RULES: Final = (
    Rule("tap-unmeasured", "trust", ("warns", "informs"), unmeasured),
    Rule("transient-bottleneck", "why", ("informs",), jams),
    Rule("tier-cuts", "where", ("informs",), cuts),
    Rule("tier-bottleneck", "where", ("informs",), bottleneck),
    SLOW,
    Rule("tier-queue", "where", ("informs",), queues),
    Rule("pool-waits", "where", ("informs",), pools),
    Rule("tap-inconsistent", "trust", ("warns",), inconsistent),
)
