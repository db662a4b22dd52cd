"""The rule of the tier in which slow requests spend their time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.quantity import percent
from unruly.topics.tiers.model import NO_TIERS, tiers_of
from unruly.topics.tiers.words import place_of, share_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis

HALF: Final = 0.5


def slow_tiers(analysis: Analysis) -> Iterator[Finding]:
    """Slow requests spent most of their time in one tier.

    Example: db: slow requests spent at least 72 % [60 %, 84 %] of their time in it, all requests
    41 %

    Raised: A lower bound of the time that slow requests spent in one of several tiers, and in none
    behind it, is more than half of their time, by the lower end of its interval. A request is slow
    beyond the p99 of the service that the load generator asks. With fewer than 600 requests the
    limit is the p95, with fewer than 120 the p90.

    Means: This tier is where slow requests are made slow. If all requests spend much less of their
    time there, something happens in this tier now and then: a lock, a queue, a pause.

    Next: Look at what happened in this tier when these requests were slow. Spans show the layer.

    Numbers: `tiers.rows[].chain.slow_share` in `summary.json`.
    """
    found = tiers_of(analysis) or NO_TIERS
    for it in found.rows:
        share = it.chain.slow_share if it.chain else None
        others = [row for row in found.rows if row.cell == it.cell]
        if it.chain is None or share is None or len(others) < 2 or (share.low or 0.0) <= HALF:
            continue
        usual = it.chain.own_share.estimate if it.chain.own_share else None
        beside = "" if usual is None else f", all requests {percent(usual)}"
        where = place_of(found, it)
        yield Finding(
            "slow-tier",
            "where",
            "informs",
            72,
            f"{where}: slow requests spent at least {share_of(share)} of their time in it{beside}",
            "The packets of each tier show, in windows of 100 ms, how many requests were "
            "elsewhere.",
            {
                "cell": it.cell,
                "tier": it.tier,
                "share": share.estimate,
                "low": share.low,
                "high": share.high,
                "all_requests": usual,
            },
            f"Look at what happened in {it.tier} when these requests were slow.",
        )


RULE: Final = Rule("slow-tier", "where", ("informs",), slow_tiers)
