"""The section on streams: a table of protocols and loads, the hypotheses, a sentence for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.drawing import format
from unruly.drawing.document import Datum, Part, Table, number, table, text
from unruly.drawing.tables import MOST_ROWS, UNSAID, cut
from unruly.quantity import duration, percent, size
from unruly.topics.streams.figures import bandwidth, kept, processors
from unruly.topics.streams.figures_time import distributions, over_time, resources
from unruly.topics.streams.load import OFF_MOST
from unruly.topics.streams.model import streams_of
from unruly.topics.streams.words import (
    between,
    cores,
    hypothesis_sentence,
    megabits,
    protocol_sentences,
)

if TYPE_CHECKING:
    from unruly.drawing.view import View
    from unruly.topics.streams.model import End, Stream

HEADING = "What does each protocol give, and how much of it is left under a load?"


def streams(view: View) -> Part:
    """Return the section; empty for a run without streams."""
    found = streams_of(view.analysis)
    if found is None:
        return Part()
    told = tuple(
        f"{format.capital(hypothesis_sentence(it))}. {format.capital(it.paper)}."
        for it in found.hypotheses
    )
    note = (f"{format.capital(found.note)}.",) if found.note else ()
    figures = (
        bandwidth(view), kept(view), processors(view), distributions(view), over_time(view),
        resources(view),
    )  # fmt: skip
    return Part(
        lead=(*note, *told),
        figures=tuple(figure for figure in figures if figure is not None),
        tables=tuple(it for it in (cells(view), sentences(view)) if it.rows),
        closed_tables=tuple(
            it for it in (costs(view), loads(view), compared(view), account(view)) if it.rows
        ),
    )


def cells(view: View) -> Table:
    """Return a row for each cell: what it gave, and its verdict."""
    rows = held.rows if (held := streams_of(view.analysis)) else ()
    columns = (
        "protocol", "load", "verdict", "Mbit/s", "of unloaded", "varies", "lost", "CPU writer",
        "CPU reader", "p99 of a message",
    )  # fmt: skip
    note = (
        "Bandwidth at the reader; in brackets intervals (95 %). Lost: of all messages. CPU in "
        "cores. In doubt: the competing load was more than 2 points off its target, or nobody "
        "knows what it used."
    )
    body = [_cell(row) for row in rows[:MOST_ROWS]]
    return table(columns, body, "Protocols beside their loads", f"{note} {cut(rows, 'cells')}")


def _cell(row: Stream) -> list[Datum]:
    found, share = row.bandwidth_bps, row.of_unloaded
    mean = _dash(megabits(found.estimate if found else None))
    left = _dash(percent(share.estimate if share else None))
    varies = _dash(percent(row.variation.estimate if row.variation else None))
    doubt = ", in doubt" if row.in_doubt else ""
    return [
        text(row.name),
        text(row.load),
        Datum(f"{row.verdict}{doubt}", number=False, strong=row.verdict in ("failed", "unstable")),
        number(mean + between(found, megabits), row.absent.get("bandwidth_bps", UNSAID),
               strong=True),
        number(left + between(share, percent), row.absent.get("of_unloaded", UNSAID)),
        number(varies, row.absent.get("variation", UNSAID)),
        number(_dash(percent(row.loss_share)), row.absent.get("loss_share", UNSAID)),
        *(_cores(end) for end in (row.writer, row.reader)),
        number(_dash(duration(row.p99_ns)), row.absent.get("p99_ns", UNSAID)),
    ]  # fmt: skip


def _cores(end: End) -> Datum:
    used = end.cpu_cores.estimate if end.cpu_cores else None
    return number(_dash(cores(used)), end.absent.get("cpu_cores", UNSAID), strong=end.bound)


def _dash(words: str) -> str:
    return format.DASH if words == "-" else words


def sentences(view: View) -> Table:
    """Return a sentence for each protocol."""
    rows = held.rows if (held := streams_of(view.analysis)) else ()
    body = []
    for sentence in protocol_sentences(rows)[:MOST_ROWS]:
        name, _, words = sentence.partition(": ")
        body.append([Datum(name, number=False, strong=True), text(f"{words}.")])
    return table(("protocol", "in a sentence"), body, "Each protocol in a sentence")


def costs(view: View) -> Table:
    """Return what each end cost: CPU for a message, memory and its growth."""
    rows = held.rows if (held := streams_of(view.analysis)) else ()
    columns = (
        "protocol", "load", "end", "cores", "could use of one", "CPU for a message", "memory",
        "grew by", "grew each second",
    )  # fmt: skip
    body = [
        [
            text(row.name),
            text(row.load),
            text(end.name or side),
            *_cost(end),
        ]
        for row in rows[: MOST_ROWS // 2]
        for side, end in (("writer", row.writer), ("reader", row.reader))
    ]
    note = "Memory: the most that the process held; its growth in the repeat in which it grew most."
    return table(columns, body, "What both ends cost", f"{note} {cut(rows, 'cells')}")


def _cost(end: End) -> list[Datum]:
    each, rate = end.cpu_per_message_ns, end.grown_bytes_hz
    used = end.cpu_cores
    grown = end.absent.get("grown_bytes", UNSAID)
    return [
        number(_dash(cores(used.estimate if used else None)) + between(used, cores),
               end.absent.get("cpu_cores", UNSAID), strong=end.bound),
        number(cores(end.room_cores)),
        number(_dash(duration(each.estimate if each else None)) + between(each, duration),
               end.absent.get("cpu_per_message_ns", UNSAID)),
        number(_dash(size(end.rss_bytes_max)), end.absent.get("rss_bytes_max", UNSAID)),
        number(_dash(size(end.grown_bytes)), grown),
        number(_dash(size(rate.estimate if rate else None)) + between(rate, size),
               grown, strong=end.grows),
    ]  # fmt: skip


def loads(view: View) -> Table:
    """Return whether the competing load held its target, on each host."""
    rows = held.rows if (held := streams_of(view.analysis)) else ()
    known = [row for row in rows if row.load != "none"]
    body = []
    for row in known[:MOST_ROWS]:
        name = [text(row.name), text(row.load)]
        if not row.held:
            why = row.absent.get("held", UNSAID)
            body.append([*name, text(""), *(number(format.DASH, why) for _ in range(3)), text("")])
        body += [
            [
                *name, text(it.host), number(percent(it.target)), number(percent(it.occupancy)),
                number(percent(it.farthest)),
                Datum("yes" if abs(it.off) <= OFF_MOST else "no", number=False, strong=True),
            ]
            for it in row.held
        ]  # fmt: skip
    columns = ("protocol", "load", "host", "target", "used", "farthest repeat", "held")
    note = "Shares of the cores that it is kept on, over the measured time; held: within 2 points."
    return table(columns, body, "Did the load hold its target?", f"{note} {cut(known, 'cells')}")


def compared(view: View) -> Table:
    """Return what each protocol says of each hypothesis."""
    found = held.hypotheses if (held := streams_of(view.analysis)) else ()
    body = [
        [
            text(it.load), text(row.name),
            number(_dash(percent(row.keeps.estimate if row.keeps else None))
                   + between(row.keeps, percent), UNSAID),
            text(row.reference or format.DASH),
            number(
                format.DASH if row.relative is None else format.times(row.relative.estimate)
                + between(row.relative, "{:.2g}".format),
                "no kernel TCP to compare it with, or it is one",
            ),
            text(row.said),
        ]
        for it in found
        for row in it.rows
    ]  # fmt: skip
    columns = ("load", "protocol", "keeps", "compared with", "over what that keeps", "the claim is")
    note = "Intervals are simultaneous: all of a hypothesis are right together in 95 of 100 runs."
    return table(columns, body, "The hypotheses, protocol by protocol", note)


def account(view: View) -> Table:
    """Return the account of each leg's messages."""
    found = streams_of(view.analysis)
    legs = found.legs if found else ()
    labels = {row.cell: row.label for row in (found.rows if found else ())}
    body = [
        [
            text(labels.get(leg.cell, leg.cell)), number(format.count(leg.repeat)),
            *(number(format.count(it)) for it in (
                leg.written, leg.read, leg.lost, leg.duplicated, leg.reordered)),
            number(format.count(leg.unaccounted), strong=leg.unaccounted != 0),
            number(f"{leg.silent_seconds} s"),
            text("; ".join((*leg.failed, *leg.broken)) or "as it should"),
        ]
        for leg in legs[:MOST_ROWS]
    ]  # fmt: skip
    columns = (
        "stream", "repeat", "written", "came", "lost", "twice", "out of order", "unaccounted",
        "longest silence", "ended",
    )  # fmt: skip
    note = "Messages from the first to the last, the warm-up included."
    return table(columns, body, "Every message accounted for", f"{note} {cut(legs, 'legs')}")
