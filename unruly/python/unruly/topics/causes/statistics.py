"""The causes of slow requests: every suspect is tried; requests that none explains are unknown.

Slow requests are read, up to a limit, and a sample of the others is read for comparison. A suspect
counts if slow requests fall into its spans more often than others do (the lift). Its spans must
also meet more slow requests than spans at other times would (the p value, corrected for all
suspects tried on these requests). A slow request belongs to the most specific cause that covers
half of its time.

The method in full: unruly/docs/methods/causes.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from unruly.base import suspects
from unruly.base.mechanisms import RANK
from unruly.quantity import count, duration, percent
from unruly.stats import Interval, benjamini_hochberg, coincidence, share_interval
from unruly.tables.causes import PARTS
from unruly.topics.causes.model import SLOW_LEAST, UNKNOWN, Cause, Causes, Slowness
from unruly.topics.causes.parts import handled_slowly, long_spans
from unruly.topics.causes.subject import subjects_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unruly.base.context import Context
    from unruly.base.operation import CellSummary
    from unruly.base.suspects import Suspect
    from unruly.stats import Coincidence
    from unruly.topics.causes.subject import Subject

KEYS_MOST: Final = 100
"""A run with more (cell, op) gets no causes: nobody would read a row for each of them."""
FALSE_DISCOVERY: Final = 0.02
"""How often a cause is named for a (cell, op) that has none."""
LIFT_LEAST: Final = 2.0
DECISIVE_P: Final = 0.05
DECISIVE_LIFT: Final = 10.0
"""Limits of a decisive mechanism. It is tried by itself, so no search raised its chance to hit."""
EXPLAINED_LEAST: Final = 0.05
REQUESTS_LEAST: Final = 2
BLOCKS: Final = 30
APART_NS: Final = 100e6
"""Spans that are closer than this, or than twice a slow request is long, are one episode."""
POINT_COLUMNS: Final = ["cell", "op", "intended_ns", "response", "cause"]


def causes(
    context: Context, summaries: Sequence[CellSummary], floor_ns: float, beyond_ns: int | None
) -> Causes:
    """Look for the causes of the slow requests of every (cell, op).

    Parameters
    ----------
    summaries : sequence of CellSummary
        Their p99.9 is the limit beyond which a request is slow; where it falls among the failed,
        only these are.
    floor_ns : float
        The noise floor of the hosts: a part must exceed its usual time by ten times the floor.
    beyond_ns : int, optional
        A limit for all (cell, op) instead.
    """
    context.progress("causes")
    nothing = pd.DataFrame(columns=POINT_COLUMNS)
    limits = _limits(context, summaries, beyond_ns)
    if not limits:
        return Causes((), nothing, "its source kept no times, or no single requests")
    if len(limits) > KEYS_MOST:
        return Causes(
            (), nothing,
            f"{count(len(limits))} cells and operations, where at most {KEYS_MOST} are looked at: "
            "measure those of interest alone",
        )  # fmt: skip
    subjects = subjects_of(context, limits)
    left_out: list[str] = []
    tried = _tried(context, subjects, floor_ns, left_out)
    judged = [
        _judged(subject, _sure(tried[subject.key]))
        if subject.total >= SLOW_LEAST and subject.has_others
        else _untold(subject, tried[subject.key])
        for subject in subjects
    ]
    points = [frame for _, frame in judged if len(frame)]
    return Causes(
        tuple(row for row, _ in judged),
        pd.concat(points, ignore_index=True) if points else nothing,
        left_out=tuple(left_out),
    )


def _limits(
    context: Context, summaries: Sequence[CellSummary], beyond_ns: int | None
) -> dict[tuple[str, str], float]:
    found = {}
    for row in summaries:
        whole = row.latency != "response" or row.op == "*" or row.kept != "rows"
        if not whole and row.cell not in context.run.timeless:
            # if all requests failed, each of them is beyond any limit
            found[row.cell, row.op] = float(beyond_ns or row.p99_9 or row.max_ok or 0)
    return found


@dataclass(frozen=True)
class _Trial:
    """A suspect against the slow requests of one (cell, op)."""

    subject: Subject
    suspect: Suspect
    spans: tuple[NDArray[np.float64], NDArray[np.float64]]
    explained: NDArray[np.bool_]
    """Which of the slow requests the suspect can explain."""
    lift: float
    met: Coincidence

    @property
    def matters(self) -> bool:
        """Whether requests in its spans are slow more often, and more than a few of them."""
        hits = int(self.explained.sum())
        enough = max(REQUESTS_LEAST, EXPLAINED_LEAST * len(self.explained))
        return self.lift >= LIFT_LEAST and hits >= enough

    @property
    def is_decisive(self) -> bool:
        """Whether its mechanism is decisive, and nearly all requests in its spans are slow."""
        rare = self.met.p_value <= DECISIVE_P and self.lift >= DECISIVE_LIFT
        return rare and self.suspect.mechanism.decisive


def _tried(
    context: Context, subjects: list[Subject], floor_ns: float, left_out: list[str]
) -> dict[tuple[str, str], list[_Trial]]:
    """Try every suspect on the slow requests of each (cell, op) that has enough of them.

    If all requests are slow, there is nothing to compare with: only decisive mechanisms are tried.
    """
    many = [it for it in subjects if it.total >= SLOW_LEAST]
    found: dict[tuple[str, str], list[_Trial]] = {it.key: [] for it in subjects}
    if not many:
        return found
    general = [
        *suspects.from_events(context, left_out),
        *suspects.from_samples(context, left_out),
    ]
    # a tap knows no parts of a request that could be long
    compared = [it for it in many if it.has_others and not context.run.watched]
    own = [
        *long_spans(context, {it.key: (it.usual, it.n) for it in compared}, floor_ns),
        *(who for it in compared for who in handled_slowly(context, it.key, it.slow, it.usual)),
    ]
    for subject in many:
        fitting = [
            it
            for it in (*general, *own)
            if it.place in (None, subject.key) and (subject.has_others or it.mechanism.decisive)
        ]
        trials = [_trial(subject, it) for it in fitting]
        found[subject.key] = [it for it in trials if it is not None]
    return found


def _sure(tried: list[_Trial]) -> list[tuple[_Trial, float]]:
    """Return the suspects that are causes of one (cell, op), with their q values.

    Each (cell, op) is judged by itself, because its result must not depend on the number of others.
    The draws also yield no p value small enough for all suspects of a large sweep together.
    """
    q_values = benjamini_hochberg([it.met.p_value for it in tried])
    return [
        (trial, float(q))
        for trial, q in zip(tried, q_values, strict=True)
        if trial.matters and (q <= FALSE_DISCOVERY or trial.is_decisive)
    ]


def _trial(subject: Subject, who: Suspect) -> _Trial | None:
    """Try one suspect; return None if it has no span here, or no request that fits it."""
    spans = subject.within(who)
    if not spans[0].size:
        return None
    whose, covered = _of(who, subject.rows), subject.covered(spans)
    fits = whose & _fits(who, subject.where)
    weighed = np.flatnonzero(fits & (subject.weights > 0))
    if not weighed.size:
        return None
    begins, ends = (times[weighed] for times in subject.times)
    weights = subject.weights[weighed]
    apart = max(APART_NS, 2 * float(np.median(ends - begins)))
    met = coincidence((begins, ends), spans, subject.length, weights=weights, apart=apart)
    explained, others = (fits & covered)[: subject.read], (whose & covered)[subject.read :]
    return _Trial(subject, who, spans, explained, _lift(subject, explained, others), met)


def _of(who: Suspect, frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which requests the suspect can delay: those of its client or server."""
    found = np.full(len(frame), who.of is None)
    for side, number in who.of or ():
        found |= frame[side].to_numpy(dtype=np.int64) == number
    return found


