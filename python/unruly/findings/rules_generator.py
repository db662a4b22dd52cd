"""The rule about the generator: what it sent late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.findings.model import Finding
from unruly.findings.words import latency, percent, rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.findings.rules import Evidence

SEND_LAG_LIMIT_NS: Final = 10e6
TAIL_EXPLAINED_LIMIT: Final = 0.10


def stalled(evidence: Evidence) -> Iterator[Finding]:
    """What was sent late, and how much of the tail that is."""
    doubt = evidence.self_distrust
    largest = doubt.send_lag_ns.get("max", 0.0)
    if largest <= SEND_LAG_LIMIT_NS:
        return
    usual, share = doubt.send_lag_ns["p99_9"], doubt.tail_explained_share
    if share and share > TAIL_EXPLAINED_LIMIT:
        severity = "spoils"
    else:
        severity = "warns" if usual > SEND_LAG_LIMIT_NS else "informs"
    yield Finding(
        "generator-stalled",
        "trust",
        severity,
        2,
        f"the generator sent late, by up to {latency(largest)}",
        f"The p99.9 of the send lag is {latency(usual)}{_of_tail(share)}. Response time counts "
        "from the schedule, so nothing is hidden, but what it shows there is the generator."
        + _behind(doubt.fell_behind),
        {
            "send_lag_ns": doubt.send_lag_ns,
            "tail_rows": doubt.tail_rows,
            "tail_explained_share": share,
        },
        "Give the generator a CPU of its own, lower the rate, or read service time beside it.",
    )


def _of_tail(share: float | None) -> str:
    if share is None:
        return ""
    told = f"{percent(share)} of the rows beyond the p99"
    return f"; it makes up more than half of the response time of {told}"


def _behind(fell_behind: dict[str, float] | None) -> str:
    if fell_behind is None:
        return ""
    due, sent = (rate(fell_behind[name]) for name in ("due_hz", "sent_hz"))
    return f" It cannot send what was asked for: {due} were due, {sent} were sent."
