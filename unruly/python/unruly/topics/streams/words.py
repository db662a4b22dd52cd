"""Streams in words: bandwidths, cores, bytes, and a sentence for each protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.quantity import bandwidth, count, percent, significant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from unruly.stats import Interval
    from unruly.topics.streams.model import Hypothesis, Stream

DECADES: Final = 100.0


def megabits(bps: float | None) -> str:
    """Write a bandwidth in Mbit/s without its unit, for a column.

    Examples
    --------
    >>> megabits(957.6e6), megabits(4.2e6), megabits(None)
    ('958', '4.2', '–')
    """
    return significant(None if bps is None else bps / 1e6)


def cores(used: float | None) -> str:
    """Write a number of cores.

    Examples
    --------
    >>> cores(0.987), cores(0.0123), cores(None)
    ('0.99', '0.012', '–')
    """
    return significant(used, 2)


def between(interval: Interval | None, write: Callable[[float], str]) -> str:
    """Write the bounds of an interval in brackets; nothing where there are none, or no two.

    One over more than two decades is written as a question mark: it says nothing.

    Examples
    --------
    >>> from unruly.stats import Interval
    >>> found, wide = (Interval(0.4, *it, 0.95, 3, 3.0, "") for it in ((0.35, 0.5), (1e-4, 90.0)))
    >>> between(found, percent), between(wide, percent)
    (' [35 %, 50 %]', ' [?]')
    """
    if interval is None or interval.low is None or interval.high is None:
        return ""
    if interval.low > 0 and interval.high / interval.low > DECADES:
        return " [?]"
    low, high = write(interval.low), write(interval.high)
    return "" if low == high else f" [{low}, {high}]"


def protocol_sentences(rows: Sequence[Stream]) -> list[str]:
    """Return a sentence for each protocol, over its loads."""
    by_protocol: dict[tuple[str, str], list[Stream]] = {}
    for row in rows:
        by_protocol.setdefault((row.protocol, row.series), []).append(row)
    return [_sentence(own) for own in by_protocol.values()]


def _sentence(own: Sequence[Stream]) -> str:
    first = own[0]
    name = f"{first.protocol}{f' ({first.series})' if first.series else ''}"
    return f"{name}: " + "; ".join(_beside(row) for row in own)


def _beside(row: Stream) -> str:
    where = "unloaded" if row.load == "none" else f"beside the {row.load} load"
    if row.bandwidth_bps is None:
        why = row.reasons[0] if row.reasons else row.absent.get("bandwidth_bps", "")
        what = row.verdict if row.verdict == "failed" else "has no bandwidth"
        return f"{where} it {what} ({why})"
    found = row.bandwidth_bps
    words = [f"{where} {bandwidth(found.estimate)}{between(found, bandwidth)}"]
    if row.of_unloaded is not None:
        kept = row.of_unloaded
        words.append(f"{percent(kept.estimate)}{between(kept, percent)} of the unloaded")
    if row.variation is not None:
        words.append(f"seconds vary by {percent(row.variation.estimate)}")
    if row.loss_share:
        words.append(f"{percent(row.loss_share)} lost")
    doubt = ", in doubt: its load did not hold, or nobody knows" if row.in_doubt else ""
    why = f" ({'; '.join(row.reasons)})" if row.reasons else ""
    return f"{', '.join(words)}: {row.verdict}{why}{doubt}"


def hypothesis_sentence(found: Hypothesis) -> str:
    """Say what became of a hypothesis in a line."""
    return f"{found.claim}: {found.outcome}; {found.text}"


def hypothesis_line(found: Hypothesis) -> str:
    """Say it in fewer words: for whom it is held, and by how much."""
    told = []
    for state in dict.fromkeys(row.said for row in found.rows):
        own = []
        for row in (it for it in found.rows if it.said == state):
            ratio = row.relative or row.keeps
            write = "{:.2g}".format if row.relative else percent
            of = " x" if row.relative else ""
            value = write(ratio.estimate) if ratio and ratio.estimate is not None else "-"
            own.append(f"{row.name} {value}{of}{between(ratio, write)}")
        told.append(f"{state} of {', '.join(own)}")
    return f"{found.claim}: {found.outcome}" + (f" ({'; '.join(told)})" if told else "")


def messages(number: int) -> str:
    """Count messages.

    Examples
    --------
    >>> messages(1), messages(1200)
    ('1 message', '1,200 messages')
    """
    return f"{count(number)} message{'' if number == 1 else 's'}"
