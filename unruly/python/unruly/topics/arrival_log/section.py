"""First, quorum and all on the same operations: the tables of an arrival log, and what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.drawing import format
from unruly.drawing.document import Datum, Part, Table, number, table, text
from unruly.drawing.tables import MOST_ROWS, cut, interval, op_name
from unruly.topics.arrival_log.figures import waits_figure
from unruly.topics.arrival_log.model import arrival_log_of

if TYPE_CHECKING:
    from unruly.drawing.view import View
    from unruly.topics.arrival_log.model import ArrivalLog, Hop, Operations, Wait

HEADING = "First, quorum and all on the same operations"
COMPARED = (
    "Every operation went to several replicas, and the arrival of every copy was noted, also after "
    "the answer. What it would have taken to wait for the first correct copy, for a majority or "
    "for all is read off the same copies: no second run was needed, and nothing is simulated."
)
LEFT_OUT_MOST = 6
NS_PER_MS = 1e6
SLOWEST_OPEN = 20
"""So many rows stand open on the page."""
STATUSES = ("ok", "behind", "stale", "refused", "lost", "wrong")
HOPS = {
    "hop_1": "1: server's kernel to server",
    "hop_2": "2: client's kernel to client",
}
EXPOSED = {"second": "the second replica", "every": "the last replica"}


def arrival_log(view: View) -> Part:
    """Return all that an arrival log says; nothing for any other run."""
    log = arrival_log_of(view.analysis)
    if log is None:
        return Part()
    if not log.rows:
        return Part(lead=(f"Left out: {log.note}.",))
    figure = waits_figure(view, log)
    slow = _slowest(view, log)
    few = len(slow.rows) <= SLOWEST_OPEN
    found = [_waits(log), _outliers(log), *([slow] if few else []), _exposures(log), _hops(log)]
    closed = [_copies(log), *([] if few else [slow])]
    return Part(
        lead=_lead(log),
        figures=(figure,) if figure else (),
        tables=tuple(it for it in found if it.rows),
        closed_tables=tuple(it for it in closed if it.rows),
    )


def _label(log: ArrivalLog, row: Operations) -> str:
    several = len({other.cell for other in log.rows}) > 1
    return f"{op_name(row.op)} ({row.cell})" if several else op_name(row.op)


def _lead(log: ArrivalLog) -> tuple[str, ...]:
    """Return sentences about the compared operations, and where most are left out."""
    rows = [row for row in log.rows if row.other_sizes + row.without_level + row.unanswered]
    rows.sort(key=lambda row: -(row.other_sizes + row.without_level + row.unanswered))
    more = [sentence for row in rows[:LEFT_OUT_MOST] for sentence in _left_out(log, row)]
    return (COMPARED, *more)


def _left_out(log: ArrivalLog, row: Operations) -> list[str]:
    name = format.quoted(_label(log, row))
    left = [
        (row.other_sizes, "asked another number of replicas"),
        (row.without_level, "waited for no level, as a hedge does"),
    ]
    said = [
        f"{name}: {format.plural(count, 'operation')} more {words}, and {_is(count)} left out."
        for count, words in left
        if count
    ]
    if row.unanswered:
        many = format.plural(row.n, "operation")
        said.append(f"{name}: {format.count(row.unanswered)} of {many} had no answer at all.")
    return said


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _waits(log: ArrivalLog) -> Table:
    columns = (
        "operation", "waits for", "operations", "never had it", "mean", "max", "others beyond it",
        "p50", "p99", "interval of the p99", "p99.9",
    )  # fmt: skip
    body = [
        [text(_label(log, row)), text(_named(wait, row)), *_times(wait)]
        for row in log.rows
        for wait in row.waits
    ]
    starred = any(wait.censored for row in log.rows for wait in row.waits)
    note = (
        "The time from an operation's scheduled time until the given number of correct copies had "
        "come, each from another replica. The 95 % interval in brackets allows for bursts. “Others "
        "beyond it” is how many of all operations may be slower than the slowest seen. "
    )
    return _table(columns, body, "Every algorithm on the same operations", note + _star(starred))


def _star(starred: bool) -> str:
    return (
        "* Only for operations that had enough correct copies: the others would still wait. "
        if starred
        else ""
    )


def _named(wait: Wait, row: Operations) -> str:
    return f"{wait.measure} ({wait.k} of {row.replicas})"


def _times(wait: Wait) -> list[Datum]:
    return [
        number(format.count(wait.n)),
        number(format.count(wait.censored)),
        _mean(wait),
        _largest(wait),
        _beyond(wait),
        _field(wait, "p50"),
        _field(wait, "p99"),
        interval(wait.p99_interval, wait.absent.get("p99_interval", "")),
        _field(wait, "p99_9"),
    ]


def _field(row: Wait | Hop, name: str) -> Datum:
    return number(format.duration(getattr(row, name)), row.absent.get(name, ""))


def _mean(wait: Wait) -> Datum:
    found = wait.mean_ok
    if found is None or found.estimate is None:
        return Datum(format.DASH, reason=wait.absent["mean_ok"])
    star = " *" if wait.censored else ""
    shown = format.duration(found.estimate) + star
    if found.low is None or found.high is None:
        return Datum(shown, reason=wait.absent["mean_ok.low"])
    return Datum(f"{shown} ({format.duration(found.low)} to {format.duration(found.high)})")


def _largest(wait: Wait) -> Datum:
    shown = format.duration(wait.max_ok)
    star = " *" if wait.censored and wait.max_ok is not None else ""
    return number(shown + star, wait.absent.get("max_ok", ""))


def _beyond(wait: Wait) -> Datum:
    found = wait.beyond_max
    if found is None or found.high is None:
        return Datum(format.DASH, reason=wait.absent.get("beyond_max", ""))
    if wait.censored:
        return Datum(
            f"{format.share(found.estimate)} ({format.share(found.low)} to "
            f"{format.share(found.high)})"
        )
    return Datum(f"at most {format.share(found.high)}")


def _outliers(log: ArrivalLog) -> Table:
    body = []
    for row in log.rows:
        found, share = row.outliers, row.outliers.share
        spread = (
            Datum(
                f"{format.share(share.estimate)} ({format.share(share.low)} to "
                f"{format.share(share.high)})"
            )
            if share is not None
            else Datum(format.DASH, reason=found.absent.get("share", ""))
        )
        body.append([
            text(_label(log, row)),
            number(format.duration(found.limit_ns), "no operation had a quorum"),
            number(format.count(row.wait("quorum").n)),
            number(format.count(found.n)),
            number(format.count(found.vanished)),
            spread,
        ])  # fmt: skip
    columns = (
        "operation", f"beyond (10 {format.TIMES} mean)", "operations", "outliers of the quorum",
        "gone at the first copy", "share",
    )  # fmt: skip
    note = (
        "An outlier took its quorum more than ten times the mean. It is gone when the first "
        "correct copy of the same operation had come by then: one fast replica would have been "
        "enough. An operation that never had a quorum has no time, and is no outlier here."
    )
    return _table(columns, body, "Outliers that the first copy would have spared", note)


def _exposures(log: ArrivalLog) -> Table:
    columns = (
        "operation", "until it is on", "answered", "never", "mean", "max", "others beyond it",
        "p50", "p99", "interval of the p99", "p99.9",
    )  # fmt: skip
    found = [(row, wait) for row in log.rows for wait in row.exposures]
    body = [
        [text(_label(log, row)), text(EXPOSED[wait.measure]), *_times(wait)] for row, wait in found
    ]
    note = (
        "The time from the answer of a write until its second correct copy, and until its last. "
        "During it the client believed the write done while fewer replicas were known to have it. "
        "It is 0 if that copy had come before the answer. "
    )
    starred = any(wait.censored for _, wait in found)
    return _table(columns, body, "How long answered writes were exposed", note + _star(starred))


def _slowest(view: View, log: ArrivalLog) -> Table:
    columns = (
        "operation", "number", "client", "due", "first, ms", "quorum, ms", "all, ms",
    )  # fmt: skip
    started = view.analysis.started_ns or 0
    why = "not all of its copies came correct"
    body = [
        [
            text(_label(log, row)),
            number(str(slow.request)),
            number(str(slow.client)),
            number("+ " + format.duration(slow.due_ns - started)),
            number(_ms(slow.first_ns), why),
            number(_ms(slow.quorum_ns), strong=True),
            number(_ms(slow.all_ns), why),
        ]
        for row in log.rows
        for slow in row.slowest
    ]
    note = "The slowest by quorum, of the operations that had one; each row is one operation. "
    return _table(columns, body, "The slowest operations, under every algorithm", note)


def _ms(value_ns: float | None) -> str:
    return format.significant(None if value_ns is None else value_ns / NS_PER_MS)


def _hops(log: ArrivalLog) -> Table:
    limit = format.duration(next((hop.limit_ns for row in log.rows for hop in row.hops), None))
    columns = (
        "operation", "hop", "copies", "with both stamps", "min", "p50", "p99", "max",
        f"over {limit}",
    )  # fmt: skip
    body = [
        [
            text(_label(log, row)),
            text(HOPS[hop.hop]),
            number(format.count(hop.copies)),
            number(format.count(hop.n)),
            *(_field(hop, name) for name in ("min", "p50", "p99", "max")),
            number(format.count(hop.over), hop.absent.get("over", "")),
        ]
        for row in log.rows
        for hop in row.hops
    ]
    note = (
        "How long a message lay in a host after its kernel had it: hop 1 a request at the replica, "
        "hop 2 a reply at the client. Each is a difference of one host's clock."
    )
    return _table(columns, body, "Time between kernel and process", note)


def _copies(log: ArrivalLog) -> Table:
    seen = {status for row in log.rows for server in row.copies for status in server.by_status}
    shown = [*STATUSES[:-1], *sorted(seen - set(STATUSES[:-1]))]
    columns = ("operation", "replica", "copies", *shown, "of these repeated")
    body = [
        [
            text(_label(log, row)),
            text(server.name),
            number(format.count(server.n)),
            *(number(format.count(server.by_status.get(status, 0))) for status in shown),
            number(format.count(server.repeated)),
        ]
        for row in log.rows
        for server in row.copies
    ]
    note = (
        "Every attempt of every operation, repetitions of the run included. Only “ok” counts as a "
        "correct copy. “behind”: the replica lacked an operation that this one follows; “stale”: "
        "it was past this one already; “lost”: nothing ever came back. "
    )
    return _table(columns, body, "Copies by replica and status", note)


def _table(columns: tuple[str, ...], body: list[list[Datum]], caption: str, note: str) -> Table:
    return table(columns, body[:MOST_ROWS], caption, note + cut(body, "rows"))
