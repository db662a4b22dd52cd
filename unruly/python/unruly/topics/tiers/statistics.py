"""What a tap saw of each service, whole and by windows of 100 ms."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from unruly.base.ladder import LEVEL
from unruly.stats import (
    SLOW_FROM,
    mean_interval,
    request_mean_interval,
    share_interval,
    slow_percentile,
)
from unruly.stats.blocks import BLOCKS
from unruly.tables import fetch, inline
from unruly.tables import turnarounds as turnaround_tables
from unruly.tables.turnarounds import WINDOW_NS
from unruly.topics.tiers.chain import UNKNOWN, Links, chain, links
from unruly.topics.tiers.model import Check, Jam, Tier, Tiers

if TYPE_CHECKING:
    import ibis
    from numpy.typing import NDArray

    from unruly.base.context import Context
    from unruly.stats import Interval

ASKERS_MOST: Final = 3
JAM_FACTOR: Final = 5.0
"""So many times as many requests in flight as in the median window are a jam."""
JAM_LEAST: Final = 4.0
"""Fewer requests in flight are none."""
JAM_TIME_MOST: Final = 0.1
"""What lasts for longer is the usual state."""
SHORT: Final = "the service was watched for less than 3 s"
MISSED: Final = "none of its requests can be measured: none was seen whole"
OVERLAPPED: Final = "none of its requests can be measured: several were open at once"
LONG: Final = "the run is longer than a day: it is too long for windows of 100 ms"
LOST: Final = "more than 1 % of the requests had no reply, and how long they took is not known"
LOST_MOST: Final = 0.01
WINDOWS_MOST: Final = 864_000
"""Windows of 100 ms in a day; of a longer run, or one whose clock jumped, none are made."""
_KEYS: Final = ["cell", "repeat", "tier", "window_ns"]


def has_tiers(context: Context) -> bool:
    """Return whether the trace has what a tap saw."""
    return context.run.segments.get("turnarounds", 0) > 0


def tiers(context: Context) -> Tiers | None:
    """Look at what a tap saw of each service.

    Parameters
    ----------
    context : Context
        The run.

    Returns
    -------
    Tiers or None
        None where nothing was seen.
    """
    context.progress("tiers")
    everything = _while_measured(context, begun=True)
    counts = fetch(turnaround_tables.counts(everything))
    if counts.empty:
        return None
    first, last = _watched(context, int(counts["first_ns"].min()), int(counts["last_ns"].max()))
    too_long = (last - first) / WINDOW_NS > WINDOWS_MOST
    windows = _none() if too_long else _windows(context, everything, counts)
    known = not too_long and context.run.status != "imported"
    found_links = None
    if known:
        asked = turnaround_tables.with_askers(everything, context.run.turnarounds)
        found_links = links(context, asked, _by_asker(context, counts), _crossed(counts))
        found_links = replace(found_links, slow=_slow(context, counts, found_links))
    askers = fetch(turnaround_tables.askers(everything))
    found = []
    for row in counts.to_dict("records"):
        cell, tier = str(row["cell"]), str(row["tier"])
        own = windows[(windows["cell"] == cell) & (windows["tier"] == tier)]
        asked = askers[(askers["cell"] == cell) & (askers["tier"] == tier)]["asked_by"]
        names = tuple(map(str, asked.head(ASKERS_MOST)))
        reason = SHORT if int(row["alone"]) else OVERLAPPED if int(row["overlapped"]) else MISSED
        one = _tier(row, own, names, LONG if too_long else reason)
        if found_links is not None:
            one = replace(one, chain=chain(context, found_links, windows, cell, tier))
        found.append(one)
    checks = () if found_links is None else _checks(context, found, found_links)
    return Tiers(tuple(found), checks, windows)


def _crossed(counts: pd.DataFrame) -> frozenset[str]:
    """The cells in which more than a few of a tier's requests cannot be measured."""
    everything = counts[["ok", "cut", *turnaround_tables.UNMEASURED]].sum(axis=1)
    lost = everything - counts["alone"] - counts["open"] - counts["joined"]
    return frozenset(counts[lost > UNKNOWN * everything]["cell"].astype(str))


def _by_asker(context: Context, counts: pd.DataFrame) -> pd.DataFrame:
    """Requests in flight in windows, by tier and by who asked."""
    rows = _while_measured(context, begun=False)
    rows = turnaround_tables.measured(rows, overlaps=bool(counts["overlapped"].any()))
    rows = turnaround_tables.with_askers(rows, context.run.turnarounds)
    return fetch(turnaround_tables.in_flight(rows, "asked_by"))


