"""Write a realistic synthetic run directory: the truth is planted, so tests know what to expect.

Base latencies are lognormal; the host stalls now and then and everybody on it waits; a disk
write has three modes; a planted slow agent is slow because it waits for a CPU, and its samples say
so. Everything comes from a seed, vectorised: 10 M rows take about 20 seconds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unruly.ingest.columns import ARROW
from unruly.tables.columns import TABLES

if TYPE_CHECKING:
    from pathlib import Path

NS = 1_000_000_000
STARTED_NS = 1_790_000_000 * NS
SEGMENT_ROWS = 1_000_000


@dataclass(frozen=True)
class Shape:
    """What the run is like. ``kind`` "mesh": each request goes to all agents; "drive": to one."""

    agents: int = 5
    cells: tuple[str, ...] = ("base",)
    ops: tuple[str, ...] = ("null", "crypto", "disk")
    repeats: int = 1
    duration_s: float = 60.0
    rate_hz: float = 10.0
    """Group requests a second, of each agent and op."""
    warmup_s: float = 0.0
    before: str = "warmup"
    seed: int = 1
    kind: str = "mesh"
    slow_agent: int | None = None
    slow_factor: float = 6.0
    slow_reads: bool = False
    """The slow agent also reads every reply late: to itself all its peers are slow."""
    failed_share: float = 0.0
    late_share: float = 0.0
    """Of the failed, those whose reply still came (status timeout, received_ns set)."""
    stalls_hz: float = 2.0
    stall_mean_ns: float = 3e6
    drift: float = 0.0
    """Latencies grow by exp(drift) over the run."""
    generator_stalls_hz: float = 0.0
    generator_stall_ns: float = 100e6
    kernel_stamps: bool = True
    steal_share: float = 0.0
    sampler_lag_ns: float = 1e6
    dropped: int = 0
    unsent: int = 0
    late: int = 0
    """Requests that the generator took late from its schedule and did not send at once."""
    """Requests that the generator never sent."""
    status: str = "complete"
    tag: str = "synthetic"
    tail_factor: float = 0.0
    """Above 0: one row in 2,000 is this many times slower."""
    cell_scale: dict[str, float] = field(default_factory=dict)
    """Latencies of a cell times this."""
    op_scale: dict[str, float] = field(default_factory=dict)
    """Latencies of an operation times this."""
    cell_tails: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By cell: the share of slow rows, and how many times slower they are."""
    shift_factor: float = 1.0
    """Latencies times this from the middle of the run on."""
    cold: tuple[float, float] = (1.0, 1.0)
    """How many times longer latencies are at the start of load, and their decay time (s)."""
    clusters_hz: float = 0.0
    """Above 0: requests are scheduled within 50 ms after this many random instants a second."""
    stopped: tuple[tuple[int, float, float], ...] = ()
    """Agents that are stopped: (agent, at, for), seconds; each is an event."""
    cell_rate_hz: dict[str, float] = field(default_factory=dict)
    """Another rate for a cell."""
    faults: tuple[tuple[str, str, str, float, float], ...] = ()
    """Spans of the events: (cell, kind, process, at, for), seconds of each repeat. Requests wait
    during a `stop`, are refused during a `kill`, and are 20 times slower during other faults."""
    name: str = "synthetic"
    manifest: dict[str, Any] = field(default_factory=dict)
    """Overrides of manifest keys."""


