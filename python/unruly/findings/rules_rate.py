"""The rule about the rate: the schedule had more requests than the generator could send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.findings.model import Finding
from unruly.quantity import count
from unruly.tables import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.findings.rules import Evidence

KIND = "rate not reached"
"""The kind of the event whose detail says which rate was reached, of which rate."""


def not_reached(evidence: Evidence) -> Iterator[Finding]:
    """Requests that were never sent, because the generator was too late for them."""
    unsent = int((evidence.conservation.requests or {}).get("unsent") or 0)
    if not unsent:
        return
    events = evidence.run.events
    told = fetch(events.filter(events.kind == KIND).order_by(events.started_ns).select("detail"))
    sentences = [str(it) for it in told["detail"]]
    title = sentences[0] if sentences else f"{count(unsent)} requests were never sent"
    several = f" So it was in {len(sentences)} trials." if len(sentences) > 1 else ""
    yield Finding(
        "rate-not-reached",
        "trust",
        "spoils",
        0,
        title,
        f"{count(unsent)} requests were never sent: the generator was late by more than the "
        f"timeout when the run ended. They have no rows, so every percentile is too low.{several}",
        {"unsent": unsent, "sentences": sentences},
        "Lower --rate to what this host can send, or send from more --processes on more CPUs.",
    )
