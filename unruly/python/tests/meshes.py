"""Write group requests among native agents and JVMs, with collections: every copy is known."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from synthetic import NS, STARTED_NS, Segments, _table

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000


@dataclass(frozen=True)
class Mesh:
    """A mesh of which each agent asks all of them every `every_ms`."""

    runtimes: tuple[str, ...] = ("native", "jvm", "native", "jvm")
    cells: tuple[str, ...] = ("base",)
    repeats: int = 1
    seconds: float = 20.0
    every_ms: float = 10.0
    ops: tuple[str, ...] = ("null",)
    usual_ms: float = 1.0
    jvm_factor: float = 1.0
    """Replies of a JVM take this many times as long."""
    collections_hz: float = 2.0
    collection_ms: float = 15.0
    waits: bool = True
    """A copy that is scheduled during a collection at one of its ends waits until it is over."""
    slow_share: float = 0.0
    """The share of random copies that take 5 ms longer."""
    failed_share: float = 0.0
    late: str = ""
    """The runtime of the agents that send every fifth copy 12 ms late."""
    late_agents: tuple[int, ...] = ()
    """Agents that do the same."""
    throttled: tuple[int, ...] = ()
    """Agents that a CPU limit of their own holds back."""
    seed: int = 1

    def is_jvm(self, cell: str) -> np.ndarray:
        """Which agents are JVMs; none in a cell that is called native."""
        return np.array([it == "jvm" and cell != "native" for it in self.runtimes])


@dataclass(frozen=True)
class Written:
    """A run, and all that was written of it."""

    path: Path
    copies: dict[str, np.ndarray]
    """cell, repeat, op, client, server, intended, until, took (ns; inf of a failed one)."""
    spans: list[tuple[str, int, int, int, int]]
    """cell, repeat, agent, start, end."""
    mesh: Mesh

    def met(self, side: str) -> np.ndarray:
        """Which copies overlap a collection at one end: every one held against every span."""
        found = np.zeros(len(self.copies["op"]), bool)
        for cell, repeat, agent, start, end in self.spans:
            own = (self.copies["cell"] == cell) & (self.copies["repeat"] == repeat)
            own &= self.copies[side] == agent
            found |= own & (self.copies["intended"] <= end) & (self.copies["until"] >= start)
        return found

    def jvm(self, side: str) -> np.ndarray:
        """Which copies have a JVM at that end."""
        by_cell = {cell: self.mesh.is_jvm(cell) for cell in self.mesh.cells}
        pairs = zip(self.copies["cell"], self.copies[side], strict=True)
        return np.array([by_cell[cell][agent] for cell, agent in pairs])


def write_mesh(root: Path, mesh: Mesh, *, overlapping: bool = False) -> Written:
    """Write a run; with `overlapping` each collection has three events that overlap."""
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(mesh.seed)
    parts: list[dict[str, np.ndarray]] = []
    spans: list[tuple[str, int, int, int, int]] = []
    begin = STARTED_NS
    for repeat in range(mesh.repeats):
        for cell in mesh.cells:
            own = _collections(mesh, rng, cell, repeat, begin)
            spans += own
            parts += [
                _copies(mesh, rng, own, (cell, repeat, op, place), begin)
                for place, op in enumerate(mesh.ops)
            ]
            begin += int((mesh.seconds + 2) * NS)
    copies = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    writer = Segments(root, "mesh-1", "mesh")
    writer.add("requests", _requests(copies, _lags(mesh, copies)))
    events = _events(spans, overlapping=overlapping)
    writer.add("events", events)
    if mesh.throttled:
        writer.add("resources", _samples(mesh, copies["intended"].min()))
    writer.close()
    _manifest(root, mesh, begin)
    return Written(root, copies, spans, mesh)


def _collections(mesh, rng, cell, repeat, begin):
    """Collections of each JVM, apart from one another."""
    found = []
    lasts, step = int(mesh.collection_ms * MS), int(NS / mesh.collections_hz)
    for agent in np.flatnonzero(mesh.is_jvm(cell)):
        count = int(mesh.seconds * mesh.collections_hz)
        offsets = np.arange(count) * step + rng.integers(0, step - 2 * lasts, count)
        found += [(cell, repeat, int(agent), begin + int(at), begin + int(at) + lasts)
                  for at in offsets]  # fmt: skip
    return found


def _copies(mesh, rng, spans, who, begin):
    cell, repeat, op, place = who
    agents = len(mesh.runtimes)
    every = int(mesh.every_ms * MS)
    count = int(mesh.seconds * NS / every)
    shape = (count, agents, agents)
    request, client, server = (it.ravel() for it in np.indices(shape))
    due = begin + request * every + client * every // agents + place * every // 3
    took = mesh.usual_ms * MS * rng.lognormal(0.0, 0.1, due.size)
    took = took * np.where(mesh.is_jvm(cell)[server], mesh.jvm_factor, 1.0)
    took = took + 5 * MS * (rng.uniform(size=due.size) < mesh.slow_share)
    if mesh.waits:
        for _, _, agent, start, end in spans:
            waits = ((client == agent) | (server == agent)) & (due >= start) & (due < end)
            took = np.where(waits, took + end - due, took)
    took = took.astype(np.int64)
    failed = rng.uniform(size=due.size) < mesh.failed_share
    return {
        "cell": np.full(due.size, cell), "repeat": np.full(due.size, repeat),
        "op": np.full(due.size, op), "client": client, "server": server,
        "request": request * len(mesh.ops) + place, "intended": due,
        "until": due + np.where(failed, NS, took), "took": np.where(failed, np.inf, took),
    }  # fmt: skip


def _lags(mesh, copies):
    kinds = np.array(mesh.runtimes)[copies["client"]]
    late = (kinds == mesh.late) | np.isin(copies["client"], mesh.late_agents)
    late &= copies["request"] % 5 == 0
    return np.where(late, 12 * MS, 1_000)


def _requests(copies, lags):
    rows = len(copies["op"])
    failed = ~np.isfinite(copies["took"])
    return _table(
        "requests",
        {
            "cell": pa.array(copies["cell"].tolist()),
            "repeat": copies["repeat"],
            "phase": "measured",
            "host": "host-0",
            "process": pa.array([f"agent-{it}" for it in copies["client"]]),
            "op": pa.array(copies["op"].tolist()),
            "client": copies["client"],
            "server": copies["server"],
            "request": copies["request"],
            "attempt": np.zeros(rows),
            "connection": copies["server"],
            "intended_ns": copies["intended"],
            "sent_ns": copies["intended"] + lags,
            "received_ns": pa.array(copies["until"], mask=failed),
            "sent_bytes": np.full(rows, 28),
            "received_bytes": np.where(failed, 0, 44),
            "level": "all",
            "status": pa.array(np.where(failed, "timeout", "ok").tolist()),
            "answered": np.zeros(rows, bool),
        },
        rows,
    )


def _samples(mesh, begin):
    agents = len(mesh.runtimes)
    return _table(
        "resources",
        {
            "cell": mesh.cells[0],
            "repeat": np.zeros(agents),
            "host": "host-0",
            "process": "probe-0",
            "watched": pa.array([f"agent-{it}" for it in range(agents)]),
            "started_ns": np.full(agents, begin),
            "ended_ns": np.full(agents, begin + NS),
            "sampler_lag_ns": np.zeros(agents),
            "sampler_cost_ns": np.zeros(agents),
            "cgroup_throttled_ns": np.where(np.isin(np.arange(agents), mesh.throttled), NS // 2, 0),
        },
        agents,
    )


def _events(spans, *, overlapping):
    rows = [("runner", "started", *spans[0][:2], STARTED_NS, STARTED_NS)] if spans else [
        ("runner", "started", "base", 0, STARTED_NS, STARTED_NS)
    ]  # fmt: skip
    for cell, repeat, agent, start, end in spans:
        third = (end - start) // 3
        told = [(start, end)]
        if overlapping:
            told = [(start, start + 2 * third), (start + third, end), (start + third, end - third)]
        rows += [(f"agent-{agent}", "gc", cell, repeat, *it) for it in told]
        # what else went on is none
        rows.append((f"agent-{agent}", "safepoint", cell, repeat, end + 100 * MS, end + 101 * MS))
    process, kind, cell, repeat, start, end = (list(it) for it in zip(*rows, strict=True))
    columns = {"cell": cell, "repeat": repeat, "host": "host-0", "process": process, "kind": kind,
               "started_ns": start, "ended_ns": end}  # fmt: skip
    return _table("events", columns, len(rows))


def _manifest(root, mesh, end):
    processes = [
        {"name": f"agent-{agent}", "kind": "mesh", "id": agent, "cell": cell, "repeat": repeat,
         "host": "host-0", "runtime": "jvm" if mesh.is_jvm(cell)[agent] else "native"}
        for cell in mesh.cells
        for repeat in range(mesh.repeats)
        for agent in range(len(mesh.runtimes))
    ]  # fmt: skip
    # one was killed and started again: the same agent twice
    processes.append(dict(processes[-1]))
    manifest = {
        "schema": 1, "run": "mesh-1", "name": "mesh", "tag": "mesh", "status": "complete",
        "started_ns": STARTED_NS, "ended_ns": end, "missing": [], "hosts": [],
        "cells": [{"name": it, "factors": {"cell": it}} for it in mesh.cells],
        "processes": processes,
    }  # fmt: skip
    (root / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
