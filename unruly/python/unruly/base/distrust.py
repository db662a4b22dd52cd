"""Can the run be trusted: conservation of requests, and what the measuring side did to itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from unruly.base.context import SENDERS
from unruly.base.model import Conservation, SelfDistrust, Unread, What
from unruly.base.quantiles import oversized
from unruly.errors import TraceError
from unruly.run import WHOLE
from unruly.tables import fetch, inline
from unruly.tables import requests as request_tables
from unruly.tables import resources as resource_tables
from unruly.tables import spans as span_tables
from unruly.tables.selection import exact_quantiles

if TYPE_CHECKING:
    import ibis

    from unruly.base.context import Context
    from unruly.run import Run

STATUSES = (
    "ok",
    "timeout",
    "refused",
    "shed",
    "error",
    "unfinished",
    "wrong",
    "behind",
    "stale",
    "lost",
)
CHECKED = (*WHOLE, "incomplete")
QUANTILES = ("p50", "p90", "p99", "p99_9")
SECOND_NS = 1_000_000_000
BEHIND = 0.1
"""A send delay of this share of a run, at its end, is no stall: the schedule was too fast."""
ENDS = 20
"""The last requests are those scheduled in the run's length divided by this, at its end."""
STREAMED: Final[dict[What, tuple[str, ...]]] = {
    "tokens": span_tables.TOKENS,
    "messages": span_tables.MESSAGES,
}
SEND_LAG_LIMIT_NS = 10e6
"""Shorter send delays are those of any shared machine."""


def conservation(run: Run) -> Conservation:
    """Check the manifest's counts against themselves and against the rows in the files.

    Raises
    ------
    TraceError
        When a count does not hold in a run that is ``complete``, ``stopped``, ``incomplete`` or
        ``imported``.
    """
    frame = fetch(request_tables.statuses(run.requests))
    by_status = {str(r["status"]): int(r["n"]) for r in frame.to_dict("records")}
    rows, answered = int(frame["n"].sum()), int(frame["answered"].sum())
    counts = run.manifest.get("counts") or {}
    copies, requests = counts.get("copies"), counts.get("requests")

    def told(*, checked: bool, sentence: str) -> Conservation:
        return Conservation(checked, sentence, rows, by_status, copies, requests)

    if run.watched:
        return told(checked=False, sentence="it has every request that the tap could measure")
    if run.merged:
        return told(checked=False, sentence="not checked: its rows were merged into histograms")
    if run.keeps_bins_alone:
        return told(checked=False, sentence="not checked: its source kept histograms")
    if run.status not in CHECKED or not copies:
        return told(checked=False, sentence=f"not checked: the run is {run.status or 'unlabelled'}")
    where = run.path / "manifest.json"
    ended = sum(int(copies.get(name) or 0) for name in STATUSES)
    scheduled, recorded = int(copies.get("scheduled") or 0), int(copies.get("recorded") or 0)
    dropped = int(copies.get("dropped") or 0)
    _must(where, "copies scheduled", scheduled, "the sum of their statuses", ended)
    _must(where, "copies scheduled", scheduled, "recorded + dropped", recorded + dropped)
    if requests:
        asked = int(requests.get("scheduled") or 0)
        parts = int(requests.get("answered") or 0) + int(requests.get("unanswered") or 0)
        _must(where, "requests scheduled", asked, "answered + unanswered", parts)
    if run.unreadable:
        return told(checked=False, sentence="not checked: a segment cannot be read")
    _must(where, "copies recorded", recorded, "the rows in requests/", rows)
    if dropped == 0:
        _same_statuses(where, copies, by_status)
        if requests:
            wanted = int(requests.get("answered") or 0)
            _must(where, "requests answered", wanted, "the rows that answered", answered)
    sentence = (
        f"{scheduled:,} copies scheduled = {ended:,} ended = {recorded:,} recorded + "
        f"{dropped:,} dropped; {rows:,} rows in the files"
    )
    return told(checked=True, sentence=sentence)


