"""Did it work: how many requests failed, how, and from when to when nothing was answered.

An outage is a span of scheduled time in which every request failed: all requests of a cell, or all
that went to one receiver. It is found in two passes. First, each of 2,000 bins of a cell's time
gets the first and the last request that was answered well. A span between two of these that holds
failures is a candidate; its edges are exact. Second, the failures of each candidate are counted by
status. A candidate counts only if chance would hardly make it: with many failures spread over a
run, a few in a row mean nothing.

Nothing here reads the labels of injected faults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from unruly.base.clock import Clock
from unruly.quantity import count, percent
from unruly.tables import fetch, inline
from unruly.tables import outages as outage_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from unruly.base.context import Context
    from unruly.base.operation import CellSummary
    from unruly.contract import Count, Positive

FAILED_MOST: Final = 0.01
"""A run of which a larger share of the requests failed did not work."""
BINS: Final = 2_000
BIN_NS_LEAST: Final = 1_000_000
REQUESTS_LEAST: Final = 10
CHANCE_MOST: Final = 0.01
"""How many spans of that many failures a run without an outage would have."""
OUTAGES_MOST: Final = 20
ONE_KIND: Final = 0.9
"""An outage is named by a kind that makes up so much of it."""
ALL: Final = -1
"""In place of a receiver's number: every receiver."""
KIND_WORDS: Final = {
    "timeout": ("timed out", "timed out"),
    "refused": ("refused", "was refused"),
    "shed": ("shed", "was shed, because too many were in flight"),
    "unfinished": ("unfinished", "was unfinished when the run ended"),
    "error:reset": ("connection reset", "met a connection reset"),
    "error:disconnected": ("disconnected", "met a closed connection"),
    "error:protocol": ("malformed reply", "got a malformed reply"),
    "error:send": ("not sent", "could not be sent"),
    "error:store": ("error reply", "got an error as its reply"),
    "error:denied": ("access denied", "was denied access"),
    "error:unavailable": ("unavailable", "found the service unavailable"),
    "lost": ("lost", "was lost"),
    "stale": ("stale reply", "got a stale reply"),
}
"""Each status as a kind of failure, and as what happened to every request of an outage."""

LOGIN_CODES: Final = ("401", "403", "407", "UNAUTHENTICATED", "PERMISSION_DENIED")
"""Status codes of a server that does not let the client in."""

STEPS: Final = {
    "refused": "Is the server running? Look in its log, start it again, and repeat the run.",
    "error:reset": "The server closed connections: look in its log for a crash or a limit.",
    "error:disconnected": "The server closed connections: look in its log for a crash or a limit.",
    "error:unavailable": "Look in the server's log: it was unavailable.",
    "error:denied": "Check the user and the password in the URL.",
    "error:protocol": "Check that the URL names a service that speaks this protocol.",
    "error:store": "Look in the server's log for the error that it replied.",
    "timeout": "Lower the rate, or raise the timeout if answers that late are still of use.",
    "shed": "Lower the rate, or use more clients: too many requests were in flight.",
}


@dataclass(frozen=True)
class Outage:
    """A span in which every request failed.

    Attributes
    ----------
    begin_ns : int
        When its first request was scheduled.
    end_ns : int or None
        When the first request that was answered again was scheduled; None to the end.
    begin_wall : str or None
        The time of day at which it begins; None where the run has none.
    kind : str
        The status of nine tenths of the failures, else "mixed".
    words : str
        One sentence.
    receiver : str or None
        The receiver that answered nothing; None when no receiver answered.
    failed : int
        How many requests failed in it.
    """

    begin_ns: int
    end_ns: int | None
    begin_wall: str | None
    kind: str
    words: str
    cell: str
    repeat: Count
    receiver: str | None
    failed: Positive


@dataclass(frozen=True)
class Worked:
    """Whether requests were answered.

    Attributes
    ----------
    requests, failed : int
        Measured requests (of a group request each copy), and how many of them failed.
    share : float or None
        Failed share; None when nothing was measured.
    kinds : tuple of (str, int)
        Statuses of the failures and their counts, the most frequent first.
    outages : tuple of Outage
        In order of time.
    sentence : str
        The answer to "did it work?".
    ok : bool
        At most 1 % failed, and something was measured.
    """

    requests: Count
    failed: Count
    share: float | None
    kinds: tuple[tuple[str, int], ...]
    outages: tuple[Outage, ...]
    sentence: str
    ok: bool

    @classmethod
    def of(
        cls,
        requests: int,
        kinds: Sequence[tuple[str, int]] = (),
        outages: Sequence[Outage] = (),
        *,
        by_the_source: bool = False,
    ) -> Worked:
        """Judge these counts; one that another tool made may lack requests that failed."""
        failed = sum(number for _, number in kinds)
        share = failed / requests if requests else None
        ok = share is not None and share <= FAILED_MOST
        sentence = _sentence(requests, failed, kinds)
        if by_the_source and requests and not failed:
            sentence = f"Yes: the source counted {count(requests)} requests and no failure."
        return cls(requests, failed, share, tuple(kinds), tuple(outages), sentence, ok)


