"""The effect of each fault on each cell: requests scheduled in its window, against fault-free time.

A fault is a span of the events, and its window is that span. Its aftermath ends five seconds after
the first good reply that came after the fault, but at the next fault at the latest. The aftermath
of a kill lasts until the next fault or the end of the trial, because nobody knows how long a
program takes to start again. Silence and recovery are measured in the aftermath, which is not
fault-free either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from unruly.base.quantiles import quantiles_of
from unruly.stats import repeats_interval
from unruly.tables import faults as fault_tables
from unruly.tables import fetch, inline
from unruly.tables import flow as flow_tables
from unruly.tables import steadiness as steadiness_tables

if TYPE_CHECKING:
    from unruly.base.context import Context
    from unruly.contract import Absent, Count
    from unruly.stats import Interval

SPANS_MOST: Final = 600
AFTER_NS: Final = 5_000_000_000
UNTIL_THE_NEXT: Final = ("fault kill",)
"""Kinds of faults whose aftermath has no known end."""
EVER_NS: Final = 2**62
SLOWER: Final = 2.0
"""Times the slowest fault-free request: a slower one than that was hurt by the fault."""
LONGER: Final = 2.0
"""Times the longest fault-free silence: a longer one than that was caused by the fault."""
QUANTILES: Final = (0.5, 0.99)
EACH: Final = (0.5, 0.99, 0.999)
EACH_NAMES: Final = ("p50", "p99", "p99_9")
ROLE: Final = r"^as (\S+?)(?::|$)"
"""The begin of an event's detail where the plan names a role, such as ``etcd-leader``."""


@dataclass(frozen=True)
class FaultEffect:
    """The effect of the faults of one kind on one process, over all operations of a cell.

    ``due`` requests were scheduled in their windows, and ``failed`` of them failed. A request is
    hurt if it failed, or took more than twice as long as the slowest fault-free one. ``back_ns`` of
    each fault is the time from its begin to the first good reply to a request scheduled after the
    first hurt one: None if no such reply came, 0 if no request was hurt. ``gap_ns`` is the longest
    time without a good reply, and ``silent`` whether it is more than twice as long as the longest
    fault-free one: by more than the number of replies accounts for. ``lost`` counts the replies in
    windows and aftermaths that lack an acknowledged write. ``free_...`` are the fault-free times of
    the same cell. ``beside`` counts the windows in which another fault was going on too: these have
    the effects of both. ``each`` has p50, p99 and p99_9 of one window each, with the interval of
    what the windows vary about (95 %, on logarithms). ``process`` is the role where the plan names
    one. ``absent`` has the reason of each None.
    """

    cell: str
    kind: str
    process: str
    times: Count
    lasted_ns: float
    due: Count
    failed: Count
    p50: float | None
    p99: float | None
    max_ok: float | None
    free: Count
    free_p50: float | None
    free_p99: float | None
    free_max_ok: float | None
    p99_ratio: float | None
    back_ns: tuple[float | None, ...] | None
    gap_ns: float | None
    free_gap_ns: float | None
    silent: bool
    lost: Count
    beside: Count
    each: dict[str, Interval]
    absent: Absent = field(default_factory=dict)

    @property
    def hurt(self) -> float:
        """How much: the p99 over the fault-free one; infinite where it falls among the failed."""
        if self.p99_ratio is not None:
            return self.p99_ratio
        return float("inf") if self.failed and self.p99 is None else 0.0

    @property
    def rank(self) -> tuple[bool, float, float]:
        """Return what orders faults, the worst last: a lost write, then slowness, then silence."""
        return self.lost > 0, self.hurt, self.gap_ns or 0.0


def struck(context: Context, legs: pd.DataFrame) -> pd.DataFrame:
    """Every fault, however many: cell, repeat, process, kind, detail, started_ns, ended_ns.

    With first_ns and last_ns, the extent of its leg; what nobody ended lasts as long as that does.
    """
    frame = fetch(fault_tables.struck(context.run.events)).merge(legs, on=["cell", "repeat"])
    rest = (frame["last_ns"] - frame["started_ns"]).clip(lower=0)
    lasted = frame.pop("lasted_ns").fillna(rest).astype("int64")
    return frame.assign(ended_ns=frame["started_ns"] + lasted)


