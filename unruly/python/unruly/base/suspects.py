"""Processes that may have made requests slow, and when: spans from events, samples and parts.

The search ignores the labels of injected faults. A production system has no such labels, so a
method that reads them could not find causes there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from unruly.base.mechanisms import (
    BY_NAME,
    CLIENT_NOT_WHERE,
    MECHANISMS,
    SERVER_NOT_WHERE,
    Mechanism,
    Metric,
)
from unruly.quantity import count
from unruly.tables import causes as cause_tables
from unruly.tables import fetch, inline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd
    from numpy.typing import NDArray

    from unruly.base.context import Context
    from unruly.base.mechanisms import MechanismName

DIED: Final = "process died"
STARTED: Final = "process started"
EVENTS_MOST: Final = 100_000
SAMPLES_MOST: Final = 200_000
SAMPLES_LEAST: Final = 10
"""Fewer samples do not show which values are usual."""
DEVIATIONS: Final = 6.0
OF_HIGHEST: Final = 0.1
"""The least share of a metric's highest value: a lower sample is no cause next to the peak."""
SPREAD: Final = 1.4826
"""Times the median absolute deviation is the standard deviation of a normal distribution."""
GAP_NS: Final = 20_000_000
"""Samples follow one another, but not to the millisecond."""


@dataclass(frozen=True)
class Suspect:
    """A mechanism at a process, with the spans (wall clock, ns) in which it was seen."""

    mechanism: Mechanism
    process: str
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    of: frozenset[tuple[str, int]] | None = None
    """Whose requests: ("client" or "server", number); None for everybody's."""
    place: tuple[str, str] | None = None
    """The (cell, op) that it is about; None for all."""
    not_where: tuple[str, ...] = field(default=())
    is_host: bool = False
    """True if only the host counted it: then it is less specific than the same at a process."""

    @property
    def told(self) -> str:
        """What the requests did because of it."""
        return self.mechanism.told.format(process=self.process)


def suspect(
    mechanism: Mechanism,
    process: str,
    of: frozenset[tuple[str, int]] | None,
    spans: Iterable[tuple[int, int]],
    gap_ns: int = 0,
) -> Suspect | None:
    """Return who it was, unless it can delay nobody, or was not seen."""
    starts, ends = merged(spans, gap_ns)
    if (of is not None and not of) or not starts.size:
        return None
    sides = {side for side, _ in of or ()}
    one_sided = {"client": CLIENT_NOT_WHERE, "server": SERVER_NOT_WHERE}
    not_where = one_sided[sides.pop()] if len(sides) == 1 else ()
    return Suspect(
        mechanism, process, starts, ends, of, not_where=(*mechanism.not_where, *not_where)
    )


