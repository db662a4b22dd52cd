"""Rules about the load generator: requests that it sent late, and replies that it read late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.base import context, distrust
from unruly.base.distrust import SEND_LAG_LIMIT_NS
from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.quantity import count, duration, percent, rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis
    from unruly.base.model import SelfDistrust, Severity

TAIL_EXPLAINED_LIMIT: Final = 0.10
LATE_LIMIT: Final = 0.01
"""Of all rows: the slowest percent would be the load generator's own."""
RARE: Final = 0.001
BUSY: Final = 0.25
"""Of the time some task of the host waited for a CPU."""
MORE_ROOM: Final = "Give the load generator a CPU of its own, or lower the rate."


def stalled(analysis: Analysis) -> Iterator[Finding]:
    """The load generator sent requests late.

    Example: the load generator sent requests up to 1.2 s late

    Raised: The largest send delay, the time from the scheduled to the actual sending, is above
    {distrust.SEND_LAG_LIMIT_NS:duration}. The finding **spoils** the run in any of three cases:

    - More than {LATE_LIMIT:percent} of all requests, failed ones included, were sent more than
      {distrust.SEND_LAG_LIMIT_NS:duration} late, and the delay is more than half of their response
      time. A failed request has no response time, so its delay alone counts.
    - The send delay is more than half of the response time of more than
      {TAIL_EXPLAINED_LIMIT:percent} of the requests beyond the p99.
    - The run has one cell, and the delay of the requests scheduled last (the last twentieth of the
      run, their median) is {distrust.BEHIND:percent} of its length or more: the load generator was
      slower than its schedule. The finding then gives the scheduled rate and the rate that was
      sent. After a stall the load generator catches up.

    Otherwise it **warns** when one request in 1,000 was sent more than
    {distrust.SEND_LAG_LIMIT_NS:duration} late, and **informs** when only rarer requests were.

    The send delay of two kinds of agents does not count, because it is a result of the run: agents
    on a JVM, and agents that their own CPU limit held back. A limit that holds back
    {context.THROTTLED_SHARE_MAX:percent} of the agents or more is that of their container. Then the
    delay counts, because the load generator is in that container too.

    Means: The load generator could not send on time. Response time counts from the scheduled time,
    so nothing is hidden. But the delay belongs to the load generator, not to the service.

    Next: The suggestion of the finding depends on the cause. A load generator that fell behind
    needs a lower rate or more clients, because a client that waits for each reply cannot send
    faster. On a busy host, stop other programs or measure from another host. Otherwise give the
    load generator a CPU of its own. Service time counts from the actual sending, so it leaves the
    send delay out. With it, service time leaves out the waiting that a user would see.

    Numbers: `self_distrust` (`send_lag_ns`, `late_share`, `tail_explained_share`, `fell_behind`) in
    `summary.json`, and the method [self-distrust](../methods/self-distrust.md).
    """
    doubt = analysis.self_distrust
    largest = doubt.send_lag_ns.get("max", 0.0)
    if largest <= SEND_LAG_LIMIT_NS:
        return
    yield Finding(
        "generator-stalled",
        "trust",
        _severity(doubt),
        2,
        _title(doubt, largest),
        f"One request in 1,000 was sent {duration(doubt.send_lag_ns['p99_9'])} late or later"
        f"{_of_all(doubt)}{_of_tail(doubt)}. Response time counts from the scheduled time, so "
        "the delay is not hidden. But it is the delay of the load generator, not of the service.",
        {
            "send_lag_ns": doubt.send_lag_ns,
            "late_share": doubt.late_share,
            "tail_rows": doubt.tail_rows,
            "tail_explained_share": doubt.tail_explained_share,
            "rate_hz": doubt.fell_behind,
        },
        _step(analysis),
    )


def _severity(doubt: SelfDistrust) -> Severity:
    of_tail, of_all = doubt.tail_explained_share or 0.0, doubt.late_share or 0.0
    if of_tail > TAIL_EXPLAINED_LIMIT or of_all > LATE_LIMIT or doubt.fell_behind is not None:
        return "spoils"
    return "warns" if doubt.send_lag_ns["p99_9"] > SEND_LAG_LIMIT_NS else "informs"


