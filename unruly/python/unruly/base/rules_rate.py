"""The rule about the rate: the schedule had more requests than the generator could send in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.quantity import count, duration
from unruly.tables import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis

KIND = "rate not reached"
"""The kind of the event whose detail says which rate was reached, of which rate."""
LATE_MOST: Final = 0.01
"""Of the scheduled requests: the slowest percent would be the load generator's own."""


def not_reached(analysis: Analysis) -> Iterator[Finding]:
    """The load generator could not send as many requests as the schedule had.

    Example: 900 requests were never sent

    Raised: The manifest's count `unsent` is above 0: the schedule had more requests than the load
    generator could send. It stopped sending one timeout after the end of the schedule, and at the
    earliest 2 s after that end.

    The finding is also raised when more than {LATE_MOST:percent} of the requests are counted in the
    manifest as `late`. The load generator took them from the schedule more than 10 ms late, and
    could not send them at once, because too many requests were in flight or no connection was free.
    Their rows cannot show how late the load generator was.

    Means: This host is too slow for the requested rate, or it stalled. The finding gives the rate
    that the host reached and the rate that the plan requested. Both include the warm-up.

    Requests that were never sent have no rows. Their latency would have been longer than that of
    any request that was sent, so every percentile of the run is too low.

    Next: Set `--rate` below the rate that the host reached. If the server can take more, send from
    more `--processes`, one CPU each, or give the load generator a host of its own. The command
    `unruly drive null:` measures what the load generator alone can send.

    Numbers: `conservation.requests` (`unsent`, `late`, `late_max_ns`) in `summary.json`.
    """
    counts = analysis.conservation.requests or {}
    unsent, late, scheduled = (int(counts.get(it) or 0) for it in ("unsent", "late", "scheduled"))
    if not unsent and late <= LATE_MOST * scheduled:
        return
    events = analysis.run.events
    told = fetch(events.filter(events.kind == KIND).order_by(events.started_ns).select("detail"))
    sentences = [str(it) for it in told["detail"]]
    several = f" So it was in {len(sentences)} trials." if len(sentences) > 1 else ""
    yield Finding(
        "rate-not-reached",
        "trust",
        "spoils",
        0,
        sentences[0] if sentences else _title(unsent, late),
        (_never_sent(unsent) if unsent else _late(late, counts)) + several,
        {"unsent": unsent, "late": late, "sentences": sentences},
        "Lower --rate to what this host can send, or send from more --processes on more CPUs.",
    )


def _title(unsent: int, late: int) -> str:
    if unsent:
        return f"{count(unsent)} requests were never sent"
    return f"the load generator was late with {count(late)} requests that it did not send at once"


def _never_sent(unsent: int) -> str:
    return (
        f"{count(unsent)} requests were never sent: the generator was late by more than the "
        "timeout when the run ended. They have no rows, so every percentile is too low."
    )


def _late(late: int, counts: dict[str, int]) -> str:
    worst = duration(float(counts.get("late_max_ns") or 0))
    return (
        f"The load generator took {count(late)} requests from its schedule more than 10 ms late, "
        f"up to {worst}, and then shed them, met a refused connection, or had them wait for a free "
        "one. What failed then, failed at the load generator and not at the service."
    )


RULES: Final = (Rule("rate-not-reached", "trust", ("spoils",), not_reached),)