def merged(
    spans: Iterable[tuple[int, int]], gap_ns: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Spans in order, without overlaps; those that are no farther apart than `gap_ns` are one.

    Examples
    --------
    >>> [it.tolist() for it in merged([(5, 7), (0, 2), (1, 4)])]
    [[0, 5], [4, 7]]
    """
    joined: list[list[int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1] + gap_ns:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    both = np.asarray(joined, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def inside(
    spans: tuple[NDArray[np.float64], NDArray[np.float64]], at: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How much of spans that are in order, and do not overlap, lies before each instant.

    Examples
    --------
    >>> inside((np.array([0.0, 6.0]), np.array([2.0, 7.0])), np.array([1.0, 4.0, 9.0])).tolist()
    [1.0, 2.0, 3.0]
    """
    edges = np.column_stack(spans).ravel()
    before = np.repeat(np.cumsum(spans[1] - spans[0]), 2)
    before[::2] -= spans[1] - spans[0]
    return np.interp(at, edges, before)


def from_events(context: Context, left_out: list[str]) -> Iterator[Suspect]:
    """Yield processes that stopped, died, paused or waited according to their events.

    A sentence about ignored events is appended to `left_out`.
    """
    kinds = [kind for it in MECHANISMS for kind in it.events]
    frame = fetch(cause_tables.events(context.run.events, [*kinds, STARTED], EVENTS_MOST))
    if _cut(frame):
        left_out.append(
            f"Of {count(frame['total'].iloc[0])} events of causes only {count(len(frame))} were "
            "looked at: of each process the longest"
        )
    by_leg = context.extents.groupby(["cell", "repeat"])["end_ns"].max()
    legs = {(str(cell), int(repeat)): int(end) for (cell, repeat), end in by_leg.items()}
    for mechanism in MECHANISMS:
        own = frame[frame["kind"].isin(mechanism.events)]
        for process, part in own.groupby("process", sort=True):
            begun = frame[(frame["kind"] == STARTED) & (frame["process"] == process)]
            spans = _spans(part, begun, legs)
            found = suspect(mechanism, str(process), context.touched(str(process)), spans)
            if found is not None:
                yield found


def _spans(
    part: pd.DataFrame, begun: pd.DataFrame, legs: dict[tuple[str, int], int]
) -> list[tuple[int, int]]:
    """When each event began and ended.

    Who died is so until he is started again, and else until his leg ends: the next one starts its
    processes anew without an event that says so.
    """
    again = {leg: sorted(own["started_ns"]) for leg, own in begun.groupby(["cell", "repeat"])}
    spans = []
    columns = ("cell", "repeat", "kind", "started_ns", "lasted_ns")
    for cell, repeat, kind, start, lasted in zip(*(part[it] for it in columns), strict=True):
        end = start + lasted
        if kind == DIED:
            last = max(start, legs.get((cell, repeat), start))
            end = next((at for at in again.get((cell, repeat), ()) if at > start), last)
        spans.append((int(start), int(end)))
    return spans


def from_samples(context: Context, left_out: list[str]) -> Iterator[Suspect]:
    """Yield hosts and processes with a metric that was high at times, compared with the whole run.

    A sentence about ignored samples is appended to `left_out`.
    """
    metrics = {metric.name: metric for it in MECHANISMS for metric in it.metrics}
    names = list(metrics)
    levels = cause_tables.levels(
        context.run.resources, {name: metric.per for name, metric in metrics.items()}
    )
    usual = fetch(cause_tables.usual_levels(levels, names))
    if usual.empty:
        return
    limits = {f"{name}_least": _least(usual, metric) for name, metric in metrics.items()}
    middles = usual[[*cause_tables.WHOSE, *(f"{name}_middle" for name in names)]]
    frame = fetch(
        cause_tables.high_samples(levels, inline(middles.assign(**limits)), names, SAMPLES_MOST)
    )
    if _cut(frame):
        left_out.append(
            f"Of {count(frame['total'].iloc[0])} samples with a metric that was high only "
            f"{count(len(frame))} were looked at, as chance chose"
        )
    for mechanism in MECHANISMS:
        own = frame[frame[[metric.name for metric in mechanism.metrics]].any(axis=1)]
        # a quota and retransmissions are those of a process where it has a group or network
        for (watched, name), part in own.groupby(["watched", "whose"], sort=True):
            of = context.touched(str(name)) if watched else context.touched_on(str(name))
            spans = zip(part["started_ns"], part["ended_ns"], strict=True)
            gap_ns = GAP_NS
            if mechanism.counted_late:
                gap_ns += int((part["ended_ns"] - part["started_ns"]).median())
            found = suspect(mechanism, str(name), of, spans, gap_ns)
            if found is not None:
                yield replace(found, is_host=not watched)


def _cut(frame: pd.DataFrame) -> bool:
    return bool(len(frame)) and len(frame) < int(frame["total"].iloc[0])


def _least(usual: pd.DataFrame, metric: Metric) -> NDArray[np.float64]:
    """Return the least value above a metric's floor and far above the usual of each process."""
    n, middle, spread, highest = (
        usual[f"{metric.name}_{what}"].to_numpy(dtype=np.float64, na_value=np.nan)
        for what in ("n", "middle", "spread", "highest")
    )
    far = np.fmax(middle + DEVIATIONS * SPREAD * spread, OF_HIGHEST * highest)
    return np.where(n < SAMPLES_LEAST, np.inf, np.fmax(metric.floor, far))


def above_usual(values: NDArray[np.float64], deviations: float) -> float:
    """Return the median plus this many robust standard deviations."""
    middle = float(np.nanmedian(values))
    return middle + deviations * SPREAD * float(np.nanmedian(np.abs(values - middle)))


def of_part(
    context: Context,
    name: MechanismName,
    node: int,
    key: tuple[str, str],
    spans: Iterable[tuple[int, int]],
) -> Suspect:
    """A part of the requests of one node, in the spans in which it was unusually long."""
    mechanism = BY_NAME[name]
    sends = mechanism.part in ("send_lag", "client_kernel")
    process = context.name(node, sends=sends, cell=key[0])
    starts, ends = merged(spans, GAP_NS)
    side = "client" if sends else "server"
    return Suspect(mechanism, process, starts, ends, frozenset({(side, node)}), key)