def _title(doubt: SelfDistrust, largest: float) -> str:
    late = f"the load generator sent requests up to {duration(largest)} late"
    if doubt.fell_behind is None:
        return late
    due, sent = (rate(doubt.fell_behind[name]) for name in ("due_hz", "sent_hz"))
    return f"{late}: it sent {sent} of the {due} scheduled"


def _of_all(doubt: SelfDistrust) -> str:
    share = doubt.late_share
    return f". The delay made up most of the response time of {percent(share)}" if share else ""


def _of_tail(doubt: SelfDistrust) -> str:
    share = doubt.tail_explained_share
    if share is None:
        return ""
    begins = " and of " if doubt.late_share else ". The delay made up most of the response time of "
    of_all = " of all requests" if doubt.late_share else ""
    return f"{of_all}{begins}{percent(share)} of the requests beyond the p99"


def _step(analysis: Analysis) -> str:
    """Return what helps: it depends on what kept the load generator from sending."""
    doubt = analysis.self_distrust
    if doubt.fell_behind is not None:
        sent = rate(0.9 * doubt.fell_behind["sent_hz"])
        return (
            f"Ask for less than {sent}, or use more clients: one that waits for each reply cannot "
            "send faster."
        )
    return _room(doubt) or MORE_ROOM


def _room(doubt: SelfDistrust) -> str:
    """Return what helps where the host is busy; empty where it is not."""
    if (doubt.psi_cpu_share or 0.0) <= BUSY:
        return ""
    share = percent(doubt.psi_cpu_share)
    return (
        f"The CPUs of this host were short {share} of the time: stop other programs, or "
        "measure from another host."
    )


def reads_late(analysis: Analysis) -> Iterator[Finding]:
    """The load generator read replies or tokens late.

    Example: the load generator read 4 % of the tokens late, by up to 0.3 s

    Raised: In a run of `unruly drive` or of a store, a reply waited unread for more than
    {distrust.SEND_LAG_LIMIT_NS:duration}, and for more than half of its response time. The kernel
    stamps a reply when its last bytes come, and the load generator notes when it did not look at
    its connections. A reply waited for the shorter of the two times. A token or a message of a
    streamed reply counts the same way, with half of the time from the one before it. There only the
    time without a look is known: the token may have come at any time since, so its delay is an
    upper limit. The finding **spoils** the run if more than {LATE_LIMIT:percent} of the replies, of
    the tokens or of the messages were read late. It **warns** if more than {RARE:percent} were, and
    **informs** otherwise.

    Means: The load generator was stopped, preempted, held back by a CPU limit or busy with other
    replies. The latencies and gaps contain time that the server did not cause. The gap after a late
    token is too short.

    Next: On a busy host, stop other programs or measure from another host. Otherwise give the load
    generator a CPU of its own, or lower the rate.

    Numbers: `self_distrust.unread[]` in `summary.json`.
    """
    late = [it for it in analysis.self_distrust.unread if it.late]
    if not late:
        return
    most = max(late, key=lambda it: it.share)
    severity: Severity = "informs"
    if most.share > LATE_LIMIT:
        severity = "spoils"
    elif most.share > RARE:
        severity = "warns"
    others = "".join(
        f" So did {count(it.late)} of {count(it.n)} {it.what}." for it in late if it is not most
    )
    yield Finding(
        "generator-reads-late",
        "trust",
        severity,
        3,
        f"the load generator read {percent(most.share)} of the {most.what} late, by up to "
        f"{duration(most.longest_ns)}",
        f"{count(most.late)} of {count(most.n)} {most.what} waited unread for more than "
        f"{duration(SEND_LAG_LIMIT_NS)} and for more than half of their time.{others} That time is "
        "in their latency, but it is that of the load generator, not of the server.",
        {
            "what": most.what,
            "n": most.n,
            "late": most.late,
            "share": most.share,
            "longest_ns": most.longest_ns,
        },
        _room(analysis.self_distrust) or MORE_ROOM,
    )


RULES: Final = (
    Rule(
        "generator-stalled", "trust", ("spoils", "warns", "informs"), stalled, (context, distrust)
    ),
    Rule("generator-reads-late", "trust", ("spoils", "warns", "informs"), reads_late, (distrust,)),
)
