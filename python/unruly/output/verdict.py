"""One screen: can it be trusted, what can be promised, how unruly, where, why, what would help."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Final

from unruly.findings.promise_words import promise_words
from unruly.findings.rules_runtime import collector_sentence, times, wholes
from unruly.findings.runtime_model import ANYBODY
from unruly.findings.store_words import (
    fault_sentence,
    is_comparable,
    knee_sentence,
    target_sentence,
    unseen_sentence,
    worst_fault,
)
from unruly.findings.stream_table import stream_lines
from unruly.findings.words import count, duration, latency, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from unruly.findings import Analysis, CellSummary, Finding
    from unruly.findings.tails import Tail
    from unruly.stats import Interval

LINES_MAX: Final = 40
TABLE_ROWS: Final = 6
PROMISES_MAX: Final = 4
GROUP_ROWS: Final = 4
OVER_TIME_ROWS: Final = 2
SAME_ROWS: Final = 2
RUNTIME_ROWS: Final = 4
RUNTIME_HEAD: Final = ("n", "failed", "p50", "p99", "p99.9")
FINDINGS_MAX: Final = 6
COLUMNS_WIDE: Final = 79
"""What a row of the table takes beside its name."""
MARKS: Final = {"spoils": "!!", "warns": " !", "informs": "  "}
COLOURS: Final = {"spoils": "\x1b[31m", "warns": "\x1b[33m", "informs": ""}
BOLD: Final = "\x1b[1m"
PLAIN: Final = "\x1b[0m"
RAMPS: Final = 2
SHOWN_ELSEWHERE: Final = frozenset(
    {
        "promise-made", "slow-node", "slow-because", "correlate", "target", "knee", "fault-hurts",
        "stream-failed", "stream-unstable", "stream-slow", "stream-one-core",
        "stream-saturated", "stream-loses", "stream-hypothesis", "runtime-tail",
        "runtime-collector",
    }
)  # fmt: skip


def verdict(analysis: Analysis, *, width: int = 100, colour: bool = False) -> str:
    """Return the verdict as text of at most 40 lines.

    Parameters
    ----------
    analysis : Analysis
        As `unruly.analyse` gives it.
    width : int
        Columns; at least 60.
    colour : bool
        With escape codes, for a terminal.
    """
    width = max(60, width)
    lines = [*_header(analysis), *_trust(analysis)]
    if analysis.streams is not None:
        lines += ["", *_promises(analysis), *stream_lines(analysis.streams, width)]
        lines += [*_slow(analysis)]
    elif analysis.cells:
        lines += [
            "",
            *_promises(analysis),
            *_store(analysis),
            "",
            *_table(analysis, width),
            *_groups(analysis),
        ]
        lines += _same_operations(analysis)
        lines += _by_runtime(analysis)
        lines += ["", *_where(analysis), *_over_time(analysis)]
        lines += [*_slow(analysis), *_why(analysis)]
    lines += ["", *_findings(analysis), *_next(analysis)]
    fitted: list[str] = []
    for line in lines:
        fitted += _fit(line, width)
    if len(fitted) > LINES_MAX:
        rest = len(fitted) - LINES_MAX + 1
        fitted = [*fitted[: LINES_MAX - 1], f"... {rest} more lines: see report.html, summary.json"]
    if colour:
        fitted = [_coloured(line) for line in fitted]
    return "\n".join(fitted)


def _header(analysis: Analysis) -> Iterator[str]:
    run = analysis.run
    tag = f" [{run.tag}]" if run.tag else ""
    cells = len({row.cell for row in analysis.cells})
    binned = sum(
        row.n
        for row in analysis.cells
        if row.kept == "histogram" and row.latency == "response" and row.op != "*"
    )
    rows = analysis.conservation.rows
    parts = [
        f"{run.name}{tag}",
        run.status,
        "" if _timeless(analysis) else f"{duration(analysis.measured_ns)} measured",
        f"{count(rows)} rows" if rows or not binned else "",
        f"{count(binned)} values in histograms" if binned else "",
        f"{analysis.processes} processes" if analysis.processes else "",
    ]
    if cells > 1:
        parts.append(f"{cells} cells")
    yield "unruly verdict: " + ", ".join(part for part in parts if part)


def _timeless(analysis: Analysis) -> bool:
    """All times are made up: their sum is no length of anything."""
    cells = {row.cell for row in analysis.cells}
    return bool(cells) and cells <= analysis.run.timeless


def _trust(analysis: Analysis) -> Iterator[str]:
    if analysis.trustworthy:
        checked = (
            "every request is accounted for"
            if analysis.conservation.checked
            else "its source is trusted for what it counted"
            if analysis.run.status == "imported"
            else analysis.conservation.sentence
        )
        yield f"trust: nothing spoils this run; {checked}"
    else:
        yield "trust: DO NOT TRUST THIS RUN: " + "; ".join(analysis.doubts)


def _label(analysis: Analysis, row: CellSummary | Tail) -> str:
    several = len({other.cell for other in analysis.cells}) > 1
    return f"{row.op} ({row.cell})" if several else row.op


def _short(analysis: Analysis, row: CellSummary) -> str:
    """The same for a table: of a cell's factors their values, of one op nothing."""
    if len({other.cell for other in analysis.cells}) == 1:
        return row.op
    values = re.sub(r"[^ =]+=", "", row.cell)
    ops = {other.op for other in analysis.cells} - {"*"}
    return f"{row.op} {values}" if len(ops) > 1 else values