def failure_step(worked: Worked) -> str:
    """Return what to do about the most frequent kind of failure."""
    kind = worked.kinds[0][0] if worked.kinds else ""
    code = kind.removeprefix("error:")
    if code in LOGIN_CODES:
        return (
            f"Check the password or token: the server answered {code}. UNRULY_PASSWORD has it, and "
            "`--auth bearer` sends it as a token."
        )
    if code.isdigit() and code.startswith("4"):
        return f"Check the URL: the server answered {code}. `--expect {code}` counts it as success."
    if code.isdigit() or code.isupper():
        return f"Look in the server's log for why it answered {code}."
    # histograms have one kind and no single failure
    if kind == "failed":
        return "Look in the server's log: the histograms do not say how requests failed."
    return STEPS.get(kind, "Look at the first failures in the report, and in the server's log.")


def kind_name(status: str) -> str:
    """Return a status of a failure in plain words.

    Examples
    --------
    >>> kind_name("error:reset"), kind_name("wrong:lost")
    ('connection reset', 'wrong: lost')
    """
    return KIND_WORDS.get(status, (status.replace(":", ": "),))[0]


def kinds_words(kinds: Sequence[tuple[str, int]], most: int = 4) -> str:
    """List kinds of failure with their counts: ``1,585 refused, 20 timed out``."""
    shown = [f"{count(number)} {kind_name(status)}" for status, number in kinds[:most]]
    rest = sum(number for _, number in kinds[most:])
    return ", ".join([*shown, f"{count(rest)} others"] if rest else shown)


def worked(context: Context, summaries: Sequence[CellSummary]) -> Worked:
    """Count the failures of a run and find its outages.

    Parameters
    ----------
    summaries : sequence of CellSummary
        Those that were kept as histograms are counted from here.
    """
    binned = [it for it in summaries if it.kept == "histogram" and _is_counted(it)]
    requests = context.size + sum(row.n for row in binned)
    binned_failed = sum(row.failed for row in binned)
    kinds = [("failed", binned_failed)] if binned_failed else []
    outages: tuple[Outage, ...] = ()
    if not context.empty and context.pairs["failed"].any():
        context.progress("outages")
        found = fetch(outage_tables.by_status(context.rows)).to_dict("records")
        kinds += [(str(it["status"]), int(it["n"])) for it in found if it["status"] != "ok"]
        outages = tuple(_outages(context))
    kinds.sort(key=lambda it: (-it[1], it[0]))
    by_the_source = context.run.keeps_bins_alone and context.run.merged is None
    return Worked.of(requests, kinds, outages, by_the_source=by_the_source)


def _is_counted(row: CellSummary) -> bool:
    """One row of each (cell, op), without the sum over ops."""
    return row.latency == "response" and row.op != "*"


def _sentence(requests: int, failed: int, kinds: Sequence[tuple[str, int]]) -> str:
    if not requests:
        return "No: nothing was measured."
    if not failed:
        return f"Yes: all {count(requests)} requests were answered."
    share = failed / requests
    part = "all" if failed == requests else f"{count(failed)} of"
    told = f"{part} {count(requests)} requests failed ({percent(share)}): {kinds_words(kinds)}."
    return f"Yes, but {told}" if share <= FAILED_MOST else f"No: {told}"


def _outages(context: Context) -> Iterator[Outage]:
    places = _places(context)
    if places.empty:
        return
    bins = fetch(outage_tables.in_bins(context.rows, inline(_lookup(places))))
    candidates: list[dict[str, Any]] = []
    for (cell, repeat), own in bins.groupby(["cell", "repeat"], sort=True):
        here = places[(places["cell"] == cell) & (places["repeat"] == repeat)]
        everywhere = own.groupby("bin", as_index=False).agg(
            {"failed": "sum", "first_good_ns": "min", "last_good_ns": "max"}
        )
        whole = list(_spans(everywhere, here, ALL))
        candidates += whole
        if len(here) == 1:
            continue
        for server, part in own.groupby("server", sort=True):
            place = here[here["server"] == server]
            spans = _spans(part, place, int(server))
            candidates += [it for it in spans if not any(_covers(other, it) for other in whole)]
    candidates = sorted(candidates, key=lambda it: -it["least"])[:OUTAGES_MOST]
    if not candidates:
        return
    candidates.sort(key=lambda it: (it["from_ns"], it["of_server"]))
    yield from _named(context, candidates)


