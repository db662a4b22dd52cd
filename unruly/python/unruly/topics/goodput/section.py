"""Goodput: the table of the good requests, and of what the others missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.drawing import format
from unruly.drawing.document import Datum, number, table, text
from unruly.drawing.tables import MOST_ROWS, cut
from unruly.topics.goodput.model import goodput_of

if TYPE_CHECKING:
    from unruly.drawing.document import Table
    from unruly.drawing.view import View
    from unruly.stats import Interval

WORDS: Final = {
    "ttft": "time to the first token",
    "tpot": "mean time of a token",
    "gap": "longest gap",
    "e2e": "response time",
}


def good(view: View) -> Table | None:
    """Return the good requests of each cell; None where the plan sets no limits."""
    found = goodput_of(view.analysis)
    if found is None or not found.rows:
        return None
    several = len(found.rows) > 1
    named = max((it.limits for it in found.rows), key=len)
    columns = (
        *(["cell"] if several else []), "requests", "good", "interval", "good a second", "failed",
        *(f"{WORDS[it.measure]} over {format.duration(it.limit_ns)}" for it in named),
    )  # fmt: skip
    body = []
    for it in found.rows:
        share, rate = it.share, it.rate_hz
        reason = it.absent.get("share", "")
        missed = {limit.measure: limit.missed for limit in it.limits}
        body.append([
            *([text(it.cell)] if several else []),
            number(format.count(it.n)),
            number(format.share(share.estimate if share else None), reason),
            _ends(share, reason),
            number(
                format.significant(rate.estimate if rate else None), it.absent.get("rate_hz", "")
            ),
            number(format.count(it.failed)),
            *(number(format.count(missed[limit.measure]) if missed else format.DASH, reason)
              for limit in named),
        ])  # fmt: skip
    note = "A good request was answered within all limits. One request may miss several of them. "
    return table(columns, body[:MOST_ROWS], "Goodput", note + cut(body, "rows"))


def _ends(share: Interval | None, reason: str) -> Datum:
    if share is None or share.low is None or share.high is None:
        return Datum(format.DASH, reason=reason)
    return Datum(f"{format.share(share.low)} to {format.share(share.high)}")
