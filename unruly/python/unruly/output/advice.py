"""What ``unruly advise`` prints: one screen of sentences, or all of it as JSON."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from unruly.base.plain import plain
from unruly.base.words import named
from unruly.quantity import duration, percent
from unruly.stats import SlaTable
from unruly.topics.advice.words import by_reason, steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from unruly.topics.advice.model import Advice, Part

SCHEMA: Final = 1
LINES_MAX: Final = 40
SHOWN: Final = (2, 1)
"""Sentences of a part: two, or one when the screen is full."""
BOLD, RED, PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"


@dataclass(frozen=True)
class Agreement(SlaTable):
    """Steps: a request that took at most ``at_most_ns[i]`` pays ``pays[i]``; beyond, the last."""

    words: str


@dataclass(frozen=True)
class AdviceDocument:
    """What ``unruly advise --json`` says of a run.

    Times are in nanoseconds. Each part has a row for each (cell, op) that the run supports; why
    others have none stands in ``absent``. Readers ignore keys that they do not know.
    """

    schema: Literal[1]
    sla: Agreement
    sentences: list[str]


def advise_text(
    advice: Advice, doubts: Sequence[str] = (), *, width: int = 100, colour: bool = False
) -> str:
    """Return the advice as text of at most 40 lines.

    Parameters
    ----------
    advice : Advice
        As `unruly.advise` gives it.
    doubts : sequence of str
        Why the run cannot be trusted, when it cannot.
    width : int
        Columns; at least 60.
    colour : bool
        With escape codes, for a terminal.
    """
    lines: list[str] = []
    for shown in SHOWN:
        lines = list(_lines(advice, doubts, max(60, width), shown, colour=colour))
        if len(lines) <= LINES_MAX:
            return "\n".join(lines)
    rest = len(lines) - LINES_MAX + 1
    return "\n".join(
        [*lines[: LINES_MAX - 1], f"... {rest} more lines: see --json, -o advice.html"]
    )


def _lines(
    advice: Advice, doubts: Sequence[str], width: int, shown: int, *, colour: bool
) -> Iterator[str]:
    def bold(line: str) -> str:
        return f"{BOLD}{line}{PLAIN}" if colour else line

    tag = f" [{advice.tag}]" if advice.tag else ""
    yield bold(f"unruly advise: {advice.name}{tag}, {_settings(advice)}")
    if doubts:
        warning = "DO NOT TRUST THIS RUN, nor what follows: " + "; ".join(doubts)
        yield from (f"{RED}{line}{PLAIN}" if colour else line for line in _wrap(warning, width, 0))
    for asked, reason in advice.left_out.items():
        yield from _wrap(f"T = {asked} is left out: {reason}", width, 0)
    for part in parts_of(advice):
        yield bold(part.title or part.name)
        sentences = [row.sentence for row in _most_telling(part)]
        if part.name == "profit":
            sentences = [peak.sentence for peak in advice.peaks] + sentences
        for sentence in sentences[:shown]:
            yield from _wrap(sentence, width, 2)
        if len(sentences) > shown:
            yield f"  (and {len(sentences) - shown} more: --json, or -o advice.html)"
        for reason, who in by_reason(part.absent).items():
            yield from _wrap(f"nothing for {named(who)}: {reason}", width, 2)


def _settings(advice: Advice) -> str:
    if not advice.timeouts_ns:
        return f"f = {advice.faults}"
    low, high = duration(advice.timeouts_ns[0]), duration(advice.timeouts_ns[-1])
    windows = percent(advice.confidence)
    return f"f = {advice.faults}, in {windows} of the windows, T from {low} to {high}"


def _wrap(text: str, width: int, indent: int) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2)
    )


def parts_of(advice: Advice) -> tuple[Part[Any], ...]:
    """Return the parts in their order."""
    return advice.detection, advice.replicas, advice.xft, advice.profit, advice.hedge


def _most_telling(part: Part[Any]) -> list[Any]:
    """What needs the longest time first: the op that decides."""
    return sorted(part.rows, key=lambda row: -(getattr(row, "chosen_ns", None) or 0.0))


def advice_json(advice: Advice) -> dict[str, Any]:
    """Return the advice as plain JSON values, valid against ``unruly/schema/advice.schema.json``.

    Infinite nines and bounds that do not exist are null. Keys of quantiles read ``p50``, ``p99``.
    """
    sla = Agreement(advice.sla.at_most_ns, advice.sla.pays, steps(advice.sla))
    document: dict[str, Any] = plain(AdviceDocument(SCHEMA, sla, advice.sentences))
    found: dict[str, Any] = document | plain(advice, _key) | document
    return found


def _key(name: Any) -> str:
    return f"p{100 * name:g}" if isinstance(name, float) else str(name)
