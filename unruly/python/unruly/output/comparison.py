"""What a comparison says: a table of quantiles with their ratios, a sentence, JSON for programs."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from unruly.base.plain import plain
from unruly.quantity import duration, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.comparison import Compared, Comparison, Moved

FINE_EXIT, FINDING_EXIT = 0, 1
MARKS: Final = {
    "slower": "!! slower",
    "faster": "   faster",
    "not shown": "   -",
    "undecided": " ? undecided",
}
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
NAME_MAX: Final = 24


@dataclass(frozen=True)
class ComparisonDocument:
    """What ``unruly compare --json`` prints, beside the fields of `Comparison`.

    Latencies are in nanoseconds, ratios are B over A. Readers ignore keys that they do not know.
    """

    schema: Literal[1]
    different: bool


def exit_code(comparison: Comparison) -> int:
    """Return 1 when a difference was found, else 0."""
    return FINDING_EXIT if comparison.different else FINE_EXIT


def compare_text(comparison: Comparison, *, width: int = 100, colour: bool = False) -> str:
    """Return a block of lines for each thing that was compared."""
    lines = [
        line
        for result in comparison.results
        for line in _block(result, comparison, max(60, width), colour=colour)
    ]
    lines += [f"left out: {sentence}" for sentence in comparison.left_out]
    return "\n".join(lines)


def _block(result: Compared, comparison: Comparison, width: int, *, colour: bool) -> Iterator[str]:
    about = ", ".join(part for part in (result.cell, result.op, comparison.latency) if part)
    head = f"{result.b} against {result.a}: {about} [{result.design}]"
    yield f"{BOLD}{head}{PLAIN}" if colour else head
    a, b = result.a[:NAME_MAX], result.b[:NAME_MAX]
    size = max(10, len(a), len(b))
    if result.moved:
        yield f"  {'':7}{a:>{size}} {b:>{size}}   {'ratio':>6}   {'interval':<16} outcome"
    for it in result.moved:
        yield f"  {it.quantile:7}{_value(it.a):>{size}} {_value(it.b):>{size}}   {_row(it)}"
    shares = [found.estimate or 0.0 for found in (result.failed_a, result.failed_b)]
    if any(shares):
        yield f"  {'failed':7}{percent(shares[0]):>{size}} {percent(shares[1]):>{size}}"
    p_value = f" (p = {result.p_value:.2g})" if result.p_value is not None else ""
    said = f"{result.outcome}{p_value}: {result.sentence}"
    yield from textwrap.wrap(said, width, subsequent_indent="  ")
    yield from textwrap.wrap(f"next: {result.next_step}", width, subsequent_indent="  ")
    yield ""


def _value(value: float | None) -> str:
    return "-" if value is None else duration(value)


def _row(it: Moved) -> str:
    ratio = it.ratio
    low = "?" if ratio.low is None else f"{ratio.low:.3g}"
    high = "?" if ratio.high is None else f"{ratio.high:.3g}"
    return f"{ratio.estimate or 0:>6.3g}   {f'[{low}, {high}]':<16} {MARKS[it.outcome].strip()}"


def compare_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON, valid against unruly/schema/comparison.schema.json."""
    found: dict[str, Any] = plain(ComparisonDocument(1, comparison.different))
    found |= plain(comparison)
    return found