def spans(context: Context, faults: pd.DataFrame) -> pd.DataFrame:
    """Return the events of processes to draw: at most 600 spans, faults before all others.

    cell, repeat, process, kind, detail, started_ns, ended_ns.
    """
    others = fetch(flow_tables.spans(context.run.events, SPANS_MOST))
    others["ended_ns"] = others["started_ns"] + others.pop("lasted_ns")
    longest = faults["ended_ns"] - faults["started_ns"]
    first = faults.loc[longest.sort_values(ascending=False, kind="stable").index, list(others)]
    drawn = pd.concat([first, others]).head(SPANS_MOST)
    return drawn.sort_values("started_ns", ignore_index=True)


def effects(context: Context, faults: pd.DataFrame, legs: pd.DataFrame) -> tuple[FaultEffect, ...]:
    """Compare requests scheduled during faults with those of the fault-free time of each cell."""
    windows = _windows(faults)
    if windows.empty:
        return ()
    context.progress("faults")
    rows = context.rows.select("cell", "ok", "response", "intended_ns", "received_ns")
    windows = _aftermath(rows, windows)
    held = inline(windows[["effect", "from_ns", "to_ns"]])
    size = context.size
    due = quantiles_of(
        fault_tables.due_within(rows, held), ["effect"], QUANTILES, size, ("response",)
    )
    longest = context.pairs["longest_ns"].max()
    timeout_ns = 0.0 if np.isnan(longest) else float(longest)
    quiet = _quiet(windows, legs)
    still = fault_tables.untouched(rows, inline(quiet.drop(columns="cell")), timeout_ns)
    free = quantiles_of(still, ["cell"], QUANTILES, size, ("response",)).set_index("cell")
    free = free.join(_usual_silence(rows, quiet))
    windows = windows.assign(free_max_ns=windows["cell"].map(free["response_max"]).astype(float))
    windows = _each(rows, _recovered(rows, windows), size)
    until = inline(windows[["effect", "from_ns"]].assign(to_ns=windows["until_ns"]))
    wrong = context.rows.select("status", "received_ns")
    lost = fetch(fault_tables.without_their_write(wrong, until)).set_index("effect")["lost"]
    by_effect = due.set_index("effect")
    return tuple(
        _effect(
            own,
            _row(by_effect, effect),
            _row(free, own["cell"].iloc[0]),
            int(lost.get(effect, 0)),
        )
        for effect, own in windows.groupby("effect", sort=True)
    )


def _each(rows: Any, windows: pd.DataFrame, size: int) -> pd.DataFrame:
    """Return windows with the levels of each, one column a quantile; NaN where nothing was due."""
    named = windows[["fault", "from_ns", "to_ns"]].rename(columns={"fault": "effect"})
    due = fault_tables.due_within(rows, inline(named))
    found = quantiles_of(due, ["effect"], EACH, size, ("response",)).set_index("effect")
    levels = found["response"]
    return windows.assign(
        **{
            name: windows["fault"].map(levels.map(lambda held, at=at: float(held[at])))
            for at, name in enumerate(EACH_NAMES)
        }
    )