def self_distrust(context: Context) -> SelfDistrust:
    """Gather send lag, kernel stamps, sampler lag, drops, steal and pressure; not yet the tail."""
    context.progress("self-distrust")
    resources = context.run.resources
    sampler = fetch(resource_tables.samplers(resources)).to_dict("records")[0]
    host = fetch(resource_tables.hosts(resources)).to_dict("records")[0]
    processes = fetch(resource_tables.processes(resources))
    copies = (context.run.manifest.get("counts") or {}).get("copies") or {}
    lag: dict[str, float] = {}
    late: float | None = None
    stamped = server_stamped = None
    merged = _Merged.of(context.run)
    if merged:
        lag, late = merged.lag_ns, merged.late_share
    if not context.empty:
        known = context.pairs[["stamped", "server_stamped"]].sum()
        answered = context.size - int(context.pairs["failed"].sum())
        # the send delay of a JVM, or under a CPU limit, is a result: leave it out here
        measured = context.measured_clients
        delays = context.pairs["lag_max_ns"]
        keys = pd.MultiIndex.from_frame(context.pairs[list(measured.columns)])
        ours = ~keys.isin(pd.MultiIndex.from_frame(measured)) if len(measured) else slice(None)
        largest = delays[ours].max() if len(delays[ours]) else 0
        # a source without a schedule has no lag: its zeros would read as perfect punctuality
        scheduled = not context.run.foreign or bool(largest)
        if scheduled and len(delays[ours]) > 0:
            rows = _without(context, measured)
            lag = _quantiles(_send_lag(rows, context.size), largest)
            late = 0.0
            if largest > SEND_LAG_LIMIT_NS:
                frame = fetch(request_tables.late_share(rows, SEND_LAG_LIMIT_NS))
                late = _number(frame["share"].iloc[0])
        if answered:
            stamped, server_stamped = (float(it) / answered for it in known)
    return SelfDistrust(
        send_lag_ns=lag,
        tail_rows=merged.tail_rows if merged else 0,
        tail_explained_share=merged.tail_explained_share if merged else None,
        kernel_stamp_share=stamped,
        server_kernel_stamp_share=server_stamped,
        sampler_lag_ns=_quantiles(sampler["lag"], sampler["lag_max"]),
        sampler_period_ns=_number(sampler["period_ns"]),
        dropped=int(copies.get("dropped") or 0),
        steal_share_mean=_number(host["steal_mean"]),
        steal_share_max=_number(host["steal_max"]),
        psi_cpu_share=_number(host["psi_cpu"]),
        psi_io_share=_number(host["psi_io"]),
        psi_memory_share=_number(host["psi_memory"]),
        processes=processes,
        throttled=fetch(resource_tables.held_back(resources)),
        fell_behind=fell_behind(context, _lag_at_end(context, lag.get("max", 0.0))),
        late_share=late,
        unread=_unread_of(context, merged),
    )


@dataclass(frozen=True)
class _Merged:
    """What was counted of the load generator before its rows became histograms."""

    lag_ns: dict[str, float]
    late_share: float
    tail_rows: int
    tail_explained_share: float | None
    unread: tuple[Unread, ...]

    @classmethod
    def of(cls, run: Run) -> _Merged | None:
        delays = (run.merged or {}).get("delays")
        if not isinstance(delays, dict) or not (run.merged or {}).get("requests"):
            return None
        requests = int((run.merged or {})["requests"])
        lags = dict(zip(QUANTILES, map(float, delays["send_ns"]), strict=True))
        tail = int(delays["tail"])
        unread = int(delays["unread"])
        return cls(
            lags | {"max": float(delays["send_max_ns"])},
            int(delays["late"]) / requests,
            tail,
            int(delays["tail_late"]) / tail if tail else None,
            (Unread("replies", requests, unread, float(delays["unread_max_ns"])),)
            if unread
            else (),
        )


def _unread_of(context: Context, merged: _Merged | None) -> tuple[Unread, ...]:
    if merged:
        return merged.unread
    return () if context.empty else _unread(context)


