"""Advice on groups: failure detection, replicas under a timeout, and XFT."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from unruly.quantity import duration, percent
from unruly.stats import (
    Detection,
    Interval,
    SlowMembers,
    accuracy_set,
    crossing,
    partitioned_share,
    replicas_needed,
    slow_members,
    smallest_count,
    suspicions,
    xft,
)
from unruly.stats.blocks import BLOCKS
from unruly.topics.advice import words
from unruly.topics.advice.ground import NOT_GROUPS
from unruly.topics.advice.model import (
    Absent,
    DetectionAdvice,
    DetectionPoint,
    Part,
    ReplicasAdvice,
    ReplicasPoint,
    XftAdvice,
    XftPoint,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.stats import Nines
    from unruly.topics.advice.ground import Ground, Key, Squares

RATE_WANTED = 1.0
"""False suspicions an hour and pair that people put up with: the timeout is chosen so."""
NINES_SPARED = 0.3
"""The chosen timeout costs XFT no more than this of the nines it has without slowness."""
PINGS_LEAST = 30
WINDOWS_LEAST = 6


def detection(ground: Ground, squares: dict[Key, Squares]) -> Part[DetectionAdvice]:
    """Failure detection by the pings of each op, and its accuracy sets where there are groups."""
    rows, absent = [], list(ground.too_many)
    for record in ground.pings.to_dict("records"):
        key = str(record["cell"]), str(record["op"])
        period_ns = float(record["period_ns"])
        if not ground.timeouts_ns:
            absent.append(Absent(*key, "nothing was answered: there is no timeout to try"))
        elif int(record["n"]) < PINGS_LEAST or not isfinite(period_ns) or period_ns <= 0:
            reason = f"fewer than {PINGS_LEAST} pings of one pair after another"
            absent.append(Absent(*key, reason))
        else:
            missed = _missed(ground, squares.get(key))
            rows.append(_detection(ground, record, key, missed, squares.get(key)))
    return Part(
        "detection",
        "Which timeout should a failure detector have?",
        "Every client pings every peer as the run did and suspects it when a reply is later than "
        "T; nobody who is counted was down (rows of a killed process are left out), so every "
        "suspicion is a false one. Rates are of one observer that watches one peer. "
        + ground.blind_spot,
        tuple(rows),
        tuple(absent),
    )


def _detection(
    ground: Ground,
    record: dict[str, Any],
    key: Key,
    missed: list[Interval | None],
    square: Squares | None,
) -> DetectionAdvice:
    own = ground.late[(ground.late["cell"] == key[0]) & (ground.late["op"] == key[1])]
    late, pings = np.zeros((len(ground.timeouts_ns), BLOCKS)), np.zeros(BLOCKS)
    blocks = own["block"].to_numpy()
    pings[blocks] = own["pings"].to_numpy()
    for place in range(len(ground.timeouts_ns)):
        late[place, blocks] = own[f"late_{place}"].to_numpy()
    period_ns = float(record["period_ns"])
    found = suspicions(
        late, pings, ground.timeouts_ns, period_ns=period_ns, level=ground.wanted.level
    )
    points = tuple(
        DetectionPoint(
            it.timeout_ns, it.false_per_hour, it.detection_mean_ns, it.detection_max_ns, unseen
        )
        for it, unseen in zip(found, missed, strict=True)
    )
    chosen = _chosen_detection(ground, found)
    members = max(square.sizes) if square is not None and square.sizes else None
    return DetectionAdvice(
        key[0], key[1], int(record["n"]), int(record["pairs"]), period_ns, members, points, chosen,
        words.detection(key[1], points, chosen, int(record["n"]), members, ground.wanted),
    )  # fmt: skip


def _chosen_detection(ground: Ground, found: Sequence[Detection]) -> float | None:
    asked = _asked(ground)
    if asked is not None:
        return asked
    sure = [it for it in found if (it.false_per_hour.high or 0.0) <= RATE_WANTED]
    if sure:
        return sure[0].timeout_ns
    fewest = min(it.suspicions for it in found)
    return next(it.timeout_ns for it in found if it.suspicions == fewest)


def _asked(ground: Ground) -> float | None:
    return next((t for t in ground.wanted.timeouts_ns if t in ground.timeouts_ns), None)


def _missed(ground: Ground, square: Squares | None) -> list[Interval | None]:
    """How many members are outside the accuracy set, for each timeout."""
    if square is None or not square.sizes or len(square.windows) < WINDOWS_LEAST:
        return [None] * len(ground.timeouts_ns)
    members = (~np.isnan(square.seen_ns)).any(axis=1).sum(axis=1)
    outside = members[None, :] - accuracy_set(square.seen_ns, ground.timeouts_ns)
    most = int(members.max())
    found: list[Interval | None] = []
    for counts in outside:
        at_most = counts[:, None] <= np.arange(most + 1)[None, :]
        found.append(
            smallest_count(
                at_most, windows=square.windows, confidence=ground.wanted.confidence,
                level=ground.wanted.level,
            )[1]
        )  # fmt: skip
    return found


def replicas(ground: Ground, squares: dict[Key, Squares]) -> Part[ReplicasAdvice]:
    """Replicas under a timeout, f + s(T) + 1, against 2 f + 1, for each op with groups."""
    rows, absent = [], list(ground.too_many)
    smallest = ground.wanted.faults + 1
    for key in ground.subjects:
        square = squares.get(key)
        reason = _no_windows(ground, square)
        if reason is None and square is not None and max(square.sizes) < smallest:
            reason = (
                f"its groups have {max(square.sizes)} members at most; f = "
                f"{ground.wanted.faults} asks for groups of {smallest} or more"
            )
        if reason is not None or square is None:
            absent.append(Absent(*key, reason or NOT_GROUPS))
        else:
            rows.append(_replicas(ground, key, square))
    f = ground.wanted.faults
    return Part(
        "replicas",
        f"How many replicas survive {f} crash{'es' if f > 1 else ''}?",
        f"Visigoth fault tolerance: f + s(T) + 1 replicas, where s is the number of correct peers "
        f"of which the worst-placed observer had any reply later than T in a window of "
        f"{duration(ground.window_ns)}. s must hold in {percent(ground.wanted.confidence)} "
        f"of the windows. Crashes come independently of slowness, and tomorrow is like this run. "
        f"{ground.blind_spot}",
        tuple(rows),
        tuple(absent),
    )


def _no_windows(ground: Ground, square: Squares | None) -> str | None:
    if not ground.timeouts_ns:
        return "nothing was answered: there is no timeout to try"
    if square is None:
        return NOT_GROUPS
    if len(set(square.windows)) < WINDOWS_LEAST:
        return (
            f"{len(set(square.windows))} windows of {duration(ground.window_ns)} in which "
            f"every pair was measured; {WINDOWS_LEAST} are needed"
        )
    return None


def _replicas(ground: Ground, key: Key, square: Squares) -> ReplicasAdvice:
    faults, wanted = ground.wanted.faults, ground.wanted
    # s of groups of m proves n <= m replicas: more than 2 f + 1 members prove nothing new
    sizes = range(faults + 1, min(2 * faults + 1, max(square.sizes)) + 1)
    slow: list[SlowMembers] = []
    for size in sizes:
        slow += slow_members(
            square.seen_ns, ground.timeouts_ns, size, windows=square.windows,
            confidence=wanted.confidence, level=wanted.level,
        )  # fmt: skip
    needed = replicas_needed(slow, faults)
    means = {it.timeout_ns: it.mean for it in slow if it.size == sizes[-1]}
    points = tuple(ReplicasPoint(it.timeout_ns, it, means[it.timeout_ns]) for it in needed)
    sure, likely = crossing(needed, 2 * faults)
    chosen = _asked(ground) or sure or likely
    windows = len(set(square.windows))
    return ReplicasAdvice(
        key[0], key[1], windows, ground.window_ns, square.sizes, points, chosen,
        words.replicas(key[1], points, chosen, windows, ground.window_ns, wanted),
    )  # fmt: skip


def cross_faults(ground: Ground, squares: dict[Key, Squares]) -> Part[XftAdvice]:
    """XFT against CFT and BFT, by how often a member is partitioned at T."""
    rows, absent = [], list(ground.too_many)
    for key in ground.subjects:
        square = squares.get(key)
        reason = _no_windows(ground, square)
        if reason is not None or square is None:
            absent.append(Absent(*key, reason or NOT_GROUPS))
        else:
            rows.append(_cross_faults(ground, key, square))
    wanted, t = ground.wanted, ground.wanted.faults
    return Part(
        "xft",
        "Would cross fault tolerance pay?",
        f"A member is partitioned when it is outside the largest set of members that all hear each "
        f"other within T in a window of {duration(ground.window_ns)}. Replicas fail "
        f"independently: {percent(wanted.byzantine)} are Byzantine and {percent(wanted.crashed)} "
        f"crashed; latencies do not show that. XFT and CFT have {2 * t + 1} replicas, BFT has "
        f"{3 * t + 1}. {ground.blind_spot}",
        tuple(rows),
        tuple(absent),
    )


def _cross_faults(ground: Ground, key: Key, square: Squares) -> XftAdvice:
    faults = ground.wanted.faults
    shares = partitioned_share(
        square.seen_ns, ground.timeouts_ns, windows=square.windows, level=ground.wanted.level
    )
    points = tuple(
        XftPoint(timeout, share, _nines(ground, share.estimate), _nines(ground, share.high))
        for timeout, share in zip(ground.timeouts_ns, shares, strict=True)
    )
    best = _nines(ground, 0.0).xft_consistency - NINES_SPARED
    good = [point.timeout_ns for point in points if point.nines.xft_consistency >= best]
    likely = good[0] if good else points[-1].timeout_ns
    chosen = _asked(ground) or likely
    windows = len(set(square.windows))
    return XftAdvice(
        key[0], key[1], windows, ground.window_ns, points, chosen,
        words.cross_faults(key[1], points, chosen, faults),
    )  # fmt: skip


def _nines(ground: Ground, partitioned: float | None) -> Nines:
    wanted, share = ground.wanted, 1.0 if partitioned is None else partitioned
    return xft(wanted.faults, share, crashed=wanted.crashed, byzantine=wanted.byzantine)