def write_run(root: Path, shape: Shape | None = None, **changes: Any) -> Path:
    """Write a run to ``root`` (made when it is not there) and return ``root``."""
    shape = replace(shape or Shape(), **changes)
    rng = np.random.default_rng(shape.seed)
    root.mkdir(parents=True, exist_ok=True)
    run = f"{shape.name}-{shape.seed}"
    tallies: dict[tuple[str, int], dict[str, int]] = {}
    writer, samples = Segments(root, run, shape.tag), Segments(root, run, shape.tag)
    begin_ns = STARTED_NS
    begun: dict[tuple[str, int], int] = {}
    for repeat in range(shape.repeats):
        for cell in shape.cells:
            wait = _run_queue_wait(shape, rng)
            begun[cell, repeat] = begin_ns
            for tables in _cell_rows(shape, rng, cell, repeat, begin_ns, wait):
                _tally(tallies.setdefault((cell, repeat), {}), tables)
                writer.add("requests", tables)
            samples.add("resources", _samples(shape, rng, cell, repeat, begin_ns, wait))
            begin_ns += int((shape.warmup_s + shape.duration_s + 1) * NS)
    writer.close()
    samples.close()
    events = {
        "cell": [shape.cells[0]],
        "repeat": [0],
        "host": ["host-0"],
        "process": ["runner"],
        "kind": ["started"],
        "detail": [None],
        "started_ns": [STARTED_NS],
        "ended_ns": [None],
    }
    for agent, at_s, _ in shape.stopped:
        told = {"process": f"agent-{agent}", "kind": "fault stop", "detail": None,
                "started_ns": STARTED_NS + int(at_s * NS), "ended_ns": None}  # fmt: skip
        for name, values in events.items():
            values.append(told.get(name, values[0]))
    for (cell, repeat), begin in begun.items():
        for which, kind, process, at_s, for_s in shape.faults:
            if which == cell:
                started = begin + int((shape.warmup_s + at_s) * NS)
                told = {"cell": cell, "repeat": repeat, "process": process, "kind": f"fault {kind}",
                        "detail": None, "started_ns": started,
                        "ended_ns": started + int(for_s * NS)}  # fmt: skip
                for name, values in events.items():
                    values.append(told.get(name, values[0]))
    writer.write("events", _table("events", events, len(events["kind"])))
    _write_manifest(root, shape, run, tallies, begin_ns)
    return root


class Segments:
    """Collects tables and writes segments of a million rows with the footers of the schema."""

    def __init__(self, root: Path, run: str, tag: str) -> None:
        self.root, self.run, self.tag = root, run, tag
        self.held: dict[str, list[pa.Table]] = {}
        self.count = 0

    def add(self, table: str, rows: pa.Table) -> None:
        """Hold rows; write once there are enough."""
        held = self.held.setdefault(table, [])
        held.append(rows)
        if sum(part.num_rows for part in held) >= SEGMENT_ROWS:
            self.write(table, pa.concat_tables(held))
            held.clear()

    def close(self) -> None:
        """Write the buffered rows."""
        for table, held in self.held.items():
            if held:
                self.write(table, pa.concat_tables(held))
        self.held.clear()

    def write(self, table: str, rows: pa.Table) -> Path:
        """Write one segment."""
        self.count += 1
        directory = self.root / table
        directory.mkdir(exist_ok=True)
        path = directory / f"agent-{self.count:05}.parquet"
        footer = {
            "unruly.schema": "1",
            "unruly.run": self.run,
            "unruly.table": table,
            "unruly.host": "host-0",
            "unruly.process": "agent",
            "unruly.tag": self.tag,
            "unruly.rows": str(rows.num_rows),
        }
        texts = [name for name, kind, _ in TABLES[table] if kind == "VARCHAR"]
        integers = [name for name, kind, _ in TABLES[table] if kind == "BIGINT"]
        pq.write_table(
            rows.replace_schema_metadata(footer),
            path,
            compression="zstd",
            compression_level=1,
            use_dictionary=texts,
            column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
        )
        return path


