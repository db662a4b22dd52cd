"""The rest of the screen: the table of latencies, then who, when and under which load."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from unruly.base.asked import compares_nodes, has_foreign_arrivals
from unruly.output.columns import columns
from unruly.quantity import count, duration, percent, rate, significant
from unruly.quantity import times as ratio_words
from unruly.stats.blocks import DRIFTS
from unruly.topics.arrival_log.model import arrival_log_of
from unruly.topics.goodput.model import goodput_of
from unruly.topics.over_time.statistics import over_time_of
from unruly.topics.parts.model import parts_of
from unruly.topics.runtimes.model import ANYBODY, runtimes_of
from unruly.topics.runtimes.rules import collector_sentence, times, wholes
from unruly.topics.stores.statistics import stores_of
from unruly.topics.stores.words import (
    fault_sentence,
    is_comparable,
    knee_sentence,
    unseen_sentence,
    worst_fault,
)
from unruly.topics.streams.model import streams_of
from unruly.topics.traces.model import traces_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from unruly.base.analysis import Analysis
    from unruly.base.operation import CellSummary
    from unruly.base.tails import Tail
    from unruly.contract import Latency
    from unruly.stats import Interval

TABLE_ROWS: Final = 6
GROUP_ROWS: Final = 4
OVER_TIME_ROWS: Final = 2
SAME_ROWS: Final = 2
RUNTIME_ROWS: Final = 4
RAMPS: Final = 2
FINDINGS_MAX: Final = 6
HEAD: Final = ("", "", "n", "failed", "p50", "p99", "p99.9", "max", "p99/mean")
KEEP: Final = ("p99", "p50", "failed", "n", "max", "p99.9", "p99/mean")
RUNTIME_HEAD: Final = ("by runtime", "n", "failed", "p50", "p99", "p99.9")
RUNTIME_KEEP: Final = ("p99", "p50", "failed", "n", "p99.9")
FINDINGS_PAGE: Final = "unruly/docs/findings/README.md"
STREAMED_WORDS: Final = {
    "first token": "first token",
    "token": "gap between tokens",
    "first message": "first message",
    "message": "gap between messages",
}
MARKS: Final = {"warns": " !", "informs": "  "}
SHOWN_ELSEWHERE: Final = frozenset(
    {
        "failures", "outage", "promise-made", "slow-node", "slow-because", "correlate", "target",
        "knee", "fault-hurts", "stream-failed", "stream-unstable", "stream-slow",
        "stream-one-core", "stream-saturated", "stream-loses", "stream-hypothesis",
        "runtime-tail", "runtime-collector",
    }
)  # fmt: skip


def details(analysis: Analysis, width: int) -> Iterator[str]:
    """Yield the lines that may be cut, the most useful first."""
    if analysis.cells and streams_of(analysis) is None:
        yield ""
        yield from _table(analysis, width)
        yield from _store(analysis)
        yield from _by_runtime(analysis, width)
        yield from _streamed(analysis)
        yield from _good(analysis)
        yield from _trace(analysis)
        yield from _where(analysis)
    warnings = list(_findings(analysis))
    if warnings:
        yield ""
        yield from warnings
    if analysis.cells and streams_of(analysis) is None:
        rest = [*_groups(analysis), *_same_operations(analysis), *_over_time(analysis)]
        if rest:
            yield ""
            yield from rest


def label(analysis: Analysis, row: CellSummary | Tail) -> str:
    """Return the name of a (cell, op): the op alone where there is one cell."""
    several = len({other.cell for other in analysis.cells}) > 1
    return f"{row.op} ({row.cell})" if several else row.op


def shown(analysis: Analysis) -> list[CellSummary]:
    """Return the (cell, op) to show: all when few, else the worst by p99."""
    rows = [row for row in analysis.cells if row.latency == "response" and row.op != "*"]
    if len(rows) <= TABLE_ROWS:
        return rows
    worst = sorted(rows, key=lambda row: -(row.p99 or row.max_ok or 0.0))[:TABLE_ROWS]
    return [row for row in rows if row in worst]


def _table(analysis: Analysis, width: int) -> Iterator[str]:
    rows = shown(analysis)
    names: tuple[Latency, ...] = ("response", "service") if analysis.scheduled else ("response",)
    found = {(it.cell, it.op, it.latency): it for it in analysis.cells}
    body = []
    for row in rows:
        for name in names:
            it = found[row.cell, row.op, name]
            first = name == "response"
            body.append(
                (
                    _short(analysis, row) if first else "",
                    name,
                    count(it.n) if first else "",
                    count(it.failed) if first else "",
                    duration(it.p50),
                    duration(it.p99),
                    duration(it.p99_9),
                    duration(it.max_ok),
                    ratio_words(it.p99_over_mean),
                )
            )
    yield from _with_long_names(body, width)
    total = len([r for r in analysis.cells if r.latency == "response" and r.op != "*"])
    if total > len(rows):
        yield f"(the {len(rows)} worst of {total} by p99; all are in summary.json)"


def _with_long_names(body: Sequence[tuple[str, ...]], width: int) -> Iterator[str]:
    """A name longer than a third of the line, such as a URL, stands on a line of its own."""
    if max(len(row[0]) for row in body) <= width // 3:
        yield from columns(HEAD, body, width, keep=KEEP, labels=2)
        return
    lines = columns(HEAD[1:], [row[1:] for row in body], width - 1, keep=KEEP)
    yield f" {lines[0]}"
    for row, line in zip(body, lines[1:], strict=True):
        if row[0]:
            yield row[0] if len(row[0]) <= width else f"{row[0][: width - 1]}…"
        yield f" {line}"


def _short(analysis: Analysis, row: CellSummary) -> str:
    """The same for a table: of a cell's factors their values, of one op nothing."""
    if len({other.cell for other in analysis.cells}) == 1:
        return row.op
    values = re.sub(r"[^ =]+=", "", row.cell)
    ops = {other.op for other in analysis.cells} - {"*"}
    return f"{row.op} {values}" if len(ops) > 1 else values


