"""The screen of a run of streams: a table of protocols and loads, then the hypotheses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.findings.stream_model import VERDICTS
from unruly.findings.stream_words import between, cores, hypothesis_line, megabits
from unruly.findings.words import latency, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.findings.stream_model import Stream, Streams

ROWS_MOST: Final = 20
"""Of a screen of forty lines, with what stands above and below the table."""
TOLD_MOST: Final = 2
HEAD: Final = (
    "Mbit/s", "of unloaded", "varies", "lost", "writer", "reader", "p99",
)  # fmt: skip


def stream_lines(streams: Streams, width: int) -> Iterator[str]:
    """Return a row for each cell, and a sentence for each hypothesis.

    Where there is room the interval stands beside the mean and beside the share of the unloaded.
    """
    rows = shown(streams)
    wide = max([8, *(len(_label(row)) for row in rows)])
    last = max((len(_word(row)) for row in rows), default=0)
    # what does not fit loses its intervals, that of the mean first
    for told in ("mean and share", "share", ""):
        table = [HEAD, *(_fields(row, told) for row in rows)]
        sizes = [max(len(line[place]) for line in table) for place in range(len(HEAD))]
        if wide + sum(sizes) + 2 * (len(sizes) + 1) + last <= width:
            break
    words = ["", *(_word(row) for row in rows)]
    for label, line, word in zip(["", *(_label(row) for row in rows)], table, words, strict=True):
        fields = "  ".join(f"{field:>{size}}" for field, size in zip(line, sizes, strict=True))
        yield f"{label:{wide}}  {fields}  {word}".rstrip()
    if len(streams.rows) > len(rows):
        yield f"({len(rows)} of {len(streams.rows)}, the gravest first; all are in summary.json)"
    if streams.note:
        yield streams.note
    if any(row.in_doubt for row in rows):
        yield "(?: its competing load did not hold its target)"
    yield from _gravest(streams)
    for found in streams.hypotheses:
        yield f"hypothesis: {hypothesis_line(found)}"


def _gravest(streams: Streams) -> Iterator[str]:
    """Why those that failed or do not last did so."""
    for verdict in VERDICTS[:2]:
        rows = [row for row in streams.rows if row.verdict == verdict]
        told = [f"{_label(row)} ({_why(row)})" for row in rows[:TOLD_MOST]]
        rest = f" and {len(rows) - TOLD_MOST} more" if len(rows) > TOLD_MOST else ""
        if told:
            yield f"{verdict}: {'; '.join(told)}{rest}"


def shown(streams: Streams) -> list[Stream]:
    """Return the cells that stand on the screen: all when few, else the gravest."""
    rows = list(streams.rows)
    if len(rows) <= ROWS_MOST:
        return rows
    return sorted(rows, key=_gravity)[:ROWS_MOST]


def _gravity(row: Stream) -> tuple[int, float]:
    kept = row.of_unloaded.estimate if row.of_unloaded else None
    return VERDICTS.index(row.verdict), 1.0 if kept is None else kept


def _fields(row: Stream, told: str) -> tuple[str, ...]:
    found, kept = row.bandwidth_bps, row.of_unloaded
    mean, left = megabits(found.estimate if found else None), "-"
    if kept is not None:
        left = percent(kept.estimate)
    mean += between(found, megabits) if "mean" in told else ""
    left += between(kept, _bare) if "share" in told else ""
    return (
        mean,
        left,
        percent(row.variation.estimate if row.variation else None),
        percent(row.loss_share),
        *(
            cores(end.cpu_cores.estimate if end.cpu_cores else None)
            for end in (row.writer, row.reader)
        ),
        latency(row.p99_ns),
    )


def _bare(share: float) -> str:
    return percent(share).removesuffix(" %")


def _label(row: Stream) -> str:
    """The same as its label, in fewer letters."""
    return row.label.replace(" beside ", " + ", 1)


def _why(row: Stream) -> str:
    return row.reasons[0].removeprefix("stream failed: ").split("; hint", maxsplit=1)[0]


def _word(row: Stream) -> str:
    word = {"link saturated": "link full", "bound by one core": "one core"}.get(
        row.verdict, row.verdict
    )
    return f"{word}{'?' if row.in_doubt else ''}"
