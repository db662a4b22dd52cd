"""Why: each reply paired with the resource sample of its receiver nearest in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unruly.base.model import Correlation, Correlations
from unruly.base.words import METRIC_WORDS
from unruly.stats import benjamini_hochberg, correlation
from unruly.stats.correlation import BLOCKS_MIN
from unruly.tables import fetch, inline
from unruly.tables import resources as resource_tables

if TYPE_CHECKING:
    import ibis
    import pandas as pd

    from unruly.base.context import Context
    from unruly.base.operation import CellSummary

BLOCKS = 30
SCATTER_METRICS = 6
SCATTER_POINTS = 1_500
UNITS_MAX = 20_000
VARYING_SHARE = 0.05
"""A metric that differs from its commonest value in fewer units than this is left out."""
UNIT = (
    "a unit is one receiver during one of its resource samples: the mean over the ok replies "
    "nearest to that sample of log service latency, less the mean log latency of its cell and op"
)


@dataclass(frozen=True)
class Pairing:
    """Replies paired with samples: for each scope the samples, and the sums of their replies.

    Without any, ``note`` says why.
    """

    scopes: dict[str, tuple[ibis.Table, ibis.Table]]
    note: str = ""


def pair(context: Context) -> Pairing:
    """Pair every reply with the samples of its receiver, and of its host, that are nearest."""
    receivers = context.receivers()
    resources = context.run.resources
    if receivers is None:
        return Pairing({}, "the manifest names no receiver")
    sampled = fetch(resource_tables.samplers(resources))
    if int(sampled["n"].iloc[0]) == 0:
        return Pairing({}, "no resource samples were taken")
    context.progress("pairing")
    bin_ns = max(1, int(sampled["period_ns"].iloc[0] or 1))
    engine, before, sums = context.run.engine, None, None
    scopes: dict[str, tuple[ibis.Table, ibis.Table]] = {}
    for scope in ("host", "process"):
        samples = resource_tables.samples(resources, receivers, scope)
        samples = engine.materialise(f"samples_{scope}", samples)
        spans = resource_tables.spans(samples)
        # a sampler that looks at everything in one go needs one pairing, not two
        if sums is None or before is None or not _same(before, spans):
            # kept, so that the engine knows how few they are beside the replies
            near = engine.materialise("near_samples", resource_tables.in_bins(spans, bin_ns))
            sums = resource_tables.paired(context.rows, near, bin_ns)
            sums = engine.materialise(f"pairs_{scope}", sums)
        before = spans
        scopes[scope] = samples, sums
    return Pairing(scopes)


def correlations(
    context: Context, pairing: Pairing, log_means: pd.DataFrame, cells: list[CellSummary]
) -> Correlations:
    """Correlate every metric of the receivers, and of their hosts, with service latency."""
    none = Correlations(None, None, UNIT, (), {})
    if pairing.note:
        return _noted(none, pairing.note)
    context.progress("correlations")
    levels = inline(log_means)
    frames: dict[str, pd.DataFrame] = {}
    shares, distances = [0.0], []
    answered = sum(
        row.n - row.failed for row in cells if row.op != "*" and row.latency == "service"
    )
    for scope, (samples, sums) in pairing.scopes.items():
        frame = fetch(resource_tables.with_metrics(sums, levels, samples))
        if len(frame):
            frames[scope] = _prepared(context, frame)
            shares.append(float(frame["n"].sum()) / answered if answered else 0.0)
            distances.append(float(frame["distance_ns"].max()))
    if not frames:
        return _noted(none, "no reply is near a sample of its receiver")
    rows, scatter = correlate(frames)
    note = "" if rows else f"fewer than {BLOCKS_MIN} blocks of time, or no metric that varies"
    return Correlations(max(shares), max(distances), UNIT, tuple(rows), scatter, note)


def _same(one: ibis.Table, other: ibis.Table) -> bool:
    return all(
        fetch(first.difference(second).limit(1)).empty
        for first, second in ((one, other), (other, one))
    )


def _noted(found: Correlations, note: str) -> Correlations:
    return Correlations(
        found.paired_share, found.largest_distance_ns, found.unit, found.rows, found.scatter, note
    )


def _prepared(context: Context, frame: pd.DataFrame) -> pd.DataFrame:
    """Name the receivers, cut time into blocks, and bound the number of units by whole blocks."""
    keys = list(zip(frame["cell"], frame["repeat"], frame["server"], strict=True))
    names = {
        key: context.name(int(key[2]), sends=False, cell=key[0], repeat=int(key[1]))
        for key in dict.fromkeys(keys)
    }
    frame["receiver"] = [names[key] for key in keys]
    # the time of a unit, with repeats laid end to end in the order that they ran
    times = frame["started_ns"]
    order = times.rank(method="dense").to_numpy() - 1
    distinct = int(order.max()) + 1
    blocks = int(np.clip(distinct // 2, 1, BLOCKS))
    frame["block"] = (order * blocks // distinct).astype(int)
    if len(frame) > UNITS_MAX:
        step = -(-len(frame) // UNITS_MAX)
        finer = (order * blocks * 8 // distinct).astype(int)
        frame = frame[finer % step == 0]
    return frame


def correlate(
    frames: dict[str, pd.DataFrame],
) -> tuple[list[Correlation], dict[str, pd.DataFrame]]:
    """Every metric of the frames by scope, the closest first; and what to draw of the first."""
    found: list[dict[str, Any]] = []
    for scope, frame in frames.items():
        for metric in resource_tables.METRICS:
            row = _one(frame, scope, metric)
            if row is not None:
                found.append(row)
    q_values = benjamini_hochberg([row["p_value"] for row in found])
    rows = [Correlation(**row, q_value=float(q)) for row, q in zip(found, q_values, strict=True)]
    rows.sort(key=lambda row: row.closeness, reverse=True)
    scatter = {
        f"{row.scope}:{row.metric}": _scatter(frames[row.scope], row.metric)
        for row in rows[:SCATTER_METRICS]
    }
    return rows, scatter


def _one(frame: pd.DataFrame, scope: str, metric: str) -> dict[str, Any] | None:
    known = frame[metric].to_numpy(dtype=float)
    known = known[~np.isnan(known)]
    # most metrics of most machines are absent or always the same
    if known.size < BLOCKS_MIN or np.ptp(known) == 0:
        return None
    part = frame[["receiver", "cell", "block", "latency", "raw", metric]].dropna()
    values = part[metric].to_numpy(dtype=float)
    if part["block"].nunique() < BLOCKS_MIN or len(part) < BLOCKS_MIN:
        return None
    common = part[metric].value_counts().iloc[0]
    latency = part["latency"].to_numpy()
    if len(part) - common < VARYING_SHARE * len(part) or np.ptp(latency) == 0:
        return None
    found = correlation(values, latency, part["block"].to_numpy())
    means = part.groupby("receiver")[metric].mean()
    within = part[["latency", metric]] - part.groupby(["cell", "receiver"])[
        ["latency", metric]
    ].transform("mean")
    return {
        "metric": metric,
        "scope": scope,
        "words": METRIC_WORDS.get(metric, metric),
        "pearson": found.pearson,
        "spearman": found.spearman,
        "p_value": found.p_value,
        "pearson_raw": _pearson(values, part["raw"].to_numpy(dtype=float)),
        "within": _pearson(within[metric].to_numpy(), within["latency"].to_numpy()),
        "highest": str(means.idxmax()),
    }


def _pearson(x: np.ndarray, y: np.ndarray) -> float | None:
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def _scatter(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    part = frame[["receiver", metric, "raw"]].dropna()
    if len(part) > SCATTER_POINTS:
        part = part.iloc[np.linspace(0, len(part) - 1, SCATTER_POINTS).astype(int)]
    return part.rename(columns={metric: "value", "raw": "latency"}).reset_index(drop=True)