def _same_operations(analysis: Analysis) -> Iterator[str]:
    """Of an arrival log, what waiting for more copies costs on the same operations."""
    log = arrival_log_of(analysis)
    if log is None:
        return
    several = len({row.cell for row in log.rows}) > 1
    for row in log.rows[:SAME_ROWS]:
        name = f"{row.op} ({row.cell})" if several else row.op
        means = [
            f"{it.measure} {duration(it.mean_ok.estimate)}{_between(it.mean_ok, duration)}"
            + (f" (of {count(it.n - it.censored)} that had it)" if it.censored else "")
            for it in row.waits
            if it.mean_ok is not None
        ]
        spared = f"{row.outliers.vanished} of {row.outliers.n} quorum outliers gone at the first"
        yield (
            f"same operations: {name}, {row.replicas} replicas, n = {count(row.n)}, mean: "
            + ", ".join(means)
            + (f"; {spared}" if row.outliers.n else "")
        )


def _lift_of(lift: Interval | None) -> float:
    return (lift.low or 0.0) if lift else 0.0


def _between(interval: Interval, write: Callable[[float], str]) -> str:
    if interval.low is None or interval.high is None or interval.low == interval.high:
        return ""
    return f" [{write(interval.low)}, {write(interval.high)}]"


def _store(analysis: Analysis) -> Iterator[str]:
    """The load that a store holds, and the fault that hurts it most."""
    stores = stores_of(analysis)
    if stores is None:
        return
    for ramp in stores.ramps[:RAMPS]:
        yield f"load: {knee_sentence(ramp)}"
    worst = worst_fault(stores.faults)
    if worst is not None:
        several = len({it.cell for it in stores.faults}) > 1
        yield f"faults: {fault_sentence(worst, several=several)}"
    elif not all(map(is_comparable, stores.faults)):
        yield f"faults: {unseen_sentence(stores.faults)}"