def _fits(who: Suspect, where: NDArray[np.object_]) -> NDArray[np.bool_]:
    """Return which requests spent their excess in a part that this mechanism can delay."""
    if who.mechanism.part:
        return np.asarray(where == who.mechanism.part)
    return ~np.isin(where.astype(str), who.not_where)


def _lift(subject: Subject, explained: NDArray[np.bool_], others: NDArray[np.bool_]) -> float:
    """Return P(slow | present) over P(slow | absent); half a request is added to avoid 0 / 0."""
    weight_slow = subject.total / len(explained)
    weight_others = (subject.n - subject.total) / max(1, len(others))
    shares = []
    for slow, other in ((explained, others), (~explained, ~others)):
        hits = slow.sum() * weight_slow + 0.5
        shares.append(hits / (hits + other.sum() * weight_others + 0.5))
    return float(shares[0] / shares[1])


def _untold(subject: Subject, tried: list[_Trial]) -> tuple[Slowness, pd.DataFrame]:
    """Return a row that says why no cause can be named, and which suspects met the requests."""
    reason = f"{subject.total} slow requests; {SLOW_LEAST} are needed"
    if subject.total >= SLOW_LEAST:
        reason = (
            f"all {count(subject.n)} requests were slow or failed: there are no others to compare "
            "them with"
        )
    for trial in tried:
        if trial.explained.any():
            reason += f"; {percent(float(trial.explained.mean()))} {trial.suspect.told}"
    none = Slowness(
        subject.cell, subject.op, subject.limit_ns or None, subject.total, subject.read, None, (),
        {}, {"unknown": reason},
    )  # fmt: skip
    return none, pd.DataFrame(columns=POINT_COLUMNS)


