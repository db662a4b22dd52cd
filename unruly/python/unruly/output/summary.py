"""``summary.json``: the analysis as JSON, valid against unruly/schema/summary.schema.json."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from unruly.base.plain import plain
from unruly.contract import LEFT_OUT
from unruly.topics.registry import TOPICS

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from unruly.base.analysis import Analysis
    from unruly.base.model import (
        Conservation,
        Correlation,
        Definition,
        Finding,
        GroupSummary,
        NamedNode,
        SelfDistrust,
        SlowSets,
        VarianceShares,
    )
    from unruly.base.operation import CellSummary
    from unruly.base.statuses import Connections, StatusCode
    from unruly.base.worked import Outage
    from unruly.contract import Count, Positive

SCHEMA: Final = 1
FILE = "summary.json"


@dataclass(frozen=True)
class FailureKind:
    """A status of failed requests, and how often it came."""

    status: str
    count: Positive


@dataclass(frozen=True)
class WorkedSummary:
    """Did it work: failed requests by status, and spans in which every request failed."""

    requests: Count
    failed: Count
    share: float | None
    """Failed share; None when nothing was measured."""
    kinds: tuple[FailureKind, ...]
    """Each status of a failure and how often it came, the most frequent first."""
    outages: tuple[Outage, ...]
    sentence: str
    ok: bool
    """At most 1 % failed, and something was measured."""


@dataclass(frozen=True)
class SlowNodesSummary:
    """Who is slow, in whose eyes, and how that depends on the definition."""

    window_ns: Count
    """The length of a window; the longest one where the cells have different ones."""
    factor: float
    percentile: float
    floor_ns: Count
    windows: Count
    left_out: Count
    """(window, op, sender, receiver) combinations with fewer rows than ``least_rows``."""
    least_rows: Count
    jaccard_mean: float | None
    named: tuple[NamedNode, ...]
    histogram: Annotated[pd.DataFrame, SlowSets]
    sensitivity: Annotated[pd.DataFrame, Definition]
    cell_windows_ns: dict[str, Count] = field(default_factory=dict, metadata=LEFT_OUT)
    """The length of a window of each cell, only where they differ."""


@dataclass(frozen=True)
class CorrelationsSummary:
    """Replies paired with the resource sample of their receiver nearest in time.

    ``unit`` names the paired values.
    """

    paired_share: float | None
    largest_distance_ns: float | None
    unit: str
    note: str
    metrics: tuple[Correlation, ...]


@dataclass(frozen=True)
class Summary:
    """summary.json: what ``unruly verdict`` says of a run.

    Latencies are in nanoseconds. What cannot be said is null, and its reason stands under the same
    name in ``absent``. Readers ignore keys that they do not know.
    """

    schema: Literal[1]
    run: str
    name: str
    tag: str
    status: str
    measured_ns: float
    """The measured time, summed over cells and repeats."""
    worked: WorkedSummary
    statuses: tuple[StatusCode, ...]
    """Status codes of measured replies by cell and operation; empty where they have none."""
    connections: Connections | None
    """What became of connections that carry one request at a time; null where replies have no
    status code."""
    trustworthy: bool
    doubts: list[str]
    """Titles of what spoils the run."""
    cells: list[CellSummary]
    groups: list[GroupSummary]
    slow_nodes: SlowNodesSummary
    correlations: CorrelationsSummary
    decomposition: Annotated[pd.DataFrame, VarianceShares]
    self_distrust: SelfDistrust
    findings: list[Finding]
    conservation: Conservation
    missing: list[str]
    left_out: list[str]
    """Cells and systems of the matrix that could not be measured, a sentence each."""


def summary(analysis: Analysis) -> dict[str, Any]:
    """Return the analysis as plain JSON values.

    Parameters
    ----------
    analysis : Analysis
        As `unruly.analyse` gives it.

    Returns
    -------
    dict
        Valid against ``unruly/schema/summary.schema.json``. What cannot be said is null, and its
        reason stands under the same name in ``absent``. After the keys of `Summary` comes what each
        topic says, in the order of the registry; null where it does not apply.
    """
    found: dict[str, Any] = plain(
        Summary(
            schema=SCHEMA,
            run=analysis.run.id,
            name=analysis.run.name,
            tag=analysis.run.tag,
            status=analysis.run.status,
            measured_ns=analysis.measured_ns,
            worked=_worked(analysis),
            statuses=analysis.statuses,
            connections=analysis.connections,
            trustworthy=analysis.trustworthy,
            doubts=analysis.doubts,
            cells=analysis.cells,
            groups=analysis.groups,
            slow_nodes=_slow_nodes(analysis),
            correlations=_correlations(analysis),
            decomposition=analysis.decomposition,
            self_distrust=analysis.self_distrust,
            findings=analysis.findings,
            conservation=analysis.conservation,
            missing=analysis.run.missing,
            left_out=analysis.run.left_out,
        )
    )
    models = {topic: analysis.topics.get(topic.name) for topic in TOPICS}
    return found | {
        topic.name: None if model is None else plain(topic.summary(model))
        for topic, model in models.items()
    }


def write_summary(analysis: Analysis) -> Path | None:
    """Write summary.json into the run directory, whole or not at all; None when it is read-only."""
    path = analysis.run.path / FILE
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    text = json.dumps(summary(analysis), indent=1, allow_nan=False) + "\n"
    try:
        # a new file: a link of that name may lead anywhere
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except OSError:
        return None
    return path


def _worked(analysis: Analysis) -> WorkedSummary:
    found = analysis.worked
    return WorkedSummary(
        requests=found.requests,
        failed=found.failed,
        share=found.share,
        kinds=tuple(FailureKind(status, number) for status, number in found.kinds),
        outages=found.outages,
        sentence=found.sentence,
        ok=found.ok,
    )


def _slow_nodes(analysis: Analysis) -> SlowNodesSummary:
    found, options = analysis.slow_nodes, analysis.options
    differ = len(set(options.windows_ns.values())) > 1
    return SlowNodesSummary(
        window_ns=options.window_ns,
        factor=options.factor,
        percentile=options.percentile,
        floor_ns=options.floor_ns,
        windows=found.windows,
        left_out=found.left_out,
        least_rows=found.least_rows,
        jaccard_mean=found.jaccard_mean,
        named=found.named,
        histogram=found.histogram,
        sensitivity=found.sensitivity,
        cell_windows_ns=dict(options.windows_ns) if differ else {},
    )


def _correlations(analysis: Analysis) -> CorrelationsSummary:
    found = analysis.correlations
    return CorrelationsSummary(
        found.paired_share, found.largest_distance_ns, found.unit, found.note, found.rows
    )