def _groups(analysis: Analysis) -> Iterator[str]:
    """First, majority and all, of the largest groups of each shown op."""
    chosen = {(row.cell, row.op) for row in shown(analysis)}
    named: dict[tuple[str, str, int], dict[str, str]] = {}
    for group in analysis.groups:
        if group.level and (group.cell, group.op) in chosen:
            key = (group.cell, group.op, group.size)
            text = f"{duration(group.p50)} / {duration(group.p99)}"
            named.setdefault(key, {})[group.level] = text
    several = len({key[0] for key in named}) > 1
    for place, (key, levels) in enumerate(named.items()):
        if place >= GROUP_ROWS:
            return
        name = f"{key[1]} ({key[0]})" if several else key[1]
        text = ", ".join(f"{level} {value}" for level, value in levels.items())
        yield f"groups: {name}, {key[2]} replies, p50 / p99: {text}"


def _streamed(analysis: Analysis) -> Iterator[str]:
    """Where replies came piece by piece: the first piece and the gaps, of the slowest cell."""
    found = parts_of(analysis)
    pieces = [it for it in found.layers if it.layer in STREAMED_WORDS] if found else []
    if not pieces:
        return
    slowest = max(pieces, key=lambda it: it.p99 or it.max).cell
    several = len({it.cell for it in pieces}) > 1
    for it in pieces:
        if it.cell == slowest:
            cell = f" ({it.cell})" if several else ""
            shown = ", ".join(
                f"{name} {duration(value)}{_bounds(held)}"
                for name, value, held in (
                    ("p50", it.p50, it.p50_interval),
                    ("p99", it.p99, it.p99_interval),
                )
                if value is not None
            )
            most = f"max {duration(it.max)} of {count(it.n)}"
            yield f"{STREAMED_WORDS[it.layer]}{cell}: {f'{shown}, ' if shown else ''}{most}"


def _good(analysis: Analysis) -> Iterator[str]:
    """Where the plan sets limits: the good requests, and what others missed, of the worst cell."""
    found = goodput_of(analysis)
    if found is None or not found.rows:
        return
    worst = min(found.rows, key=lambda it: (it.share.estimate if it.share else None) or 0.0)
    cell = f" ({worst.cell})" if len(found.rows) > 1 else ""
    if worst.share is None or worst.rate_hz is None:
        reasons = " and ".join(dict.fromkeys(worst.absent.values()))
        yield f"goodput{cell}: unknown: {reasons}"
        return
    others = [
        f"{count(it.missed)} missed {it.measure} < {duration(it.limit_ns)}"
        for it in worst.limits
        if it.missed
    ]
    others += [f"{count(worst.failed)} failed"] if worst.failed else []
    yield (
        f"goodput{cell}: {rate(worst.rate_hz.estimate)}{_between(worst.rate_hz, significant)}, "
        f"{percent(worst.share.estimate)} of {count(worst.n)} requests"
        f"{'; ' if others else ''}{', '.join(others)}"
    )


def _trace(analysis: Analysis) -> Iterator[str]:
    """The trace of the slowest answered request, where requests named theirs."""
    found = traces_of(analysis)
    if found is not None:
        slowest = found.slowest[0]
        yield f"slowest trace: {slowest.url or slowest.trace_id} ({duration(slowest.response)})"


def _bounds(held: Interval | None) -> str:
    """An interval in brackets; nothing where a side is open."""
    if held is None or held.low is None or held.high is None:
        return ""
    return f" [{duration(held.low)}, {duration(held.high)}]"