def _slow(context: Context, counts: pd.DataFrame, known: Links) -> pd.DataFrame:
    """The slow requests that no tier has asked for, in flight in windows."""
    nothing = pd.DataFrame(columns=[*_KEYS, "in_flight"])
    fronts = known.fronts()
    whole = counts[counts["cut"] <= LOST_MOST * counts["alone"]]
    fronts = fronts.merge(whole[["cell", "tier"]], on=["cell", "tier"])
    if fronts.empty:
        return nothing
    overlaps = bool(counts["overlapped"].any())
    rows = turnaround_tables.measured(_while_measured(context, begun=True), overlaps=overlaps)
    rows = turnaround_tables.with_askers(rows, context.run.turnarounds)
    rows = turnaround_tables.asked_by(rows, inline(fronts))
    limits = fetch(turnaround_tables.slow_limits(rows, SLOW_FROM))
    names = [slow_percentile(int(it)) for it in limits["n"]]
    held = zip(limits.to_dict("records"), names, strict=True)
    values = [float(row[name]) if name else np.inf for row, name in held]
    limits = limits.assign(slow_ns=values)
    limits = limits[np.isfinite(values)][["cell", "tier", "slow_ns"]]
    if limits.empty:
        return nothing
    return fetch(turnaround_tables.slow_in_flight(rows, inline(limits)))


def _while_measured(context: Context, *, begun: bool) -> ibis.Table:
    """The turnarounds of the measured time: those that began in it, or all that were open in it."""
    rows = context.run.turnarounds
    if context.run.watched or context.extents.empty:
        return rows
    joined = rows.join(inline(context.measured_time), ["cell", "repeat"])
    last = joined.started_ns if begun else joined.ended_ns
    inside = joined.filter((last >= joined.from_ns) & (joined.started_ns <= joined.until_ns))
    return inside.select(*rows.columns)


def _checks(context: Context, found: list[Tier], known: Links) -> tuple[Check, ...]:
    """What the tap saw answered at the front beside the requests of the load generator."""
    spans = context.run.spans
    if not known.load or len(fetch(spans.filter(spans.layer == "tls").limit(1))):
        # a handshake is a request to the tap, and as many as there are connections
        return ()
    # both sides by the same clock: a request may be sent long after it was due
    requests = context.run.requests
    timed = requests.join(inline(context.measured_time), ["cell", "repeat"])
    tries = timed.filter(timed.sent_ns.between(timed.from_ns, timed.until_ns))
    counted = fetch(
        tries.group_by("cell").agg(
            sent=tries.count(), answered=(tries.status == "ok").sum().cast("int64")
        )
    )
    checks = []
    for row in counted.to_dict("records"):
        cell, sent, answered = str(row["cell"]), int(row["sent"]), int(row["answered"])
        front = [it for it in found if it.cell == cell and known.is_front(cell, it.tier)]
        # several requests at once on a connection cannot be counted
        if front and not any(it.overlapped for it in front):
            seen = sum(it.n - it.cut + it.gap for it in front)
            if seen < answered and any(it.gap for it in front):
                # packets were missed: whole requests may be among them
                continue
            checks.append(Check(cell, seen, answered, sent))
    return tuple(checks)


def _windows(context: Context, everything: ibis.Table, counts: pd.DataFrame) -> pd.DataFrame:
    """Every window of each tier, those in which nothing happened too."""
    overlaps = bool(counts["overlapped"].any())
    rows = turnaround_tables.measured(everything, overlaps=overlaps)
    open_rows = _while_measured(context, begun=False)
    flight = fetch(
        turnaround_tables.in_flight(turnaround_tables.measured(open_rows, overlaps=overlaps))
    )
    limits = fetch(turnaround_tables.slow_limits(rows)).rename(columns={"p99": "slow_ns"})
    if limits.empty:
        limits = counts[["cell", "tier"]].assign(slow_ns=np.inf)
    limits = limits[["cell", "tier", "slow_ns"]]
    begun = fetch(turnaround_tables.begun(rows, inline(limits)))
    if flight.empty:
        # nothing can be measured: every connection carried several requests at once
        return _none()
    joined = flight.merge(begun, on=_KEYS, how="outer")
    if not context.run.watched and not context.extents.empty:
        joined = _inside(context, joined)
    # all tiers of a repeat share their first and last window, so that lanes begin together
    ends = joined.groupby(["cell", "repeat"])["window_ns"].agg(["min", "max"])
    if context.run.watched and len(ends):
        ends["min"], ends["max"] = _watched(context, int(ends["min"].min()), int(ends["max"].max()))
    parts = []
    for (cell, repeat, tier), own in joined.groupby(["cell", "repeat", "tier"], sort=True):
        first, last = ends.loc[(cell, repeat)]
        starts = np.arange(int(first), int(last) + 1, WINDOW_NS)
        numbers = own.set_index("window_ns")[["in_flight", "n", "slow", "sum_ns", "longest_ns"]]
        whole = numbers.reindex(starts).fillna(0.0).rename_axis("window_ns").reset_index()
        whole = whole.assign(cell=cell, repeat=repeat, tier=tier)
        parts.append(whole)
    if not parts:
        return _none()
    return pd.concat(parts, ignore_index=True)


