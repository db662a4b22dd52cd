"""The screen of a run of streams: a table of protocols and loads, then the hypotheses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.quantity import duration, percent
from unruly.topics.streams.model import NONE, VERDICTS
from unruly.topics.streams.words import between, cores, hypothesis_line, megabits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from unruly.topics.streams.model import Stream, Streams

ROWS_MOST: Final = 20
"""Most rows, so that the table fits on a screen of forty lines with the text around it."""
TOLD_MOST: Final = 2
HEAD: Final = (
    "Mbit/s", "of unloaded", "varies", "lost", "writer", "reader", "p99",
)  # fmt: skip


def stream_lines(streams: Streams, width: int) -> Iterator[str]:
    """Return a row for each cell, and a sentence for each hypothesis.

    If the width allows, the mean and the share of the unloaded have their intervals. If there are
    more than `ROWS_MOST` cells, each protocol has one row, with its loads side by side.
    """
    rows = streams.rows
    yield from _cells(rows, width) if len(rows) <= ROWS_MOST else _protocols(rows)
    if streams.note:
        yield streams.note
    if any(row.in_doubt for row in rows):
        yield "(?: its competing load did not hold its target, or nobody knows)"
    yield from _gravest(streams)
    for found in streams.hypotheses:
        yield f"hypothesis: {hypothesis_line(found)}"


def _cells(rows: Sequence[Stream], width: int) -> Iterator[str]:
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


def _protocols(rows: Sequence[Stream]) -> Iterator[str]:
    """Each protocol, those first that keep least: Mbit/s, % of the unloaded, verdict by load."""
    by_name: dict[str, dict[str, Stream]] = {}
    for row in rows:
        by_name.setdefault(row.name, {})[row.load] = row
    loads = list(dict.fromkeys(row.load for row in rows))
    kept = {name: min(map(_left, own.values())) for name, own in by_name.items()}
    names = sorted(by_name, key=lambda name: kept[name])[:ROWS_MOST]
    wide = max(len(name) for name in names)
    size = 22
    yield f"{'Mbit/s, of unloaded':{wide}}  " + "  ".join(
        f"{'no load' if load == NONE else f'beside {load}':{size}}" for load in loads
    )
    for name in names:
        parts = "  ".join(f"{_part(by_name[name].get(load)):{size}}" for load in loads)
        yield f"{name:{wide}}  {parts}".rstrip()
    if len(by_name) > len(names):
        yield f"({len(names)} of {len(by_name)}, who keeps least first; all are in summary.json)"


def _left(row: Stream) -> float:
    return 1.0 if row.of_unloaded is None else row.of_unloaded.estimate or 0.0


def _part(row: Stream | None) -> str:
    if row is None:
        return ""
    mean = megabits(row.bandwidth_bps.estimate if row.bandwidth_bps else None)
    share = "" if row.of_unloaded is None else f"{100 * _left(row):>3.0f}% "
    return f"{mean:>5} {share}{_word(row)}"


def _gravest(streams: Streams) -> Iterator[str]:
    """Why those that failed or do not last did so."""
    for verdict in VERDICTS[:2]:
        rows = [row for row in streams.rows if row.verdict == verdict]
        told = [f"{_label(row)} ({_why(row)})" for row in rows[:TOLD_MOST]]
        rest = f" and {len(rows) - TOLD_MOST} more" if len(rows) > TOLD_MOST else ""
        if told:
            yield f"{verdict}: {'; '.join(told)}{rest}"


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
        duration(row.p99_ns),
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
