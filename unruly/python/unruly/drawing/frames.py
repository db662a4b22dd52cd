"""Shaping of frames before they are drawn: exceedance curves, thinning, gaps. No charts here."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unruly.drawing.view import ALL

STEP_DECADES = 0.012
"""Points of a curve nearer than this in both directions would fall on one pixel."""


def named_ops(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of named workloads; of the sum over all only when nothing else is there."""
    if frame.empty or "op" not in frame:
        return frame
    named = frame[frame["op"] != ALL]
    return named if len(named) else frame


def exceedance(buckets: pd.DataFrame) -> pd.DataFrame:
    """Return the share of rows above each latency, from buckets of one group.

    Failed rows (infinite edges) count in the whole and exceed every latency.

    Parameters
    ----------
    buckets : pandas.DataFrame
        Columns ``low_ns``, ``high_ns``, ``count``; edges may repeat (cells are added up).

    Returns
    -------
    pandas.DataFrame
        Columns ``latency_ns`` and ``share``, falling; thinned to what can be seen.
    """
    total = float(buckets["count"].sum())
    finite = buckets[np.isfinite(buckets["high_ns"]) & (buckets["count"] > 0)]
    if total <= 0 or finite.empty:
        return pd.DataFrame({"latency_ns": [], "share": []})
    grouped = finite.groupby("high_ns", as_index=False).agg({"low_ns": "min", "count": "sum"})
    grouped = grouped.sort_values("high_ns")
    above = (total - grouped["count"].cumsum().to_numpy(dtype=float)) / total
    edges = grouped["high_ns"].to_numpy(dtype=float)
    first = max(float(grouped["low_ns"].iloc[0]), edges[0] / 1.05)
    x = np.concatenate([[first], edges])
    y = np.maximum(np.concatenate([[1.0], above]), 0.5 / total)
    return _thinned(x, y)


def _thinned(x: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    kept = [0]
    log_x, log_y = np.log10(x), np.log10(y)
    for i in range(1, len(x)):
        near = abs(log_x[i] - log_x[kept[-1]]) < STEP_DECADES
        level = abs(log_y[i] - log_y[kept[-1]]) < STEP_DECADES
        if not (near and level) or i == len(x) - 1:
            kept.append(i)
    return pd.DataFrame({"latency_ns": x[kept], "share": y[kept]})


def exceedances(frame: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return `exceedance` of each group of ``by``, under one another."""
    curves = []
    for names, group in frame.groupby(by, sort=False, observed=True):
        curve = exceedance(group)
        for column, name in zip(by, names, strict=True):
            curve[column] = [str(name)] * len(curve)
        curves.append(curve)
    columns = ["latency_ns", "share", *by]
    return (
        pd.concat(curves, ignore_index=True)[columns] if curves else pd.DataFrame(columns=columns)
    )


def quantile(curve: pd.DataFrame, share: float) -> float:
    """Return the latency that this share of the rows exceeds; NaN beyond the curve."""
    below = curve[curve["share"] <= share]
    return float(below["latency_ns"].iloc[0]) if len(below) else float("nan")


def with_gaps(frame: pd.DataFrame, column: str, step: float) -> pd.DataFrame:
    """Return the frame with an empty row wherever ``column`` jumps by more than ``step``.

    A line is broken there, so that nobody reads a straight line over a time without rows as data.
    """
    if len(frame) < 2:
        return frame
    ordered = frame.sort_values(column)
    position = ordered[column].to_numpy(dtype=float)
    after = np.flatnonzero(np.diff(position) > step)
    holes = pd.DataFrame({column: (position[after] + position[after + 1]) / 2})
    joined = pd.concat([ordered, holes], ignore_index=True).sort_values(column)
    return joined.reset_index(drop=True)


def thinned_points(frame: pd.DataFrame, most: int, by: str, seed: int = 1) -> pd.DataFrame:
    """Return the rows with the highest ``by`` and an even sample of the others."""
    if len(frame) <= most:
        return frame
    ordered = frame.sort_values(by, ascending=False)
    top = ordered.iloc[: most // 2]
    rest = ordered.iloc[most // 2 :]
    return pd.concat([top, rest.sample(most - len(top), random_state=seed)], ignore_index=True)


def merged_bins(timeline: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return the timeline with neighbouring bins joined until at most ``most`` are left.

    The joined p50 and p99 are the medians of the bins' own; the maximum is the highest.
    """
    if timeline.empty:
        return timeline
    bins = int(timeline["bin"].max()) + 1
    if bins <= most:
        return timeline
    factor = -(-bins // most)
    joined = timeline.assign(bin=timeline["bin"] // factor)
    return joined.groupby(["op", "bin"], as_index=False, observed=True).agg(
        started_ns=("started_ns", "min"),
        ended_ns=("ended_ns", "max"),
        n=("n", "sum"),
        failed=("failed", "sum"),
        p50=("p50", "median"),
        p99=("p99", "median"),
        max=("max", "max"),
    )