def _table(table: str, columns: dict[str, Any], rows: int) -> pa.Table:
    """Cast columns to the schema; a missing column is null."""
    arrays, fields = [], []
    for name, kind, required in TABLES[table]:
        value = columns.get(name)
        if isinstance(value, str):
            value = pa.array([value]).take(pa.array(np.zeros(rows, np.int64)))
        elif value is None:
            value = pa.nulls(rows, ARROW[kind])
        elif not isinstance(value, pa.Array | pa.ChunkedArray):
            value = pa.array(value) if isinstance(value, list) else pa.array(np.asarray(value))
        arrays.append(value.cast(ARROW[kind]))
        fields.append(pa.field(name, ARROW[kind], nullable=not required))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _run_queue_wait(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Share of each second that each agent waits for a CPU, (seconds, agents)."""
    seconds = int(np.ceil(shape.warmup_s + shape.duration_s)) + 2
    wait = rng.gamma(2.0, 0.002, (seconds, shape.agents))
    if shape.slow_agent is not None:
        wait[:, shape.slow_agent] = rng.gamma(6.0, 0.1, seconds)
    return wait


def _cell_rows(
    shape: Shape,
    rng: np.random.Generator,
    cell: str,
    repeat: int,
    begin_ns: int,
    wait: np.ndarray,
):
    total_s = shape.warmup_s + shape.duration_s
    count = int(rng.poisson(shape.stalls_hz * total_s))
    stall_at = np.sort(rng.uniform(0, total_s * NS, count))
    stall_end = np.maximum.accumulate(stall_at + rng.exponential(shape.stall_mean_ns, count))
    lag_count = int(rng.poisson(shape.generator_stalls_hz * total_s))
    lag_at = np.sort(rng.uniform(0, total_s * NS, lag_count))
    lag_end = lag_at + shape.generator_stall_ns
    centres = rng.uniform(0, total_s - 0.05, int(rng.poisson(shape.clusters_hz * total_s)))
    rate_hz = shape.cell_rate_hz.get(cell, shape.rate_hz)
    requests = int(total_s * rate_hz)
    copies = shape.agents if shape.kind == "mesh" else 1
    chunk = max(1, 400_000 // copies)
    base = 0
    for client in range(shape.agents):
        for op_number, op in enumerate(shape.ops):
            for first in range(0, requests, chunk):
                size = min(chunk, requests - first)
                index = np.arange(first, first + size)
                due = ((index + rng.uniform(0, 1, size)) / rate_hz * NS).astype(np.int64)
                if shape.clusters_hz:
                    due = rng.choice(centres, size) + rng.uniform(0, 0.05, size)
                    due = np.sort(due * NS).astype(np.int64)
                yield _rows(
                    shape,
                    rng,
                    wait,
                    stalls=(stall_at, stall_end),
                    lags=(lag_at, lag_end),
                    due=due,
                    who=(cell, repeat, op, client, copies),
                    begin_ns=begin_ns,
                    request=index * len(shape.ops) + op_number + base,
                )


def _latencies(shape, rng, wait, *, intended, sent, who) -> np.ndarray:
    """What each reply takes, before stalls: by workload, by drift, and at a slow agent."""
    op, client, server = who
    rows = len(sent)
    receiver = np.minimum(server, shape.agents - 1)
    latency = rng.lognormal(np.log(1.2e5), 0.35, rows)
    if op in ("crypto", "mixed"):
        latency += rng.lognormal(np.log(3e4), 0.2, rows)
    if op in ("disk", "mixed"):
        mode = rng.choice([1.2e6, 2.5e6, 8e6], rows, p=[0.8, 0.15, 0.05])
        latency += mode * rng.lognormal(0, 0.15, rows)
    if op in ("network", "mixed"):
        latency += rng.lognormal(np.log(2e5), 0.3, rows)
    latency *= shape.op_scale.get(op, 1.0)
    latency *= np.exp(shape.drift * intended / ((shape.warmup_s + shape.duration_s) * NS))
    factor, fall_s = shape.cold
    latency *= 1 + (factor - 1) * np.exp(-intended / (fall_s * NS))
    middle = (shape.warmup_s + shape.duration_s) / 2 * NS
    latency *= np.where(intended > middle, shape.shift_factor, 1.0)
    if shape.slow_agent is not None:
        busy = wait[(sent // NS).astype(int).clip(0, len(wait) - 1), receiver]
        extra = latency * (shape.slow_factor - 1) * busy / 0.6
        latency = np.where(receiver == shape.slow_agent, latency + extra, latency)
        if shape.slow_reads and client == shape.slow_agent:
            own = wait[(sent // NS).astype(int).clip(0, len(wait) - 1), shape.slow_agent]
            latency = latency + 4e6 * own
    if shape.tail_factor:
        latency *= np.where(rng.uniform(size=rows) < 1 / 2000, shape.tail_factor, 1)
    return latency


def _rows(shape, rng, wait, *, stalls, lags, due, who, begin_ns, request) -> pa.Table:
    cell, repeat, op, client, copies = who
    rows = len(due) * copies
    intended = np.repeat(due, copies)
    if shape.kind == "mesh":
        server = np.tile(np.arange(copies), len(due))
    else:
        server = np.full(rows, shape.agents)
    lag = np.repeat(rng.exponential(8e3, len(due)), copies) + np.tile(
        np.arange(copies) * 3e3, len(due)
    )
    sent = _wait_out(intended + lag, *lags)
    latency = _latencies(shape, rng, wait, intended=intended, sent=sent, who=(op, client, server))
    latency = latency * shape.cell_scale.get(cell, 1.0)
    if cell in shape.cell_tails:
        share, factor = shape.cell_tails[cell]
        latency = latency * np.where(rng.uniform(size=rows) < share, factor, 1.0)
    struck = _struck(shape, cell)
    for kind, since, until in struck:
        within = (intended >= since) & (intended < until)
        latency = latency * np.where(within & (kind not in ("stop", "kill")), 20.0, 1.0)
    arrived = _held_up(_wait_out(sent + latency * 0.4, *stalls), struck)
    for agent, at_s, for_s in shape.stopped:
        waits = (server == agent) & (arrived >= at_s * NS)
        arrived = np.where(waits, np.maximum(arrived, (at_s + for_s) * NS), arrived)
    received = (_wait_out(arrived + latency * 0.6, *stalls)).astype(np.int64)
    sent, arrived = sent.astype(np.int64), arrived.astype(np.int64)
    failed = rng.uniform(size=rows) < shape.failed_share
    late = failed & (rng.uniform(size=rows) < shape.late_share)
    status = np.where(failed, "timeout", "ok")
    refused = _refused(intended, struck)
    status, failed, late = np.where(refused, "refused", status), failed | refused, late & ~refused
    gone = failed & ~late
    received = np.where(late, received + NS, received)
    answered = _completing(received, failed, copies)
    offset = begin_ns
    stamp = received + offset
    stamps = shape.kernel_stamps
    return _table(
        "requests",
        {
            "cell": cell,
            "repeat": np.full(rows, repeat),
            "host": "host-0",
            "phase": pa.array(np.where(intended < shape.warmup_s * NS, shape.before, "measured")),
            "process": f"agent-{client}",
            "op": op,
            "client": np.full(rows, client),
            "server": server,
            "request": np.repeat(request, copies),
            "attempt": np.zeros(rows),
            "connection": server,
            "intended_ns": intended + offset,
            "sent_ns": sent + offset,
            "received_ns": pa.array(stamp, mask=gone),
            "kernel_received_ns": pa.array(stamp - 9_000, mask=gone) if stamps else None,
            "server_kernel_received_ns": pa.array(arrived + offset - 7_000, mask=gone)
            if stamps
            else None,
            "server_received_ns": pa.array(arrived + offset, mask=gone),
            "server_sent_ns": pa.array((arrived + (received - arrived) // 2) + offset, mask=gone),
            "sent_bytes": np.full(rows, 28),
            "received_bytes": np.where(gone, 0, 44),
            "level": "all" if shape.kind == "mesh" else None,
            "status": pa.array(status),
            "answered": answered,
        },
        rows,
    )


def _struck(shape: Shape, cell: str) -> list[tuple[str, float, float]]:
    """The faults of a cell: kind, begin and end, ns since the cell's begin."""
    return [
        (kind, (shape.warmup_s + at_s) * NS, (shape.warmup_s + at_s + for_s) * NS)
        for which, kind, _, at_s, for_s in shape.faults
        if which == cell
    ]


def _held_up(arrived: np.ndarray, struck: list[tuple[str, float, float]]) -> np.ndarray:
    """Whoever arrives within a stop waits until its end."""
    for kind, since, until in struck:
        waits = (arrived >= since) & (arrived < until) & (kind == "stop")
        arrived = np.where(waits, until, arrived)
    return arrived


def _refused(intended: np.ndarray, struck: list[tuple[str, float, float]]) -> np.ndarray:
    """Whatever is due within a kill."""
    refused = np.zeros(len(intended), bool)
    for kind, since, until in struck:
        refused |= (intended >= since) & (intended < until) & (kind == "kill")
    return refused


def _wait_out(times: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Whoever arrives during a stall waits until its end."""
    if not len(starts):
        return times
    place = np.searchsorted(starts, times, side="right") - 1
    end = np.where(place >= 0, ends[place.clip(0)], 0)
    return np.maximum(times, end)


def _completing(received: np.ndarray, failed: np.ndarray, copies: int) -> np.ndarray:
    """The copy that completed its request (level "all"): the last, when none failed."""
    shaped, wrong = received.reshape(-1, copies), failed.reshape(-1, copies).any(axis=1)
    last = shaped.argmax(axis=1)
    answered = np.zeros(shaped.shape, bool)
    answered[np.arange(len(shaped)), last] = ~wrong
    return answered.ravel()


def _samples(shape, rng, cell, repeat, begin_ns, wait) -> pa.Table:
    seconds = len(wait) - 1
    parts = []
    watched = [None, *[f"agent-{number}" for number in range(shape.agents)]]
    for number, name in enumerate(watched):
        started = begin_ns + np.arange(seconds) * NS
        lag = rng.exponential(shape.sampler_lag_ns, seconds).astype(np.int64)
        columns: dict[str, Any] = {
            "cell": cell,
            "repeat": np.full(seconds, repeat),
            "host": "host-0",
            "process": "probe",
            "watched": name,
            "started_ns": started,
            "ended_ns": started + NS,
            "sampler_lag_ns": lag,
            "sampler_cost_ns": np.full(seconds, 200_000),
            "minor_faults": rng.poisson(30, seconds),
        }
        if name is None:
            columns |= {
                "cpu_user_share": rng.beta(3, 20, seconds),
                "cpu_system_share": rng.beta(2, 30, seconds),
                "cpu_steal_share": np.clip(
                    rng.normal(shape.steal_share, shape.steal_share / 5, seconds), 0, 1
                ),
                "run_queue_length": rng.gamma(2, 0.5, seconds),
                "psi_cpu_some_ns": rng.gamma(2, 5e6, seconds).astype(np.int64),
                "psi_io_some_ns": rng.gamma(2, 3e6, seconds).astype(np.int64),
                "context_switches": rng.poisson(4000, seconds),
                "disk_writes": rng.poisson(50, seconds),
            }
        else:
            agent = number - 1
            columns |= {
                "run_queue_wait_ns": (wait[:seconds, agent] * NS).astype(np.int64),
                "user_ns": rng.gamma(20, 5e6, seconds).astype(np.int64),
                "system_ns": rng.gamma(20, 3e6, seconds).astype(np.int64),
                "rss_bytes": (20e6 + rng.normal(0, 1e5, seconds)).astype(np.int64),
                "voluntary_switches": rng.poisson(900, seconds),
                "involuntary_switches": rng.poisson(20, seconds),
                "threads": np.full(seconds, 3),
            }
        parts.append(_table("resources", columns, seconds))
    return pa.concat_tables(parts)


def _tally(tally: dict[str, int], rows: pa.Table) -> None:
    counts = rows.group_by("status").aggregate([([], "count_all")]).to_pydict()
    for name, count in zip(counts["status"], counts["count_all"], strict=True):
        tally[name] = tally.get(name, 0) + count
    tally["rows"] = tally.get("rows", 0) + rows.num_rows
    first = rows["server"].to_numpy().min()
    tally["requests"] = tally.get("requests", 0) + int((rows["server"].to_numpy() == first).sum())
    tally["answered"] = tally.get("answered", 0) + int(rows["answered"].to_numpy().sum())


def _write_manifest(root, shape, run, tallies, end_ns) -> None:
    statuses = (
        "ok",
        "timeout",
        "refused",
        "shed",
        "error",
        "unfinished",
        "wrong",
        "behind",
        "stale",
        "lost",
    )
    copies = {name: sum(t.get(name, 0) for t in tallies.values()) for name in statuses}
    rows = sum(t.get("rows", 0) for t in tallies.values())
    copies["timeout"] += shape.dropped
    copies |= {"scheduled": rows + shape.dropped, "recorded": rows, "dropped": shape.dropped}
    asked = sum(t.get("requests", 0) for t in tallies.values())
    answered = sum(t.get("answered", 0) for t in tallies.values())
    requests = {"scheduled": asked, "answered": answered, "unanswered": asked - answered}
    requests |= {"unsent": shape.unsent} if shape.unsent else {}
    requests |= {"late": shape.late, "late_max_ns": 2_000_000_000} if shape.late else {}
    processes = [
        {
            "name": f"agent-{number}",
            "kind": shape.kind,
            "id": number,
            "cell": cell,
            "repeat": repeat,
            "host": "host-0",
            "pid": 100 + number,
            "runtime": "native",
            "exit": {"code": 0},
            "counts": None,
        }
        for cell, repeat in tallies
        for number in range(shape.agents)
    ]
    manifest = {
        "schema": 1,
        "run": run,
        "name": shape.name,
        "tag": shape.tag,
        "tool": {"version": "0.1.0", "commit": "0" * 40},
        "plan_sha256": "",
        "seed": shape.seed,
        "status": shape.status,
        "started_ns": STARTED_NS,
        "ended_ns": end_ns,
        "planned_ns": int(shape.duration_s * len(tallies) * NS),
        "missing": [],
        "hosts": [
            {
                "name": "host-0",
                "cpu_model": "synthetic",
                "cores": 2,
                "kernel": "6.1",
                "clock_source": "tsc",
                "virtualised": True,
                "memory_bytes": 8 << 30,
                "steal_share": 0.0,
                "noise_floor_ns": 50_000,
            }
        ],
        "cells": [{"name": cell, "factors": {"cell": cell}} for cell in shape.cells],
        "processes": processes,
        "counts": {"copies": copies, "requests": requests},
    }
    manifest |= shape.manifest
    (root / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