def _shown(analysis: Analysis) -> list[CellSummary]:
    """The (cell, op) to show: all when few, else the worst by p99."""
    rows = [row for row in analysis.cells if row.latency == "response" and row.op != "*"]
    if len(rows) <= TABLE_ROWS:
        return rows
    worst = sorted(rows, key=lambda row: -(row.p99 or row.max_ok or 0.0))[:TABLE_ROWS]
    return [row for row in rows if row in worst]


def _promises(analysis: Analysis) -> Iterator[str]:
    shown = _shown(analysis)
    rows = [row for row in analysis.cells if row.latency == "response" and row.op != "*"]
    if len(rows) > (1 if analysis.streams else len(shown)):
        made = [row for row in rows if row.ladder.highest]
        names = Counter(row.ladder.highest.name for row in made if row.ladder.highest)
        steps = ", ".join(f"{name} for {n}" for name, n in names.items())
        yield (
            f"promise: {len(made)} of {len(rows)} have one, in summary.json"
            + (f": {steps}" if steps else "")
        )
        return
    # an operation of a few rows (a pause that came once) has nothing to promise
    many = [row for row in shown if row.p99 is not None] or shown[:1]
    for row in many[:PROMISES_MAX]:
        yield f"promise: {promise_words(row, _label(analysis, row))}"
    if any(row.ladder.highest for row in many[:PROMISES_MAX]):
        timed = [spot.every_ns for spot in analysis.blind_spot]
        yield (
            f"not seen: anything that happens less often than every {duration(max(timed))}"
            if timed
            else "this holds if the order of the rows is that of time"
        )


def _store(analysis: Analysis) -> Iterator[str]:
    """Of a store: its target, the load that it holds, the fault that hurts it most."""
    stores = analysis.stores
    if stores is None:
        return
    if stores.tails and stores.target.asked:
        yield f"target: {target_sentence(stores, lambda row: _label(analysis, row))}"
    for ramp in stores.ramps[:RAMPS]:
        yield f"load: {knee_sentence(ramp)}"
    worst = worst_fault(stores.faults)
    if worst is not None:
        several = len({it.cell for it in stores.faults}) > 1
        yield f"faults: {fault_sentence(worst, several=several)}"
    elif not all(map(is_comparable, stores.faults)):
        yield f"faults: {unseen_sentence(stores.faults)}"


def _table(analysis: Analysis, width: int) -> Iterator[str]:
    rows = _shown(analysis)
    wide = max([2, *(len(_short(analysis, row)) for row in rows)])
    apart = wide > width - COLUMNS_WIDE  # names as long as a URL stand on lines of their own
    wide = 2 if apart else wide
    head = ("n", "failed", "p50", "p99", "p99.9", "max", "p99/mean")
    yield f"{'':{wide}} {'':8} " + " ".join(f"{name:>9}" for name in head)
    for row in rows:
        if apart:
            yield _short(analysis, row)
        for name in ("response", "service") if analysis.scheduled else ("response",):
            shown = next(
                r for r in analysis.cells if (r.cell, r.op, r.latency) == (row.cell, row.op, name)
            )
            ratio = f"{shown.p99_over_mean:.1f}" if shown.p99_over_mean is not None else "-"
            first = name == "response"
            cells = (
                count(shown.n) if first else "",
                count(shown.failed) if first else "",
                latency(shown.p50),
                latency(shown.p99),
                latency(shown.p99_9),
                latency(shown.max_ok),
                ratio,
            )
            label = _short(analysis, row) if first and not apart else ""
            yield f"{label:{wide}} {name:8} " + " ".join(f"{cell:>9}" for cell in cells)
    total = len([r for r in analysis.cells if r.latency == "response" and r.op != "*"])
    if total > len(rows):
        yield f"(the {len(rows)} worst of {total} by p99; all are in summary.json)"