def _windows(faults: pd.DataFrame) -> pd.DataFrame:
    """Each fault of the measured time and its effect: from_ns, to_ns (its end), last_ns.

    At the last the next fault begins, or the leg ends. ``lasting`` faults have an aftermath until
    then; ``beside`` are those during which another one was going on.
    """
    measured = (faults["started_ns"] <= faults["last_ns"]) & (
        faults["ended_ns"] >= faults["first_ns"]
    )
    held = faults[measured].sort_values("started_ns", ignore_index=True)
    begins = held["started_ns"].clip(lower=held["first_ns"]).to_numpy(dtype="int64")
    ends = held["ended_ns"].clip(lower=begins + 1, upper=held["last_ns"] + 1).to_numpy("int64")
    # no two trials overlap, so the fault that begins next is in this trial, or after it
    place = np.searchsorted(begins, ends)
    following = np.minimum(np.append(begins, EVER_NS)[place], held["last_ns"] + 1)
    # of the other faults, those that began before its end less those that had ended by its begin
    others = place - np.searchsorted(np.sort(ends), begins, side="right") - 1
    role = held["detail"].astype("string").str.extract(ROLE, expand=False)
    held = held.assign(process=role.fillna(held["process"]).astype(object))
    keys = ["cell", "kind", "process"]
    return held[keys].assign(
        fault=np.arange(len(held)),
        effect=held.groupby(keys, sort=True).ngroup().astype("int64"),
        from_ns=begins,
        to_ns=ends,
        last_ns=following,
        lasting=held["kind"].isin(UNTIL_THE_NEXT),
        beside=others > 0,
    )


def _aftermath(rows: Any, windows: pd.DataFrame) -> pd.DataFrame:
    """Return windows with ``until_ns``, the end of the aftermath."""
    after = windows[["fault"]].assign(from_ns=windows["to_ns"], to_ns=windows["last_ns"])
    after = after[after["from_ns"] < after["to_ns"]]
    came = fetch(fault_tables.first_reply(rows, inline(after))).set_index("fault")["came_ns"]
    again = windows["fault"].map(came).fillna(EVER_NS - AFTER_NS).astype("int64")
    ends = np.where(windows["lasting"], EVER_NS, again + AFTER_NS)
    return windows.assign(until_ns=np.minimum(ends, windows["last_ns"]))


def _quiet(windows: pd.DataFrame, legs: pd.DataFrame) -> pd.DataFrame:
    """Return the stretches of trials outside faults and aftermaths: cell, from_ns, to_ns, until_ns.

    Sorted begins and ends suffice even if faults overlap: in a quiet stretch as many faults have
    ended as have begun, whichever end belongs to which begin.
    """
    own = legs[legs["cell"].isin(windows["cell"])]
    begins = np.sort(np.concatenate([own["first_ns"], windows["until_ns"]]))
    closes = own["last_ns"].to_numpy() + 1
    ends = np.sort(np.concatenate([windows["from_ns"], closes]))
    # a request scheduled before the end of a trial may be answered after it
    until = np.where(np.isin(ends, closes), EVER_NS, ends)
    quiet = begins < ends
    own = own.sort_values("first_ns")
    whose = np.searchsorted(own["first_ns"].to_numpy(), begins[quiet], side="right") - 1
    found = pd.DataFrame(
        {"from_ns": begins[quiet], "to_ns": ends[quiet], "until_ns": until[quiet]}, dtype="int64"
    )
    return found.assign(cell=own["cell"].to_numpy()[whose])


def _usual_silence(rows: Any, quiet: pd.DataFrame) -> pd.DataFrame:
    """Return the longest fault-free silence of each cell: gap_ns, and of how many replies."""
    named = quiet[["from_ns", "to_ns"]].assign(fault=np.arange(len(quiet)))
    found = fetch(fault_tables.silences(rows, inline(named))).set_index("fault")
    # a stretch without any good reply is one silence
    gap = named["fault"].map(found["gap_ns"]).fillna(named["to_ns"] - named["from_ns"])
    came = named["fault"].map(found["came"]).fillna(0)
    known = pd.DataFrame({"cell": quiet["cell"], "gap_ns": gap.astype(float), "came": came})
    return known.groupby("cell").agg(gap_ns=("gap_ns", "max"), came=("came", "sum"))


