"""Recoveries that clients wrote down: events of fail-overs inside a call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pandas as pd

CLIENT: Final = re.compile(r"client (\d+) ")
EVER_NS: Final = 2**62


@dataclass(frozen=True)
class Served:
    """When all clients were served again after a fault, by the client that waited longest."""

    detection_ns: float
    failover_ns: float | None
    request_ns: float | None
    total_ns: float | None
    """None if the next fault came first."""

    @property
    def parts(self) -> tuple[float, float | None, float | None, float | None]:
        """Detection, fail-over, request and total."""
        return self.detection_ns, self.failover_ns, self.request_ns, self.total_ns


def served_after(stamps: tuple[int, ...], events: pd.DataFrame) -> dict[int, Served]:
    """Return what clients wrote of each fault, by the time of the fault.

    Each client counts with its first fail-over after the fault and before the next one. A client
    whose request was never answered is left out: its request counts as failed.

    Parameters
    ----------
    stamps : tuple of int
        When each fault of one trial came, ascending.
    events : DataFrame
        The events of that trial, as `unruly.tables.steadiness.fail_overs` gives them.

    Returns
    -------
    dict of int to Served
        No entry for a fault without an answered fail-over.
    """
    if events.empty:
        return {}
    kinds = {kind: part for kind, part in events.groupby("kind")}  # noqa: C416
    noticed, answered = (kinds.get(kind) for kind in ("fail-over", "fail-over answered"))
    if noticed is None or answered is None:
        return {}
    answers: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for it in answered.dropna(subset=["ended_ns"]).itertuples(index=False):
        key = str(it.process), str(it.detail)
        answers.setdefault(key, []).append((int(it.ended_ns), int(it.started_ns)))
    found = {}
    for fault, until in pairwise((*stamps, EVER_NS)):
        inside = noticed[(noticed["started_ns"] >= fault) & (noticed["started_ns"] < until)]
        last = _last(inside, answers)
        if last is not None:
            found[fault] = _served(fault, until, *last)
    return found


def _last(
    noticed: pd.DataFrame, answers: dict[tuple[str, str], list[tuple[int, int]]]
) -> tuple[int, int, int] | None:
    """Return noticed, sent again and answered of the client that was answered last."""
    seen: set[tuple[str, str]] = set()
    found = []
    for it in noticed.itertuples(index=False):
        process, detail = str(it.process), str(it.detail)
        number = CLIENT.match(detail)
        client = process, number[1] if number else detail
        if client in seen:
            continue
        seen.add(client)
        # a request number may come again in another phase: the answer is the next one
        later = [own for own in answers.get((process, detail), ()) if own[1] >= it.started_ns]
        if later:
            answered_ns, sent_ns = min(later)
            found.append((answered_ns, int(it.started_ns), sent_ns))
    if not found:
        return None
    answered_ns, noticed_ns, sent_ns = max(found)
    return noticed_ns, sent_ns, answered_ns


def _served(fault: int, until: int, noticed_ns: int, sent_ns: int, answered_ns: int) -> Served:
    detection = float(noticed_ns - fault)
    if answered_ns > until:
        return Served(detection, None, None, None)
    return Served(
        detection,
        float(sent_ns - noticed_ns),
        float(answered_ns - sent_ns),
        float(answered_ns - fault),
    )