def _groups(analysis: Analysis) -> Iterator[str]:
    """First, majority and all, of the largest groups of each shown op."""
    shown = {(row.cell, row.op) for row in _shown(analysis)}
    named: dict[tuple[str, str, int], dict[str, str]] = {}
    for group in analysis.groups:
        if group.level and (group.cell, group.op) in shown:
            key = (group.cell, group.op, group.size)
            text = f"{latency(group.p50)} / {latency(group.p99)}"
            named.setdefault(key, {})[group.level] = text
    several = len({key[0] for key in named}) > 1
    for place, (key, levels) in enumerate(named.items()):
        if place >= GROUP_ROWS:
            return
        label = f"{key[1]} ({key[0]})" if several else key[1]
        text = ", ".join(f"{level} {value}" for level, value in levels.items())
        yield f"groups: {label}, {key[2]} replies, p50 / p99: {text}"


def _same_operations(analysis: Analysis) -> Iterator[str]:
    """Of an arrival log, what waiting for more copies costs on the same operations."""
    log = analysis.arrival_log
    if log is None:
        return
    several = len({row.cell for row in log.rows}) > 1
    for row in log.rows[:SAME_ROWS]:
        label = f"{row.op} ({row.cell})" if several else row.op
        means = [
            f"{it.measure} {latency(it.mean_ok.estimate)}{_between(it.mean_ok, latency)}"
            + (f" (of {count(it.n - it.censored)} that had it)" if it.censored else "")
            for it in row.waits
            if it.mean_ok is not None
        ]
        spared = f"{row.outliers.vanished} of {row.outliers.n} quorum outliers gone at the first"
        yield (
            f"same operations: {label}, {row.replicas} replicas, n = {count(row.n)}, mean: "
            + ", ".join(means)
            + (f"; {spared}" if row.outliers.n else "")
        )


def _by_runtime(analysis: Analysis) -> Iterator[str]:
    """Where agents are JVMs: the tail by who asks and who answers, and collections that were met.

    Of several cells the one whose slow copies met collections most, and that in one line.
    """
    found = analysis.runtimes
    if found is None:
        return
    whole = sorted(wholes(found), key=lambda it: -_lift_of(it.at("either").lift))
    cell = whole[0].cell if whole else found.tails[0].cell
    several = len({it.cell for it in found.tails}) > 1
    own = [it for it in found.tails if it.cell == cell and it.asks != ANYBODY][:RUNTIME_ROWS]
    names = [f"{row.asks} -> {row.answers}" for row in own]
    if several:
        p99s = (f"{name} {latency(row.p99)}" for name, row in zip(names, own, strict=True))
        yield f"by runtime: {cell}, p99: {', '.join(p99s)}"
    else:
        yield f"{'by runtime':17} " + " ".join(f"{it:>9}" for it in RUNTIME_HEAD)
        for name, row in zip(names, own, strict=True):
            quantiles = (latency(it) for it in (row.p50, row.p99, row.p99_9))
            cells = (count(row.n), count(row.failed), *quantiles)
            yield f"{name:17} " + " ".join(f"{it:>9}" for it in cells)
    ratio = next((it.ratio for it in found.ratios if it.cell == cell), None)
    if ratio is not None and (ratio.low is not None or ratio.high is not None):
        yield f"runtime: the p99 of what JVMs answer is {times(ratio)} that of native agents"
    if whole:
        yield f"collector: {collector_sentence(whole[0], found)}"


def _lift_of(lift: Interval | None) -> float:
    return (lift.low or 0.0) if lift else 0.0


def _where(analysis: Analysis) -> Iterator[str]:
    slow = analysis.slow_nodes
    if slow.windows == 0:
        return
    if not slow.named:
        yield f"slow nodes: none that all observers agree on in half of {slow.windows} windows"
    for node in slow.named[:3]:
        yield f"slow node: {node.words}"