def _judged(subject: Subject, sure: list[tuple[_Trial, float]]) -> tuple[Slowness, pd.DataFrame]:
    """Give each slow request to the most specific of its causes, and count."""
    slow = subject.slow
    order = sorted(sure, key=lambda it: _place(it[0]))
    owner = np.full(len(slow), -1)
    for place, (trial, _) in enumerate(order):
        owner[(owner < 0) & trial.explained] = place
    found = [
        _cause(subject, trial, q, owner == place)
        for place, (trial, q) in enumerate(order)
        if (owner == place).any()
    ]
    labels = {
        place: f"{trial.suspect.mechanism.name}, {trial.suspect.process}"
        for place, (trial, _) in enumerate(order)
    }
    points = pd.DataFrame(
        {
            "cell": subject.cell,
            "op": subject.op,
            "intended_ns": slow["intended_ns"],
            "response": slow["took_ns"].where(slow["ok"]).astype(float),
            "cause": [labels.get(place, UNKNOWN) for place in owner],
        }
    )
    where = subject.where[: subject.read]
    parts = {part: float((where == part).mean()) for part in PARTS}
    return (
        Slowness(
            subject.cell,
            subject.op,
            subject.limit_ns,
            subject.total,
            len(slow),
            _share(subject, owner < 0),
            tuple(sorted(found, key=lambda it: -it.requests)),
            parts,
        ),
        points,
    )


def _place(trial: _Trial) -> tuple[int, bool, float]:
    """Return a sort key: the most specific, a process before its host, the highest lift."""
    who = trial.suspect
    return RANK[who.mechanism.name], who.is_host, -trial.lift


def _cause(subject: Subject, trial: _Trial, q: float, own: NDArray[np.bool_]) -> Cause:
    begins, ends = (times[: subject.read][own] for times in subject.times)
    starts, stops = trial.spans
    # a span is one of the cause's times when a request of its own was under way in it
    at = np.searchsorted(np.sort(ends), starts, side="right")
    until = np.searchsorted(np.sort(begins), stops, side="left")
    met = until > at
    times, lasted = int(met.sum()), float((stops - starts)[met].sum())
    often = "once" if times == 1 else f"{times} times"
    return Cause(
        trial.suspect.mechanism.name,
        trial.suspect.process,
        _share(subject, own),
        int(own.sum()),
        trial.lift,
        trial.met.p_value,
        q,
        times,
        lasted,
        f"{trial.suspect.told} ({often}, {duration(lasted)})",
    )


def _share(subject: Subject, hits: NDArray[np.bool_]) -> Interval:
    """Of the slow requests, by blocks of time."""
    begins = subject.times[0][: subject.read]
    block = np.minimum(begins / subject.length * BLOCKS, BLOCKS - 1).astype(int)
    of: dict[str, Any] = {"minlength": BLOCKS}
    return share_interval(np.bincount(block[hits], **of), np.bincount(block, **of))
