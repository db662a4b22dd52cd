"""One screen: did it work, trust, promise, slow because, what next; details after that."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Final

from unruly.base.promise import SPOILED
from unruly.base.promise_words import promise_words
from unruly.base.statuses import statuses_sentence
from unruly.base.worked import failure_step
from unruly.output.verdict_details import details
from unruly.output.verdict_details import label as _label
from unruly.output.verdict_details import shown as _shown
from unruly.quantity import count, duration
from unruly.topics.causes.because import because
from unruly.topics.stores.statistics import stores_of
from unruly.topics.stores.words import target_sentence
from unruly.topics.streams.lines import stream_lines
from unruly.topics.streams.model import streams_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis
    from unruly.base.model import Finding

LINES_MAX: Final = 40
WIDTH_LEAST: Final = 60
OUTAGES_MAX: Final = 2
PROMISES_MAX: Final = 4
COLOURS: Final = {"spoils": "\x1b[31m", "warns": "\x1b[33m"}
BOLD: Final = "\x1b[1m"
PLAIN: Final = "\x1b[0m"
INDENT_MOST: Final = 24
GLUE: Final = "\u00a0"
UNIT: Final = re.compile(r"(\d) (%|×|[nµm]?s\b|min\b|h\b|d\b)")
"""A number and its unit stay on one line."""
REST: Final = "more lines: see report.html, summary.json"


def verdict(analysis: Analysis, *, width: int = 100, colour: bool = False) -> str:
    """Return the verdict as text of at most 40 lines.

    Conclusions come first, in the order of a reader's questions: did it work, can it be trusted,
    what can be promised, why were slow requests slow, what next. Details follow. Only details are
    cut when there are more than 40 lines.

    Parameters
    ----------
    analysis : Analysis
        As `unruly.analyse` gives it.
    width : int
        Columns; at least 60.
    colour : bool
        With escape codes, for a terminal.
    """
    width = max(WIDTH_LEAST, width)
    lines = [(line, red) for it, red in _conclusions(analysis) for line in _fit(it, width)]
    rest: list[str] = []
    streams = streams_of(analysis)
    tables = [] if streams is None else ["", *stream_lines(streams, width)]
    for line in [*tables, *details(analysis, width)]:
        rest += _fit(line, width)
    room = LINES_MAX - len(lines)
    if len(rest) > room:
        rest = [*rest[: room - 1], f"... {len(rest) - room + 1} {REST}"]
    shown = [*lines, *((line, _colour_of(line)) for line in rest)]
    if not colour:
        return "\n".join(line for line, _ in shown)
    return "\n".join(f"{code}{line}{PLAIN}" if code else line for line, code in shown)


def _conclusions(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Yield each line with its colour; outages come first."""
    worked, red = analysis.worked, COLOURS["spoils"]
    if not worked.ok:
        worst = sorted(worked.outages, key=lambda it: -it.failed)[:OUTAGES_MAX]
        for outage in worst:
            yield outage.words, red
    yield _header(analysis), BOLD
    for line in _measured(analysis):
        yield line, ""
    yield "", ""
    if worked.requests or analysis.measured_ns:
        yield f"worked: {_lower(worked.sentence)}", "" if worked.ok else red
    if analysis.statuses:
        yield _codes(analysis), ""
    yield _trust(analysis), "" if analysis.trustworthy else red
    if analysis.cells:
        for line in _promises(analysis):
            yield line, ""
    stores = stores_of(analysis)
    if stores is not None and stores.tails and stores.target.asked:
        yield f"target: {target_sentence(stores, lambda row: _label(analysis, row))}", ""
    why = because(analysis)
    if why is not None:
        yield f"slow because: {why}", ""
    yield f"next: {next_step(analysis)}", ""