def _over_time(analysis: Analysis) -> Iterator[str]:
    """Throughput, arrivals and changes of the shown ops that have the worst p99."""
    over_time = analysis.over_time
    if over_time is None or not over_time.rows:
        return
    found = {(row.cell, row.op): row for row in over_time.rows}
    shown = sorted(_shown(analysis), key=lambda row: -(row.p99 or 0.0))
    rows = [row for row in shown if (row.cell, row.op) in found][:OVER_TIME_ROWS]
    for summary in rows:
        row, words = found[summary.cell, summary.op], []
        if row.throughput is not None:
            varies = row.throughput.variation
            words.append(
                f"{row.throughput.mean.estimate:.4g} replies/s, seconds vary by "
                f"{percent(varies.estimate)}{_between(varies, percent)}"
            )
        if row.dispersion is not None and row.dispersion.index.estimate is not None:
            index = row.dispersion.index
            words.append(
                f"arrivals have I = {index.estimate:.2g}{_between(index, '{:.2g}'.format)}"
            )
        if row.changes is not None and not row.changes.abstained:
            points = len(row.changes.points)
            words.append(
                f"the p99 moved {'once' if points == 1 else f'{points} times'}"
                if points
                else "the p99 kept its level"
            )
        if words:
            yield f"over time: {_label(analysis, summary)}: " + "; ".join(words)


def _between(interval: Interval, write: Callable[[float], str]) -> str:
    if interval.low is None or interval.high is None or interval.low == interval.high:
        return ""
    return f" [{write(interval.low)}, {write(interval.high)}]"


def _slow(analysis: Analysis) -> Iterator[str]:
    """What made the slow requests slow, of the op with the worst p99."""
    rows = analysis.causes.rows if analysis.causes else ()
    found = {(row.cell, row.op): row for row in rows if row.causes}
    shown = sorted(analysis.cells, key=lambda row: -(row.p99 or 0.0))
    for summary in shown:
        row = found.get((summary.cell, summary.op))
        if row is not None and row.unknown is not None:
            top, unknown = row.causes[0], row.unknown.estimate
            left = f"; {percent(unknown)} is unknown" if unknown else ""
            yield (
                f"slow: {percent(top.explained.estimate)} of the slow requests of "
                f"{_label(analysis, summary)} {top.words}{left}"
            )
            return


def _why(analysis: Analysis) -> Iterator[str]:
    found = [finding for finding in analysis.findings if finding.code == "correlate"]
    for finding in found:
        yield f"why: {finding.text}"
    if not found and analysis.correlations.rows:
        yield "why: no metric of the receivers goes with latency beyond chance"


def _findings(analysis: Analysis) -> Iterator[str]:
    rest = [f for f in analysis.findings if f.code not in SHOWN_ELSEWHERE]
    rest.sort(key=lambda f: ("spoils", "warns", "informs").index(f.severity))
    for finding in rest[:FINDINGS_MAX]:
        yield f"{MARKS[finding.severity]} {finding.code}: {finding.title}"
    if len(rest) > FINDINGS_MAX:
        yield f"   and {len(rest) - FINDINGS_MAX} more in summary.json"
    for sentence in analysis.run.missing[:2]:
        yield f" ! missing: {sentence}"


def _next(analysis: Analysis) -> Iterator[str]:
    step = _step(analysis.findings)
    if step:
        yield f"next: {step}"


def _step(findings: list[Finding]) -> str:
    """The suggestion of the gravest finding; a warning that is answered in a run comes first."""
    for severity in ("spoils", "warns"):
        for finding in findings:
            if finding.severity == severity:
                return finding.suggestion
    for finding in findings:
        if finding.section == "help":
            return finding.suggestion
    return "look at the pictures: `unruly report DIR`"


def _fit(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    indent = " " * (line.find(": ") + 2 if 0 <= line.find(": ") < 24 else 3)
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=True, drop_whitespace=True
    )


def _coloured(line: str) -> str:
    if line.startswith("unruly verdict"):
        return f"{BOLD}{line}{PLAIN}"
    if line.startswith("trust: DO NOT"):
        return f"{COLOURS['spoils']}{line}{PLAIN}"
    for severity, mark in MARKS.items():
        if mark.strip() and line.startswith(f"{mark} "):
            return f"{COLOURS[severity]}{line}{PLAIN}"
    return line
