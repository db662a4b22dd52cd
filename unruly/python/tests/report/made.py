"""An `Analysis` from random frames: every field filled, without files and without DuckDB.

The truth is planted: one slow node, a disk workload with three modes, stalls in bursts, one metric
that moves with latency. For tests of the page only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from unruly.base import model as m
from unruly.base.analysis import Analysis
from unruly.base.ladder import PERCENTILES as QUANTILES
from unruly.base.ladder import STEPS
from unruly.base.operation import CellSummary
from unruly.base.promise import PromiseLadder, PromiseStep
from unruly.base.worked import NOTHING, Worked
from unruly.stats import Interval

NS = 1e9
START = 1_790_000_000 * NS
BASE = {"null": 1.2e5, "crypto": 1.6e5, "disk": 2.4e6, "network": 4.2e5, "mixed": 3.6e6}


@dataclass(frozen=True)
class MadeRun:
    """What the page reads of a `Run`."""

    name: str = "group-rpc"
    tag: str = "laptop"
    id: str = "group-rpc-20261120T225716Z"
    status: str = "complete"
    missing: list[str] = field(default_factory=list)
    manifest: dict[str, Any] = field(default_factory=dict)
    path: Path = Path("/nowhere")
    target: str | None = None
    command: list[str] | None = None
    timeless: frozenset[str] = frozenset()
    foreign: bool = False
    merged: dict[str, Any] | None = None
    watched: bool = False
    keeps_bins_alone: bool = False


@dataclass(frozen=True)
class Truth:
    """What is planted."""

    ops: tuple[str, ...] = ("null", "crypto", "disk", "network", "all")
    agents: int = 5
    sizes: tuple[int, ...] = (3, 5)
    requests: int = 400
    slow: int | None = 3
    failed_share: float = 0.002
    seed: int = 7
    duration_s: float = 300.0
    tag: str = "laptop"
    name: str = "group-rpc"
    cells: tuple[str, ...] = ("base",)
    node: str = "n"
    speed: float = 1.0
    spoiled: bool = False
    helped: bool = True
    explained: bool = True
    missing: tuple[str, ...] = ()


def made(truth: Truth | None = None, **changes: Any) -> Analysis:
    """Return an analysis of random rows with the truth planted."""
    truth = replace(truth or Truth(), **changes)
    rng = np.random.default_rng(truth.seed)
    rows = _rows(truth, rng)
    cells = [
        c
        for cell in truth.cells
        for op in ("*", *truth.ops)
        for latency in ("response", "service")
        for c in [_cell(rows, cell, op, latency, truth)]
    ]
    named = () if truth.slow is None else (_named(truth),)
    group, groups = _groups(rows, truth)
    return Analysis(
        run=_run(truth, rows),
        options=m.Options(int(60 * NS), 2.0, 0.9, 50_000),
        started_ns=int(START),
        ended_ns=int(START + truth.duration_s * NS),
        cells=cells,
        groups=groups,
        by=_by(rows),
        timeline=_timeline(rows, truth),
        outliers=_outliers(rows),
        distribution=_buckets(rows, ["cell", "op"]),
        group_distribution=group,
        slow_nodes=_slow(rows, truth, named),
        correlations=_correlations(truth, rng),
        decomposition=pd.DataFrame(
            {
                "op": list(truth.ops),
                "sender_share": 0.04,
                "receiver_share": 0.87,
                "pair_share": 0.09,
                "pairs": truth.agents**2,
            }
        )
        if truth.explained
        else pd.DataFrame(),
        conservation=_conservation(rows),
        worked=_worked(rows),
        self_distrust=_distrust(truth),
        blind_spot=[
            m.BlindSpot(
                truth.cells[0],
                "*",
                0.99,
                3e9,
                truth.duration_s / 3 * NS,
                "Nothing is known of what happens less often than every "
                f"{truth.duration_s / 3:.0f} s.",
            )
        ],
        findings=_findings(truth),
        processes=truth.agents + 1,
        measured_ns=truth.duration_s * NS,
    )


def empty(tag: str = "laptop") -> Analysis:
    """Return the analysis of a run in which nothing was measured."""
    none = pd.DataFrame()
    whole = made(requests=20, agents=2, ops=("null",), sizes=(2,), tag=tag)
    return replace(
        whole,
        cells=[],
        worked=NOTHING,
        groups=[],
        by={},
        timeline=pd.DataFrame(columns=whole.timeline.columns),
        outliers=none,
        distribution=none,
        group_distribution=none,
        started_ns=None,
        ended_ns=None,
        measured_ns=0.0,
        slow_nodes=replace(
            whole.slow_nodes,
            pairs=none,
            sets=none,
            histogram=none,
            jaccard=none,
            sensitivity=none,
            named=(),
            jaccard_mean=None,
        ),
        correlations=m.Correlations(None, None, "", (), {}),
        decomposition=none,
        blind_spot=[],
        conservation=m.Conservation(True, "No row was recorded.", 0, {}, None, None),
        self_distrust=replace(whole.self_distrust, send_lag_ns={}),
        findings=[],
    )


def _rows(truth: Truth, rng: np.random.Generator) -> pd.DataFrame:
    frames = []
    names = [f"{truth.node}{i + 1}" for i in range(truth.agents)]
    stalls = np.sort(rng.uniform(0, truth.duration_s, int(truth.duration_s / 12)))
    for cell_number, cell in enumerate(truth.cells):
        for op in truth.ops:
            for sender in range(truth.agents):
                size = min(truth.sizes[sender % len(truth.sizes)], truth.agents)
                who = np.array([(sender + i) % truth.agents for i in range(size)])
                n = truth.requests * size
                receiver = np.tile(who, truth.requests)
                due = np.repeat(np.sort(rng.uniform(0, truth.duration_s, truth.requests)), size)
                service = (
                    BASE.get(op, 2e5)
                    * rng.lognormal(0, 0.3, n)
                    / truth.speed
                    * (1 + 0.4 * cell_number)
                )
                if op in ("disk", "mixed"):
                    service *= rng.choice([1, 2.2, 6], n, p=[0.84, 0.13, 0.03])
                if truth.slow is not None:
                    service = np.where(
                        receiver == truth.slow, service * rng.uniform(2.4, 4.2, n), service
                    )
                place = np.searchsorted(stalls, due, side="right") - 1
                late = np.where(place >= 0, 0.03 - (due - stalls[place.clip(0)]), -1) * NS
                service = service + np.maximum(late, 0)
                lag = rng.exponential(9e3, n)
                failed = rng.uniform(size=n) < truth.failed_share
                frames.append(
                    pd.DataFrame(
                        {
                            "cell": cell,
                            "op": op,
                            "size": size,
                            "sender": names[sender],
                            "receiver": np.array(names)[receiver],
                            "due": due,
                            "intended_ns": START + due * NS,
                            "service": np.where(failed, np.inf, service),
                            "response": np.where(failed, np.inf, service + lag),
                            "send_lag": lag,
                            "status": np.where(failed, "timeout", "ok"),
                            "request": np.repeat(np.arange(truth.requests), size),
                        }
                    )
                )
    return pd.concat(frames, ignore_index=True)


def _quantile(values: np.ndarray, p: float) -> float | None:
    found = float(np.quantile(values, p, method="higher")) if len(values) else np.inf
    return found if np.isfinite(found) else None


WITHOUT_FAILURES = (
    "mean", "sd", "max", "over_10x_mean", "over_3_sigma", "p99_over_mean", "max_over_mean",
)  # fmt: skip


def _intervals(p99: float | None, op: str, n: int) -> tuple[Interval | None, Interval | None]:
    """Naive interval, and one that survives stalls; all ops together drift."""
    if p99 is None:
        return None, None
    naive = Interval(p99, p99 * 0.96, p99 * 1.05, 0.95, n, None, "order statistics")
    if op == "mixed":
        return naive, None
    return naive, Interval(p99, p99 * 0.82, p99 * 1.24, 0.95, n, 31.0, "blocks")


def _ladder(q: dict[str, float | None], honest: Interval | None, n: int) -> PromiseLadder:
    """Up to the p99 promised, and the steps above too short; without an interval nothing is."""
    steps = []
    for name, p in STEPS.items():
        value, shown = q[name], name.replace("_", ".")
        if honest is None:
            facts = ("A2b", "latency drifted during the run", "", 3600e9)
            steps.append(PromiseStep(shown, p, value, None, None, None, *facts))
        elif p > 0.99 or value is None:
            facts = ("A1", "not enough data", "2.0 independent tail episodes; 7 are needed", 600e9)
            steps.append(PromiseStep(shown, p, value, None, None, None, *facts))
        else:
            interval = Interval(value, value * 0.82, value * 1.24, 0.95, n, 31.0, "blocks")
            promise = Interval(value, None, value * 1.24, 0.975, n, 31.0, "blocks")
            steps.append(PromiseStep(shown, p, value, interval, promise, value * 0.82))
    return PromiseLadder(tuple(steps))


def _cell(rows: pd.DataFrame, cell: str, op: str, latency: str, truth: Truth) -> CellSummary:
    own = rows[(rows["cell"] == cell) & ((rows["op"] == op) | (op == "*"))]
    values = own[latency].to_numpy()
    ok = values[np.isfinite(values)]
    failed = len(values) - len(ok)
    q = {name: _quantile(values, p) for name, p in QUANTILES.items()}
    q["p99_999"] = None
    absent = {"p99_999": "too few replies beyond it (fewer than 10)"}
    if failed:
        absent |= dict.fromkeys(WITHOUT_FAILURES, "a reply failed: it has no latency")
    p99, mean = q["p99"], float(ok.mean())
    naive, honest = _intervals(p99, op, len(values))
    if honest is None:
        absent["p99_interval"] = "latency drifted during the run"
    keep = not failed
    return CellSummary(
        cell,
        op,
        latency,
        "ns",
        len(values),
        failed,
        truth.duration_s * NS,
        mean if keep else None,
        float(ok.std()) if keep else None,
        float(ok.min()),
        float(ok.max()) if keep else None,
        q["p50"],
        q["p90"],
        q["p95"],
        q["p99"],
        q["p99_9"],
        q["p99_99"],
        None,
        int((ok > 10 * mean).sum()) if keep else None,
        3 if keep else None,
        p99 / mean if keep and p99 else None,
        float(ok.max()) / mean if keep else None,
        naive,
        honest,
        mean,
        float(ok.std()),
        float(ok.max()),
        p99_lower_bound=p99 and p99 * 0.9,
        needed_ns=None if honest else 3600e9,
        absent=absent,
        ladder=_ladder(q, honest, len(values)),
    )


def _summary(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    found = []
    for latency in ("response", "service"):
        for names, group in rows.groupby(keys):
            values = group[latency].to_numpy()
            ok = values[np.isfinite(values)]
            found.append(
                dict(zip(keys, names, strict=True))
                | {
                    "latency": latency,
                    "n": len(values),
                    "failed": len(values) - len(ok),
                    "p50": _quantile(values, 0.5),
                    "p90": _quantile(values, 0.9),
                    "p99": _quantile(values, 0.99),
                    "max": ok.max() if len(ok) else np.nan,
                }
            )
    frame = pd.DataFrame(found)
    return frame.assign(**{p: frame[p].astype(float) for p in ("p50", "p90", "p99")})


def _by(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    keys = {
        "by_op": ["op"],
        "by_size": ["op", "size"],
        "by_sender": ["op", "sender"],
        "by_receiver": ["op", "receiver"],
        "pairs": ["op", "sender", "receiver"],
    }
    return {name: _summary(rows, of) for name, of in keys.items()}


def _timeline(rows: pd.DataFrame, truth: Truth) -> pd.DataFrame:
    bins = 200
    step = truth.duration_s / bins * NS
    binned = rows.assign(bin=(rows["due"] / truth.duration_s * bins).astype(int).clip(0, bins - 1))
    found = []
    for (op, number), g in binned.groupby(["op", "bin"]):
        ok = g["response"][np.isfinite(g["response"])]
        found.append(
            {
                "op": op,
                "bin": number,
                "started_ns": START + number * step,
                "ended_ns": START + (number + 1) * step,
                "n": len(g),
                "failed": len(g) - len(ok),
                "p50": ok.quantile(0.5),
                "p99": ok.quantile(0.99),
                "max": ok.max(),
            }
        )
    return pd.DataFrame(found)


def _outliers(rows: pd.DataFrame) -> pd.DataFrame:
    slow = rows.sort_values("response", ascending=False).head(2_000)
    slow = slow.assign(**{c: slow[c].where(np.isfinite(slow[c])) for c in ("response", "service")})
    return slow[
        [
            "intended_ns",
            "cell",
            "op",
            "sender",
            "receiver",
            "request",
            "response",
            "service",
            "send_lag",
            "status",
        ]
    ]


def _edges(values: pd.Series) -> pd.Series:
    return np.floor(np.log(values) / np.log(1.02))


def _buckets(
    rows: pd.DataFrame, keys: list[str], latencies: tuple[str, ...] = ("response", "service")
) -> pd.DataFrame:
    found = []
    for latency in latencies:
        counted = (
            rows.assign(edge=_edges(rows[latency]))
            .groupby([*keys, "edge"])
            .size()
            .reset_index(name="count")
        )
        found.append(
            counted.assign(
                latency=latency,
                low_ns=1.02 ** counted["edge"],
                high_ns=1.02 ** (counted["edge"] + 1),
            )
        )
    return pd.concat(found, ignore_index=True).drop(columns="edge")


def _groups(rows: pd.DataFrame, truth: Truth) -> tuple[pd.DataFrame, list[m.GroupSummary]]:
    ordered = rows.sort_values("response")
    ordered = ordered.assign(k=ordered.groupby(["cell", "op", "sender", "request"]).cumcount() + 1)
    frame = _buckets(ordered, ["cell", "op", "size", "k"], ("response",)).drop(columns="latency")
    groups = []
    for (cell, op, size, k), g in ordered.groupby(["cell", "op", "size", "k"]):
        values = g["response"].to_numpy()
        ok = values[np.isfinite(values)]
        level = (
            "first" if k == 1 else "all" if k == size else "majority" if k == size // 2 + 1 else ""
        )
        groups.append(
            m.GroupSummary(
                str(cell),
                str(op),
                int(size),
                int(k),
                level,
                len(values),
                len(values) - len(ok),
                *(_quantile(values, QUANTILES[p]) for p in ("p50", "p90", "p99", "p99_9")),
                float(ok.max()) if len(ok) == len(values) else None,
                float(ok.mean()),
                {
                    "max": "a reply failed",
                    "p99_9": "falls among the failed",
                    "p99": "falls among the failed",
                },
            )
        )
    return frame, groups


def _named(truth: Truth) -> m.NamedNode:
    node = f"{truth.node}{(truth.slow or 0) + 1}"
    return m.NamedNode(
        node, truth.ops, truth.agents, 5, 5, 3.1, f"{node} is slow in 5 of 5 windows, by 3.1 x."
    )


def _slow(rows: pd.DataFrame, truth: Truth, named: tuple[m.NamedNode, ...]) -> m.SlowNodes:
    sets, rng = [], np.random.default_rng(truth.seed)
    names = [f"{truth.node}{i + 1}" for i in range(truth.agents)]
    for window in range(5):
        for op in truth.ops:
            for observer in names:
                seen = (named[0].node,) if named and rng.uniform() < 0.9 else ()
                seen += (names[0],) if rng.uniform() < 0.06 else ()
                sets.append(
                    {
                        "cell": truth.cells[0],
                        "repeat": 0,
                        "window": window,
                        "op": op,
                        "observer": observer,
                        "seen": truth.agents,
                        "slow": seen,
                    }
                )
    frame = pd.DataFrame(sets)
    histogram = (
        frame.assign(slow_nodes=frame["slow"].map(len))
        .groupby(["op", "slow_nodes"])
        .size()
        .reset_index(name="count")
    )
    pairs = rng.choice([1.0, 0.5, 1.0, 1.0], 120) if named else np.array([])
    jaccard = pd.DataFrame(
        {
            "cell": "base",
            "repeat": 0,
            "window": 0,
            "op": truth.ops[0],
            "observer_a": "a",
            "observer_b": "b",
            "jaccard": pairs,
        }
    )
    sensitivity = pd.DataFrame(
        [
            {
                "factor": f,
                "percentile": p,
                "slow_pairs": int(40 / f),
                "named": len(named),
                "nodes": (),
                "jaccard_mean": 0.9,
            }
            for f in (1.5, 2.0, 3.0)
            for p in (0.5, 0.9, 0.99)
        ]
    )
    mean = float(pairs.mean()) if len(pairs) else None
    return m.SlowNodes(
        pd.DataFrame(), frame, histogram, jaccard, sensitivity, named, 5, 0, 10, mean
    )


def _correlations(truth: Truth, rng: np.random.Generator) -> m.Correlations:
    if not truth.explained:
        return m.Correlations(None, None, "", (), {})
    metrics = {
        "run_queue_wait_ns": 0.78,
        "cpu_steal_share": 0.31,
        "minor_faults": 0.12,
        "rss_bytes": -0.05,
        "disk_writes": 0.42,
        "psi_io_some_ns": 0.38,
        "context_switches": 0.02,
    }
    rows, scatter = [], {}
    for metric, r in metrics.items():
        scope = (
            "host"
            if metric in ("cpu_steal_share", "disk_writes", "psi_io_some_ns", "context_switches")
            else "process"
        )
        rows.append(
            m.Correlation(
                metric,
                scope,
                f"{metric.replace('_', ' ')} in the sampling interval",
                Interval(r, r - 0.1, min(1.0, r + 0.09), 0.95, 1500, 240.0, "block bootstrap"),
                r - 0.1,
                Interval(
                    r * 0.9, r * 0.9 - 0.1, r * 0.9 + 0.1, 0.95, 1500, 240.0, "block bootstrap"
                ),
                r * 0.4,
                0.001 if abs(r) > 0.2 else 0.6,
                0.004 if abs(r) > 0.2 else 0.7,
                f"{truth.node}{4}",
            )
        )
        n = 900
        x = rng.gamma(2.0, 1.0, n)
        y = 2e5 * np.exp(r * x * 0.8 + rng.normal(0, 0.4, n))
        scale = {"_ns": 4e7, "_share": 0.04}.get(metric[metric.rfind("_") :], 40.0)
        receivers = [f"{truth.node}{i % truth.agents + 1}" for i in range(n)]
        scatter[f"{scope}:{metric}"] = pd.DataFrame(
            {"receiver": receivers, "value": x * scale, "latency": y}
        )
    return m.Correlations(
        0.96, 5.1e8, "(receiver, second)", tuple(rows), dict(list(scatter.items())[:6])
    )


def _conservation(rows: pd.DataFrame) -> m.Conservation:
    by = {str(k): int(v) for k, v in rows["status"].value_counts().items()}
    requests = {"scheduled": 10_000, "answered": 9_980, "unanswered": 20}
    return m.Conservation(
        True,
        "Every scheduled copy is accounted for: scheduled = recorded + dropped.",
        len(rows),
        by,
        {"scheduled": len(rows)},
        requests,
    )


def _worked(rows: pd.DataFrame) -> Worked:
    counted = rows["status"].value_counts().to_dict()
    kinds = [(str(kind), int(n)) for kind, n in counted.items() if kind != "ok"]
    return Worked.of(len(rows), kinds)


def _distrust(truth: Truth) -> m.SelfDistrust:
    lag = {
        "p50": 6.2e3,
        "p90": 2.1e4,
        "p99": 4.1e4,
        "p99_9": 9e4,
        "max": 3.1e6 * (400 if truth.spoiled else 1),
    }
    processes = pd.DataFrame(
        {
            "process": [f"agent-{i}" for i in range(truth.agents)],
            "run_queue_wait_share": 0.013,
            "cpu_share": 0.11,
            "rss_bytes_max": 2.1e7,
        }
    )
    return m.SelfDistrust(
        lag,
        420,
        0.004,
        0.98,
        None,
        {"p50": 1e5, "p99": 4e6, "max": 9e6},
        1e9,
        0,
        0.002,
        0.04,
        0.012,
        0.004,
        None,
        processes,
        pd.DataFrame(
            {"cell": ["base"], "process": ["agent-1"], "throttled_ns": [4.2e8], "share": [0.014]}
        ),
    )


def _findings(truth: Truth) -> list[m.Finding]:
    found = []
    if truth.spoiled:
        found.append(
            m.Finding(
                "generator-late",
                "trust",
                "spoils",
                1,
                "the load generator itself was late",
                "Its p99 send lag is above the response time.",
                {"lag_p99_ns": 4.2e8, "rows": 12},
                "Use more hosts.",
            )
        )
    found.append(
        m.Finding(
            "few-kernel-stamps",
            "trust",
            "warns",
            2,
            "Some replies have no kernel stamp",
            "2 % of the replies were not stamped by the kernel.",
            {"stamped_share": 0.98},
            "Warm up longer.",
        )
    )
    if truth.slow is not None:
        node = f"{truth.node}{truth.slow + 1}"
        found.append(
            m.Finding(
                "slow-node",
                "where",
                "informs",
                1,
                f"{node} is slow for everybody, itself included",
                "Its p90 is 3.1 times that of the fastest member.",
                {"node": node, "ratio": 3.1},
                f"Look at the host of {node}.",
            )
        )
    if truth.explained:
        found.append(
            m.Finding(
                "run-queue",
                "why",
                "informs",
                1,
                "Slow replies wait for a CPU",
                "Run-queue wait of the receiver explains 78 % of the tail.",
                {"explained_share": 0.78},
                "",
            )
        )
    if truth.helped:
        found.append(
            m.Finding(
                "wait-for-quorum",
                "help",
                "informs",
                1,
                "Answer with the majority instead of all",
                "The p99 would fall by a factor of 2.3.",
                {"p99_ns": 3.2e6},
                'Set level = "quorum".',
            )
        )
    return found


def _run(truth: Truth, rows: pd.DataFrame) -> MadeRun:
    manifest = {
        "tool": {"version": "0.1.0", "commit": "4f1c2d9a7e31"},
        "seed": truth.seed,
        "started_ns": int(START),
        "hosts": [
            {
                "name": "host-0",
                "cpu_model": "EPYC 7763",
                "cores": 2,
                "kernel": "6.18.0",
                "clock_source": "tsc",
                "virtualised": True,
                "memory_bytes": 8 << 30,
                "steal_share": 0.0,
                "noise_floor_ns": None,
            }
        ],
    }
    return MadeRun(truth.name, truth.tag, manifest=manifest, missing=list(truth.missing))