def _places(context: Context) -> pd.DataFrame:
    """Each (cell, repeat, server) of a cell that knows its times, and in which requests failed."""
    pairs = context.pairs[~context.pairs["cell"].isin(context.run.timeless)]
    found = pairs.groupby(["cell", "repeat", "server"], as_index=False).agg(
        n=("n", "sum"), failed=("failed", "sum"),
        first_ns=("first_ns", "min"), last_ns=("last_ns", "max"),
    )  # fmt: skip
    whole = found.groupby(["cell", "repeat"])
    found["origin_ns"] = whole["first_ns"].transform("min")
    found["until_ns"] = whole["last_ns"].transform("max") + 1
    found["bin_ns"] = ((found["until_ns"] - found["origin_ns"]) // BINS).clip(lower=BIN_NS_LEAST)
    return found[whole["failed"].transform("sum") >= REQUESTS_LEAST]


def _lookup(places: pd.DataFrame) -> pd.DataFrame:
    return places[["cell", "repeat", "server", "origin_ns", "bin_ns"]]


def _spans(bins: pd.DataFrame, places: pd.DataFrame, server: int) -> Iterator[dict[str, Any]]:
    """Spans between good requests that hold whole bins of failures, too many for chance."""
    n, failed = int(places["n"].sum()), int(places["failed"].sum())
    if failed < REQUESTS_LEAST:
        return
    place = places.iloc[0]
    origin, until = int(place["origin_ns"]), int(place["until_ns"])
    since, held = origin, 0
    for it in bins.sort_values("bin").itertuples():
        if pd.isna(it.last_good_ns):
            held += int(it.failed)
            continue
        if _beyond_chance(held, n, failed):
            yield _span(place, server, held, since, origin + int(it.first_good_ns), ended=True)
        since, held = origin + int(it.last_good_ns) + 1, 0
    if _beyond_chance(held, n, failed):
        yield _span(place, server, held, since, until, ended=False)


def _beyond_chance(held: int, n: int, failed: int) -> bool:
    """Return whether failures scattered at random would hardly ever put `held` in a row."""
    if held < REQUESTS_LEAST:
        return False
    return failed == n or n * (failed / n) ** held < CHANCE_MOST


def _span(
    place: Any, server: int, held: int, from_ns: int, to_ns: int, *, ended: bool
) -> dict[str, Any]:
    return {
        "cell": str(place["cell"]), "repeat": int(place["repeat"]), "of_server": server,
        "from_ns": from_ns, "to_ns": to_ns, "least": held, "ended": ended,
    }  # fmt: skip


def _covers(whole: dict[str, Any], part: dict[str, Any]) -> bool:
    """Whether half of a receiver's outage lies within one of all receivers."""
    shared = min(whole["to_ns"], part["to_ns"]) - max(whole["from_ns"], part["from_ns"])
    return bool(2 * shared >= part["to_ns"] - part["from_ns"])


def _named(context: Context, candidates: list[dict[str, Any]]) -> Iterator[Outage]:
    spans = [{**it, "outage": place} for place, it in enumerate(candidates)]
    found = fetch(outage_tables.failed_in(context.rows, inline(spans)))
    clock = Clock.of(context.run, int(context.extents["first_ns"].min()))
    several = len(context.extents[["cell", "repeat"]].drop_duplicates()) > 1
    for place, it in enumerate(candidates):
        own = found[found["outage"] == place].sort_values("n", ascending=False)
        kinds = [(str(row["status"]), int(row["n"])) for row in own.to_dict("records")]
        failed = sum(number for _, number in kinds)
        begin = int(own["first_ns"].min())
        end = it["to_ns"] if it["ended"] else None
        server = it["of_server"]
        receiver = (
            None
            if server == ALL
            else context.name(server, sends=False, cell=it["cell"], repeat=it["repeat"])
        )
        kind = kinds[0][0] if kinds[0][1] >= ONE_KIND * failed else "mixed"
        where = f" ({it['cell']})" if several else ""
        whom = f" to {receiver}" if receiver else ""
        until = f"to {clock.moment(end)}" if end is not None else "to the end"
        words = f"From {clock.moment(begin)} {until} every request{whom} {_became(kinds, kind)}"
        yield Outage(
            begin, end, clock.of_day(begin), kind, f"{words}{where}.",
            it["cell"], it["repeat"], receiver, failed,
        )  # fmt: skip


def _became(kinds: Sequence[tuple[str, int]], kind: str) -> str:
    if kind == "mixed":
        return f"failed ({kinds_words(kinds)})"
    return KIND_WORDS.get(kind, ("", f"failed ({kind_name(kind)})"))[1]


NOTHING: Final = Worked.of(0)
"""A run of which nothing was measured."""