def _unread(context: Context) -> tuple[Unread, ...]:
    """How late the load generator of a drive read what it received."""
    kinds = {str(it.get("kind")) for it in context.processes} & set(SENDERS)
    if kinds != {"drive"} or context.run.foreign:
        return ()
    counts: dict[What, int] = {"replies": int(context.pairs["stamped"].sum())}
    late: dict[What, ibis.Table] = {}
    if context.run.segments.get("spans", 0) > 0:
        spans, rows, retried = context.run.spans, context.rows, context.retried
        parts = fetch(span_tables.streamed_parts(spans, rows, retried=retried))
        of_layer = dict(zip(parts["layer"], parts["n"], strict=True))
        late["replies"] = span_tables.replies_unread(spans, rows)
        for what, layers in STREAMED.items():
            counts[what] = sum(int(of_layer.get(layer, 0)) for layer in layers)
            late[what] = span_tables.parts_unread(spans, rows, layers, retried=retried)
    found = []
    for what, n in counts.items():
        if n and what in late:
            row = fetch(request_tables.unread(late[what], SEND_LAG_LIMIT_NS)).iloc[0]
            found.append(Unread(what, n, int(row["late"]), float(row["longest"])))
        elif n:
            found.append(Unread(what, n, 0, 0.0))
    return tuple(found)


def _lag_at_end(context: Context, largest_ns: float) -> float:
    """Return the send delay of the last twentieth of a run of one cell, if it may matter."""
    if context.empty or len(context.lengths_ns) != 1:
        return 0.0
    if largest_ns < BEHIND * float(context.lengths_ns.iloc[0]):
        return 0.0
    ends = context.extents.groupby(["cell", "repeat"], as_index=False)
    ends = ends.agg(first_ns=("first_ns", "min"), last_ns=("last_ns", "max"))
    lasted = ends["last_ns"] - ends["first_ns"]
    since = inline(ends[["cell", "repeat"]].assign(from_ns=ends["last_ns"] - lasted // ENDS))
    rows = _without(context, context.measured_clients)
    return _number(fetch(request_tables.lag_at_end(rows, since))["lag"].iloc[0]) or 0.0


def fell_behind(context: Context, lag_ns: float) -> dict[str, float] | None:
    """Return the scheduled and the sent rate of a generator that could not keep its schedule.

    A send delay at the end of a tenth of the run is no stall: the schedule was faster than the
    generator. After a stall the generator catches up.

    Parameters
    ----------
    lag_ns : float
        The send delay of the requests scheduled last.
    """
    if context.empty or len(context.lengths_ns) != 1:
        return None
    length_ns = float(context.lengths_ns.iloc[0])
    if length_ns <= 0 or lag_ns < BEHIND * length_ns:
        return None
    repeats = context.extents["repeat"].nunique()
    sent_ns = length_ns + repeats * lag_ns
    return {
        "due_hz": context.size / (length_ns / SECOND_NS),
        "sent_hz": context.size / (sent_ns / SECOND_NS),
    }


def _without(context: Context, but: pd.DataFrame) -> ibis.Table:
    """The measured rows without those of some clients."""
    return context.rows.anti_join(inline(but), list(but.columns)) if len(but) else context.rows


def _send_lag(rows: ibis.Table, size: int) -> Any:
    """Quantiles of the send lag; of more rows than the engine should hold, bin by bin."""
    if not oversized(size):
        return fetch(request_tables.send_lag(rows))["lag"].iloc[0]
    found = exact_quantiles(rows, [], "send_lag", request_tables.LAG_PROBABILITIES)
    return found["quantiles"].iloc[0]


def _must(where: Any, name: str, value: int, wanted: str, found: int) -> None:
    if value != found:
        raise TraceError(
            where,
            f"{name} are {value:,} but {wanted} are {found:,}",
            "every request counted once",
            "the trace lost or doubled rows: measure again",
        )


def _same_statuses(where: Any, copies: dict[str, Any], by_status: dict[str, int]) -> None:
    found = dict.fromkeys(STATUSES, 0)
    for status, number in by_status.items():
        kind = status.split(":", 1)[0]
        if kind not in found:
            raise TraceError(
                where.parent / "requests",
                f"status is {status!r}",
                f"one of {', '.join(STATUSES)}",
                "upgrade unruly",
            )
        found[kind] += number
    for kind, number in found.items():
        _must(where, f"copies with status {kind}", int(copies.get(kind) or 0), "such rows", number)


def _quantiles(values: Any, largest: Any) -> dict[str, float]:
    if values is None or largest is None or pd.isna(largest):
        return {}
    return {**dict(zip(QUANTILES, map(float, values), strict=True)), "max": float(largest)}


def _number(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else float(value)
