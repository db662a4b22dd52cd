"""The two hypotheses of the study of throughput stability, asked of a run's own numbers.

Each claims something of every protocol of a kind: one that goes against it beyond its interval
refutes it, and it holds only where it holds for each. The intervals are simultaneous (Bonferroni),
so that many protocols do not refute it by chance.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from unruly.base.words import named
from unruly.quantity import percent
from unruly.topics.streams.kept import kept, relative
from unruly.topics.streams.model import CPU, GC, HELD, NOT_HELD, OPEN, Comparison, Hypothesis
from unruly.topics.streams.words import between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.stats import Interval
    from unruly.topics.streams.legs import Flow
    from unruly.topics.streams.model import Outcome, Stream

LEVEL: Final = 0.95
USER_MODE: Final = frozenset(
    {"sctp", "quic", "enet", "kcp", "corosync-cpg", "jgroups-udp", "aeron", "aeron-daemon"}
)
"""Protocols whose windows, or their equivalents, are moved by a process in user mode."""
JVM: Final = ("jvm-", "jgroups-", "aeron")


def is_jvm(protocol: str) -> bool:
    """Return whether a protocol lives in a JVM."""
    return protocol.startswith(JVM)


def hypotheses(rows: Sequence[Stream], flow: Flow) -> tuple[Hypothesis, ...]:
    """Answer those whose load the run has.

    Parameters
    ----------
    rows : sequence of Stream
    flow : Flow
        The bandwidth of each leg.
    """
    found = []
    if any(row.load == GC for row in rows):
        found.append(_collector(rows, flow))
    if any(row.load == CPU for row in rows):
        found.append(_processor(rows, flow))
    return tuple(found)


def _collector(rows: Sequence[Stream], flow: Flow) -> Hypothesis:
    loaded = [row for row in _known(rows, GC) if is_jvm(row.protocol)]
    judged = [_compared(row, loaded, flow, _intervals(loaded, loaded)) for row in loaded]
    compared = [replace(it, state=_collector_state(it)) for it in judged]
    outcome = _outcome([it.state for it in compared])
    if not any(it.relative for it in compared):
        outcome = NOT_HELD if outcome == NOT_HELD else OPEN
    text = _text(compared, "no JVM protocol has a bandwidth beside the collector and without it")
    if compared and not any(it.relative for it in compared):
        text += "; of user-mode windows against kernel TCP nothing can be said"
    return Hypothesis(
        "collector",
        GC,
        "beside a garbage collector in its own JVM every protocol keeps less of its bandwidth, "
        "those with windows of user mode less than kernel TCP",
        outcome,
        text,
        "the paper: JGroups over UDP kept 6 % of its bandwidth beside the collector; the other "
        "Java protocols lost about what a CPU load of the same size took from them",
        tuple(compared),
    )


def _processor(rows: Sequence[Stream], flow: Flow) -> Hypothesis:
    known = _known(rows, CPU)
    asked = [row for row in known if row.protocol in USER_MODE]
    judged = [_compared(row, known, flow, _intervals(asked, known)) for row in asked]
    compared = [replace(it, state=OPEN if it.in_doubt else _side(it.relative)) for it in judged]
    others = [
        f"{row.name} {percent(row.of_unloaded.estimate)}"
        for row in known
        if row.protocol not in USER_MODE and row.of_unloaded is not None
    ]
    text = _text(compared, "no protocol with windows of user mode has both bandwidths")
    if compared and not any(it.relative for it in compared):
        text += "; there is no kernel TCP to compare them with"
    text += f"; of the others {named(others, 4)} is left" if others else ""
    return Hypothesis(
        "processor",
        CPU,
        "with processes competing for the CPU, windows of user mode lose more than kernel TCP",
        _outcome([it.state for it in compared]),
        text,
        "the paper: all lost; UDP least, since it resends nothing; kernel SCTP among the most; "
        "JGroups over UDP much more than over TCP, and NIO more than plain Java sockets",
        tuple(compared),
    )


def _known(rows: Sequence[Stream], load: str) -> list[Stream]:
    return [row for row in rows if row.load == load and row.of_unloaded is not None]


def _side(found: Interval | None) -> Outcome:
    """Whether a ratio is below 1 beyond its interval, above it, or neither."""
    if found is None:
        return OPEN
    if found.high is not None and found.high < 1:
        return HELD
    return NOT_HELD if found.low is not None and found.low >= 1 else OPEN


def _collector_state(it: Comparison) -> Outcome:
    if it.in_doubt:
        return OPEN
    states = [_side(it.keeps)]
    if it.protocol in USER_MODE and it.relative is not None:
        states.append(_side(it.relative))
    return _outcome(states)


def _outcome(states: Sequence[Outcome]) -> Outcome:
    """Of a claim about all: refuted by one, held by each, else open."""
    if NOT_HELD in states:
        return NOT_HELD
    return HELD if states and set(states) == {HELD} else OPEN


def _intervals(rows: Sequence[Stream], loaded: Sequence[Stream]) -> int:
    """How many intervals a hypothesis shows: one of each, one more where it has a reference."""
    return len(rows) + sum(_reference_of(row, loaded) is not None for row in rows)


def _compared(
    row: Stream,
    loaded: Sequence[Stream],
    flow: Flow,
    many: int,
) -> Comparison:
    """The share that a protocol keeps, also over that of the kernel's TCP of its kind."""
    level = 1 - (1 - LEVEL) / max(1, many)
    cells = row.cell, row.unloaded_cell or ""
    keeps, _ = kept(flow, *cells, level)
    reference = _reference_of(row, loaded)
    if reference is None:
        return Comparison(row.protocol, None, row.series, keeps, None, OPEN, row.in_doubt)
    its = reference.cell, reference.unloaded_cell or ""
    ratio = relative(flow, cells, its, level)
    doubt = row.in_doubt or reference.in_doubt
    return Comparison(row.protocol, reference.protocol, row.series, keeps, ratio, OPEN, doubt)


def _reference_of(row: Stream, loaded: Sequence[Stream]) -> Stream | None:
    """Kernel TCP beside the same load, for windows of user mode.

    Of a JVM protocol it is that from a JVM, where there is one.
    """
    if row.protocol not in USER_MODE:
        return None
    wanted = ("jvm-tcp", "jvm-nio", "tcp") if is_jvm(row.protocol) else ("tcp",)
    alike = {it.protocol: it for it in loaded if it.series == row.series}
    return next((alike[name] for name in wanted if name in alike), None)


def _text(rows: Sequence[Comparison], nothing: str) -> str:
    """Each protocol's share, and how it stands to its reference."""
    if not rows:
        return nothing
    told = []
    for it in rows:
        share = it.keeps.estimate if it.keeps else None
        words = f"{it.name} keeps {percent(share)}{between(it.keeps, percent)}"
        if it.relative is not None:
            ratio = it.relative
            words += (
                f", {ratio.estimate:.2g} x{between(ratio, '{:.2g}'.format)} of what "
                f"{it.reference} keeps"
            )
        told.append(f"{words} ({it.said})")
    doubt = "; ?: its competing load was not what it was to be"
    return "; ".join(told) + (doubt if any(it.in_doubt for it in rows) else "")