def _header(analysis: Analysis) -> str:
    run = analysis.run
    tag = f" [{run.tag}]" if run.tag else ""
    cells = len({row.cell for row in analysis.cells})
    binned = sum(
        row.n
        for row in analysis.cells
        if row.kept == "histogram" and row.latency == "response" and row.op != "*"
    )
    rows = analysis.conservation.rows
    streams = streams_of(analysis)
    length = f"{duration(analysis.measured_ns)} measured"
    parts = [
        f"{run.name}{tag}",
        run.status,
        "" if _timeless(analysis) or (binned and not analysis.measured_ns) else length,
        f"{count(rows)} rows" if rows or not (binned or streams) else "",
        f"{count(binned)} values in histograms" if binned else "",
        f"{analysis.processes} processes" if analysis.processes else "",
    ]
    if cells > 1:
        parts.append(f"{cells} cells")
    return "unruly verdict: " + ", ".join(part for part in parts if part)


def _measured(analysis: Analysis) -> Iterator[str]:
    """What was measured, and the command that repeats it."""
    run = analysis.run
    if run.target:
        yield f"measured: {run.target}"
    if run.command:
        yield f"repeat: {shlex.join(run.command)}"


def _timeless(analysis: Analysis) -> bool:
    """All times are made up: their sum is no length of anything."""
    cells = {row.cell for row in analysis.cells}
    return bool(cells) and cells <= analysis.run.timeless


def _trust(analysis: Analysis) -> str:
    if not analysis.trustworthy:
        return "trust: DO NOT TRUST THIS RUN: " + "; ".join(analysis.doubts)
    if not analysis.cells:
        # nothing was counted but what flowed
        return "trust: yes, nothing spoils this run"
    checked = (
        "every request is accounted for"
        if analysis.conservation.checked
        else "its source is trusted for what it counted"
        if analysis.run.status == "imported"
        else analysis.conservation.sentence
    )
    return f"trust: yes, nothing spoils this run; {checked}"


def _codes(analysis: Analysis) -> str:
    connections = analysis.connections.sentence if analysis.connections else ""
    parts = [statuses_sentence(analysis.statuses), connections]
    return "status codes: " + "; ".join(part for part in parts if part)


def _promises(analysis: Analysis) -> Iterator[str]:
    if not analysis.trustworthy:
        yield f"promise: none: {SPOILED}"
        return
    shown = _shown(analysis)
    rows = [row for row in analysis.cells if row.latency == "response" and row.op != "*"]
    if len(rows) > (1 if streams_of(analysis) else len(shown)):
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
            f"not seen: anything that happens less often than every {duration(min(timed))}"
            if timed
            else "this holds if the order of the rows is that of time"
        )


def next_step(analysis: Analysis) -> str:
    """Return the first step to take: against failures, else spoiling findings, else warnings."""
    if not analysis.worked.ok and analysis.worked.failed:
        return failure_step(analysis.worked)
    return _step(analysis.findings) or _longer(analysis)


def _longer(analysis: Analysis) -> str:
    """Nothing went wrong: what a longer run would add, or what this one is good for."""
    for row in _shown(analysis):
        step = row.ladder.next
        if step is not None and step.needed_ns is not None:
            least = "at least " if step.drifted else ""
            return f"To promise the {step.name}, run {least}{duration(step.needed_ns)}."
    return "Compare the next change with this run: `unruly report before=DIR after=DIR`."


def _step(findings: list[Finding]) -> str | None:
    """The suggestion of the gravest finding; a warning comes before an improvement."""
    for severity in ("spoils", "warns"):
        for finding in findings:
            if finding.severity == severity:
                return finding.suggestion
    for finding in findings:
        if finding.section == "help":
            return finding.suggestion
    return None


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _fit(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    indent = " " * (line.find(": ") + 2 if 0 <= line.find(": ") < INDENT_MOST else 3)
    wrapped = textwrap.wrap(
        UNIT.sub(rf"\1{GLUE}\2", line), width, subsequent_indent=indent, break_long_words=True
    )
    return [it.replace(GLUE, " ") for it in wrapped]


def _colour_of(line: str) -> str:
    return COLOURS["warns"] if line.startswith(" ! ") else ""