def _inside(context: Context, joined: pd.DataFrame) -> pd.DataFrame:
    """The windows that lie in the measured time as a whole."""
    held = joined.merge(context.measured_time, on=["cell", "repeat"])
    whole = held["window_ns"] >= held["from_ns"]
    whole &= held["window_ns"] + WINDOW_NS <= held["until_ns"]
    return held[whole].drop(columns=["from_ns", "until_ns"])


def _none() -> pd.DataFrame:
    return pd.DataFrame(columns=[*_KEYS, "in_flight", "n", "slow", "sum_ns", "longest_ns"])


def _watched(context: Context, first: int, last: int) -> tuple[int, int]:
    """The first and the last whole window of the time in which the tap watched.

    A service that nobody asks for a while is watched too. A capture shows its packets alone.
    """
    manifest = context.run.manifest
    began, ended = manifest.get("started_ns"), manifest.get("ended_ns")
    if not context.run.watched or context.run.status == "imported":
        return first, last
    if isinstance(began, int):
        first = min(first, began - began % WINDOW_NS + WINDOW_NS)
    if isinstance(ended, int):
        last = max(last, ended - ended % WINDOW_NS - WINDOW_NS)
    return first, last


def _tier(
    row: dict[str, object], own: pd.DataFrame, asked_by: tuple[str, ...], reason: str
) -> Tier:
    count = {
        name: int(str(row[name]))
        for name in ("ok", "cut", *turnaround_tables.UNMEASURED, "alone", "connections")
    }
    everything = sum(count[name] for name in ("ok", "cut", *turnaround_tables.UNMEASURED))
    absent: dict[str, str] = {}
    response, flight = _means(own, absent, reason)
    if response is not None and count["cut"] > LOST_MOST * count["alone"]:
        response, absent["response_ns"] = None, LOST
    span_ns = float(str(row["last_ns"])) - float(str(row["first_ns"]))
    seconds = max(len(own) * WINDOW_NS / 1e9 or span_ns / 1e9, WINDOW_NS / 1e9)
    return Tier(
        str(row["cell"]),
        str(row["tier"]),
        count["alone"],
        count["cut"],
        everything - count["alone"],
        count["overlapped"],
        count["gap"],
        count["open"] + count["joined"],
        count["connections"],
        asked_by,
        count["alone"] / seconds,
        response,
        flight,
        float(own["in_flight"].max()) if len(own) else 0.0,
        _jam(own) if flight is not None else None,
        absent=absent,
    )


def _means(
    own: pd.DataFrame, absent: dict[str, str], reason: str
) -> tuple[Interval | None, Interval | None]:
    """The mean response time, and the mean number in flight, from blocks of time."""
    if len(own) < BLOCKS:
        absent |= dict.fromkeys(("response_ns", "in_flight"), reason)
        return None, None
    blocks = _blocks(len(own))
    counts = np.bincount(blocks, own["n"].to_numpy(dtype=np.float64), minlength=BLOCKS)
    sums = np.bincount(blocks, own["sum_ns"].to_numpy(dtype=np.float64), minlength=BLOCKS)
    lengths = np.bincount(blocks, minlength=BLOCKS)
    flights = np.bincount(blocks, own["in_flight"].to_numpy(dtype=np.float64), minlength=BLOCKS)
    flight = _not_below_0(mean_interval(flights / lengths, LEVEL))
    if counts.sum() == 0:
        absent["response_ns"] = "no reply was seen"
        return None, flight
    return _not_below_0(request_mean_interval(sums, counts, LEVEL)), flight


def _not_below_0(value: Interval) -> Interval:
    return value if value.low is None else replace(value, low=max(0.0, value.low))


def _blocks(windows: int) -> NDArray[np.int64]:
    return np.arange(windows, dtype=np.int64) * BLOCKS // windows


def _jam(own: pd.DataFrame) -> Jam | None:
    """The windows in which far more was in flight than usual; None where there are none."""
    if not own["slow"].sum():
        return None
    flight = own["in_flight"].to_numpy(dtype=np.float64)
    usual = float(np.median(flight))
    full = flight >= max(JAM_LEAST, JAM_FACTOR * usual)
    # who begins while a jam builds up waits for its end as well
    jammed = full | np.append(full[1:], False)
    share = float(jammed.mean())
    if not full.any() or share > JAM_TIME_MOST:
        return None
    slow = own["slow"].to_numpy(dtype=np.float64)
    asked = own["n"].to_numpy(dtype=np.float64)
    blocks = _blocks(len(own))
    within = np.bincount(blocks, slow * jammed, minlength=BLOCKS)
    whole = np.bincount(blocks, slow, minlength=BLOCKS)
    return Jam(
        int(jammed.sum()),
        share,
        float(asked[jammed].sum() / asked.sum()),
        share_interval(within, whole, LEVEL),
    )
