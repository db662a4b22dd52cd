"""The rule about causes: what made most of the slow requests slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.findings.model import Finding
from unruly.findings.words import count, latency, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.findings.cause_model import Slowness
    from unruly.findings.rules import Evidence

SUGGESTIONS: Final = {
    "process died": "Find out in its log why it died; keep fewer requests waiting for one process.",
    "process stopped": "Find out who stops it; ask a second process where waiting is dearer.",
    "gc pause": "Look at the collector's log: a larger heap, or a collector with shorter pauses.",
    "safepoint": "Look in the safepoint log at what asked for it, and how long it was waited for.",
    "disk wait": "Look at what writes to that disk beside it; sync less often.",
    "cpu quota": "Raise the quota, or lower the threads that use it up at the start of a period.",
    "lost packets": "Look for drops at the interfaces, queues and switches on the way.",
    "page faults": "Give it memory, or lock what it needs of it.",
    "lack of memory": "Give the host memory, or take something off it.",
    "stolen cpu": "Measure on a dedicated host.",
    "cpu wait": "Look at what else ran on its CPUs then; give it CPUs of its own.",
    "busy disk": "Look at what else used the disk then.",
    "busy cpus": "Look at what else ran on the host then.",
    "send lag": "Give the generator a CPU of its own, lower the rate, or read service time.",
    "client kernel to user": "Give the generator a CPU of its own, or read the kernel's stamps.",
    "server kernel to user": "Give the server a CPU of its own, or more threads that read.",
    "handler": "Look into the server: a profile or a log of those very moments.",
    "network and queue": "Look at the interfaces on the way, and at queues before the server.",
    "server or network": "Use a server that stamps its replies, so that the two can be told apart.",
}


def slow_because(evidence: Evidence) -> Iterator[Finding]:
    """A cause explains slow requests of a (cell, op) beyond chance."""
    for place, row in enumerate(evidence.causes.rows if evidence.causes else ()):
        if not row.causes or row.unknown is None:
            continue
        top = row.causes[0]
        others = "".join(f" {percent(it.explained.estimate)} {it.words}." for it in row.causes[1:])
        yield Finding(
            "slow-because",
            "slow",
            "warns",
            place,
            headline(row, _label(evidence, row)),
            f"Slow is what took longer than {latency(row.limit_ns)}: {_how_many(row)}. While "
            f"that cause was there a request was {top.lift:.3g} times as likely to be slow "
            f"(p = {top.p_value:.2g}).{others} {percent(row.unknown.estimate)} is unknown.",
            {
                "cell": row.cell,
                "op": row.op,
                "cause": top.cause,
                "process": top.process,
                "explained": top.explained.estimate,
                "lift": top.lift,
                "p_value": top.p_value,
                "unknown": row.unknown.estimate,
            },
            SUGGESTIONS[top.cause],
        )


def headline(row: Slowness, label: str) -> str:
    """Say what the first cause of a (cell, op) is."""
    top = row.causes[0]
    return f"{percent(top.explained.estimate)} of the slow requests of {label} {top.words}"


def _how_many(row: Slowness) -> str:
    every = f"{count(row.slow)} requests"
    if row.looked_at == row.slow:
        return every
    return f"{every}, of which chance chose {count(row.looked_at)} to be looked at"


def _label(evidence: Evidence, row: Slowness) -> str:
    several = len({it.cell for it in evidence.cells}) > 1
    return f"{row.op} ({row.cell})" if several else row.op