def _by_runtime(analysis: Analysis, width: int) -> Iterator[str]:
    """Where agents are JVMs: the tail by sender and receiver, and the GC pauses that copies met.

    Of several cells, the one whose slow copies met pauses most, in one line.
    """
    found = runtimes_of(analysis)
    if found is None:
        return
    whole = sorted(wholes(found), key=lambda it: -_lift_of(it.at("either").lift))
    cell = whole[0].cell if whole else found.tails[0].cell
    several = len({it.cell for it in found.tails}) > 1
    own = [it for it in found.tails if it.cell == cell and it.asks != ANYBODY][:RUNTIME_ROWS]
    names = [f"{row.asks} -> {row.answers}" for row in own]
    if several:
        p99s = (f"{name} {duration(row.p99)}" for name, row in zip(names, own, strict=True))
        yield f"by runtime: {cell}, p99: {', '.join(p99s)}"
    else:
        body = [
            (
                name,
                count(row.n),
                count(row.failed),
                *(duration(it) for it in (row.p50, row.p99, row.p99_9)),
            )
            for name, row in zip(names, own, strict=True)
        ]
        yield from columns(RUNTIME_HEAD, body, width, keep=RUNTIME_KEEP)
    ratio = next((it.ratio for it in found.ratios if it.cell == cell), None)
    if ratio is not None and (ratio.low is not None or ratio.high is not None):
        yield f"runtime: the p99 of requests to JVMs is {times(ratio)} that of native agents"
    if whole:
        yield f"garbage collection: {collector_sentence(whole[0], found)}"


def _where(analysis: Analysis) -> Iterator[str]:
    slow = analysis.slow_nodes
    if not compares_nodes(slow):
        return
    if not slow.named:
        yield f"slow nodes: none that all observers agree on in half of {slow.windows} windows"
    for node in slow.named[:3]:
        yield f"slow node: {node.words}"


def _over_time(analysis: Analysis) -> Iterator[str]:
    """Throughput, foreign arrivals and changes of the shown ops that have the worst p99."""
    over_time = over_time_of(analysis)
    if over_time is None or not over_time.rows:
        return
    found = {(row.cell, row.op): row for row in over_time.rows}
    worst_first = sorted(shown(analysis), key=lambda row: -(row.p99 or 0.0))
    rows = [row for row in worst_first if (row.cell, row.op) in found][:OVER_TIME_ROWS]
    for summary in rows:
        row, words = found[summary.cell, summary.op], []
        if row.throughput is not None:
            varies = row.throughput.variation
            words.append(
                f"{rate(row.throughput.mean.estimate)} answered, seconds vary by "
                f"{percent(varies.estimate)}{_between(varies, percent)}"
            )
        burst = row.dispersion.index if row.dispersion is not None else None
        asked = analysis.run.plan.cell(row.cell).dispersion
        told = has_foreign_arrivals(analysis.run) or asked is not None
        if told and burst is not None and burst.estimate is not None:
            index = significant(burst.estimate, 2)
            # an operation that is a part of all requests has a part of their bursts
            ops = {other.op for other in over_time.rows if other.cell == row.cell}
            whole = "asked for" if len(ops) == 1 else "asked for, of all operations together"
            wanted = "" if asked is None else f" ({whole}: {significant(asked)})"
            words.append(
                f"arrivals have an index of dispersion of {index}"
                f"{_between(burst, significant)}{wanted}"
            )
        points = len(row.changes.points) if row.changes is not None else 0
        if points and summary.abstained in DRIFTS:
            words.append(f"the p99 moved {'once' if points == 1 else f'{points} times'}")
        if words:
            yield f"over time: {label(analysis, summary)}: " + "; ".join(words)


def _findings(analysis: Analysis) -> Iterator[str]:
    rest = [
        it for it in analysis.findings if it.severity in MARKS and it.code not in SHOWN_ELSEWHERE
    ]
    rest.sort(key=lambda it: list(MARKS).index(it.severity))
    for finding in rest[:FINDINGS_MAX]:
        yield f"{MARKS[finding.severity]} {finding.code}: {finding.title}"
    if len(rest) > FINDINGS_MAX:
        yield f"   and {len(rest) - FINDINGS_MAX} more in summary.json"
    for sentence in analysis.run.missing[:2]:
        yield f" ! missing: {sentence}"
    if rest:
        yield f"   {FINDINGS_PAGE} explains each of them"
