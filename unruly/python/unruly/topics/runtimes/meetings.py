"""Whether slow copies met a collection more than others, and how much was collected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from unruly.base.ladder import LEVEL
from unruly.stats import Interval, interval_of_ratio, share_interval
from unruly.stats.blocks import BLOCKS
from unruly.tables import fetch
from unruly.topics.runtimes import tables as runtime_tables
from unruly.topics.runtimes.model import (
    ANYBODY,
    ENDS,
    FAILED,
    Collecting,
    CollectorMeetings,
    Meeting,
)
from unruly.topics.runtimes.spans import AGENT, Odds

if TYPE_CHECKING:
    from unruly.topics.runtimes.model import EndName
    from unruly.topics.runtimes.part import RuntimePart
    from unruly.topics.runtimes.spans import Spans

SLOW_MOST: Final = 20_000
SLOW_LEAST: Final = 200
"""So many slow copies of each (cell, op) are asked what chance would do, however many there are."""
METHOD: Final = "shares by blocks, variances recovered from the limits"
SIDES: Final = {"asking": ("asks", "client"), "answering": ("answers", "server")}


def meetings_of(part: RuntimePart, spans: Spans) -> list[CollectorMeetings]:
    """Return those of every (cell, op) with a JVM, and of all ops of a cell with several."""
    if not part.agents["jvm"].any():
        return []
    frame = fetch(runtime_tables.met(part.rows, spans.near))
    chance = _by_chance(part, spans)
    named = part.places.drop_duplicates("number")
    found: list[tuple[str, str, float | None, list[int]]] = []
    for cell, ops in named.groupby("cell", sort=True):
        for row in ops.to_dict("records"):
            limit = float(row["limit_ns"])
            found.append((cell, row["op"], limit if limit < FAILED else None, [row["number"]]))
        if len(ops) > 1:
            found.append((cell, ANYBODY, None, list(ops["number"])))
    meetings = []
    for cell, op, known, numbers in found:
        own = frame[frame["number"].isin(numbers)]
        if own["asks"].any() or own["answers"].any():
            odds = chance[chance["number"].isin(numbers)]
            ends = tuple(_meeting(end, own, odds) for end in ENDS)
            meetings.append(CollectorMeetings(str(cell), str(op), known, ends))
    return meetings


def _with_jvm(frame: pd.DataFrame, end: str) -> pd.DataFrame:
    """Those that can meet a collection at that end."""
    there = {name: frame[runtime] == 1 for name, (runtime, _) in SIDES.items()}
    return frame[there["asking"] | there["answering"] if end == "either" else there[end]]


def _meeting(end: EndName, frame: pd.DataFrame, chance: pd.DataFrame) -> Meeting:
    own = _with_jvm(frame, end)
    counts = {}
    for name, part in (("slow", own[own["slow"]]), ("others", own[~own["slow"]])):
        blocks = part["block"].to_numpy(dtype=np.int64)
        for column in (end, "n"):
            weights = part[column].to_numpy(dtype=np.float64)
            counts[name, column] = np.bincount(blocks, weights, minlength=BLOCKS)
    sums = {key: int(values.sum()) for key, values in counts.items()}
    absent: dict[str, str] = {}
    shares: dict[str, Interval | None] = dict.fromkeys(("slow", "others"))
    for name in shares:
        if sums[name, "n"]:
            shares[name] = share_interval(counts[name, end], counts[name, "n"], LEVEL)
        else:
            absent[f"{name}_share"] = f"there are no {name} copies with a JVM there"
    lift = _lift(shares["slow"], shares["others"], absent)
    likely = mean_chance(end, own[own["slow"]], _with_jvm(chance, end))
    if likely is None:
        absent["by_chance"] = absent.get("slow_share", "no slow copy was looked at")
    return Meeting(
        end,
        sums["slow", "n"], sums["slow", end], sums["others", "n"], sums["others", end],
        shares["slow"], shares["others"], lift,
        likely,
        absent,
    )  # fmt: skip


def mean_chance(end: str, slow: pd.DataFrame, sampled: pd.DataFrame) -> float | None:
    """Return the mean chance of slow copies, of each number only some of which were looked at.

    Parameters
    ----------
    slow : DataFrame
        number, n: how many slow copies there are.
    sampled : DataFrame
        number, and at ``end`` the chance of each that was looked at. Each stands for as many as
        there are of its number for one that was looked at.

    Returns
    -------
    float or None
        None where none was looked at.
    """
    if sampled.empty:
        return None
    many = slow.groupby("number")["n"].sum()
    weights = sampled["number"].map(many / sampled["number"].value_counts()).fillna(0.0)
    chances = sampled[end].to_numpy(dtype=np.float64)
    total = float(weights.sum())
    return float(weights.to_numpy(dtype=np.float64) @ chances) / total if total else None


def _lift(
    slow: Interval | None, others: Interval | None, absent: dict[str, str]
) -> Interval | None:
    """Slow over others; where no other copy met one only a least is known."""
    if slow is None or others is None or not slow.estimate:
        absent["lift"] = absent.get("slow_share") or absent.get("others_share") or (
            "no slow copy met a collection"
        )  # fmt: skip
        return None
    n, effective = slow.n + others.n, min(slow.n_effective or 0.0, others.n_effective or 0.0)
    if not others.estimate:
        absent["lift.estimate"] = "no other copy met a collection"
        least = slow.low / others.high if slow.low and others.high else None
        return Interval(None, least, None, LEVEL, n, effective, METHOD)
    ends = [(it.estimate or 0.0, it.low or None, it.high) for it in (others, slow)]
    ratio, low, high = interval_of_ratio(ends[0], ends[1])
    return Interval(ratio, low, high, LEVEL, n, effective, METHOD)


def _by_chance(part: RuntimePart, spans: Spans) -> pd.DataFrame:
    """Of some slow copies how likely each met a collection: number, asks, answers, and `ENDS`."""
    most = max(SLOW_LEAST, SLOW_MOST // part.places["number"].nunique())
    frame = fetch(runtime_tables.slow_copies(part.rows, most))
    odds = _odds(part, spans)
    took = frame["took_ns"].to_numpy(dtype=np.float64)
    for end, (runtime, side) in SIDES.items():
        likely = np.zeros(len(frame))
        there = (frame[runtime] == 1).to_numpy()
        for key, rows in frame[there].groupby(["place", side]).groups.items():
            place = frame.index.get_indexer(rows)
            if key in odds:
                likely[place] = odds[key].met(took[place])
        frame[end] = likely
    # who asks itself has one collector, and not two
    alone = frame["client"] == frame["server"]
    both = 1 - (1 - frame["asking"]) * (1 - frame["answering"])
    frame["either"] = both.where(~alone, frame["asking"])
    return frame


def _legs(part: RuntimePart) -> dict[int, tuple[int, int]]:
    """When each (cell, repeat) was measured, by its place."""
    legs = part.places.drop_duplicates("place")
    columns = (legs[name] for name in ("place", "first_ns", "last_ns"))
    return {
        int(place): (int(first), int(last)) for place, first, last in zip(*columns, strict=True)
    }


def _odds(part: RuntimePart, spans: Spans) -> dict[Any, Odds]:
    legs = _legs(part)
    return {key: Odds.of(own, *legs[int(key[0])]) for key, own in spans.merged.groupby(AGENT)}


def collecting_of(part: RuntimePart, spans: Spans) -> list[Collecting]:
    """Say how much the JVMs of each cell collected while it was measured."""
    legs = _legs(part)
    odds = _odds(part, spans)
    told = spans.told.assign(
        first_ns=[legs[place][0] for place in spans.told["place"]],
        last_ns=[legs[place][1] for place in spans.told["place"]],
    )
    told = told[(told["ended_ns"] >= told["first_ns"]) & (told["started_ns"] <= told["last_ns"])]
    found = []
    for cell, agents in part.agents[part.agents["jvm"] == 1].groupby("cell", sort=True):
        own = told[told["place"].isin(agents["place"])]
        lengths = [legs[place][1] - legs[place][0] for place in agents["place"]]
        inside = [
            odds[key].inside_ns if key in odds else 0.0
            for key in zip(agents["place"], agents["node"], strict=True)
        ]
        by_node = pd.DataFrame({"node": agents["node"], "inside": inside, "length": lengths})
        sums = by_node.groupby("node").sum()
        longest = (own["ended_ns"] - own["started_ns"]).max() if len(own) else 0
        found.append(
            Collecting(
                str(cell), len(sums), len(own),
                len(own) / max(1, sum(lengths)) * 1e9,
                sum(inside) / max(1, sum(lengths)),
                float((sums["inside"] / sums["length"].clip(lower=1)).max()),
                float(longest),
            )
        )  # fmt: skip
    return found
