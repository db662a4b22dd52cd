"""The rules about why: causes of the slow requests, and what correlates with latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.base.mechanisms import SHORTAGES
from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.quantity import coefficient, count, duration, p_value, percent, significant
from unruly.topics.causes import because, model, statistics
from unruly.topics.causes.because import is_explained, metric_of, rises_with, strength
from unruly.topics.causes.model import causes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis
    from unruly.base.model import Correlation
    from unruly.topics.causes.model import Slowness

CORRELATION_LEAST: Final = 0.3
FALSE_DISCOVERY: Final = 0.05
WITHIN_LEAST: Final = 0.1
CORRELATES_SHOWN: Final = 3
SUGGESTIONS: Final = {
    "process died": "Look in its log at that time for why it died, and start it again.",
    "process stopped": "Find out what stops it, or send to a second process after a short wait.",
    "gc pause": "Use a larger heap, or a garbage collector with shorter pauses. Its log shows "
    "each pause.",
    "safepoint": "Look in the safepoint log at what requested it, and how long threads took to "
    "reach it.",
    "disk wait": "Find out what else writes to that disk, or sync less often.",
    "cpu quota": "Raise the CPU limit, or use fewer threads: many use it up early in each period.",
    "lost packets": "Look for dropped packets at the interfaces, queues and switches on the path.",
    "page faults": "Give it more memory, or lock its pages (mlock).",
    "lack of memory": "Give the host more memory, or run fewer programs on it.",
    "stolen cpu": "Measure on a dedicated host.",
    "cpu wait": "Give it CPUs of its own, or find out what else ran on them at that time.",
    "busy process": "Profile it at those times: one long task holds up all requests of a thread.",
    "busy disk": "Find out what else used the disk at that time.",
    "busy cpus": "Find out what else ran on the host at that time.",
    "send lag": "Give the load generator a CPU of its own, or lower the rate.",
    "client kernel to user": "Give the load generator a CPU of its own, or use kernel time stamps.",
    "server kernel to user": "Give the server a CPU of its own, or more threads that read "
    "requests.",
    "handler": "Profile the server, or look in its log at those times.",
    "network and queue": "Look at the network interfaces on the path, and at queues before the "
    "server.",
    "server or network": "Use a server that stamps its replies, to separate the server from the "
    "network.",
}


def slow_because(analysis: Analysis) -> Iterator[Finding]:
    """A cause explains slow requests, beyond chance.

    Example: 62 % of the slow requests of null spent the time on the network to agent-1, or in a
    queue (once, 800 ms)

    Raised: At least one cause explains slow requests of an operation, which has
    {model.SLOW_LEAST:count} slow requests or more. Three conditions must hold:

    - While the cause was present, a request was at least {statistics.LIFT_LEAST:number} times as
      likely to be slow.
    - That is more than chance explains: the false discovery rate is at most
      {statistics.FALSE_DISCOVERY:percent} over all causes tried for the operation. A cause that
      shuts a process out (it died, was stopped or was throttled by its CPU limit) may instead have
      a p value of at most {statistics.DECISIVE_P:percent}, if a request was
      {statistics.DECISIVE_LIFT:number} times as likely to be slow.
    - The cause explains at least {statistics.EXPLAINED_LEAST:percent} of the slow requests.

    Slow requests are those that took longer than the p99.9, or than `analyse(slow_beyond_ns=)`.
    Labels of injected faults are not read.

    Means: Each slow request is attributed to one cause: the most specific one that covers half of
    its time. The other slow requests belong to other causes, or are unexplained.

    Next: The suggestion says where to look for each mechanism. Change it in a run of its own, and
    compare. A large unexplained share means that the cause was not observed: see the method
    [causes](../methods/causes.md).

    Numbers: `causes.rows[]` in `summary.json`.
    """
    for place, row in enumerate(held.rows if (held := causes_of(analysis)) else ()):
        if not row.causes or row.unknown is None:
            continue
        top = row.causes[0]
        others = "".join(
            f" Another {percent(it.explained.estimate)} {it.words}." for it in row.causes[1:]
        )
        yield Finding(
            "slow-because",
            "slow",
            "warns",
            place,
            headline(row, _label(analysis, row)),
            f"Slow requests took longer than {duration(row.limit_ns)}: {_how_many(row)}. While the "
            f"cause was present, a request was {significant(top.lift)} times as likely to be slow "
            f"({p_value(top.p_value)}).{others} {percent(row.unknown.estimate)} of the "
            "slow requests are unexplained.",
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
    return f"{every}, of which a random sample of {count(row.looked_at)} was examined"


def _label(analysis: Analysis, row: Slowness) -> str:
    several = len({it.cell for it in analysis.cells}) > 1
    return f"{row.op} ({row.cell})" if several else row.op


def correlate(analysis: Analysis) -> Iterator[Finding]:
    """A resource of the receiver is short when latency is high.

    Example: latency rises with the receiver's CPU wait

    Raised: Causes explain less than {because.EXPLAINED:percent} of the slow requests of the slowest
    operation. A metric of the receiver, or of its host, is high when service latency is high:

    - Spearman's rank correlation is at least {CORRELATION_LEAST:number}, its interval excludes 0,
      and the q value is at most {FALSE_DISCOVERY:percent}.
    - Latency follows the metric in time within each receiver (r at least {WITHIN_LEAST:number}), or
      the receiver with the highest mean of the metric was named as slow. This leaves out metrics
      that only differ between nodes, such as resident memory.

    A negative correlation is never a finding: a resource that is used less when latency is high
    explains nothing. At most {CORRELATES_SHOWN:count} metrics are reported, resource shortages
    first.

    Means: The metric is a candidate. The verdict names it only where causes leave most of the slow
    requests unexplained.

    Next: Change it in a run of its own, and compare. See the method
    [correlation](../methods/correlation.md).

    Numbers: `correlations.metrics[]` in `summary.json`.
    """
    if is_explained(causes_of(analysis), analysis.cells):
        return
    slow = {node.node for node in analysis.slow_nodes.named}
    shown = [row for row in analysis.correlations.rows if _stands(row, slow)]
    # a shortage can make requests slow; other metrics, such as memory in use, only move along
    shown.sort(key=lambda row: row.metric not in SHORTAGES)
    for place, row in enumerate(shown[:CORRELATES_SHOWN]):
        moves = rises_with(row)
        yield Finding(
            "correlate",
            "why",
            "informs",
            place,
            f"latency {moves}",
            f"Latency {moves}: {strength(row)}, Pearson {coefficient(row.pearson.estimate)} with "
            f"the logarithm of the latency. The metric is highest at {row.highest}.",
            {
                "candidate": metric_of(row),
                "metric": row.metric,
                "scope": row.scope,
                "spearman": row.spearman.estimate,
                "pearson": row.pearson.estimate,
                "within": row.within,
                "q_value": row.q_value,
                "highest": row.highest,
            },
            "A correlate is only a candidate: change it in a run of its own, and compare.",
        )


def _stands(row: Correlation, slow: set[str]) -> bool:
    """Positive, strong, unlikely to be chance, and more than a difference between nodes.

    A resource of which there is more when latency is low is no explanation. A difference between
    nodes counts when it singles out a slow node.
    """
    rank = row.spearman
    estimate, low = rank.estimate or 0.0, rank.low or 0.0
    if estimate < CORRELATION_LEAST or low <= 0 or row.q_value > FALSE_DISCOVERY:
        return False
    return row.highest in slow or (row.within or 0.0) >= WITHIN_LEAST


RULES: Final = (
    Rule("slow-because", "slow", ("warns",), slow_because, (model, statistics)),
    Rule("correlate", "why", ("informs",), correlate, (because,)),
)
