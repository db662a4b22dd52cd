"""Status codes of the replies, and what became of the connections: for servers that have both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from unruly.quantity import count
from unruly.tables import fetch
from unruly.tables import requests as request_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.base.context import Context
    from unruly.contract import Count, Keywords, Positive


@dataclass(frozen=True)
class StatusCode:
    """How often a status code came."""

    cell: str
    op: str
    code: Annotated[int, Keywords(minimum=100, maximum=999)]
    count: Positive
    expected: bool
    """The code counted as success."""


@dataclass(frozen=True)
class Connections:
    """What became of the connections, each of which carries one request at a time.

    Attributes
    ----------
    reopened : int
        Connections that were opened after an earlier one had ended, in the whole run.
    sent_again : int
        Requests that were sent again on a new connection, in the whole run.
    waited : int
        Measured requests that waited in the client for a free connection or for a user of a
        scenario, and were answered.
    """

    reopened: Count
    sent_again: Count
    waited: Count

    @property
    def sentence(self) -> str:
        """What is worth a word; empty when nothing is."""
        told = (
            (self.reopened, "connection", "opened again"),
            (self.sent_again, "request", "sent again on a new connection"),
            (self.waited, "request", "held in the client until a connection was free"),
        )
        return "; ".join(
            f"1 {what} was {done}" if number == 1 else f"{count(number)} {what}s were {done}"
            for number, what, done in told
            if number
        )


def statuses(context: Context) -> tuple[tuple[StatusCode, ...], Connections | None]:
    """Return the status codes by cell, operation and code; nothing where replies have none."""
    found = fetch(request_tables.codes(context.rows)).to_dict("records")
    if not found:
        return (), None
    rows = tuple(
        StatusCode(
            str(it["cell"]), str(it["op"]), int(it["code"]), int(it["n"]), bool(it["expected"])
        )
        for it in found
    )
    events = context.run.events
    kinds = ("reconnects", "requests sent again")
    told = fetch(events.filter(events.kind.isin(kinds)).select("kind", "detail"))
    reopened, again = (
        sum(int(it["detail"]) for it in told.to_dict("records") if it["kind"] == kind)
        for kind in kinds
    )
    return rows, Connections(reopened, again, sum(int(it["waited"]) for it in found))


def statuses_sentence(found: Sequence[StatusCode], most: int = 6) -> str:
    """Return the codes of all cells with their counts, the unexpected ones marked.

    Examples
    --------
    >>> fine, bad = StatusCode("", "read", 200, 990, True), StatusCode("", "read", 503, 10, False)
    >>> statuses_sentence([fine, bad])
    '200: 990, 503: 10 (failed)'
    """
    sums: dict[tuple[bool, int], int] = {}
    for it in found:
        key = (not it.expected, it.code)
        sums[key] = sums.get(key, 0) + it.count
    shown = sorted(sums.items(), key=lambda it: (it[0][0], -it[1], it[0][1]))
    words = [f"{code}: {count(n)}{' (failed)' * bad}" for (bad, code), n in shown[:most]]
    return ", ".join([*words, f"{len(shown) - most} more codes"] if len(shown) > most else words)
