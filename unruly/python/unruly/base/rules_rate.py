"""The rule about the rate: the schedule had more requests than the generator could send in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.base.model import Finding
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
    """Requests that were never sent, or shed late, because the generator was too late for them."""
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