def _recovered(rows: Any, windows: pd.DataFrame) -> pd.DataFrame:
    """Return windows with ``gap_ns`` and ``back_ns`` (inf without a reply, NaN without a base)."""
    watched = windows[["fault", "from_ns"]].assign(
        to_ns=windows["until_ns"], free_max_ns=windows["free_max_ns"] * SLOWER
    )
    known = watched[watched["free_max_ns"].notna()]
    hurt = fetch(fault_tables.first_hurt(rows, inline(known))).set_index("fault")["after_ns"]
    asked = windows[windows["fault"].isin(hurt.index)]
    back = windows["free_max_ns"].where(windows["free_max_ns"].isna(), 0.0)
    if len(asked):
        after = asked["fault"].map(hurt).astype("int64")
        later = asked[["fault"]].assign(from_ns=asked["from_ns"] + after, to_ns=asked["last_ns"])
        good = fetch(steadiness_tables.first_good(rows, inline(later))).set_index("fault")["total"]
        back.loc[asked.index] = (after + asked["fault"].map(good)).fillna(np.inf)
    quiet = fetch(fault_tables.silences(rows, inline(watched))).set_index("fault")
    whole = windows["until_ns"] - windows["from_ns"]
    gap = windows["fault"].map(quiet["gap_ns"]).fillna(whole).astype(float)
    came = windows["fault"].map(quiet["came"]).fillna(0).astype("int64")
    return windows.assign(back_ns=back, gap_ns=gap, came=came)


def _is_silent(own: pd.DataFrame, free: dict[str, Any]) -> bool:
    """Return whether the longest silence is beyond what the fault-free time makes likely.

    The longest gap of replies that come at random grows with the logarithm of their number.
    """
    usual, came = free.get("gap_ns", np.nan), free.get("came", np.nan)
    if not (usual > 0 and came > 0):
        return False
    more = np.log1p(float(own["came"].sum())) / np.log1p(float(came))
    return bool(own["gap_ns"].max() > LONGER * usual * max(1.0, more))


def _row(frame: pd.DataFrame, key: Any) -> dict[str, Any]:
    return dict(frame.loc[key]) if key in frame.index else {}


def _effect(own: pd.DataFrame, due: dict[str, Any], free: dict[str, Any], lost: int) -> FaultEffect:
    absent: Absent = {}
    during = _levels(due, "", "nothing was due in its window", absent)
    usual = _levels(free, "free_", "nothing was due in fault-free time", absent)
    ratio = None
    if during["p99"] is not None and usual["p99"]:
        ratio = during["p99"] / usual["p99"]
    else:
        absent["p99_ratio"] = absent.get("p99") or absent.get("free_p99") or "no time passed"
    back = own["back_ns"]
    if back.isna().any():
        absent["back_ns"] = "no reply came in fault-free time"
    if not free.get("came", 0) > 0:
        absent["free_gap_ns"] = "no reply came in fault-free time"
    first = own.iloc[0]
    return FaultEffect(
        str(first["cell"]),
        str(first["kind"]),
        str(first["process"]),
        len(own),
        float((own["to_ns"] - own["from_ns"]).median()),
        int(due.get("n", 0)),
        int(due.get("failed", 0)),
        during["p50"],
        during["p99"],
        during["max_ok"],
        int(free.get("n", 0)),
        usual["p50"],
        usual["p99"],
        usual["max_ok"],
        ratio,
        None if back.isna().any() else tuple(it if np.isfinite(it) else None for it in back),
        float(own["gap_ns"].max()),
        float(free["gap_ns"]) if free.get("came", 0) > 0 else None,
        _is_silent(own, free),
        lost,
        int(own["beside"].sum()),
        {
            name: repeats_interval(levels.to_numpy(), log=True)
            for name in EACH_NAMES
            if len(levels := own[name].dropna())
        },
        absent,
    )


def _levels(
    found: dict[str, Any], prefix: str, nothing: str, absent: dict[str, str]
) -> dict[str, float | None]:
    """p50, p99 and the slowest answered one; a percentile among the failed is none."""
    largest = found.get("response_max")
    levels: dict[str, float | None] = {
        "max_ok": None if largest is None or pd.isna(largest) else float(largest)
    }
    for place, name in enumerate(("p50", "p99")):
        value = float(found["response"][place]) if found else np.nan
        levels[name] = value if np.isfinite(value) else None
        if levels[name] is None:
            failed = f"its rank falls among the {int(found.get('failed', 0)):,} that failed"
            absent[prefix + name] = failed if found else nothing
    if levels["max_ok"] is None:
        absent[prefix + "max_ok"] = "no request was answered well" if found else nothing
    return levels
